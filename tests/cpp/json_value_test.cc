// SPDX-License-Identifier: Apache-2.0
#include "call/json_value.h"

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cpp/check.h"

namespace {

using ooospec::append_escaped;
using ooospec::append_unescaped;
using ooospec::is_json_number;
using ooospec::JsonKind;
using ooospec::JsonValue;

std::string again(std::string_view text, std::string_view comma = ",", std::string_view colon = ":",
                  ooospec::JsonSpelling spelling = {}) {
  std::string out;
  JsonValue::parse(text).render(out, 0, comma, colon, spelling);
  return out;
}

bool is_json(std::string_view text) {
  JsonValue value;
  return JsonValue::try_parse(text, value);
}

std::string unescaped(std::string_view raw) {
  std::string out;
  append_unescaped(out, raw);
  return out;
}

}  // namespace

TEST(values_are_written_as_they_were_read) {
  for (const std::string_view text :
       {"null", "true", "false", "0", "-0", "1E+05", "0.10", "\"\"", "\"a\"", "[]", "{}", "[[],{}]",
        "{\"a\":1,\"a\":2}", "{\"b\":[1,{\"c\":null}],\"a\":\"x\"}", "[\"\\\"\\\\\\n\\u0001\"]",
        "123456789012345678901234567890.12345678901234567890"}) {
    EXPECT_EQ(again(text), text);
  }
  EXPECT_EQ(again("{\"a\": [1, 2]}", ", ", ": "), "{\"a\": [1, 2]}");
}

// F11, F12: any white space between marks, none inside strings.
TEST(white_space_of_json_is_taken_and_control_characters_are_not) {
  EXPECT_EQ(again(" {\"a\":\r\n\"x\"\t, \"b\" : 1 } \n"), "{\"a\":\"x\",\"b\":1}");
  for (const std::string_view text : {"\"a\nb\"", "\"a\tb\"", "{\"a\v\":1}", "[1\f]"}) {
    EXPECT(!is_json(text));
  }
  EXPECT(is_json("\"\x7f\""));
}

// F13, F14
TEST(numbers_are_those_of_json) {
  for (const std::string_view text : {"-0", "0", "10", "-1.5", "1e2", "1E+05", "0.10", "1e-3"}) {
    EXPECT(is_json_number(text));
    EXPECT_EQ(again(text), text);
  }
  for (const std::string_view text :
       {"01", "1.", ".5", "+1", "1.e2", "-", "NaN", "Infinity", "1e", "1e+", "0x1", "1_0", "--1"}) {
    EXPECT(!is_json_number(text));
    EXPECT(!is_json(text));
  }
}

TEST(what_is_no_json_is_refused_with_its_byte) {
  EXPECT_THROWS(JsonValue::parse(""), std::invalid_argument, "expected a value at byte 0");
  EXPECT_THROWS(JsonValue::parse("{\"a\" 1}"), std::invalid_argument, "expected ':' at byte 5");
  EXPECT_THROWS(JsonValue::parse("[1 2]"), std::invalid_argument, "',' or ']' at byte 3");
  EXPECT_THROWS(JsonValue::parse("{\"a\":1"), std::invalid_argument, "got the end");
  EXPECT_THROWS(JsonValue::parse("[1,]"), std::invalid_argument, "a value at byte 3");
  EXPECT_THROWS(JsonValue::parse("{\"a\":1,}"), std::invalid_argument, "a key at byte 7");
  EXPECT_THROWS(JsonValue::parse("1 x"), std::invalid_argument, "the end at byte 2");
  for (const std::string_view text :
       {"{", "[", "\"", "\"\\", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "tru", "nul", "{1:2}", "]",
        "\"\x80\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\xf5\x80\x80\x80\"", "\"\xc0\x80\""}) {
    EXPECT(!is_json(text));
  }
}

TEST(depth_is_limited_and_nothing_recurses) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_EQ(again(nested(JsonValue::kMaxDepth)), nested(JsonValue::kMaxDepth));
  EXPECT_THROWS(JsonValue::parse(nested(JsonValue::kMaxDepth + 1)), std::invalid_argument,
                "at most 128 levels");
  std::string out;
  JsonValue::parse(nested(200000), 200000).render(out);
  EXPECT_EQ(out.size(), 400000);
  EXPECT(!is_json(std::string(4000000, '[')));
}

// G35, G40: both spellings of é and of a character that takes a pair; half a pair stays an escape.
TEST(strings_are_decoded_and_spelled_either_way) {
  const JsonValue value = JsonValue::parse("\"\\u00e9\\ud83d\\uDE80\\/\"");
  EXPECT_EQ(value.text(), "\u00e9\U0001F680/");
  EXPECT_EQ(again("\"\\u00e9\\/\""), "\"\u00e9/\"");
  EXPECT_EQ(again("\"\u00e9\U0001F680/\"", ",", ":", {true, true}), "\"\\u00e9\\ud83d\\ude80\\/\"");
  EXPECT_EQ(again("\"\\ud83d\""), "\"\\ud83d\"");
  EXPECT_EQ(again("\"\\ud83d x\\ude80\"", ",", ":", {true, false}), "\"\\ud83d x\\ude80\"");
  EXPECT_EQ(again("\"\\ud83d\\n\""), "\"\\ud83d\\n\"");
  EXPECT_EQ(unescaped("a\\u00"), "a");
  EXPECT_EQ(unescaped("a\\ud83d\\u"), "a");
  EXPECT_EQ(unescaped("\\b\\f\\n\\r\\t\\\"\\\\\\/"), "\b\f\n\r\t\"\\/");
}

TEST(members_are_found_by_name_and_the_last_one_counts) {
  const JsonValue value = JsonValue::parse("{\"a\":[1,{\"b\":2}],\"c\":3,\"a\":4}");
  EXPECT_EQ(value.text(value.find(0, "a")), "4");
  EXPECT_EQ(value.text(value.find(0, "c")), "3");
  EXPECT_EQ(value.find(0, "b"), -1);
  EXPECT_EQ(value.find(value.find(0, "c"), "b"), -1);
  EXPECT_EQ(value.node(0).num_members, 3);
}
