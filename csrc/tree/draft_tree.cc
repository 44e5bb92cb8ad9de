// SPDX-License-Identifier: Apache-2.0
#include "tree/draft_tree.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "common/check.h"

namespace ooospec {

namespace {

// Orders nodes by probability, then age: floats >= 0 compare like their bits.
std::uint64_t rank_key(float probability, int node) {
  return std::uint64_t{std::bit_cast<std::uint32_t>(probability)} << 32 |
         ~static_cast<std::uint32_t>(node);
}

float probability_of(std::uint64_t key) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(key >> 32));
}

int node_of(std::uint64_t key) { return static_cast<int>(~static_cast<std::uint32_t>(key)); }

// Sixteen buckets for each halving of the probability, the likeliest first.
constexpr unsigned kNumBuckets = 256;
unsigned bucket_of(std::uint64_t key) {
  const std::uint32_t below =
      std::bit_cast<std::uint32_t>(1.0f) - static_cast<std::uint32_t>(key >> 32);
  return std::min(below >> 19, kNumBuckets - 1);
}

bool is_probability(float p) { return p >= 0.0f && p <= 1.0f; }

}  // namespace

void DraftTree::reset(TokenId root) {
  OOOSPEC_REQUIRE(root >= 0, "root: expected a token >= 0, got ", root);
  size_ = 0;
  add_child(-1, root, 1.0f, Source::kRoot);
}

int DraftTree::insert(int parent, std::span<const TokenId> path,
                      std::span<const float> probabilities, Source source) {
  OOOSPEC_REQUIRE_INDEX(parent >= 0 && parent < size_, "parent: expected a node in [0, ", size_,
                        "), got ", parent);
  OOOSPEC_REQUIRE(probabilities.size() == path.size(), "probabilities: expected ", path.size(),
                  ", one for each token, got ", probabilities.size());
  OOOSPEC_REQUIRE(source != Source::kRoot, "source: expected any but the root's, got the root's");
  for (std::size_t i = 0; i < path.size(); ++i) {
    OOOSPEC_REQUIRE(path[i] >= 0, "path: expected tokens >= 0, got ", path[i], " at ", i);
    OOOSPEC_REQUIRE(is_probability(probabilities[i]),
                    "probabilities: expected numbers in [0, 1], got ", probabilities[i], " at ", i);
  }
  std::size_t i = 0;
  for (; i < path.size(); ++i) {
    const int node = find_child(parent, path[i]);
    if (node < 0) break;
    const float p = probabilities[i];
    edge_[node] = std::min(1.0f, edge_[node] + (1.0f - edge_[node]) * p);
    if (p > source_probability_[node]) {
      source_probability_[node] = p;
      sources_[node] = source;
    }
    parent = node;
  }
  for (; i < path.size() && size_ < kMaxCandidates; ++i) {
    parent = add_child(parent, path[i], probabilities[i], source);
  }
  ranked_ = false;
  return parent;
}

int DraftTree::best_size(int budget, std::span<const float> cost_us) const {
  OOOSPEC_REQUIRE(budget >= 0, "budget: expected at least 0 nodes, got ", budget);
  for (const float cost : cost_us) {
    OOOSPEC_REQUIRE(cost > 0.0f, "cost_us: expected times above 0, got ", cost);
  }
  rank();
  int most = std::min({budget, size_, kMaxNodes});
  if (!cost_us.empty()) most = static_cast<int>(std::min<std::size_t>(most, cost_us.size()));
  double expected = 0.0;
  double best_rate = 0.0;
  int best = 1;
  for (int n = 1; n <= most; ++n) {
    expected += probability_of(ranking_[n - 1]);
    const double rate = cost_us.empty() ? expected : expected / cost_us[n - 1];
    if (rate > best_rate) {
      best_rate = rate;
      best = n;
    }
  }
  return best;
}

void DraftTree::prune(int num_nodes) {
  OOOSPEC_REQUIRE(num_nodes >= 1 && num_nodes <= kMaxNodes, "num_nodes: expected a number in [1, ",
                  kMaxNodes, "], got ", num_nodes);
  if (num_nodes >= size_) return;
  rank();
  std::array<std::uint64_t, kMaxCandidates / 64> kept{};  // one bit a node
  for (int i = 0; i < num_nodes; ++i) {
    const int node = node_of(ranking_[i]);
    kept[node / 64] |= std::uint64_t{1} << node % 64;
  }
  std::array<std::int16_t, kMaxCandidates> renumbered;
  size_ = 0;
  for (std::size_t word = 0; word < kept.size(); ++word) {
    for (std::uint64_t bits = kept[word]; bits != 0; bits &= bits - 1) {
      const int node = static_cast<int>(word) * 64 + std::countr_zero(bits);
      const int parent = node == 0 ? -1 : renumbered[parents_[node]];
      // The new number is at most the old one, so that nothing is overwritten before it is read.
      const float edge = edge_[node];
      const int moved = add_child(parent, tokens_[node], source_probability_[node], sources_[node]);
      edge_[moved] = edge;
      renumbered[node] = static_cast<std::int16_t>(moved);
    }
  }
}

bool DraftTree::fits(TokenId root, TokenId num_tokens, int max_nodes, int max_depth) const {
  if (tokens_[0] != root || size_ > std::min(max_nodes, kMaxNodes)) return false;
  for (int node = 0; node < size_; ++node) {
    if (tokens_[node] >= num_tokens || depths_[node] > max_depth) return false;
  }
  return true;
}

