// SPDX-License-Identifier: Apache-2.0
#include "call/key_habits.h"

#include <string>
#include <string_view>
#include <vector>

#include "cpp/check.h"

namespace ooospec {
namespace {

std::shared_ptr<const ToolSet> tools() {
  static const auto tools = ToolSet::parse(
      R"([{"type": "function", "function": {"name": "get", "parameters": {"type": "object",
           "properties": {"a": {"type": "string"}, "b": {"type": "integer"},
                          "c": {"type": "integer"}},
           "required": ["a"]}}},
          {"type": "function", "function": {"name": "put", "parameters": {"type": "object",
           "properties": {"a": {"type": "string"}}}}}])");
  return tools;
}

std::vector<Slots> said(int tool, std::vector<std::string_view> values, bool ended) {
  std::vector<Slots> out(1);
  out[0].tool = tool;
  out[0].ended = ended;
  for (std::size_t k = 0; k < values.size(); ++k) {
    EXPECT(out[0].set(tool, static_cast<int>(k), values[k]));
  }
  return out;
}

KeyHabits after(std::string_view arguments, const std::vector<Slots>& slots) {
  KeyHabits habits;
  const std::string text = R"({"name": "get", "arguments": )" + std::string(arguments) + "}";
  for (const Call& call : parse_calls(text, tools())) habits.observe(call, 0, *tools(), slots);
  return habits;
}

std::string main_path(std::string_view text, const KeyHabits& habits,
                      const std::vector<Slots>& slots = {}) {
  CallReader reader(tools());
  reader.feed(text);
  CallWriter writer;
  writer.set_habits(habits);
  std::vector<TextPath> paths;
  writer.write_on(reader, std::vector<StyleGuess>{{CallStyle::usual(Wrapper::kBare), 1.0F}}, slots,
                  8, paths);
  EXPECT(!paths.empty());
  return paths[0].text;
}

TEST(a_habit_begins_with_a_guess_and_follows_what_is_done) {
  Habit habit(0.4F);
  EXPECT(std::abs(habit.rate() - 0.4F) < 1e-6F);
  float before = habit.rate();
  for (int k = 0; k < 500; ++k) {
    habit.observe(true);
    EXPECT(habit.rate() >= before && habit.rate() <= 1.0F);
    before = habit.rate();
  }
  EXPECT(before > 0.95F);
  for (int k = 0; k < 500; ++k) habit.observe(false);
  EXPECT(habit.rate() < 0.05F && habit.rate() >= 0.0F);
}

TEST(only_parameters_that_may_be_left_out_tell) {
  const KeyHabits nothing;
  const KeyHabits both = after(R"({"a": "x", "b": 1, "c": 2})", {});
  EXPECT(both.unsaid.rate() > nothing.unsaid.rate() && both.left_out == nothing.left_out);
  const KeyHabits neither = after(R"({"a": "x"})", {});
  EXPECT(neither.unsaid.rate() < nothing.unsaid.rate());
  EXPECT(after("[]", {}) == nothing && after(R"("a")", {}) == nothing);
  // a value that was said is to be written
  EXPECT(after(R"({"a": "x"})", said(0, {"\"x\"", "1", "2"}, true)) == nothing);
}

TEST(what_hints_leave_out_is_a_habit_of_its_own) {
  const KeyHabits nothing;
  for (const auto& slots : {said(0, {"\"x\"", "null", "null"}, false), said(0, {"\"x\""}, true)}) {
    const KeyHabits denied = after(R"({"a": "x", "b": 1, "c": 2})", slots);
    EXPECT(denied.left_out.rate() > nothing.left_out.rate() && denied.unsaid == nothing.unsaid);
  }
  // the end of what is said of another function leaves nothing out
  EXPECT(after(R"({"a": "x", "b": 1, "c": 2})", said(1, {}, true)).left_out == nothing.left_out);
}

TEST(keys_that_are_usually_written_are_drafted) {
  constexpr std::string_view kText = R"({"name": "get", "arguments": {"a": "x")";
  const std::vector<Slots> denied = said(0, {"\"x\""}, true);
  KeyHabits habits;
  EXPECT_EQ(main_path(kText, habits), "}}");
  EXPECT_EQ(main_path(kText, habits, denied), "}}");
  for (int k = 0; k < 9; ++k) habits.unsaid.observe(true);
  EXPECT_EQ(main_path(kText, habits), R"(, "b": )");
  EXPECT_EQ(main_path(kText, habits, denied), "}}");
  for (int k = 0; k < 9; ++k) habits.left_out.observe(true);
  EXPECT_EQ(main_path(kText, habits, denied), R"(, "b": )");
  const std::vector<Slots> last = said(0, {"\"x\"", "null", "7"}, true);
  EXPECT_EQ(main_path(R"({"name": "get", "arguments": {"a": "x", "b": 1)", habits, last),
            R"(, "c": 7}})");
  for (int k = 0; k < 99; ++k) habits.left_out.observe(false);
  EXPECT_EQ(main_path(kText, habits, last), R"(, "c": 7}})");
}

}  // namespace
}  // namespace ooospec
