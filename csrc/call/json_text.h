// SPDX-License-Identifier: Apache-2.0
//
// Strings and numbers as JSON spells them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ooospec {

// How strings are spelled.
struct JsonSpelling {
  bool ascii = false;  // é as \u00e9
  bool slash = false;  // / as \/
  bool operator==(const JsonSpelling&) const = default;
};

inline bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
inline bool is_json_digit(char c) { return c >= '0' && c <= '9'; }

// Returns the value of a hex digit, or -1; of four of them at `i`, or -1.
int hex_digit(char c);
int read_hex4(std::string_view text, std::size_t i);

// Returns the length of the UTF-8 sequence at `i`, 0 if it is none. Halves of surrogate pairs in
// three bytes count only if `surrogates`.
std::size_t utf8_size(std::string_view text, std::size_t i, bool surrogates);

// Returns the length of the number of RFC 8259 that `text` begins with, 0 if it begins with none.
std::size_t json_number_size(std::string_view text);

// True if a byte stands for itself between quotes, in every spelling.
bool is_plain_json(char c);

// Appends `utf8` as it stands between the quotes of a JSON string.
void append_escaped(std::string& out, std::string_view utf8, JsonSpelling spelling);

// Appends the text that `raw` (between quotes, escapes valid) stands for. Returns the bytes of
// `raw` that were read: all if it is the `whole` string, else all but an unfinished escape, or
// first half of a surrogate pair, at the end.
std::size_t append_unescaped(std::string& out, std::string_view raw, bool whole = false);

// True if `text` stands for itself between quotes, in every spelling.
bool is_plain_json(std::string_view text);

// True if `text` is a number of RFC 8259.
bool is_json_number(std::string_view text);

// A 64-bit hash (FNV-1a).
inline std::uint64_t hash_bytes(std::string_view bytes) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ULL;
  }
  return hash;
}

}  // namespace ooospec
