// SPDX-License-Identifier: Apache-2.0
#include "call/call_writer.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cpp/check.h"

static std::size_t num_allocations = 0;

void* operator new(std::size_t size) {
  ++num_allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using namespace ooospec;

constexpr int kGet = 0, kBook = 1;

std::string property(std::string_view name, std::string_view schema) {
  return "\"" + std::string(name) + "\":{" + std::string(schema) + "}";
}

std::string tool(std::string_view name, std::string_view properties, std::string_view required) {
  return "{\"type\":\"function\",\"function\":{\"name\":\"" + std::string(name) +
         "\",\"parameters\":{\"type\":\"object\",\"properties\":{" + std::string(properties) +
         "},\"required\":[" + std::string(required) + "]}}}";
}

std::shared_ptr<const ToolSet> tools() {
  static const auto tools = ToolSet::parse(
      "[" +
      tool("get",
           property("city", "\"type\":\"string\"") + "," +
               property("days", "\"type\":\"integer\"") + "," +
               property("unit", "\"enum\":[\"celsius\",\"fahrenheit\"]"),
           "\"city\"") +
      "," +
      tool("book",
           property("who", "\"type\":\"string\"") + "," +
               property("where", "\"type\":\"object\",\"properties\":{" +
                                     property("street", "\"type\":\"string\"") + "," +
                                     property("number", "\"type\":\"integer\"") +
                                     "},\"required\":[\"street\",\"number\"]") +
               "," + property("tags", "\"type\":\"array\",\"items\":{\"type\":\"string\"}") + "," +
               property("sure", "\"type\":\"boolean\"") + "," +
               property("note", "\"type\":[\"string\",\"null\"]"),
           "\"who\",\"where\",\"sure\",\"note\"") +
      "," + tool("get_all", "", "") + "," +
      tool("odd",
           property("x", "\"$ref\":\"#/$defs/X\"") + "," + property("y", "\"type\":\"string\""),
           "\"x\",\"y\"") +
      "]");
  return tools;
}

int parameter(int tool_idx, std::string_view name) {
  const auto parameters = tools()->parameters(tool_idx);
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    if (parameters[k].name == name) return static_cast<int>(k);
  }
  ooospec::test::fail(__FILE__, __LINE__, "no parameter " + std::string(name));
}

Slots slots(int tool_idx, const std::vector<std::array<std::string, 2>>& values,
            bool ended = true) {
  Slots out;
  out.tool = tool_idx;
  out.ended = ended;
  for (const auto& [name, json] : values)
    EXPECT(out.set(tool_idx, parameter(tool_idx, name), json));
  return out;
}

const std::vector<StyleGuess> kTags = {{CallStyle::usual(Wrapper::kTags), 1.0f}};
const std::vector<StyleGuess> kBare = {{CallStyle::usual(Wrapper::kBare), 1.0f}};

std::vector<TextPath> paths(std::string_view text, const std::vector<Slots>& said = {},
                            const std::vector<StyleGuess>& styles = kBare, int max_paths = 16) {
  CallReader reader(tools());
  reader.feed(text);
  CallWriter writer;
  std::vector<TextPath> out;
  writer.write_on(reader, styles, said, max_paths, out);
  for (std::size_t k = 0; k < out.size(); ++k) {  // what must hold of any paths
    const TextPath& path = out[k];
    EXPECT(!path.pieces.empty());
    EXPECT_EQ(path.pieces.back().end, path.text.size());
    EXPECT_EQ(path.ends_answer, path.pieces.back().kind == PieceKind::kEnd);
    EXPECT_EQ(path.text.substr(0, path.shared), out[0].text.substr(0, path.shared));
    std::uint32_t end = 0;
    for (const Piece& piece : path.pieces) {
      EXPECT(piece.end > end || piece.kind == PieceKind::kEnd);
      EXPECT(piece.probability > 0 && piece.probability <= 1);
      end = piece.end;
    }
  }
  return out;
}

