// SPDX-License-Identifier: Apache-2.0
//
// A tree of drafted tokens that a target verifies in one pass.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/types.h"

namespace ooospec {

// Candidates are gathered with insert(); prune() then keeps the likeliest `num_nodes` of them, which is what the target
// verifies. Node 0 is the last committed token; parent < child always; a node's probability (that it is reached) never
// exceeds its parent's. Fixed capacity: nothing is allocated after construction.
class DraftTree {
 public:
  static constexpr int kMaxNodes = 64;        // most nodes of a pruned tree: the bits of an ancestor mask
  static constexpr int kMaxCandidates = 1024;  // most nodes before pruning; what does not fit is dropped

  DraftTree();

  // Empties the tree and sets node 0.
  void reset(TokenId root);

  // Adds `path` below node `parent`, sharing nodes that are already there.
  //   path: tokens, first one a child of `parent`
  //   probabilities: float[path.size()], each in [0, 1]; of token i given that token i - 1 (or `parent`) is right
  // A token that two sources draft gets 1 - (1 - p)(1 - q), and keeps the source that drafted it likelier.
  // Returns the last node reached, or the last that fitted. Cost: O(path x siblings), no allocation.
  // Raises std::out_of_range for an unknown parent, std::invalid_argument for lengths that differ or p outside [0, 1].
  int insert(int parent, std::span<const TokenId> path, std::span<const float> probabilities, Source source);

  // Returns the number of nodes in [1, min(budget, size(), kMaxNodes)] that maximises
  // (expected committed tokens) / cost, over the whole curve. cost_us[n - 1]: time of a round of n rows; an empty
  // curve means that all rows up to the budget cost the same.
  int best_size(int budget, std::span<const float> cost_us) const;

  // Keeps the `num_nodes` likeliest nodes (ties: the older), renumbered so that parent < child.
  void prune(int num_nodes);

  // Follows `choices` (the target's token after each node) from node 0 down.
  // Writes the accepted nodes below node 0 in path order to `path` (room for size()) and returns their count; the
  // committed tokens are tokens()[path[i]] ..., then choices[last accepted node].
  int accept(std::span<const TokenId> choices, std::span<std::int32_t> path) const;

  int size() const { return size_; }
  std::span<const TokenId> tokens() const { return {tokens_.data(), static_cast<std::size_t>(size_)}; }
  std::span<const std::int32_t> parents() const { return {parents_.data(), static_cast<std::size_t>(size_)}; }
  std::span<const std::int32_t> depths() const { return {depths_.data(), static_cast<std::size_t>(size_)}; }
  std::span<const Source> sources() const { return {sources_.data(), static_cast<std::size_t>(size_)}; }
  std::span<const float> probabilities() const { return {probabilities_.data(), static_cast<std::size_t>(size_)}; }

  // Bit j of mask i: node j is i or an ancestor of i. Valid after prune(), for size() <= kMaxNodes.
  std::span<const std::uint64_t> masks() const { return {masks_.data(), static_cast<std::size_t>(size_)}; }

  // Throws std::logic_error, naming what is broken, unless every statement above holds.
  void check() const;

 private:
  int find_child(int parent, TokenId token) const;
  int size_ = 0;
  std::array<TokenId, kMaxCandidates> tokens_{};
  std::array<std::int32_t, kMaxCandidates> parents_{};  // -1 for node 0
  std::array<std::int32_t, kMaxCandidates> depths_{};   // 0 for node 0
  std::array<std::int32_t, kMaxCandidates> first_child_{};
  std::array<std::int32_t, kMaxCandidates> next_sibling_{};
  std::array<Source, kMaxCandidates> sources_{};
  std::array<float, kMaxCandidates> edge_{};           // probability given the parent
  std::array<float, kMaxCandidates> probabilities_{};  // probability of being reached; <= the parent's
  std::array<std::uint64_t, kMaxNodes> masks_{};
};

}  // namespace ooospec
