// SPDX-License-Identifier: Apache-2.0
#include "call/json_text.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace ooospec {

namespace {

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

}  // namespace

int hex_digit(char c) {
  if (is_json_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

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

int read_hex4(std::string_view text, std::size_t i) {
  if (i + 4 > text.size()) return -1;
  int unit = 0;
  for (std::size_t k = i; k < i + 4; ++k) {
    const int digit = hex_digit(text[k]);
    if (digit < 0) return -1;
    unit = unit * 16 + digit;
  }
  return unit;
}

std::size_t json_number_size(std::string_view text) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t begin = i;
    while (i < text.size() && is_json_digit(text[i])) ++i;
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

bool is_plain_json(char c) { return kPlain[static_cast<unsigned char>(c)]; }

void append_escaped(std::string& out, std::string_view utf8, JsonSpelling spelling) {
  std::size_t i = 0;
  while (i < utf8.size()) {
    std::size_t run = i;
    while (run < utf8.size() && is_plain_json(utf8[run])) ++run;
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

std::size_t append_unescaped(std::string& out, std::string_view raw, bool whole) {
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
    const int unit = read_hex4(raw, i + 2);
    if (unit < 0) return i;
    std::uint32_t code = static_cast<std::uint32_t>(unit);
    std::size_t size = 6;
    if (code >= 0xD800 && code < 0xDC00) {
      const std::string_view rest = raw.substr(i + 6);
      const bool may_pair =
          rest.size() < 6 && std::string_view("\\u").starts_with(rest.substr(0, 2));
      if (may_pair && !whole) return i;
      const int low = rest.starts_with("\\u") ? read_hex4(rest, 2) : -1;
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
  return std::all_of(text.begin(), text.end(), [](char c) { return is_plain_json(c); });
}

bool is_json_number(std::string_view text) {
  return !text.empty() && json_number_size(text) == text.size();
}

}  // namespace ooospec