std::string main_path(std::string_view text, const std::vector<Slots>& said = {},
                      const std::vector<StyleGuess>& styles = kBare) {
  const auto out = paths(text, said, styles, 1);
  return out.empty() ? "(none)" : out[0].text;
}

// EXPECT_BEGINS(text, its first bytes).
#define EXPECT_BEGINS(text, head) \
  EXPECT_EQ((text).substr(0, std::string_view(head).size()), std::string_view(head))

bool some_begin(const std::vector<TextPath>& paths, std::string_view text) {
  return std::any_of(paths.begin(), paths.end(),
                     [&](const TextPath& path) { return path.text.starts_with(text); });
}

const std::string kHead = "{\"name\": \"get\", \"arguments\": {";
const std::string kBookHead = "{\"name\": \"book\", \"arguments\": {";

}  // namespace

// --- the whole call ---

TEST(a_call_is_written_to_the_end_of_the_answer) {
  const std::vector<Slots> said = {slots(kGet, {{"city", "\"Rome\""}, {"days", "3"}})};
  const std::string call = "{\"name\": \"get\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}";
  EXPECT_EQ(main_path("", said), call);
  EXPECT_EQ(main_path("", said, kTags), "<tool_call>\n" + call + "\n</tool_call>");
  const auto out = paths("<tool_call>\n" + call, said, kTags, 1);
  EXPECT_EQ(out[0].text, "\n</tool_call>");
  EXPECT(out[0].ends_answer);
  EXPECT_EQ(main_path("<tool_call>\n" + call + "\n</tool_call>", said, kTags), "");
  EXPECT(paths("<tool_call>\n" + call + "\n</tool_call>", said, kTags, 1)[0].ends_answer);
}

TEST(pieces_say_who_drafted_what) {
  const auto out = paths("", {slots(kGet, {{"city", "\"Rome\""}, {"days", "3"}})}, kTags, 1);
  std::string kinds;
  for (const Piece& piece : out[0].pieces) {
    kinds += "wfkvce"[static_cast<int>(piece.kind)];
    if (piece.source == Source::kHint) kinds += "!";
  }
  EXPECT_EQ(kinds, "wkf!kvkv!k!v!ccwe");
}

TEST(several_calls_follow_one_another) {
  const std::vector<Slots> said = {slots(kGet, {{"city", "\"Rome\""}}),
                                   slots(kGet, {{"city", "\"Bonn\""}})};
  const std::string one = "{\"name\": \"get\", \"arguments\": {\"city\": \"Rome\"}}";
  const std::string two = "{\"name\": \"get\", \"arguments\": {\"city\": \"Bonn\"}}";
  EXPECT_EQ(main_path("", said, kTags),
            "<tool_call>\n" + one + "\n</tool_call>\n<tool_call>\n" + two + "\n</tool_call>");
  EXPECT_EQ(main_path(one, said), "\n" + two);
  EXPECT_EQ(main_path(one + ";", said), two);
  const std::vector<Slots> three = {said[0], said[1], said[0]};
  EXPECT_EQ(main_path(one + "; " + two, three), "; " + one);  // as the separator was before
  EXPECT_EQ(main_path("[" + one, said), ", " + two + "]");
  EXPECT_EQ(main_path("<tool_call>\n" + one + "\n" + two, three, kTags),
            "\n" + one + "\n</tool_call>");
  // the target may take them in another order
  const std::vector<Slots> mixed = {slots(kBook, {{"who", "\"Ann\""}}), said[0]};
  EXPECT(some_begin(paths("{\"name\": \"get\"", mixed), ", \"arguments\": {\"city\": \"Rome\"}}"));
}

// --- where a call can begin ---

