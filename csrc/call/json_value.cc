// SPDX-License-Identifier: Apache-2.0
#include "call/json_value.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/check.h"

namespace ooospec {

namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Returns the length of the UTF-8 sequence at `i`, 0 if it is none. Surrogates in three bytes count
// only if `surrogates`.
std::size_t utf8_size(std::string_view text, std::size_t i, bool surrogates) {
  const auto at = [&](std::size_t k) {
    return k < text.size() ? static_cast<unsigned char>(text[k]) : 0u;
  };
  const unsigned a = at(i);
  const auto tail = [&](std::size_t k) { return (at(i + k) & 0xC0u) == 0x80u; };
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return tail(1) ? 2 : 0;
  if (a >= 0xE0 && a <= 0xEF) {
    if (!tail(1) || !tail(2)) return 0;
    if (a == 0xE0 && at(i + 1) < 0xA0) return 0;
    if (a == 0xED && at(i + 1) >= 0xA0 && !surrogates) return 0;
    return 3;
  }
  if (a >= 0xF0 && a <= 0xF4) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    if (a == 0xF0 && at(i + 1) < 0x90) return 0;
    if (a == 0xF4 && at(i + 1) >= 0x90) return 0;
    return 4;
  }
  return 0;
}

void append_utf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (code >> 6)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (code >> 12)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | (code >> 18)));
    out.push_back(static_cast<char>(0x80 | ((code >> 12) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

void append_hex_escape(std::string& out, std::uint32_t unit) {
  constexpr char kDigits[] = "0123456789abcdef";
  const char escape[6] = {'\\',
                          'u',
                          kDigits[(unit >> 12) & 15],
                          kDigits[(unit >> 8) & 15],
                          kDigits[(unit >> 4) & 15],
                          kDigits[unit & 15]};
  out.append(escape, 6);
}

std::uint32_t decode_utf8(std::string_view text, std::size_t i, std::size_t size) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[i + k]); };
  if (size == 2) return ((byte(0) & 0x1Fu) << 6) | (byte(1) & 0x3Fu);
  if (size == 3) return ((byte(0) & 0x0Fu) << 12) | ((byte(1) & 0x3Fu) << 6) | (byte(2) & 0x3Fu);
  return ((byte(0) & 0x07u) << 18) | ((byte(1) & 0x3Fu) << 12) | ((byte(2) & 0x3Fu) << 6) |
         (byte(3) & 0x3Fu);
}

// The letter behind the backslash for a control character, quote or backslash; 0 if there is none.
char short_escape(char c) {
  switch (c) {
    case '"':
      return '"';
    case '\\':
      return '\\';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    default:
      return 0;
  }
}

// Bytes that stand for themselves in every spelling.
constexpr std::array<bool, 256> kPlain = [] {
  std::array<bool, 256> plain{};
  for (int c = 0x20; c < 0x80; ++c) plain[static_cast<std::size_t>(c)] = true;
  plain['"'] = plain['\\'] = plain['/'] = false;
  return plain;
}();

bool is_plain(char c) { return kPlain[static_cast<unsigned char>(c)]; }

// Reads four hex digits at `i`, or returns -1.
int read_hex(std::string_view text, std::size_t i) {
  if (i + 4 > text.size()) return -1;
  int unit = 0;
  for (std::size_t k = i; k < i + 4; ++k) {
    const int digit = hex_digit(text[k]);
    if (digit < 0) return -1;
    unit = unit * 16 + digit;
  }
  return unit;
}

