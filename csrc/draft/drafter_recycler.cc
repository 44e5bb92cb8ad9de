// SPDX-License-Identifier: Apache-2.0
// What the target ranked high behind a token before.
#include <algorithm>
#include <array>

#include "draft/drafter.h"
#include "draft/drafter_numbers.h"

namespace ooospec {

namespace {

constexpr std::array<float, 3> kSuccessorClaims = {0.3F, 0.12F, 0.06F};
constexpr std::array<float, TokenRecycler::kMaxSuccessors> kRankClaims = {
    0.5F, 0.15F, 0.08F, 0.05F, 0.035F, 0.025F, 0.02F, 0.015F};  // of successors by rank

// A tree of successors by their ranks, of fixed shape (Token Recycling, Luo et al. 2024, section
// 3.2): the most likely nodes by kRankClaims. Node 0 is the root; parents come before children.
struct RankTree {
  std::array<std::uint8_t, DraftTree::kMaxNodes> parents{}, ranks{};

  RankTree() {
    std::array<float, DraftTree::kMaxNodes> reach{1.0F};
    std::array<std::uint8_t, DraftTree::kMaxNodes> num_children{};
    for (std::size_t node = 1; node < parents.size(); ++node) {
      std::size_t best = 0;
      float most = 0;
      for (std::size_t parent = 0; parent < node; ++parent) {
        if (num_children[parent] == kRankClaims.size()) continue;
        const float likely = reach[parent] * kRankClaims[num_children[parent]];
        if (likely > most) most = likely, best = parent;
      }
      parents[node] = static_cast<std::uint8_t>(best);
      ranks[node] = num_children[best]++;
      reach[node] = most;
    }
  }
};

}  // namespace

void Drafter::propose_recycler() {
  memory_->with_stores([&](const SuffixIndex&, const TokenRecycler& recycler) {
    TokenId token = last_token_;
    const auto successors = recycler.successors(token);
    const std::size_t num = std::min(successors.size(), kSuccessorClaims.size());
    for (std::size_t i = 0; i < num; ++i) {
      Proposal& proposal = next_proposal();
      token = successors[i];
      for (std::size_t depth = 0; depth < (i == 0 ? kMaxDepthRecycled : 1U); ++depth) {
        proposal.add(token, kSuccessorClaims[depth == 0 ? i : 0], kRecyclerRates + depth,
                     Source::kRecycler);
        const auto next = recycler.successors(token);
        if (next.empty()) break;
        token = next[0];
      }
    }
  });
}

void Drafter::propose_recycler_tree() {
  static const RankTree shape;
  take_up_successors();  // nothing else drafts: what was just seen counts
  constexpr TokenId kNone = -1;
  std::array<TokenId, DraftTree::kMaxNodes> tokens{last_token_};
  memory_->with_stores([&](const SuffixIndex&, const TokenRecycler& recycler) {
    for (std::size_t node = 1; node < tokens.size(); ++node) {
      const TokenId before = tokens[shape.parents[node]];
      tokens[node] = kNone;
      if (before == kNone) continue;
      const auto next = recycler.successors(before);
      if (shape.ranks[node] < next.size()) tokens[node] = next[shape.ranks[node]];
    }
  });
  std::array<bool, DraftTree::kMaxNodes> has_child{}, is_told{};
  for (std::size_t node = 1; node < tokens.size(); ++node) {
    if (tokens[node] != kNone) has_child[shape.parents[node]] = true;
  }
  for (std::size_t leaf = 1; leaf < tokens.size(); ++leaf) {
    if (tokens[leaf] == kNone || has_child[leaf]) continue;
    path_ahead_.clear();  // nodes, from the leaf up
    for (std::size_t node = leaf; node > 0; node = shape.parents[node]) {
      path_ahead_.push_back(static_cast<TokenId>(node));
    }
    Proposal& proposal = next_proposal();
    for (std::size_t depth = 0; depth < path_ahead_.size(); ++depth) {
      const auto node = static_cast<std::size_t>(path_ahead_[path_ahead_.size() - 1 - depth]);
      proposal.add(tokens[node], kRankClaims[shape.ranks[node]],
                   kRecyclerRates + std::min(depth, kMaxDepthRecycled - 1), Source::kRecycler);
      if (is_told[node]) ++proposal.num_told;
      is_told[node] = true;
    }
  }
}

void Drafter::observe_successors(std::span<const TokenId> rows) {
  if (!options_.recycler) return;
  constexpr auto kWidth = static_cast<std::size_t>(TokenRecycler::kMaxSuccessors);
  const std::span<const TokenId> nodes = tree_.tokens();
  OOOSPEC_REQUIRE(rows.size() == nodes.size() * kWidth, "successors: expected ", kWidth,
                  " for each of the ", nodes.size(), " nodes, got ", rows.size());
  for (const TokenId token : rows) {
    OOOSPEC_REQUIRE_INDEX(token < vocab_->size(), "successors: expected tokens below ",
                          vocab_->size(), ", got ", token);
  }
  take_up_successors();
  observed_.assign(nodes.begin(), nodes.end());
  successors_.assign(rows.begin(), rows.end());
}

void Drafter::take_up_successors() {
  memory_->learn_successors(observed_, successors_);
  observed_.clear();
}

}  // namespace ooospec