TEST(openings_are_offered_at_line_starts_only) {
  const std::vector<Slots> said = {slots(kGet, {{"city", "\"Rome\""}})};
  const float at_start = paths("", said)[0].pieces[0].probability;
  const float after_prose = paths("Sure.\n", said)[0].pieces[0].probability;
  EXPECT(at_start > 0.5f && after_prose < 0.2f);
  EXPECT(paths("Sure. ", said).empty());
  EXPECT(paths("Sure. <", said, kTags).empty());
  EXPECT_BEGINS(main_path("Sure. <to", said, kTags), "ol_call>\n{\"");
  EXPECT_BEGINS(main_path("<tool_call>", said, kTags), "\n{\"");
  EXPECT_BEGINS(main_path("<tool_call> ", said, kTags), "{\"");  // its white space stays
  EXPECT_BEGINS(main_path("```js", said, {{CallStyle::usual(Wrapper::kFencedJson), 1.0f}}),
                "on\n{");
  EXPECT_BEGINS(main_path("```json\n", said, kTags), "{\"name\":");  // no guess has it
}

TEST(a_fence_behind_prose_may_hold_any_code) {
  const std::vector<Slots> said = {slots(kGet, {{"city", "\"Rome\""}})};
  const std::vector<StyleGuess> fenced = {{CallStyle::usual(Wrapper::kFencedJson), 1.0f}};
  const auto opened = [&](std::string_view text) {
    return paths(text, said, fenced)[0].pieces[0].probability;
  };
  EXPECT(opened("```") > 0.9f);
  EXPECT(opened("Like this:\n```") < 0.5f);
  EXPECT(opened("Like this:\n```js") < 0.5f);
  EXPECT(opened("Like this:\n```json") > 0.9f);
}

TEST(the_likeliest_wrappers_are_siblings) {
  const auto out = paths("", {slots(kGet, {{"city", "\"Rome\""}})}, {}, 8);
  EXPECT(out[0].text.starts_with("<tool_call>"));
  EXPECT(out[1].text.starts_with("```json\n{\n"));
  EXPECT(out[1].probability > 0.2f);
}

TEST(a_hint_of_no_call_makes_openings_unlikely) {
  Slots none;
  none.tool = Slots::kNoCall;
  EXPECT(paths("", {none})[0].pieces[0].probability < 0.1f);
  EXPECT_BEGINS(main_path(kHead, {none}), "\"city\": ");  // the target knows better
}

// G31
TEST(nothing_is_drafted_in_thinking) {
  EXPECT(paths("<think>\n").empty());
  EXPECT(paths("<think>\n<tool_call>\n{\"name\": \"").empty());
  EXPECT(!paths("<think>\n</think>\n\n").empty());
}

// --- functions ---

TEST(functions_are_offered_by_prefix) {
  const auto out = paths("{\"name\": \"g");
  EXPECT_EQ(out.size() >= 2, true);
  EXPECT(some_begin(out, "et\", \"arguments\": {\"city\": \""));
  EXPECT(some_begin(out, "et_all\", \"arguments\": {}}"));
  EXPECT_BEGINS(main_path("{\"name\": \"b"), "ook\",");
  EXPECT(paths("{\"name\": \"z").empty());
  EXPECT_BEGINS(main_path("{\"name\": \"", {slots(kBook, {})}), "book\"");
  EXPECT(some_begin(paths("{\"name\": \"", {slots(kBook, {})}), "get\""));
  EXPECT_BEGINS(main_path("{\"name\": \"get", {slots(kBook, {})}), "\",");
}

// --- keys ---

