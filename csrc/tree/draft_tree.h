// SPDX-License-Identifier: Apache-2.0
//
// A tree of drafted tokens that a target verifies in one pass.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/types.h"

namespace ooospec {

// Candidates are gathered with insert(); prune() then keeps the likeliest of them, which is what
// the target verifies. Node 0 is the last committed token; parent < child always; no two children
// of a node have the same token; a node's probability (that it is reached) never exceeds its
// parent's. Fixed capacity: nothing is allocated after construction. Not for use by two threads at
// once, const calls included: what follows from the edges is worked out when it is first asked for.
class DraftTree {
 public:
  static constexpr int kMaxNodes = 64;  // most nodes of a pruned tree: the bits of an ancestor mask
  static constexpr int kMaxCandidates = 1024;  // most before pruning; what does not fit is dropped

  DraftTree() { reset(0); }

  // Empties the tree and sets node 0. Raises std::invalid_argument for a negative token.
  void reset(TokenId root);

  // Adds `path` below node `parent`, sharing nodes that are already there.
  //   parent: node in [0, size())
  //   path: tokens >= 0, the first one a child of `parent`; may be empty
  //   probabilities: float[path.size()], each in [0, 1]; of token i given that token i - 1 (or
  //     `parent`) is right
  //   source: who drafted it, kRoot excepted
  // A token that was drafted twice gets 1 - (1 - p)(1 - q), and keeps the source that drafted it
  // likelier (ties: the older).
  // Returns the last node reached, or the last that fitted; `parent` for an empty path.
  // Raises std::out_of_range for an unknown parent, std::invalid_argument for anything else that is
  // not as above; the tree is then as before.
  // Cost: O(path + siblings along the shared part).
  int insert(int parent, std::span<const TokenId> path, std::span<const float> probabilities,
             Source source);

  // Returns the number of nodes, in [1, min(budget, size(), kMaxNodes)], that maximises (expected
  // committed tokens) / cost over the whole curve (ties: the fewest); 1 for a budget of 0.
  //   cost_us: cost_us[n - 1] > 0 is the time of a round of n rows; no more rows are chosen than it
  //     has entries. If it is empty, all numbers of rows cost the same.
  // Raises std::invalid_argument for a negative budget or a cost that is not above 0.
  int best_size(int budget, std::span<const float> cost_us) const;

  // Keeps the `num_nodes` likeliest nodes (ties: the older) in the order in which they were added,
  // or all if there are no more. Raises std::invalid_argument unless num_nodes is in [1,
  // kMaxNodes].
  void prune(int num_nodes);

  // Follows `choices` (the target's token after each node) from node 0 down.
  // Writes the accepted nodes below node 0 in path order to `path` and returns their count; the
  // committed tokens are tokens()[path[i]] ..., then choices[last accepted node].
  //   choices: TokenId[size()]; any values
  //   path: room for size() - 1 nodes
  // Raises std::invalid_argument if either is too short.
  int accept(std::span<const TokenId> choices, std::span<std::int32_t> path) const;

  // Returns whether a target can verify the tree as it is: node 0 is `root`, every token is below
  // `num_tokens`, no node is deeper than `max_depth`, and there are at most `max_nodes`.
  bool fits(TokenId root, TokenId num_tokens, int max_nodes, int max_depth) const;

  int size() const { return size_; }
  std::span<const TokenId> tokens() const { return first(tokens_); }
  std::span<const std::int32_t> parents() const { return first(parents_); }
  std::span<const std::int32_t> depths() const { return first(depths_); }
  std::span<const Source> sources() const { return first(sources_); }
  std::span<const float> probabilities() const {
    rank();
    return first(probabilities_);
  }

  // Bit j of mask i: node j is i or an ancestor of i.
  // Raises std::logic_error for more than kMaxNodes nodes: prune() first.
  std::span<const std::uint64_t> masks() const;

  // Raises std::logic_error, naming what is broken, unless every statement above holds.
  void check() const;

 private:
  template <typename Array>
  std::span<const typename Array::value_type> first(const Array& array) const {
    return {array.data(), static_cast<std::size_t>(size_)};
  }
  int find_child(int parent, TokenId token) const;
  int add_child(int parent, TokenId token, float probability, Source source);
  void rank() const;

  int size_ = 0;
  std::array<TokenId, kMaxCandidates> tokens_;
  std::array<std::int32_t, kMaxCandidates> parents_;       // -1 for node 0
  std::array<std::int32_t, kMaxCandidates> depths_;        // 0 for node 0
  std::array<std::int32_t, kMaxCandidates> first_child_;   // the newest; -1: none
  std::array<std::int32_t, kMaxCandidates> next_sibling_;  // older than this one; -1: none
  std::array<Source, kMaxCandidates> sources_;
  std::array<float, kMaxCandidates> source_probability_;  // what `sources_` said; <= edge_
  std::array<float, kMaxCandidates> edge_;                // probability given the parent
  std::array<std::uint64_t, kMaxNodes> masks_;            // of the first nodes

  // These follow from parents_ and edge_; right while `ranked_`.
  mutable bool ranked_ = false;
  mutable std::array<float, kMaxCandidates> probabilities_;
  mutable std::array<std::uint64_t, kMaxNodes> ranking_;  // rank keys of the likeliest, best first
};

}  // namespace ooospec
