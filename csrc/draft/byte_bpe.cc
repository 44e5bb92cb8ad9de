// SPDX-License-Identifier: Apache-2.0
#include "draft/byte_bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace ooospec {

namespace {

enum Kind : std::uint8_t { kMark, kLetter, kDigit, kSpace, kBreak, kOther };

constexpr std::array<Kind, 256> kKinds = [] {
  std::array<Kind, 256> kinds{};
  for (int c = 0; c < 256; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    kinds[static_cast<std::size_t>(c)] = c >= 0x80                         ? kOther
                                         : letter                          ? kLetter
                                         : c >= '0' && c <= '9'            ? kDigit
                                         : c == '\n' || c == '\r'          ? kBreak
                                         : c == ' ' || (c >= 9 && c <= 13) ? kSpace
                                                                           : kMark;
  }
  return kinds;
}();

Kind kind_of(char c) { return kKinds[static_cast<unsigned char>(c)]; }

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return kind_of(c) != kOther; });
}

// Returns the bytes from `at` on that are of one of two kinds.
std::size_t run(std::string_view text, std::size_t at, Kind kind, Kind other) {
  std::size_t end = at;
  while (end < text.size() && (kind_of(text[end]) == kind || kind_of(text[end]) == other)) ++end;
  return end - at;
}
std::size_t run(std::string_view text, std::size_t at, Kind kind) {
  return run(text, at, kind, kind);
}

// Returns the size of the contraction that `text` begins with, or 0.
std::size_t contraction(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const auto lower = [&](std::size_t i) { return i < text.size() ? text[i] | 0x20 : 0; };
  const int a = lower(1), b = lower(2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  return 0;
}

std::uint64_t hash_of(std::string_view piece) {
  std::uint64_t hash = piece.size();
  for (std::size_t at = 0; at < piece.size(); at += 8) {
    std::uint64_t part = 0;
    std::memcpy(&part, piece.data() + at, std::min<std::size_t>(8, piece.size() - at));
    hash = (hash ^ part) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

ByteBpe::ByteBpe(std::shared_ptr<const Vocab> vocab, int most_digits,
                 std::span<const TokenId> added)
    : vocab_(std::move(vocab)),
      most_digits_(static_cast<std::size_t>(most_digits)),
      added_(added.begin(), added.end()),
      words_(kNumWords) {
  OOOSPEC_REQUIRE(most_digits >= 1, "most_digits: expected at least 1, got ", most_digits);
  std::vector<bool> is_added(static_cast<std::size_t>(vocab_->size()));
  for (const TokenId token : added_) {
    const std::string_view text = vocab_->bytes(token);
    is_added[static_cast<std::size_t>(token)] = true;
    if (!text.empty()) begins_added_[static_cast<unsigned char>(text[0])] = true;
  }
  std::ranges::sort(added_, std::greater<>(),
                    [&](TokenId token) { return vocab_->bytes(token).size(); });
  slots_.resize(std::bit_ceil(2 * static_cast<std::size_t>(vocab_->size())));
  for (TokenId token = 0; token < vocab_->size(); ++token) {
    const std::string_view piece = vocab_->bytes(token);
    if (piece.empty() || is_added[static_cast<std::size_t>(token)] || find(piece) != kNone)
      continue;
    const std::uint64_t hash = hash_of(piece);
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].token != kNone) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {static_cast<std::uint32_t>(hash >> 32), static_cast<std::uint32_t>(token)};
  }
}

// Returns the token of these bytes, or kNone.
std::uint32_t ByteBpe::find(std::string_view piece) const {
  const std::uint64_t hash = hash_of(piece);
  for (std::size_t at = hash & (slots_.size() - 1); slots_[at].token != kNone;
       at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.hash == static_cast<std::uint32_t>(hash >> 32) &&
        vocab_->bytes(static_cast<TokenId>(slot.token)) == piece) {
      return slot.token;
    }
  }
  return kNone;
}

// Returns the longest added token that `text` begins with, or -1.
TokenId ByteBpe::find_added(std::string_view text) const {
  for (const TokenId token : added_) {
    const std::string_view bytes = vocab_->bytes(token);
    if (!bytes.empty() && text.starts_with(bytes)) return token;
  }
  return -1;
}

bool ByteBpe::spell(std::string_view text, std::vector<TokenId>& tokens) const {
  if (!is_ascii(text)) return false;
  const std::size_t before = tokens.size();
  const std::lock_guard lock(mutex_);
  const bool known = encode_plain(text, tokens);
  if (!known) tokens.resize(before);
  return known;
}