// F15, F16: the schema's order is a guess, the other keys are siblings, the closing bracket too.
TEST(keys_are_offered_in_any_order) {
  const std::vector<Slots> said = {
      slots(kGet, {{"city", "\"Rome\""}, {"days", "3"}, {"unit", "\"celsius\""}})};
  const auto out = paths(kHead, said);
  EXPECT_EQ(out[0].text, "\"city\": \"Rome\", \"days\": 3, \"unit\": \"celsius\"}}");
  EXPECT(some_begin(out, "\"days\": 3, \"unit\": "));
  EXPECT(some_begin(out, "\"unit\": \"celsius\", \"days\": "));
  EXPECT(some_begin(out, "}}"));
  EXPECT_EQ(main_path(kHead + "\"unit\": \"celsius\"", said),
            ", \"days\": 3, \"city\": \"Rome\"}}");
  EXPECT_EQ(main_path(kHead + "\"days\": 3", said),
            ", \"unit\": \"celsius\", \"city\": \"Rome\"}}");
  EXPECT_EQ(main_path(kHead + "\"u", said),
            "nit\": \"celsius\", \"days\": 3, \"city\": \"Rome\"}}");
  EXPECT_EQ(main_path(kHead + "\"unit\": \"x\", \"days\": 3,", said), " \"city\": \"Rome\"}}");
  EXPECT(paths(kHead + "\"z", said).empty());
}

TEST(optional_keys_without_a_hint_are_siblings_of_the_end) {
  const auto out = paths(kHead + "\"city\": \"Rome\"");
  EXPECT_EQ(out[0].text, "}}");
  EXPECT(some_begin(out, ", \"days\": "));
  EXPECT(some_begin(out, ", \"unit\": \""));
  EXPECT_BEGINS(main_path(kHead + "\"city\": \"Rome\","), " ");
}

TEST(what_is_left_out_is_left_out) {
  const std::vector<Slots> some = {slots(kGet, {{"city", "\"Rome\""}, {"unit", "\"celsius\""}})};
  EXPECT_EQ(main_path(kHead, some), "\"city\": \"Rome\", \"unit\": \"celsius\"}}");
  const std::vector<Slots> null = {slots(kGet, {{"city", "\"Rome\""}, {"days", "null"}}, false)};
  EXPECT_EQ(main_path(kHead, null), "\"city\": \"Rome\"}}");
  EXPECT(some_begin(paths(kHead + "\"city\": \"Rome\"", null), ", \"days\": "));
  // null is a value where the schema asks for one that may be null
  const std::vector<Slots> note = {slots(kBook, {{"note", "null"}}, false)};
  EXPECT_BEGINS(main_path(kBookHead + "\"sure\": true", note), ", \"note\": null");
}

// --- values ---

// A sidecar that expects another function says the end of the call without a word about this one.
TEST(an_end_says_nothing_of_another_function) {
  const std::vector<Slots> other = {slots(kGet, {{"city", "\"Rome\""}})};
  for (const std::string& text : {kBookHead, kBookHead + "\"who\": \"Ann\""}) {
    EXPECT_EQ(main_path(text, other), main_path(text));
  }
}

TEST(values_without_a_hint_follow_the_schema) {
  const auto unit = paths(kHead + "\"unit\":");
  EXPECT(some_begin(unit, " \"celsius\"") && some_begin(unit, " \"fahrenheit\""));
  EXPECT_BEGINS(main_path(kHead + "\"unit\": \"f"), "ahrenheit\"");
  EXPECT_EQ(main_path(kHead + "\"city\":"), " \"");
  EXPECT(paths(kHead + "\"days\": ").empty());
  const auto sure = paths(kBookHead + "\"sure\": ");
  EXPECT(some_begin(sure, "true, ") && some_begin(sure, "false, "));
  EXPECT_BEGINS(main_path(kBookHead + "\"sure\": f"), "alse, ");
  EXPECT_EQ(main_path(kBookHead + "\"where\": "), "{\"street\": \"");
  EXPECT_EQ(main_path(kBookHead + "\"where\": {\"number\": 1"), ", \"street\": \"");
  EXPECT_EQ(main_path(kBookHead + "\"tags\": "), "[\"");
  EXPECT(some_begin(paths(kBookHead + "\"note\": "), "null"));
}

