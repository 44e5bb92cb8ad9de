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
