// SPDX-License-Identifier: Apache-2.0
//
// The bytes of every token of a target's tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "common/types.h"

namespace ooospec {

// Maps token ids to bytes. Immutable after construction, so it may be shared between threads.
class Vocab {
 public:
  // pieces: bytes of token i at index i; empty for ids that decode to nothing. Raises
  // std::invalid_argument for none, or more than 4 GiB.
  explicit Vocab(std::span<const std::string> pieces) {
    OOOSPEC_REQUIRE(!pieces.empty(), "vocab: expected at least one token, got none");
    std::size_t num_bytes = 0;
    for (const std::string& piece : pieces) num_bytes += piece.size();
    OOOSPEC_REQUIRE(num_bytes <= std::numeric_limits<std::uint32_t>::max(),
                    "vocab: expected less than 4 GiB of tokens, got ", num_bytes, " bytes");
    text_.reserve(num_bytes);
    begins_.reserve(pieces.size() + 1);
    for (const std::string& piece : pieces) {
      begins_.push_back(static_cast<std::uint32_t>(text_.size()));
      text_ += piece;
    }
    begins_.push_back(static_cast<std::uint32_t>(text_.size()));
  }

  int size() const { return static_cast<int>(begins_.size()) - 1; }
  bool contains(TokenId token) const { return token >= 0 && token < size(); }

  // Returns the bytes of `token`. Raises std::out_of_range for an id outside [0, size()).
  std::string_view bytes(TokenId token) const {
    OOOSPEC_REQUIRE_INDEX(contains(token), "vocab: expected a token in [0, ", size(), "), got ",
                          token);
    const std::uint32_t* begin = begins_.data() + token;
    return {text_.data() + begin[0], begin[1] - begin[0]};
  }

 private:
  // One after the other: a few megabytes that are read at random stay in the cache.
  std::string text_;
  std::vector<std::uint32_t> begins_;  // of token i in text_; behind the last one, its end
};

}  // namespace ooospec