// F20: what is not understood is off for that parameter, hints go on.
TEST(parameters_that_are_not_understood_get_keys_only) {
  const std::string head = "{\"name\": \"odd\", \"arguments\": {";
  EXPECT_EQ(main_path(head), "\"x\": ");
  EXPECT_EQ(main_path(head + "\"x\": {\"a\": [1]}"), ", \"y\": \"");
  EXPECT_EQ(main_path(head, {slots(3, {{"x", "{\"a\":[1]}"}, {"y", "\"z\""}})}),
            "\"x\": {\"a\": [1]}, \"y\": \"z\"}}");
}

TEST(hints_are_written_as_they_are_and_as_the_schema_asks) {
  const std::vector<Slots> said = {slots(kGet, {{"city", "85"}, {"days", "\"3\""}})};
  EXPECT_EQ(main_path(kHead, said), "\"city\": 85, \"days\": \"3\"}}");
  EXPECT(some_begin(paths(kHead, said), "\"city\": \"85\", "));
  EXPECT_EQ(main_path(kHead + "\"city\": 8", said), "5, \"days\": \"3\"}}");
  EXPECT_EQ(main_path(kHead + "\"city\": \"8", said), "5\", \"days\": \"3\"}}");
  EXPECT_BEGINS(main_path(kHead + "\"days\": 3", said), ", \"city\": 85}");
  EXPECT_BEGINS(main_path(kHead + "\"days\": \"", said), "3\"");
  const std::vector<Slots> sure = {slots(kBook, {{"sure", "\"true\""}})};
  EXPECT_BEGINS(main_path(kBookHead + "\"sure\": ", sure), "\"true\"}");
  EXPECT(some_begin(paths(kBookHead + "\"sure\": ", sure), "true}"));
  EXPECT_EQ(main_path(kHead + "\"city\": 10", {slots(kGet, {{"city", "10"}})}), "}}");
  EXPECT_EQ(
      main_path(kHead + "\"days\": 1", {slots(kGet, {{"city", "\"x\""}, {"days", "1.50e3"}})}),
      ".50e3, \"city\": \"x\"}}");
}

TEST(nested_hints_go_on_from_any_point) {
  const std::vector<Slots> said = {slots(kBook, {{"who", "\"Ann\""},
                                                 {"where", "{\"street\":\"A St\",\"number\":7}"},
                                                 {"tags", "[\"a\",[],{\"k\":\"b\"}]"},
                                                 {"sure", "true"}})};
  const std::string rest =
      "{\"street\": \"A St\", \"number\": 7}, \"tags\": [\"a\", [], {\"k\": \"b\"}], \"sure\": "
      "true}}";
  const std::string text = kBookHead + "\"who\": \"Ann\", \"where\": " + rest;
  for (std::size_t k = kBookHead.size(); k < text.size(); ++k) {
    EXPECT_EQ(main_path(std::string_view(text).substr(0, k), said), text.substr(k));
  }
  // a wrong inner value costs that value only
  EXPECT_BEGINS(main_path(kBookHead + "\"where\": {\"street\": \"B St\"", said),
                ", \"number\": 7}");
  EXPECT_BEGINS(main_path(kBookHead + "\"where\": {\"number\": 7", said),
                ", \"street\": \"A St\"}, ");
  EXPECT_BEGINS(main_path(kBookHead + "\"tags\": [\"z\"", said), ", [], {");
}

