// SPDX-License-Identifier: Apache-2.0
#include "wave/value_schema.h"

#include <algorithm>
#include <cstdint>

#include "call/json_text.h"
#include "common/check.h"

namespace ooospec {
namespace {

constexpr std::string_view kSpace = " \t\n\r\v\f";

std::string_view stripped(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return out;
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = utf8_size(text, i, false);
    if (size == 0) return false;
    i += size;
  }
  return true;
}

void append_quoted(std::string& out, std::string_view text) {
  out.push_back('"');
  append_escaped(out, text, {});
  out.push_back('"');
}

std::string rendered(const JsonValue& value, int idx = 0) {
  std::string out;
  value.render(out, idx);
  return out;
}

// A number of JSON, exactly: 0.digits * 10^point. Equal numbers are equal here.
struct Decimal {
  bool is_negative = false;
  std::string digits;  // none at either end is 0; empty for 0
  std::int64_t point = 0;

  bool operator==(const Decimal&) const = default;
};

Decimal decimal_of(std::string_view number) {
  Decimal found;
  std::int64_t exponent = 0;
  const std::size_t e = number.find_first_of("eE");
  if (e != std::string_view::npos) {
    const bool falls = number[e + 1] == '-';
    for (const char c : number.substr(e + 1)) {
      if (is_json_digit(c) && exponent < 1'000'000) exponent = exponent * 10 + (c - '0');
    }
    if (falls) exponent = -exponent;
    number = number.substr(0, e);
  }
  const std::size_t whole = number.find('.');
  const bool is_negative = number.front() == '-';
  for (const char c : number) {
    if (is_json_digit(c)) found.digits.push_back(c);
  }
  found.point = static_cast<std::int64_t>(std::min(whole, number.size())) - is_negative + exponent;
  const std::size_t first = found.digits.find_first_not_of('0');
  if (first == std::string::npos) return {};
  found.is_negative = is_negative;
  found.digits.erase(0, first);
  found.point -= static_cast<std::int64_t>(first);
  found.digits.erase(found.digits.find_last_not_of('0') + 1);
  return found;
}

// Appends `number` without a fraction; returns false if it has one, or more digits than a double.
bool append_integer(std::string& out, std::string_view number) {
  if (number.find_first_of(".eE") == std::string_view::npos) {
    out += number;
    return true;
  }
  constexpr std::int64_t kMaxDigits = 309;
  const Decimal value = decimal_of(number);
  const auto size = static_cast<std::int64_t>(value.digits.size());
  if (value.point > kMaxDigits || value.point < size) return false;
  if (value.is_negative) out.push_back('-');
  out += value.digits.empty() ? "0" : value.digits;
  out.append(static_cast<std::size_t>(value.point - size), '0');
  return true;
}

}  // namespace

// An answer as it was read. A bare word is a string without JSON text.
struct ValueSchema::Answer {
  JsonKind kind = JsonKind::kString;
  std::string text;     // of a string or number
  std::string literal;  // compact JSON, or nothing

  bool is_string() const { return kind == JsonKind::kString; }

  // What one would say: the text of a string, else the JSON text.
  std::string_view word() const { return is_string() ? text : literal; }

  void append_json(std::string& out) const {
    if (literal.empty()) {
      append_quoted(out, text);
    } else {
      out += literal;
    }
  }

  // Returns false for broken text and JSON.
  bool read(std::string_view answer) {
    if (!is_utf8(answer)) return false;
    const char first = answer.empty() ? '\0' : answer.front();
    const bool is_json = answer.empty() || first == '"' || first == '{' || first == '[' ||
                         is_json_number(answer) || answer == "null" || answer == "true" ||
                         answer == "false";
    if (!is_json) {
      text = answer;
      return true;
    }
    JsonValue value;
    if (!JsonValue::try_parse(answer, value)) return false;
    for (int i = 0; i < static_cast<int>(value.nodes().size()); ++i) {
      const bool has_text = value.kind(i) == JsonKind::kString;
      if (has_text && !is_utf8(value.text(i))) return false;  // half a character
    }
    kind = value.kind();
    if (kind == JsonKind::kString || kind == JsonKind::kNumber) text = value.text();
    literal = rendered(value);
    return true;
  }
};

