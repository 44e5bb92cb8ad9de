// SPDX-License-Identifier: Apache-2.0
//
// JSON values as a flat tape: parsed once, walked without recursion, written again in any spelling.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "call/json_text.h"

namespace ooospec {

enum class JsonKind : std::uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };

// One value on the tape. Children follow their container; members of an object are key, value, key,
// value, ...
struct JsonNode {
  JsonKind kind = JsonKind::kNull;
  bool plain = false;       // string: the same in every spelling (no escape, no slash, ASCII only)
  std::uint32_t begin = 0;  // [begin, end) of the text: a number as written, a string decoded
  std::uint32_t end = 0;
  std::uint32_t next = 0;         // node behind this value; > own index
  std::uint32_t num_members = 0;  // members of an object, items of an array
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

}  // namespace ooospec
