// SPDX-License-Identifier: Apache-2.0
#include "index/token_recycler.h"

#include <algorithm>

#include "common/check.h"

namespace ooospec {

TokenRecycler::TokenRecycler(int vocab_size) {
  OOOSPEC_REQUIRE(vocab_size >= 1, "vocab_size: expected at least 1, got ", vocab_size);
  Row empty;
  empty.fill(kNone);
  rows_.assign(static_cast<std::size_t>(vocab_size), empty);
}

void TokenRecycler::update(TokenId token, std::span<const TokenId> successors) {
  require_token("token", token);
  for (const TokenId successor : successors) require_token("successors", successor);
  Row& row = rows_[static_cast<std::size_t>(token)];
  Row merged;
  std::size_t size = 0;
  const auto add = [&](TokenId successor) {
    const auto end = merged.begin() + size;
    if (size == merged.size() || successor == kNone) return;
    if (std::find(merged.begin(), end, successor) == end) merged[size++] = successor;
  };
  std::for_each(successors.begin(), successors.end(), add);
  std::for_each(row.begin(), row.end(), add);
  std::fill(merged.begin() + size, merged.end(), kNone);
  row = merged;
}

std::span<const TokenId> TokenRecycler::successors(TokenId token) const {
  require_token("token", token);
  const Row& row = rows_[static_cast<std::size_t>(token)];
  return {row.begin(), std::find(row.begin(), row.end(), kNone)};
}

void TokenRecycler::require_token(const char* name, TokenId token) const {
  OOOSPEC_REQUIRE_INDEX(token >= 0 && token < vocab_size(), name, ": expected tokens in [0, ",
                        vocab_size(), "), got ", token);
}

}  // namespace ooospec