// G40: literal characters first, escapes as a sibling, then as the answer has them.
TEST(strings_are_spelled_as_seen) {
  const std::vector<Slots> said = {slots(kGet, {{"city", "\"Z\u00fcrich/\U0001F680\""}})};
  const auto out = paths(kHead, said);
  EXPECT_EQ(out[0].text, "\"city\": \"Z\u00fcrich/\U0001F680\"}}");
  EXPECT(some_begin(out, "\"city\": \"Z\\u00fcrich/\\ud83d\\ude80\"}}"));
  EXPECT_EQ(main_path(kHead + "\"city\": \"Z\\", said), "u00fcrich/\\ud83d\\ude80\"}}");
  EXPECT_EQ(main_path(kHead + "\"city\": \"Z\\u00FCrich\\/\\ud83d\\u", said), "de80\"}}");
  EXPECT_EQ(main_path(kHead + "\"city\": \"Z\xc3", said), "\xbcrich/\U0001F680\"}}");
  const std::vector<Slots> quotes = {slots(kGet, {{"city", "\"a\\\"b\\\\c\\nd\""}})};
  EXPECT_EQ(main_path(kHead + "\"city\": \"a\\", quotes), "\"b\\\\c\\nd\"}}");
  EXPECT_EQ(main_path(kHead + "\"city\": \"a\\\"b\\\\", quotes), "c\\nd\"}}");
}

// --- what was wrong ---

TEST(a_wrong_value_costs_that_value) {
  const std::vector<Slots> said = {slots(kGet, {{"city", "\"Rome, Italy\""}, {"days", "3"}})};
  EXPECT_EQ(main_path(kHead + "\"city\": \"Bonn\"", said), ", \"days\": 3}}");
  EXPECT_EQ(main_path(kHead + "\"city\": \"Bon", said), "\", \"days\": 3}}");
  EXPECT(paths(kHead + "\"city\": \"Bon", said)[0].pieces[0].probability < 0.2f);
  EXPECT(some_begin(paths(kHead + "\"city\": \"Rome", said), "\", \"days\": 3}}"));
  EXPECT_EQ(main_path(kHead + "\"city\": \"rome, ", said),
            "Italy\", \"days\": 3}}");  // goes on behind the part that differs
  EXPECT_EQ(main_path(kHead + "\"city\": 7", said), ", \"days\": 3}}");
  EXPECT_EQ(main_path(kHead + "\"city\": null", said), ", \"days\": 3}}");
  EXPECT_EQ(main_path(kHead + "\"days\": 41", said), ", \"city\": \"Rome, Italy\"}}");
  EXPECT(some_begin(paths(kHead + "\"days\": 4", said), ", \"city\": \"Rome, Italy\"}}"));
  EXPECT_EQ(main_path("{\"name\": \"get_all\", ", said), "\"arguments\": {}}");
}

TEST(values_may_have_been_mixed_up) {
  const std::vector<Slots> said = {
      slots(kBook, {{"who", "\"12 Long Lane\""}, {"note", "\"Ann Smith\""}, {"sure", "true"}})};
  EXPECT(some_begin(paths(kBookHead + "\"who\": \"Ann", said), " Smith\", "));
}

TEST(hints_that_are_no_json_are_refused) {
  Slots out;
  EXPECT(out.set(0, 0, "\"a\""));
  for (const std::string_view bad : {"", "a", "{", "\"\x80\"", "1 2"}) EXPECT(!out.set(0, 0, bad));
  EXPECT_EQ(out.find(0, 0)->text(), "a");
  EXPECT(!out.set(-1, 0, "1") && !out.set(0, 70000, "1"));
  EXPECT(out.set(0, 0, "2") && out.find(0, 0)->text() == "2");
  EXPECT(out.find(1, 0) == nullptr && out.find(-1, 0) == nullptr);
  Slots far = slots(kGet, {});
  far.tool = 99;  // no such tool
  far.set(99, 99, "1");
  EXPECT_BEGINS(main_path("{\"name\": \"b", {far}), "ook");
}

// --- style ---