ValueSchema::ValueSchema(std::string_view json) : schema_(JsonValue::parse(json)) {
  OOOSPEC_REQUIRE(schema_.kind() == JsonKind::kObject, "schema: expected a JSON object, got ",
                  json.substr(0, 40));
  const auto is_list = [&](int idx) { return idx >= 0 && schema_.kind(idx) == JsonKind::kArray; };
  const auto items = [&](int list) {
    std::vector<int> found;
    const auto end = static_cast<int>(schema_.node(list).next);
    for (int i = list + 1; i < end; i = static_cast<int>(schema_.node(i).next)) found.push_back(i);
    return found;
  };
  const int fixed = schema_.find(0, "const");
  const int members = schema_.find(0, "enum");
  const int type = schema_.find(0, "type");
  has_members_ = fixed >= 0 || is_list(members);
  if (is_list(members)) members_ = items(members);
  for (const int member : members_) {
    is_nullable_ = is_nullable_ || schema_.kind(member) == JsonKind::kNull;
  }
  if (fixed >= 0) members_ = {fixed};
  if (is_list(type)) {
    kinds_ = items(type);
    for (const int kind : kinds_) is_nullable_ = is_nullable_ || schema_.text(kind) == "null";
  } else {
    kinds_ = {type >= 0 && schema_.kind(type) == JsonKind::kString ? type : -1};
  }
}

bool ValueSchema::to_hint(std::string_view answer, std::string& out) const {
  Answer read;
  if (!read.read(answer)) return false;
  if (read.kind == JsonKind::kNull) {
    out += "null";
    return true;
  }
  if (has_members_) return to_member(read, out);
  for (const int kind : kinds_) {
    if (kind < 0) {  // no type, or one of the ways to say it that we do not read: as it is
      read.append_json(out);
      return true;
    }
    if (schema_.kind(kind) == JsonKind::kString && to_kind(schema_.text(kind), read, out)) {
      return true;
    }
  }
  return false;
}

bool ValueSchema::to_kind(std::string_view kind, const Answer& answer, std::string& out) const {
  const bool is_nested = answer.kind == JsonKind::kArray || answer.kind == JsonKind::kObject;
  if (kind == "string") {
    if (is_nested) return false;
    append_quoted(out, answer.word());
    return true;
  }
  if (kind == "boolean") {
    const std::string word = lower(stripped(answer.word()));
    if (word != "true" && word != "yes" && word != "false" && word != "no") return false;
    out += word == "true" || word == "yes" ? "true" : "false";
    return true;
  }
  if (kind == "integer" || kind == "number") {
    const std::string_view number = stripped(answer.word());
    if (!is_json_number(number)) return false;
    if (kind == "integer") return append_integer(out, number);
    out += number;
    return true;
  }
  const bool fits = (kind == "array" && answer.kind == JsonKind::kArray) ||
                    (kind == "object" && answer.kind == JsonKind::kObject);
  if (fits) out += answer.literal;
  return fits;
}

bool ValueSchema::to_member(const Answer& answer, std::string& out) const {
  std::string json;
  answer.append_json(json);
  for (const int member : members_) {
    if (rendered(schema_, member) == json) {
      out += json;
      return true;
    }
  }
  const std::string word = lower(stripped(answer.word()));
  for (const int member : members_) {  // equal as words, or as numbers
    const std::string text = rendered(schema_, member);
    const bool is_string = schema_.kind(member) == JsonKind::kString;
    const bool same = lower(is_string ? schema_.text(member) : std::string_view(text)) == word;
    const bool equal = schema_.kind(member) == JsonKind::kNumber && is_json_number(word) &&
                       decimal_of(text) == decimal_of(word);
    if (same || equal) {
      out += text;
      return true;
    }
  }
  return false;
}

}  // namespace ooospec