int DraftTree::accept(std::span<const TokenId> choices, std::span<std::int32_t> path) const {
  OOOSPEC_REQUIRE(std::cmp_greater_equal(choices.size(), size_), "choices: expected ", size_,
                  ", one for each node, got ", choices.size());
  OOOSPEC_REQUIRE(std::cmp_greater_equal(path.size(), size_ - 1), "path: expected room for ",
                  size_ - 1, " nodes, got ", path.size());
  int num_accepted = 0;
  for (int node = find_child(0, choices[0]); node >= 0; node = find_child(node, choices[node])) {
    path[num_accepted++] = node;
  }
  return num_accepted;
}

std::span<const std::uint64_t> DraftTree::masks() const {
  if (size_ > kMaxNodes) {
    throw std::logic_error(
        concat("masks: expected at most ", kMaxNodes, " nodes (prune first), got ", size_));
  }
  return first(masks_);
}

int DraftTree::find_child(int parent, TokenId token) const {
  int node = first_child_[parent];
  while (node >= 0 && tokens_[node] != token) node = next_sibling_[node];
  return node;
}

int DraftTree::add_child(int parent, TokenId token, float probability, Source source) {
  const int node = size_++;
  tokens_[node] = token;
  parents_[node] = parent;
  first_child_[node] = -1;
  next_sibling_[node] = -1;
  sources_[node] = source;
  source_probability_[node] = probability;
  edge_[node] = probability;
  std::uint64_t ancestors = 0;
  if (parent < 0) {
    depths_[node] = 0;
  } else {
    depths_[node] = depths_[parent] + 1;
    next_sibling_[node] = first_child_[parent];
    first_child_[parent] = node;
    if (node < kMaxNodes) ancestors = masks_[parent];
  }
  if (node < kMaxNodes) masks_[node] = ancestors | std::uint64_t{1} << node;
  ranked_ = false;
  return node;
}

// Works out all probabilities, and the kMaxNodes likeliest nodes: a counting sort by the leading
// bits, cut off where it has enough, then a sort of each bucket.
void DraftTree::rank() const {
  if (ranked_) return;
  std::array<std::uint64_t, kMaxCandidates> keys;
  std::array<std::uint16_t, kNumBuckets> counts{};
  float reached = 1.0f;
  for (int node = 0; node < size_; ++node) {
    // Along a path the product stays in a register: a load waits for the store before it.
    if (parents_[node] != node - 1) reached = probabilities_[parents_[node]];
    reached *= edge_[node];
    probabilities_[node] = reached;
    keys[node] = rank_key(reached, node);
    ++counts[bucket_of(keys[node])];
  }
  const int num_wanted = std::min(size_, kMaxNodes);
  std::array<std::uint16_t, kNumBuckets> ends;
  unsigned num_buckets = 0;
  for (int total = 0; total < num_wanted; ++num_buckets) {
    ends[num_buckets] = static_cast<std::uint16_t>(total);
    total += counts[num_buckets];
  }
  std::array<std::uint64_t, kMaxCandidates> sorted;
  for (int node = 0; node < size_; ++node) {
    const unsigned bucket = bucket_of(keys[node]);
    if (bucket < num_buckets) sorted[ends[bucket]++] = keys[node];
  }
  for (unsigned bucket = 0; bucket < num_buckets; ++bucket) {
    const auto end = sorted.begin() + ends[bucket];
    if (counts[bucket] > 1) std::sort(end - counts[bucket], end, std::greater<>());
  }
  std::copy(sorted.begin(), sorted.begin() + num_wanted, ranking_.begin());
  ranked_ = true;
}

void DraftTree::check() const {
  const auto expect = [](bool condition, const char* what, int node) {
    if (!condition) throw std::logic_error(concat("draft_tree: node ", node, ": ", what));
  };
  expect(size_ >= 1 && size_ <= kMaxCandidates, "size out of range", 0);
  expect(parents_[0] == -1 && depths_[0] == 0 && sources_[0] == Source::kRoot, "not a root", 0);
  rank();
  int num_listed = 1;
  for (int node = 0; node < size_; ++node) {
    for (int child = first_child_[node]; child >= 0; child = next_sibling_[child]) {
      expect(child > node && child < size_ && ++num_listed <= size_, "not below its parent", child);
      expect(parents_[child] == node, "listed below another parent", child);
      expect(find_child(node, tokens_[child]) == child, "a sibling has the same token", child);
    }
    expect(tokens_[node] >= 0, "negative token", node);
    if (node == 0) continue;
    const int parent = parents_[node];
    expect(parent >= 0 && parent < node, "not above its parent", node);
    expect(depths_[node] == depths_[parent] + 1, "depth", node);
    expect(is_probability(edge_[node]), "edge not a probability", node);
    expect(source_probability_[node] <= edge_[node], "source likelier than the edge", node);
    expect(probabilities_[node] <= probabilities_[parent], "likelier than its parent", node);
  }
  expect(num_listed == size_, "nodes missing from the lists of children", size_ - 1);
  for (int node = 0; node < std::min(size_, kMaxNodes); ++node) {
    const std::uint64_t above = node == 0 ? 0 : masks_[parents_[node]];
    expect(masks_[node] == (above | std::uint64_t{1} << node), "mask", node);
    expect(node == 0 || ranking_[node] < ranking_[node - 1], "ranking", node);
  }
  const std::uint64_t least = ranking_[std::min(size_, kMaxNodes) - 1];
  int num_likelier = 0;
  for (int node = 0; node < size_; ++node) {
    if (rank_key(probabilities_[node], node) >= least) ++num_likelier;
  }
  expect(num_likelier == std::min(size_, kMaxNodes), "ranking leaves out a likelier node", 0);
}

}  // namespace ooospec
