// SPDX-License-Identifier: Apache-2.0
//
// The whole test framework of the C++ tests. A test program is one file that includes this header,
// which brings main():
//
//   TEST(push_then_pop) { EXPECT_EQ(ring.size(), 1); }
//   ./hint_ring_test         runs every test; ./hint_ring_test pop runs those with "pop" in their
//   name
//
// A failed expectation prints where, what was expected and what was got, and ends the program with
// status 1. Expectations may be used from any thread.
#pragma once

#include <concepts>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <ranges>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ooospec::test {

struct Test {
  const char* name;
  void (*run)();
};

inline std::vector<Test>& all_tests() {
  static std::vector<Test> tests;
  return tests;
}

inline bool add_test(const char* name, void (*run)()) {
  all_tests().push_back({name, run});
  return true;
}

[[noreturn]] inline void fail(const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, message.c_str());
  std::fflush(nullptr);
  std::_Exit(1);
}

// Readable form of a value: text quoted, small integers and enums as numbers, ranges in brackets.
template <typename T>
std::string show(const T& value) {
  std::ostringstream out;
  if constexpr (std::is_same_v<T, bool>) {
    out << (value ? "true" : "false");
  } else if constexpr (std::convertible_to<const T&, std::string_view>) {
    out << '"' << std::string_view(value) << '"';
  } else if constexpr (std::is_enum_v<T>) {
    out << +static_cast<std::underlying_type_t<T>>(value);
  } else if constexpr (std::integral<T>) {
    out << +value;
  } else if constexpr (std::ranges::input_range<const T>) {
    out << '[';
    for (const char* separator = ""; const auto& item : value) {
      out << separator << show(item);
      separator = ", ";
    }
    out << ']';
  } else if constexpr (requires { out << value; }) {
    out << value;
  } else {
    out << "(no text form)";
  }
  return out.str();
}

// Mixed signs compare by value: EXPECT_EQ(vector.size(), 3) needs no cast.
template <typename A, typename B>
bool equal(const A& a, const B& b) {
  constexpr bool integers = std::integral<A> && std::integral<B>;
  if constexpr (integers && std::is_signed_v<A> != std::is_signed_v<B>) {
    if constexpr (std::is_signed_v<A>) {
      return a >= 0 && static_cast<std::make_unsigned_t<A>>(a) == b;
    } else {
      return b >= 0 && a == static_cast<std::make_unsigned_t<B>>(b);
    }
  } else {
    return a == b;
  }
}

}  // namespace ooospec::test

#define TEST(name)                                                                                 \
  static void test_##name();                                                                       \
  [[maybe_unused]] static const bool added_##name = ::ooospec::test::add_test(#name, test_##name); \
  static void test_##name()

#define EXPECT(condition)                                                                \
  do {                                                                                   \
    if (!(condition)) ::ooospec::test::fail(__FILE__, __LINE__, "expected " #condition); \
  } while (false)

// EXPECT_EQ(got, expected).
#define EXPECT_EQ(got, expected)                                                          \
  do {                                                                                    \
    const auto& check_got_ = (got);                                                       \
    const auto& check_expected_ = (expected);                                             \
    if (!::ooospec::test::equal(check_got_, check_expected_)) {                           \
      ::ooospec::test::fail(__FILE__, __LINE__,                                           \
                            #got ": expected " + ::ooospec::test::show(check_expected_) + \
                                ", got " + ::ooospec::test::show(check_got_));            \
    }                                                                                     \
  } while (false)

// EXPECT_THROWS(expression, exception type, text that its message must contain).
#define EXPECT_THROWS(expression, type, text)                                                      \
  do {                                                                                             \
    std::string check_message_;                                                                    \
    bool check_thrown_ = false;                                                                    \
    try {                                                                                          \
      static_cast<void>(expression);                                                               \
    } catch (const type& error) {                                                                  \
      check_thrown_ = true;                                                                        \
      check_message_ = error.what();                                                               \
    } catch (const std::exception& error) {                                                        \
      ::ooospec::test::fail(__FILE__, __LINE__,                                                    \
                            #expression ": expected " #type ", got " + std::string(error.what())); \
    }                                                                                              \
    if (!check_thrown_) {                                                                          \
      ::ooospec::test::fail(__FILE__, __LINE__, #expression ": expected " #type ", got nothing");  \
    }                                                                                              \
    if (check_message_.find(text) == std::string::npos) {                                          \
      ::ooospec::test::fail(__FILE__, __LINE__,                                                    \
                            #expression ": expected a message with " +                             \
                                ::ooospec::test::show(text) + ", got " + check_message_);          \
    }                                                                                              \
  } while (false)

int main(int argc, char** argv) {
  const std::string_view wanted = argc > 1 ? argv[1] : "";
  int num_run = 0;
  for (const auto& test : ooospec::test::all_tests()) {
    if (std::string_view(test.name).find(wanted) == std::string_view::npos) continue;
    try {
      test.run();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: uncaught %s\n", test.name, error.what());
      return 1;
    }
    ++num_run;
  }
  std::printf("%s: %d passed\n", argv[0], num_run);
  return num_run > 0 ? 0 : 1;
}