bool ByteBpe::encode(std::string_view text, std::vector<TokenId>& tokens) const {
  if (!is_ascii(text)) return false;
  const std::size_t before = tokens.size();
  const std::lock_guard lock(mutex_);
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const bool may_be = at < text.size() && begins_added_[static_cast<unsigned char>(text[at])];
    const TokenId token = may_be ? find_added(text.substr(at)) : -1;
    if (token < 0 && at < text.size()) {
      ++at;
      continue;
    }
    if (!encode_plain(text.substr(begin, at - begin), tokens)) {
      tokens.resize(before);
      return false;
    }
    if (token < 0) break;
    tokens.push_back(token);
    begin = at += vocab_->bytes(token).size();
  }
  return true;
}

// Appends the tokens of a text without added tokens in it.
bool ByteBpe::encode_plain(std::string_view text, std::vector<TokenId>& tokens) const {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = word_size(text.substr(at));
    if (!encode_known_word(text.substr(at, size), tokens)) return false;
    at += size;
  }
  return true;
}

// Returns the size of the word that `text` begins with: the alternatives of the pattern, in order.
std::size_t ByteBpe::word_size(std::string_view text) const {
  if (const std::size_t size = contraction(text); size > 0) return size;
  const Kind first = kind_of(text[0]);
  const Kind second = text.size() > 1 ? kind_of(text[1]) : kOther;
  if (first == kLetter) return run(text, 0, kLetter);
  if ((first == kMark || first == kSpace) && second == kLetter) return 1 + run(text, 1, kLetter);
  if (first == kDigit) return std::min(most_digits_, run(text, 0, kDigit));
  if (first == kMark || (text[0] == ' ' && second == kMark)) {
    const std::size_t marks = 1 + run(text, 1, kMark);
    return marks + run(text, marks, kBreak);
  }
  const std::size_t space = run(text, 0, kSpace, kBreak);
  const std::size_t last_break = text.substr(0, space).find_last_of("\r\n");
  if (last_break != std::string_view::npos) return last_break + 1;
  return space == text.size() || space == 1 ? space : space - 1;
}

// encode_word(), but for a word that is remembered.
bool ByteBpe::encode_known_word(std::string_view word, std::vector<TokenId>& tokens) const {
  if (word.size() > Word::kMaxBytes) return encode_word(word, tokens);
  std::array<std::uint64_t, 2> key{};
  std::memcpy(key.data(), word.data(), word.size());
  key[1] |= std::uint64_t{word.size()} << 56;
  const std::uint64_t hash = (key[0] * 0x9E3779B97F4A7C15U) ^ (key[1] * 0xC2B2AE3D27D4EB4FU);
  Word& known = words_[(hash ^ hash >> 32) % kNumWords];
  if (known.key == key) {
    tokens.insert(tokens.end(), known.tokens.begin(), known.tokens.begin() + known.num_tokens);
    return true;
  }
  const std::size_t before = tokens.size();
  if (!encode_word(word, tokens)) return false;
  const std::span<const TokenId> found = std::span(tokens).subspan(before);
  if (found.size() > Word::kMaxTokens) return true;
  known.key = key;
  known.num_tokens = static_cast<std::uint32_t>(found.size());
  std::ranges::copy(found, known.tokens.begin());
  return true;
}

// Merges the pair of the least rank until none is left.
bool ByteBpe::encode_word(std::string_view word, std::vector<TokenId>& tokens) const {
  if (const std::uint32_t whole = find(word); whole != kNone) {
    tokens.push_back(static_cast<TokenId>(whole));
    return true;
  }
  if (word.size() > kMaxWord) return false;
  std::array<std::uint8_t, kMaxWord + 1> begins;  // of the parts; behind them, the end
  std::array<std::uint32_t, kMaxWord> ranks;      // of part i with the next one
  std::size_t num_parts = word.size();
  for (std::size_t i = 0; i <= num_parts; ++i) begins[i] = static_cast<std::uint8_t>(i);
  const auto part = [&](std::size_t i, std::size_t count) {
    return word.substr(begins[i], static_cast<std::size_t>(begins[i + count] - begins[i]));
  };
  const auto rank = [&](std::size_t i) { return i + 1 < num_parts ? find(part(i, 2)) : kNone; };
  for (std::size_t i = 0; i < num_parts; ++i) ranks[i] = rank(i);
  while (num_parts > 1) {
    const auto least = std::min_element(ranks.begin(), ranks.begin() + num_parts);
    if (*least == kNone) break;
    const auto i = static_cast<std::size_t>(least - ranks.begin());
    std::copy(begins.begin() + i + 2, begins.begin() + num_parts + 1, begins.begin() + i + 1);
    std::copy(ranks.begin() + i + 2, ranks.begin() + num_parts, ranks.begin() + i + 1);
    --num_parts;
    ranks[i] = rank(i);
    if (i > 0) ranks[i - 1] = rank(i - 1);
  }
  for (std::size_t i = 0; i < num_parts; ++i) {
    const std::uint32_t token = find(part(i, 1));
    if (token == kNone) return false;
    tokens.push_back(static_cast<TokenId>(token));
  }
  return true;
}

}  // namespace ooospec