// Returns the end of the number at the start of `text`, 0 if there is none.
std::size_t number_size(std::string_view text) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t begin = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    return i > begin;
  };
  if (i < text.size() && text[i] == '-') ++i;
  if (i < text.size() && text[i] == '0') {
    ++i;
  } else if (!digits()) {
    return 0;
  }
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (!digits()) return 0;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (!digits()) return 0;
  }
  return i;
}

}  // namespace

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
    while (i_ < text_.size() && is_space(text_[i_])) ++i_;
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
    if (c == '-' || is_digit(c)) {
      const std::size_t size = number_size(text_.substr(i_));
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
      while (run < text_.size() && is_plain(text_[run])) ++run;
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
      const int unit = read_hex(text_, i_ + 2);
      if (unit < 0) return fail("four hex digits behind \\u");
      size = 6;
      if (unit >= 0xD800 && unit < 0xDC00 && text_.substr(i_ + 6).starts_with("\\u")) {
        const int low = read_hex(text_, i_ + 8);
        if (low >= 0xDC00 && low < 0xE000) size = 12;
      }
    } else if (i_ + 1 >= text_.size() || !std::strchr("\"\\/bfnrt", text_[i_ + 1])) {
      return fail("an escape");
    }
    std::string raw(text_.substr(i_, size));
    raw.push_back(' ');  // so that a lone half of a pair is not taken as unfinished
    append_unescaped(out, raw);
    out.pop_back();
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

void append_escaped(std::string& out, std::string_view utf8, JsonSpelling spelling) {
  std::size_t i = 0;
  while (i < utf8.size()) {
    std::size_t run = i;
    while (run < utf8.size() && is_plain(utf8[run])) ++run;
    out.append(utf8.substr(i, run - i));
    i = run;
    if (i == utf8.size()) break;
    const char c = utf8[i];
    if (c == '/') {
      out += spelling.slash ? "\\/" : "/";
      ++i;
    } else if (const char letter = short_escape(c)) {
      out.push_back('\\');
      out.push_back(letter);
      ++i;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      append_hex_escape(out, static_cast<unsigned char>(c));
      ++i;
    } else {
      const std::size_t size = utf8_size(utf8, i, true);
      const std::uint32_t code = size > 1 ? decode_utf8(utf8, i, size) : 0xFFFD;
      if (code >= 0x10000 && spelling.ascii) {
        append_hex_escape(out, 0xD800 + ((code - 0x10000) >> 10));
        append_hex_escape(out, 0xDC00 + ((code - 0x10000) & 0x3FF));
      } else if (spelling.ascii || (code >= 0xD800 && code < 0xE000)) {
        append_hex_escape(out, code);
      } else {
        out.append(utf8.substr(i, size > 0 ? size : 1));
      }
      i += size > 0 ? size : 1;
    }
  }
}

std::size_t append_unescaped(std::string& out, std::string_view raw) {
  std::size_t i = 0;
  while (i < raw.size()) {
    const void* found = std::memchr(raw.data() + i, '\\', raw.size() - i);
    const std::size_t run =
        found == nullptr ? raw.size()
                         : static_cast<std::size_t>(static_cast<const char*>(found) - raw.data());
    out.append(raw.substr(i, run - i));
    i = run;
    if (i == raw.size()) break;
    if (i + 1 == raw.size()) return i;
    const char c = raw[i + 1];
    if (c != 'u') {
      constexpr std::string_view kLetters = "bfnrt";
      constexpr std::string_view kControls = "\b\f\n\r\t";
      const std::size_t letter = kLetters.find(c);
      out.push_back(letter == std::string_view::npos ? c : kControls[letter]);
      i += 2;
      continue;
    }
    if (i + 6 > raw.size()) return i;
    const int unit = read_hex(raw, i + 2);
    if (unit < 0) return i;
    std::uint32_t code = static_cast<std::uint32_t>(unit);
    std::size_t size = 6;
    if (code >= 0xD800 && code < 0xDC00) {
      const std::string_view rest = raw.substr(i + 6);
      const bool may_pair =
          rest.size() < 6 && std::string_view("\\u").starts_with(rest.substr(0, 2));
      if (may_pair) return i;
      const int low = rest.starts_with("\\u") ? read_hex(rest, 2) : -1;
      if (low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (static_cast<std::uint32_t>(low) - 0xDC00);
        size = 12;
      }
    }
    append_utf8(out, code);
    i += size;
  }
  return i;
}

bool is_plain_json(std::string_view text) {
  return std::all_of(text.begin(), text.end(), is_plain);
}

bool is_json_number(std::string_view text) {
  return !text.empty() && number_size(text) == text.size();
}

}  // namespace ooospec
