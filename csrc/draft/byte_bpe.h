// SPDX-License-Identifier: Apache-2.0
//
// Byte-level BPE of the usual kind, done here: to ask a tokenizer of somebody else costs more than
// all the rest of a draft.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "common/types.h"
#include "common/vocab.h"

namespace ooospec {

// Tokenises ASCII text as byte-level BPE does whose words are those of the pattern
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,most_digits}
//   | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// and whose ids are the ranks of its merges, as with tiktoken (Qwen, Llama 3). Threads may share
// it: encode() locks the words that it remembers.
class ByteBpe {
 public:
  // added: tokens that are found in the text before it is cut into words.
  // Raises std::invalid_argument for no digits, std::out_of_range for ids outside the vocabulary.
  ByteBpe(std::shared_ptr<const Vocab> vocab, int most_digits, std::span<const TokenId> added);

  // Appends the tokens of `text` to `tokens`. Returns false, and appends nothing, for a text that
  // is not ASCII or has too long a word. Cost: some 50 ns a token; no allocation but by `tokens`.
  bool encode(std::string_view text, std::vector<TokenId>& tokens) const;

  // The same as if no token had been added.
  bool spell(std::string_view text, std::vector<TokenId>& tokens) const;

 private:
  static constexpr std::size_t kMaxWord = 128;  // bytes: cutting takes quadratic time
  static constexpr std::uint32_t kNone = ~0U;

  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t token = kNone;
  };

  // A short word and its tokens: the same ones come again and again, and a look at slots_ misses
  // the cache.
  struct Word {
    static constexpr std::size_t kMaxBytes = 15, kMaxTokens = 3;
    std::array<std::uint64_t, 2> key{};  // its bytes, and their number in the last byte
    std::array<TokenId, kMaxTokens> tokens;
    std::uint32_t num_tokens = 0;
  };
  static constexpr std::size_t kNumWords = 2048;

  std::uint32_t find(std::string_view piece) const;
  TokenId find_added(std::string_view text) const;
  std::size_t word_size(std::string_view text) const;
  bool encode_plain(std::string_view text, std::vector<TokenId>& tokens) const;
  bool encode_known_word(std::string_view word, std::vector<TokenId>& tokens) const;
  bool encode_word(std::string_view word, std::vector<TokenId>& tokens) const;

  std::shared_ptr<const Vocab> vocab_;
  std::size_t most_digits_;
  std::vector<TokenId> added_;            // the longest first
  std::array<bool, 256> begins_added_{};  // by first byte
  std::vector<Slot> slots_;               // bytes -> token
  mutable std::mutex mutex_;
  mutable std::vector<Word> words_;  // by hash; guarded by mutex_
};

}  // namespace ooospec
