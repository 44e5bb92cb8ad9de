// SPDX-License-Identifier: Apache-2.0
//
// Errors of the core. A caller's mistake throws with what was expected and what was got; our own
// mistakes assert.
#pragma once

#include <cassert>
#include <sstream>
#include <stdexcept>
#include <string>

namespace ooospec {

// Joins its arguments into one message.
template <typename... Args>
std::string concat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
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