// F25: three spacing styles; F10: never more than one line break.
TEST(spacing_is_as_seen) {
  const std::vector<Slots> said = {slots(kBook, {{"who", "\"A\""},
                                                 {"where", "{\"street\":\"B\",\"number\":7}"},
                                                 {"tags", "[]"},
                                                 {"sure", "true"}})};
  EXPECT_EQ(main_path("{\"name\":\"book\",", said),
            "\"arguments\":{\"who\":\"A\",\"where\":{\"street\":\"B\",\"number\":7},\"tags\":[],"
            "\"sure\":true}}");
  EXPECT_EQ(main_path("{ \"name\" : \"book\",", said),
            " \"arguments\" : { \"who\" : \"A\", \"where\" : { \"street\" : \"B\", \"number\" : 7 "
            "}, \"tags\" : [], \"sure\" : true } }");
  const std::string indented = main_path("{\n \"name\": \"book\",", said);
  EXPECT_EQ(indented,
            "\n \"arguments\": {\n  \"who\": \"A\",\n  \"where\": {\n   \"street\": \"B\",\n   "
            "\"number\": 7\n  },\n  \"tags\": [],\n"
            "  \"sure\": true\n }\n}");
  EXPECT(indented.find("\n\n") == std::string::npos);
  EXPECT_BEGINS(main_path("{\n\t\"name\": \"book\",\n\t\"arguments\": {\"who\": \"A\"", said),
                ", \"where\": {");
}

TEST(styles_that_the_text_leaves_open_are_siblings) {
  const std::vector<StyleGuess> both = {{CallStyle::usual(Wrapper::kFencedJson), 0.6f},
                                        {CallStyle::usual(Wrapper::kFencedJson, "  "), 0.4f}};
  const auto out = paths("```json\n{", {slots(kGet, {{"city", "\"Rome\""}})}, both);
  EXPECT_BEGINS(out[0].text, "\"name\"");
  EXPECT(some_begin(
      out, "\n  \"name\": \"get\",\n  \"arguments\": {\n    \"city\": \"Rome\"\n  }\n}\n```"));
  CallStyle parameters = both[0].style;
  parameters.arguments_key = "parameters";
  const auto keys = paths("```json\n{\"name\": \"get\", \"", {}, {both[0], {parameters, 0.3f}});
  EXPECT(some_begin(keys, "arguments\": {\"city\": \"") &&
         some_begin(keys, "parameters\": {\"city\": \""));
}

// --- limits ---

TEST(paths_are_bounded) {
  const std::vector<Slots> said = {
      slots(kGet, {{"city", "\"" + std::string(5000, 'x') + "\""}, {"days", "3"}})};
  CallReader reader(tools());
  CallWriter writer;
  std::vector<TextPath> out;
  for (const int max_paths : {1, 2, 5, 64}) {
    writer.write_on(reader, kTags, said, max_paths, out);
    EXPECT(!out.empty() && out.size() <= static_cast<std::size_t>(max_paths));
  }
  EXPECT(!out[0].ends_answer);
  writer.write_on(reader, kTags, said, 1, out, 6000);
  EXPECT(out[0].ends_answer);
  EXPECT_THROWS(writer.write_on(reader, kTags, said, 0, out), std::invalid_argument,
                "max_paths >= 1, got 0");
  reader.feed(kHead + "\"city\": " + std::string(50, '['));  // deeper than what is drafted
  writer.write_on(reader, kTags, said, 4, out);
  EXPECT(out.empty());
}

