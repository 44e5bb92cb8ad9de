// SPDX-License-Identifier: Apache-2.0
//
// The bytes of every token of a target's tokenizer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "common/types.h"

namespace ooospec {

// Maps token ids to bytes. Immutable after construction, so it may be shared between threads.
class Vocab {
 public:
  // pieces: bytes of token i at index i; empty for ids that decode to nothing.
  explicit Vocab(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {
    OOOSPEC_REQUIRE(!pieces_.empty(), "vocab: expected at least one token, got none");
  }

  int size() const { return static_cast<int>(pieces_.size()); }
  bool contains(TokenId token) const { return token >= 0 && token < size(); }

  // Returns the bytes of `token`. Raises std::out_of_range for an id outside [0, size()).
  std::string_view bytes(TokenId token) const {
    OOOSPEC_REQUIRE_INDEX(contains(token), "vocab: expected a token in [0, ", size(), "), got ",
                          token);
    return pieces_[static_cast<std::size_t>(token)];
  }

 private:
  std::vector<std::string> pieces_;
};

}  // namespace ooospec
