// SPDX-License-Identifier: Apache-2.0
//
// The likeliest successors last seen for each token.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/types.h"

namespace ooospec {

// A table from each token to up to kMaxSuccessors tokens, as in Token Recycling (Luo et al. 2024,
// section 3.1): every round tells it the best candidates that the target saw after each token, the
// wrong branches included. Threads: successors() may run side by side, update() needs it alone.
class TokenRecycler {
 public:
  static constexpr int kMaxSuccessors = 8;

  // vocab_size: tokens are in [0, vocab_size); at least 1. Raises std::invalid_argument for less.
  // Cost: 32 bytes a token, allocated here.
  explicit TokenRecycler(int vocab_size);

  // Puts `successors` (best first; the first kMaxSuccessors count) in front of those of `token`;
  // older ones that they leave room for stay behind them, none twice.
  // Raises std::out_of_range for tokens outside [0, vocab_size); nothing has changed then.
  void update(TokenId token, std::span<const TokenId> successors);

  // Returns the successors of `token`, best and latest first; valid until its next update().
  // Raises std::out_of_range for a token outside [0, vocab_size).
  std::span<const TokenId> successors(TokenId token) const;

  int vocab_size() const { return static_cast<int>(rows_.size()); }

 private:
  static constexpr TokenId kNone = -1;
  using Row = std::array<TokenId, kMaxSuccessors>;

  void require_token(const char* name, TokenId token) const;

  std::vector<Row> rows_;  // kNone from the first free place on
};

}  // namespace ooospec
