// SPDX-License-Identifier: Apache-2.0
//
// JSON values as a flat tape: parsed once, walked without recursion, written again in any spelling.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ooospec {

enum class JsonKind : std::uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };

// One value on the tape. Children follow their container; members of an object are key, value, key,
// value, ...
struct JsonNode {
  JsonKind kind = JsonKind::kNull;
  bool plain = false;  // string: the same in every spelling (no escape, no slash, ASCII only)
  std::uint32_t begin =
      0;  // [begin, end) of JsonValue's text: a number as written, a string decoded
  std::uint32_t end = 0;
  std::uint32_t next = 0;         // node behind this value; > own index
  std::uint32_t num_members = 0;  // members of an object, items of an array
};

// How strings are spelled.
struct JsonSpelling {
  bool ascii = false;  // é as \u00e9
  bool slash = false;  // / as \/
  bool operator==(const JsonSpelling&) const = default;
};

// An immutable JSON value. Numbers keep their text, objects keep the order of their members and
// doubled keys. Strings are held as UTF-8; half of a surrogate pair is held as its three-byte form
// and always written as \ud8xx.
class JsonValue {
 public:
  static constexpr int kMaxDepth = 128;

  JsonValue() : nodes_(1) { nodes_[0].next = 1; }  // null

  // Reads all of `text` (RFC 8259; no NaN, no trailing comma). Cost: O(bytes), no recursion.
  // Raises std::invalid_argument, naming the byte, for what is not JSON, not UTF-8, or deeper than
  // `max_depth`.
  static JsonValue parse(std::string_view text, int max_depth = kMaxDepth);

  // The same without exceptions: returns false and leaves `out` null; `why` (may be null) gets the
  // reason.
  static bool try_parse(std::string_view text, JsonValue& out, std::string* why = nullptr,
                        int max_depth = kMaxDepth);

  const std::vector<JsonNode>& nodes() const { return nodes_; }
  const JsonNode& node(int idx) const { return nodes_[static_cast<std::size_t>(idx)]; }
  JsonKind kind(int idx = 0) const { return node(idx).kind; }

  // Text of a number, or the decoded bytes of a string.
  std::string_view text(int idx = 0) const {
    const JsonNode& n = node(idx);
    return std::string_view(text_).substr(n.begin, n.end - n.begin);
  }

  // Returns the value of the last member `key` of object `idx`, or -1. O(members).
  int find(int idx, std::string_view key) const;

  // Appends the value in one line with the given separators.
  void render(std::string& out, int idx = 0, std::string_view comma = ",",
              std::string_view colon = ":", JsonSpelling spelling = {}) const;

 private:
  friend class JsonParser;
  std::string text_;             // bytes of numbers and strings, one after the other
  std::vector<JsonNode> nodes_;  // never empty; node 0 is the value itself
};

// Appends `utf8` as it stands between the quotes of a JSON string.
void append_escaped(std::string& out, std::string_view utf8, JsonSpelling spelling);

// Appends the text that `raw` (between quotes, escapes valid) stands for. Returns the bytes of
// `raw` that were read: all but an unfinished escape, or first half of a surrogate pair, at the
// end.
std::size_t append_unescaped(std::string& out, std::string_view raw);

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
