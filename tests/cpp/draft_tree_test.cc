// SPDX-License-Identifier: Apache-2.0
#include "tree/draft_tree.h"

#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "cpp/check.h"

namespace {

using ooospec::DraftTree;
using ooospec::Source;
using ooospec::TokenId;

std::vector<float> all(std::size_t size, float p) { return std::vector<float>(size, p); }

template <typename T>
std::vector<T> list(std::span<const T> values) {
  return {values.begin(), values.end()};
}

int add(DraftTree& tree, int parent, const std::vector<TokenId>& path, float p = 0.5f,
        Source source = Source::kHint) {
  return tree.insert(parent, path, all(path.size(), p), source);
}

std::vector<std::int32_t> accept(const DraftTree& tree, const std::vector<TokenId>& choices) {
  std::vector<std::int32_t> path(static_cast<std::size_t>(tree.size()));
  path.resize(static_cast<std::size_t>(tree.accept(choices, path)));
  return path;
}

// The children that the target's own choices would take, found by a scan over all nodes.
std::vector<std::int32_t> walk(const DraftTree& tree, const std::vector<TokenId>& choices) {
  std::vector<std::int32_t> path;
  int node = 0;
  for (int child = 1; child < tree.size(); ++child) {
    if (tree.parents()[child] == node && tree.tokens()[child] == choices[node]) {
      path.push_back(node = child);
    }
  }
  return path;
}

}  // namespace

TEST(agreeing_paths_share_nodes) {
  DraftTree tree;
  tree.reset(7);
  EXPECT_EQ(add(tree, 0, {1, 2, 3}, 0.5f, Source::kSchema), 3);
  EXPECT_EQ(add(tree, 0, {1, 2, 4}, 0.75f, Source::kHint), 4);
  EXPECT_EQ(tree.size(), 5);
  EXPECT_EQ(list(tree.tokens()), (std::vector<TokenId>{7, 1, 2, 3, 4}));
  EXPECT_EQ(list(tree.parents()), (std::vector<int>{-1, 0, 1, 2, 2}));
  EXPECT_EQ(list(tree.depths()), (std::vector<int>{0, 1, 2, 3, 3}));
  EXPECT_EQ(tree.sources()[1], Source::kHint);
  EXPECT_EQ(tree.sources()[3], Source::kSchema);
  EXPECT_EQ(tree.probabilities()[1], 0.875f);
  EXPECT_EQ(tree.probabilities()[3], 0.875f * 0.875f * 0.5f);
  EXPECT_EQ(list(tree.masks()), (std::vector<std::uint64_t>{1, 3, 7, 15, 23}));
  tree.check();
}

TEST(likelier_source_wins_even_against_a_sum) {
  DraftTree tree;
  add(tree, 0, {1}, 0.5f, Source::kSchema);
  add(tree, 0, {1}, 0.5f, Source::kRetrieval);
  EXPECT_EQ(tree.sources()[1], Source::kSchema);
  add(tree, 0, {1}, 0.625f, Source::kHint);
  EXPECT_EQ(tree.sources()[1], Source::kHint);
}

TEST(paths_that_do_not_fit_are_cut) {
  DraftTree tree;
  const std::vector<TokenId> path(5000, 3);
  EXPECT_EQ(add(tree, 0, path, 1.0f), DraftTree::kMaxCandidates - 1);
  EXPECT_EQ(tree.size(), DraftTree::kMaxCandidates);
  EXPECT_EQ(add(tree, 0, {3, 4}), 1);
  tree.check();
  EXPECT_THROWS(tree.masks(), std::logic_error, "at most 64");
  tree.prune(DraftTree::kMaxNodes);
  EXPECT_EQ(tree.size(), DraftTree::kMaxNodes);
  EXPECT_EQ(tree.masks()[63], ~std::uint64_t{0});
  tree.check();
}

TEST(size_follows_the_whole_cost_curve) {
  DraftTree tree;
  EXPECT_EQ(tree.best_size(64, {}), 1);
  add(tree, 0, {1, 2, 3, 4, 5, 6, 7}, 1.0f);
  EXPECT_EQ(tree.best_size(64, {}), 8);
  EXPECT_EQ(tree.best_size(0, {}), 1);
  EXPECT_EQ(tree.best_size(1, {}), 1);
  // A cliff at 2 rows must not hide that 8 rows pay.
  const std::vector<float> cliff = {391, 800, 810, 825, 830, 840, 850, 786};
  EXPECT_EQ(tree.best_size(64, cliff), 8);
  EXPECT_EQ(tree.best_size(4, cliff), 4);
  const std::vector<float> linear = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(tree.best_size(64, linear), 1);
  EXPECT_EQ(tree.best_size(64, std::vector<float>{1, 1, 1}), 3);
}

