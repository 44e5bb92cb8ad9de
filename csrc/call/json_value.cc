// SPDX-License-Identifier: Apache-2.0
#include "call/json_value.h"

#include <cstring>
#include <utility>

#include "common/check.h"

namespace ooospec {

class JsonParser {
 public:
  JsonParser(std::string_view text, JsonValue& out, int max_depth)
      : text_(text), out_(out), max_depth_(static_cast<std::size_t>(max_depth)) {}

  bool parse() {
    out_.nodes_.clear();
    out_.text_.clear();
    OOOSPEC_REQUIRE(text_.size() < 0xFFFFFFFFu, "JSON: expected less than 4 GiB of text");
    bool done = false;
    while (!done) {
      if (!value()) return false;
      done = close_finished();
      if (!why_.empty()) return false;
    }
    skip_space();
    return i_ == text_.size() || fail("the end");
  }
  const std::string& why() const { return why_; }

 private:
  bool fail(std::string_view expected) {
    why_ = concat("JSON: expected ", expected, " at byte ", i_, ", got ",
                  i_ < text_.size() ? concat("'", text_.substr(i_, 12), "'") : "the end");
    return false;
  }

  void skip_space() {
    while (i_ < text_.size() && is_json_space(text_[i_])) ++i_;
  }

  bool take(char c) {
    skip_space();
    if (i_ >= text_.size() || text_[i_] != c) return false;
    ++i_;
    return true;
  }

  JsonNode& add(JsonKind kind) {
    JsonNode& node = out_.nodes_.emplace_back();
    node.kind = kind;
    node.begin = node.end = static_cast<std::uint32_t>(out_.text_.size());
    node.next = static_cast<std::uint32_t>(out_.nodes_.size());
    return node;
  }

  // Reads a value; of a container, as far as its first value.
  bool value() {
    for (;;) {
      skip_space();
      const char c = i_ < text_.size() ? text_[i_] : '\0';
      if (c != '{' && c != '[') return scalar(c);
      if (open_.size() >= max_depth_) return fail(concat("at most ", max_depth_, " levels"));
      ++i_;
      open_.push_back(static_cast<std::uint32_t>(out_.nodes_.size()));
      add(c == '{' ? JsonKind::kObject : JsonKind::kArray);
      if (take(c == '{' ? '}' : ']')) {
        open_.pop_back();
        return true;
      }
      if (!member()) return false;
    }
  }

  // Begins the next member of the innermost container: reads the key of an object.
  bool member() {
    JsonNode& container = out_.nodes_[open_.back()];
    ++container.num_members;
    if (container.kind == JsonKind::kArray) return true;
    skip_space();
    if (i_ >= text_.size() || text_[i_] != '"') return fail("a key");
    if (!string()) return false;
    return take(':') || fail("':'");
  }

  // Behind a value: closes containers until one goes on. Returns true when the outermost value is
  // complete.
  bool close_finished() {
    while (!open_.empty()) {
      const std::uint32_t idx = open_.back();
      const bool object = out_.nodes_[idx].kind == JsonKind::kObject;
      if (take(',')) {
        member();
        return false;
      }
      if (!take(object ? '}' : ']')) {
        fail(object ? "',' or '}'" : "',' or ']'");
        return false;
      }
      out_.nodes_[idx].next = static_cast<std::uint32_t>(out_.nodes_.size());
      open_.pop_back();
    }
    return true;
  }

  bool scalar(char c) {
    if (c == '"') return string();
    if (c == '-' || is_json_digit(c)) {
      const std::size_t size = json_number_size(text_.substr(i_));
      if (size == 0) return fail("a number");
      JsonNode& node = add(JsonKind::kNumber);
      out_.text_.append(text_.substr(i_, size));
      node.end = static_cast<std::uint32_t>(out_.text_.size());
      node.plain = true;
      i_ += size;
      return true;
    }
    return literal("true", JsonKind::kTrue) || literal("false", JsonKind::kFalse) ||
           literal("null", JsonKind::kNull) || fail("a value");
  }

  bool literal(std::string_view word, JsonKind kind) {
    if (!text_.substr(i_).starts_with(word)) return false;
    add(kind);
    i_ += word.size();
    return true;
  }