TEST(odd_schemas_and_names_are_written) {
  std::string many;
  for (int k = 0; k < 200; ++k)
    many += (k > 0 ? "," : "") + property("p" + std::to_string(k), "\"type\":\"string\"");
  const auto set = ToolSet::parse(
      "[" + tool("many", many, "") + "," +
      tool("q\\\"/\u00fc", property("k\\\"\u00e9", "\"const\":{\"a\":[1]}"), "\"k\\\"\u00e9\"") +
      "]");
  CallReader reader(set);
  CallWriter writer;
  std::vector<TextPath> out;
  reader.feed("{\"name\": \"q");
  writer.write_on(reader, kBare, {}, 4, out);
  EXPECT_EQ(out[0].text, "\\\"/\u00fc\", \"arguments\": {\"k\\\"\u00e9\": {\"a\": [1]}}}");
  Slots said;
  said.tool = 0;
  said.ended = true;
  said.set(0, 199, "\"x\"");
  said.set(0, 3, "\"y\"");
  reader = CallReader(set);
  writer.write_on(reader, kBare, {&said, 1}, 4, out);
  EXPECT_EQ(out[0].text,
            "{\"name\": \"many\", \"arguments\": {\"p3\": \"y\"}}");  // the first 64 are drafted
  reader.feed("{\"name\": \"many\", \"arguments\": {\"p199\": \"x\"");
  writer.write_on(reader, kBare, {&said, 1}, 4, out);
  EXPECT_BEGINS(out[0].text, ", \"p3\": \"");
}

TEST(nothing_is_allocated_once_buffers_are_warm) {
  const std::vector<Slots> said = {slots(kBook, {{"who", "\"A \u00fc\""},
                                                 {"where", "{\"street\":\"B\",\"number\":7}"},
                                                 {"tags", "[\"x\"]"}})};
  CallWriter writer;
  std::vector<TextPath> out;
  std::vector<CallReader> readers;
  for (const std::string text :
       {"", "```json\n{\n  \"name\": \"b",
        "<tool_call>\n{\"name\": \"book\", \"arguments\": {\"who\": \"A"}) {
    readers.emplace_back(tools()).feed(text);
  }
  std::size_t before = 0;
  for (int round = 0; round < 4; ++round) {
    if (round == 3) before = num_allocations;
    for (const CallReader& reader : readers) writer.write_on(reader, {}, said, 8, out);
  }
  EXPECT_EQ(num_allocations, before);
}

// F23: the time of a round does not grow with the number of tools.
TEST(many_tools_cost_no_time) {
  const auto cpu_seconds = [](int num_tools) {
    std::string text;
    for (int k = 0; k < num_tools; ++k) {
      text += (k == 0 ? "[" : ",") +
              tool("tool_" + std::to_string(k), property("p", "\"type\":\"string\""), "\"p\"");
    }
    CallReader reader(ToolSet::parse(text + "]"));
    reader.feed("<tool_call>\n{\"name\": \"tool_0\", \"arguments\": {");
    Slots said;
    said.tool = 0;
    said.set(0, 0, "\"x\"");
    CallWriter writer;
    std::vector<TextPath> out;
    const std::clock_t begin = std::clock();
    for (int run = 0; run < 2000; ++run) writer.write_on(reader, kTags, {&said, 1}, 8, out);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  EXPECT(cpu_seconds(300) < 3 * cpu_seconds(1));
}

TEST(whole_calls_are_rendered) {
  const std::array<RenderedCall, 2> calls = {{{"a\"b", "{\"x\": {\"y\": [1, []]}}"}, {"c", "{}"}}};
  EXPECT_EQ(render_calls(calls, CallStyle::usual(Wrapper::kTags)),
            "<tool_call>\n{\"name\": \"a\\\"b\", \"arguments\": {\"x\": {\"y\": [1, "
            "[]]}}}\n</tool_call>\n<tool_call>\n"
            "{\"name\": \"c\", \"arguments\": {}}\n</tool_call>");
  CallStyle list = CallStyle::usual(Wrapper::kBare, "  ");
  list.list = true;
  EXPECT_EQ(render_calls(std::span(calls).subspan(1), list),
            "[\n  {\n    \"name\": \"c\",\n    \"arguments\": {}\n  }\n]");
  EXPECT_THROWS(render_calls({}, list), std::invalid_argument, "at least one call");
  const std::array<RenderedCall, 1> bad = {{{"c", "[1]"}}};
  EXPECT_THROWS(render_calls(bad, list), std::invalid_argument,
                "arguments of 'c' to be a JSON object, got '[1]'");
}