TEST(nodes_that_cannot_be_reached_are_not_verified) {
  DraftTree tree;
  add(tree, 0, {1, 2}, 0.0f);
  EXPECT_EQ(tree.best_size(64, {}), 1);
  tree.check();
}

TEST(pruning_keeps_the_likeliest_and_of_equals_the_older) {
  DraftTree tree;
  add(tree, 0, {1}, 0.25f);
  add(tree, 0, {2, 3}, 0.5f);
  add(tree, 0, {1}, 0.25f);
  add(tree, 0, {4}, 0.25f);
  tree.prune(3);
  EXPECT_EQ(list(tree.tokens()), (std::vector<TokenId>{0, 1, 2}));
  add(tree, 2, {9}, 1.0f);  // a pruned tree grows on
  EXPECT_EQ(list(tree.parents()), (std::vector<int>{-1, 0, 0, 2}));
  EXPECT_EQ(list(tree.probabilities()), (std::vector<float>{1.0f, 0.4375f, 0.5f, 0.5f}));
  tree.check();
}

TEST(every_shape_is_accepted_like_a_walk_over_its_parents) {
  std::mt19937 random(20240817);
  DraftTree tree;
  for (int round = 0; round < 2000; ++round) {
    tree.reset(0);
    const int num_paths = static_cast<int>(random() % 40);
    const TokenId num_tokens = 1 + static_cast<TokenId>(random() % 4);
    for (int i = 0; i < num_paths; ++i) {
      std::vector<TokenId> path(random() % 12);
      for (TokenId& token : path) token = static_cast<TokenId>(random() % num_tokens);
      add(tree, static_cast<int>(random() % tree.size()), path,
          static_cast<float>(random() % 9) / 8.0f);
    }
    tree.check();
    tree.prune(1 + static_cast<int>(random() % 64));
    tree.check();
    std::vector<TokenId> choices(static_cast<std::size_t>(tree.size()));
    for (TokenId& choice : choices) choice = static_cast<TokenId>(random() % num_tokens);
    EXPECT_EQ(accept(tree, choices), walk(tree, choices));
  }
}

TEST(choices_outside_the_vocabulary_end_the_path) {
  DraftTree tree;
  add(tree, 0, {1, 2});
  EXPECT_EQ(accept(tree, {1, -1, 0}), std::vector<int>{1});
  EXPECT_EQ(accept(tree, {std::numeric_limits<TokenId>::max(), 0, 0}), std::vector<int>{});
}

TEST(mistakes_of_the_caller_leave_the_tree_as_it_was) {
  DraftTree tree;
  add(tree, 0, {1, 2});
  const std::vector<TokenId> path = {5, 6};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROWS(tree.insert(3, path, all(2, 0.5f), Source::kHint), std::out_of_range, "got 3");
  EXPECT_THROWS(tree.insert(-1, path, all(2, 0.5f), Source::kHint), std::out_of_range, "got -1");
  EXPECT_THROWS(tree.insert(0, path, all(3, 0.5f), Source::kHint), std::invalid_argument, "got 3");
  EXPECT_THROWS(add(tree, 0, {5, -6}), std::invalid_argument, "got -6 at 1");
  for (const float p : {-0.5f, 1.5f, nan}) {
    EXPECT_THROWS(add(tree, 0, {5}, p), std::invalid_argument, "in [0, 1]");
  }
  EXPECT_THROWS(add(tree, 0, {5}, 0.5f, Source::kRoot), std::invalid_argument, "root");
  EXPECT_THROWS(tree.reset(-2), std::invalid_argument, "got -2");
  EXPECT_THROWS(tree.best_size(-1, {}), std::invalid_argument, "got -1");
  EXPECT_THROWS(tree.best_size(4, std::vector<float>{1, 0}), std::invalid_argument, "above 0");
  EXPECT_THROWS(tree.prune(0), std::invalid_argument, "got 0");
  EXPECT_THROWS(tree.prune(65), std::invalid_argument, "got 65");
  EXPECT_THROWS(accept(tree, {1, 2}), std::invalid_argument, "expected 3");
  std::vector<std::int32_t> short_path(1);
  EXPECT_THROWS(tree.accept(path, short_path), std::invalid_argument, "choices");
  EXPECT_THROWS(tree.accept(std::vector<TokenId>{1, 2, 3}, short_path), std::invalid_argument,
                "room for 2");
  EXPECT_EQ(list(tree.tokens()), (std::vector<TokenId>{0, 1, 2}));
  tree.check();
}
