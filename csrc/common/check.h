// SPDX-License-Identifier: Apache-2.0
//
// Errors of the core. A caller's mistake throws with what was expected and what was got; our own
// mistakes assert.
#pragma once

#include <cassert>
#include <concepts>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ooospec {

inline void append(std::string& out, std::string_view text) { out += text; }
inline void append(std::string& out, std::same_as<char> auto letter) { out += letter; }

template <std::integral Number>
  requires(!std::same_as<Number, char>)
void append(std::string& out, Number number) {
  out += std::to_string(number);
}

inline void append(std::string& out, std::floating_point auto number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(number));
  out += text;
}

// Joins texts and numbers into one message. Without streams: they obey the locale of the process,
// and there are processes in which two copies of their library meet.
template <typename... Args>
std::string concat(const Args&... args) {
  std::string out;
  (append(out, args), ...);
  return out;
}

}  // namespace ooospec

// Throws std::invalid_argument (Python: ValueError) unless `condition` holds.
#define OOOSPEC_REQUIRE(condition, ...)                            \
  do {                                                             \
    if (!(condition)) {                                            \
      throw std::invalid_argument(::ooospec::concat(__VA_ARGS__)); \
    }                                                              \
  } while (false)

// Throws std::out_of_range (Python: IndexError) unless `condition` holds.
#define OOOSPEC_REQUIRE_INDEX(condition, ...)                  \
  do {                                                         \
    if (!(condition)) {                                        \
      throw std::out_of_range(::ooospec::concat(__VA_ARGS__)); \
    }                                                          \
  } while (false)
