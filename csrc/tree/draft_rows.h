// SPDX-License-Identifier: Apache-2.0
//
// What of a draft tree is launched: a copy that outlives the tree's next round.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "common/types.h"
#include "tree/draft_tree.h"

namespace ooospec {

// Rows, at most DraftTree::kMaxNodes, in columns of that many places. Row 0 is the last committed
// token, its parent -1; parents stand before children; bit j of a mask: row j is the row itself or
// above it.
struct DraftRows {
  static constexpr std::size_t kMaxRows = DraftTree::kMaxNodes;

  // Returns that token alone: nobody drafted.
  static DraftRows root(TokenId token) {
    DraftRows rows;
    rows.size = 1;
    rows.tokens[0] = token;
    rows.parents[0] = -1;
    rows.depths[0] = rows.nodes[0] = 0;
    rows.sources[0] = static_cast<std::uint8_t>(Source::kRoot);
    rows.masks[0] = 1;
    return rows;
  }

  // Takes all nodes of a tree that has at most kMaxRows.
  void take(const DraftTree& tree) {
    size = num_nodes = tree.size();
    std::ranges::copy(tree.tokens(), tokens.begin());
    std::ranges::copy(tree.parents(), parents.begin());
    std::ranges::copy(tree.depths(), depths.begin());
    std::ranges::copy(tree.masks(), masks.begin());
    for (int row = 0; row < size; ++row) {
      nodes[row] = row;
      sources[row] = static_cast<std::uint8_t>(tree.sources()[row]);
    }
  }

  // Takes the tree behind a chain of `given` tokens; together they are at most kMaxRows.
  void take_behind(std::span<const TokenId> given, const DraftTree& tree) {
    const auto num_given = static_cast<int>(given.size());
    size = num_given + tree.size();
    num_nodes = tree.size();
    const std::uint64_t chain = (std::uint64_t{1} << num_given) - 1;
    for (int row = 0; row < size; ++row) {
      const auto node = static_cast<std::size_t>(std::max(row - num_given, 0));
      const bool in_chain = row < num_given;
      tokens[row] = in_chain ? given[static_cast<std::size_t>(row)] : tree.tokens()[node];
      parents[row] = in_chain || node == 0 ? row - 1 : tree.parents()[node] + num_given;
      depths[row] = in_chain ? row : tree.depths()[node] + num_given;
      nodes[row] = static_cast<std::int32_t>(node);
      sources[row] = in_chain ? 0 : static_cast<std::uint8_t>(tree.sources()[node]);
      masks[row] =
          in_chain ? (std::uint64_t{2} << row) - 1 : tree.masks()[node] << num_given | chain;
    }
  }

  // The used part of a column.
  template <typename T>
  std::span<const T> of(const std::array<T, kMaxRows>& column) const {
    return {column.data(), static_cast<std::size_t>(size)};
  }

  int size = 0;
  int num_nodes = 0;  // of the tree; 0: nobody drafted
  std::array<TokenId, kMaxRows> tokens;
  std::array<std::int32_t, kMaxRows> parents;
  std::array<std::int32_t, kMaxRows> depths;
  std::array<std::int32_t, kMaxRows> nodes;  // of the tree that the rows are
  std::array<std::uint8_t, kMaxRows> sources;
  std::array<std::uint64_t, kMaxRows> masks;
};

}  // namespace ooospec