  bool string() {
    JsonNode& node = add(JsonKind::kString);
    node.plain = true;
    std::string& out = out_.text_;
    ++i_;
    for (;;) {
      std::size_t run = i_;
      while (run < text_.size() && is_plain_json(text_[run])) ++run;
      out.append(text_.substr(i_, run - i_));
      i_ = run;
      if (i_ >= text_.size()) return fail("'\"'");
      const char c = text_[i_];
      if (c == '"') break;
      node.plain = false;
      if (c == '\\') {
        if (!escape(out)) return false;
      } else {
        const std::size_t size =
            static_cast<unsigned char>(c) < 0x20 ? 0 : utf8_size(text_, i_, false);
        if (size == 0) return fail("UTF-8 without control characters");
        out.append(text_.substr(i_, size));
        i_ += size;
      }
    }
    ++i_;
    node.end = static_cast<std::uint32_t>(out.size());
    return true;
  }

  bool escape(std::string& out) {
    // an escape, or the two of a surrogate pair
    std::size_t size = 2;
    if (i_ + 1 < text_.size() && text_[i_ + 1] == 'u') {
      const int unit = read_hex4(text_, i_ + 2);
      if (unit < 0) return fail("four hex digits behind \\u");
      size = 6;
      if (unit >= 0xD800 && unit < 0xDC00 && text_.substr(i_ + 6).starts_with("\\u")) {
        const int low = read_hex4(text_, i_ + 8);
        if (low >= 0xDC00 && low < 0xE000) size = 12;
      }
    } else if (i_ + 1 >= text_.size() || !std::strchr("\"\\/bfnrt", text_[i_ + 1])) {
      return fail("an escape");
    }
    append_unescaped(out, text_.substr(i_, size), true);
    i_ += size;
    return true;
  }

  std::string_view text_;
  JsonValue& out_;
  std::size_t max_depth_;
  std::size_t i_ = 0;
  std::vector<std::uint32_t> open_;  // containers, outermost first
  std::string why_;
};

bool JsonValue::try_parse(std::string_view text, JsonValue& out, std::string* why, int max_depth) {
  JsonParser parser(text, out, max_depth);
  if (parser.parse()) return true;
  out = JsonValue();
  if (why != nullptr) *why = parser.why();
  return false;
}

JsonValue JsonValue::parse(std::string_view text, int max_depth) {
  JsonValue value;
  std::string why;
  OOOSPEC_REQUIRE(try_parse(text, value, &why, max_depth), why);
  return value;
}

int JsonValue::find(int idx, std::string_view key) const {
  int found = -1;
  if (kind(idx) != JsonKind::kObject) return found;
  for (std::uint32_t k = static_cast<std::uint32_t>(idx) + 1; k < node(idx).next;) {
    const std::uint32_t value = k + 1;
    if (text(static_cast<int>(k)) == key) found = static_cast<int>(value);
    k = nodes_[value].next;
  }
  return found;
}

void JsonValue::render(std::string& out, int idx, std::string_view comma, std::string_view colon,
                       JsonSpelling spelling) const {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> open;  // container, values to come
  const auto scalar = [&](std::uint32_t i) {
    const JsonNode& n = nodes_[i];
    switch (n.kind) {
      case JsonKind::kNull:
        out += "null";
        break;
      case JsonKind::kFalse:
        out += "false";
        break;
      case JsonKind::kTrue:
        out += "true";
        break;
      case JsonKind::kNumber:
        out += text(static_cast<int>(i));
        break;
      default:
        out.push_back('"');
        append_escaped(out, text(static_cast<int>(i)), spelling);
        out.push_back('"');
    }
  };
  for (std::uint32_t i = static_cast<std::uint32_t>(idx); i < node(idx).next;) {
    if (!open.empty()) {
      const JsonNode& container = nodes_[open.back().first];
      if (open.back().second < container.num_members) out += comma;
      --open.back().second;
      if (container.kind == JsonKind::kObject) {
        scalar(i++);
        out += colon;
      }
    }
    const JsonNode& n = nodes_[i];
    if (n.kind == JsonKind::kObject || n.kind == JsonKind::kArray) {
      out.push_back(n.kind == JsonKind::kObject ? '{' : '[');
      open.emplace_back(i, n.num_members);
    } else {
      scalar(i);
    }
    ++i;
    while (!open.empty() && open.back().second == 0) {
      out.push_back(nodes_[open.back().first].kind == JsonKind::kObject ? '}' : ']');
      open.pop_back();
    }
  }
}

}  // namespace ooospec
