// SPDX-License-Identifier: Apache-2.0
#include "call/call_reader.h"

#include <algorithm>
#include <ctime>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "call/call_style.h"
#include "cpp/check.h"

namespace {

using ooospec::Call;
using ooospec::CallReader;
using ooospec::CallStyle;
using ooospec::Spot;
using ooospec::ToolSet;
using ooospec::Wrapper;

std::shared_ptr<const ToolSet> tools() {
  static const auto tools = ToolSet::parse(
      "[{\"name\":\"get\",\"parameters\":{\"type\":\"object\",\"properties\":{"
      "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"where\":{\"type\":"
      "\"object\","
      "\"properties\":{\"lat\":{\"type\":\"number\"},\"lon\":{\"type\":\"number\"}}},"
      "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},\"required\":[\"city\"]}},"
      "{\"name\":\"get_all\"},{\"name\":\"a.b\"},{\"name\":\"srv:tool\"},{\"name\":\"\u00fcber\"}"
      "]");
  return tools;
}

CallReader read(std::string_view text, bool thinking = false) {
  CallReader reader(tools(), thinking);
  reader.feed(text);
  return reader;
}

// The calls of a text as "name(arguments)", unknown names in brackets.
std::vector<std::string> calls(std::string_view text) {
  std::vector<std::string> out;
  const CallReader reader = read(text);
  for (const Call& call : reader.calls()) {
    const std::string name = call.tool >= 0 ? call.name : "[" + call.name + "]";
    EXPECT_EQ(text.substr(call.begin, 1), "{");
    EXPECT_EQ(text.substr(call.end - 1, 1), "}");
    out.push_back(name + "(" + call.arguments + ")");
  }
  return out;
}

using Strings = std::vector<std::string>;

// The text without its calls.
std::string content(std::string_view text) {
  std::string out;
  std::size_t from = 0;
  const CallReader reader = read(text);
  for (const auto& span : reader.spans()) {
    out += text.substr(from, span.begin - from);
    from = span.end;
  }
  return out + std::string(text.substr(from));
}

const std::string kGet = "{\"name\": \"get\", \"arguments\": {\"city\": \"Rome\"}}";

// Answers that meet every part of the reader.
Strings transcripts() {
  return {
      "<tool_call>\n" + kGet + "\n</tool_call>",
      "Sure. <tool_call>\n" + kGet + "\n</tool_call>\n<tool_call>\n" + kGet +
          "\n</tool_call> Done.",
      "```json\n" + kGet + "\n```\nThat is it.\n" + kGet,
      "```json\n[\n  " + kGet + ",\n  " + kGet + "\n]\n```",
      "<|python_tag|>" + kGet + "; " + kGet,
      kGet + ";" + kGet + "\n" + kGet,
      "[" + kGet + ", {\"name\": \"lost\", \"arguments\": {}}, " + kGet + "]",
      "<think>\n" + kGet + "</think>\n\n" + kGet,
      "\n  {\"type\": \"function\", \"name\": \"get\",\n\"parameters\":{ \"days\" : -1.5e+3, "
      "\"tags\": [ \"a\" , [] ],"
      "\r\n\t\"where\": {\"lat\": 0, \"x\": {\"y\": null}}, \"city\": "
      "\"C:\\\\\\u00e9\\ud83d\\ude80\\/\" } }\n",
      "<tool_call>oops <tool_call>{\"name\": \"get_all\"}</tool_call>",
      "{\"name\": \"get\", \"arguments\": {\"city\": tru}}\n{\"name\": \"get_all\", \"arguments\": "
      "{}}",
      "```python\n{}\n```\n````\n<|python<tool_call>[[{\"name\": \"get\"}]",
      "{\"a\": 1}\n[1, 2]\n{{\"name\"}}",
  };
}

}  // namespace

// --- what a call is ---

TEST(all_wrappers_are_read) {
  const Strings one = {"get({\"city\": \"Rome\"})"};
  for (const std::string& text :
       {kGet, "\n" + kGet, "<tool_call>\n" + kGet + "\n</tool_call>", "<tool_call>" + kGet,
        "```json\n" + kGet + "\n```", "```\n" + kGet + "```", "```json \n\n" + kGet,
        "[" + kGet + "]", "<|python_tag|>" + kGet, "Of course.\n" + kGet,
        "Of course: <tool_call>" + kGet}) {
    EXPECT_EQ(calls(text), one);
  }
}

// G01, G05, G10, G19: several calls, none lost, in the order of the answer.
TEST(several_calls_are_read) {
  const std::string all = "{\"name\": \"get_all\", \"arguments\": {}}";
  const Strings three = {"get({\"city\": \"Rome\"})", "get_all({})", "get({\"city\": \"Rome\"})"};
  for (const std::string between : {";", "; ", "\n", "\n\n", " ", "", ", "}) {
    EXPECT_EQ(calls(kGet + between + all + between + kGet), three);
    EXPECT_EQ(calls("<tool_call>\n" + kGet + between + all + between + kGet + "\n</tool_call>"),
              three);
  }
  for (const std::string between : {"</tool_call><tool_call>", "\n</tool_call>\n<tool_call>\n",
                                    "</tool_call> and <tool_call>", "<tool_call>"}) {
    EXPECT_EQ(calls("<tool_call>" + kGet + between + all + between + kGet), three);
  }
  EXPECT_EQ(calls("[" + kGet + "," + all + ", " + kGet + "]"), three);
  EXPECT_EQ(calls("```json\n[" + kGet + "," + all + ", " + kGet + "]\n```"), three);
}

// G18: an unknown name is reported as such and costs its neighbours nothing.
TEST(unknown_names_are_reported) {
  const std::string lost = "{\"name\": \"lost\", \"arguments\": {\"x\": 1}}";
  const Strings three = {"get({\"city\": \"Rome\"})", "[lost]({\"x\": 1})",
                         "get({\"city\": \"Rome\"})"};
  EXPECT_EQ(calls("[" + kGet + ", " + lost + ", " + kGet + "]"), three);
  EXPECT_EQ(calls(kGet + "\n" + lost + "\n" + kGet), three);
}

// G33
TEST(names_are_read_whole) {
  for (const std::string name : {"a.b", "srv:tool", "\u00fcber", "get_all"}) {
    EXPECT_EQ(calls("{\"name\": \"" + name + "\", \"arguments\": {}}"), Strings{name + "({})"});
  }
  EXPECT_EQ(calls("{\"name\": \"\\u00fcber\", \"arguments\": {}}"), Strings{"\u00fcber({})"});
  EXPECT_EQ(calls("{\"name\": \"ge\", \"arguments\": {}}"), Strings{"[ge]({})"});
}

// G09, G37: no arguments are {}.
TEST(arguments_may_be_left_out_or_come_in_other_forms) {
  for (const std::string arguments :
       {"", ", \"arguments\": {}", ", \"parameters\": {}", ", \"arguments\": null",
        ", \"arguments\": \"{}\"", ", \"id\": 7, \"arguments\": {}, \"why\": [\"}\"]"}) {
    EXPECT_EQ(calls("{\"name\": \"get_all\"" + arguments + "}"), Strings{"get_all({})"});
  }
  EXPECT_EQ(calls("{\"arguments\": {\"city\": \"Rome\"}, \"name\": \"get\"}"),
            Strings{"get({\"city\": \"Rome\"})"});
  EXPECT_EQ(calls("{\"name\": \"get\", \"arguments\": \"{\\\"city\\\": \\\"Rome\\\"}\"}"),
            Strings{"get({\"city\": \"Rome\"})"});
}

// G43: no promotion of arbitrary braces.
TEST(what_is_no_call_is_prose) {
  for (const std::string& text :
       Strings{"", "Hello.", "See " + kGet, "{\"city\": \"Rome\"}", "[1, 2]", "[]", "{}",
               "{\"name\": \"lost\"}", "```json\n{\"city\": \"Rome\"}\n```",
               "{\"name\": 7, \"arguments\": {}}", "```python\nf()\n```", "{\"name\": \"get\"",
               "<tool_call>\n</tool_call>", "{\"name\": \"get\", \"arguments\": {\"city\"}}"}) {
    EXPECT_EQ(calls(text), Strings{});
  }
}

// G31, G32: only text after the thinking counts, wherever the prompt left it.
TEST(calls_in_thinking_do_not_count) {
  const std::string text = "<tool_call>" + kGet + "</tool_call></think>\n\n";
  EXPECT_EQ(calls("<think>" + text), Strings{});
  EXPECT_EQ(calls("<think>" + text + kGet).size(), 1);
  EXPECT_EQ(read(text + kGet, true).calls().size(), 1);
  EXPECT_EQ(read(text, true).spot(), Spot::kProse);
  EXPECT(read(text, true).answer_start());
  EXPECT_EQ(read("<think>" + kGet).spot(), Spot::kThinking);
  EXPECT_EQ(calls("<think>a</think>b<think>" + kGet + "</think>\n" + kGet).size(), 1);
}

// --- strings, numbers, white space ---

// G08, G14, G15, G16: scanning is balanced and knows strings.
TEST(strings_may_hold_anything) {
  for (const std::string value : {"mkdir -p a/{b,c", "}A", "a]b", "if (x) { return }",
                                  "</tool_call>", "```", "C:\\\\dir\\\"q", "\\\\", "<tool_call>{",
                                  "}}\\n}]", "\u00fc\u6771\U0001F686", "\\ud83d\\udE86"}) {
    const std::string arguments = "{\"city\": \"" + value + "\"}";
    const std::string call = "{\"name\": \"get\", \"arguments\": " + arguments + "}";
    EXPECT_EQ(calls("<tool_call>\n" + call + "\n</tool_call>"), Strings{"get(" + arguments + ")"});
  }
  EXPECT_EQ(calls("<tool_call> not yet <tool_call>\n" + kGet + "\n</tool_call>}"),
            Strings{"get({\"city\": \"Rome\"})"});
}

// F11, F12, F13
TEST(only_json_is_taken) {
  const auto with = [](std::string_view value) {
    return calls("{\"name\": \"get\", \"arguments\": {\"city\": " + std::string(value) + "}}")
        .size();
  };
  for (const std::string_view good : {"-0", "0", "10", "-1.5", "1e2", "1E+05", "0.10", "true",
                                      "null", "[]", "[ ]", "{ }", "[1 ,\r\n\t2]"}) {
    EXPECT_EQ(with(good), 1);
  }
  for (const std::string_view bad :
       {"01",         "1.",    ".5",       "+1",      "1.e2",        "-",    "NaN",  "1e",
        "tru",        "nulll", "\"a\nb\"", "\"\\x\"", "\"\\u00g0\"", "[1,]", "[,1]", "{,}",
        "{\"a\":1,}", "{1:2}", "'x'",      "[1}",     "{\"a\":1]",   ""}) {
    EXPECT_EQ(with(bad), 0);
  }
  EXPECT_EQ(calls("{ \"name\" : \"get\" , \"arguments\" : { \"days\" : 1 } }"),
            Strings{"get({ \"days\" : 1 })"});
  EXPECT_EQ(calls("{\"name\":\r\n\"get\"}").size(), 1);
}

// F15: arguments stand in any order.
TEST(state_inside_a_call) {
  CallReader reader =
      read("{\"name\": \"get\", \"arguments\": {\"days\": 3, \"where\": {\"lon\": [1, {\"z");
  EXPECT_EQ(reader.tool(), 0);
  EXPECT_EQ(reader.spot(), Spot::kKey);
  EXPECT_EQ(reader.token(), "\"z");
  EXPECT_EQ(reader.frames().size(), 5);
  EXPECT_EQ(reader.frames()[1].property, 2);
  EXPECT_EQ(reader.frames()[2].property, 1);
  EXPECT_EQ(reader.keys().size(), 5);
  EXPECT_EQ(reader.keys()[2].property, 1);
  reader.feed("\" : -1.");
  EXPECT_EQ(reader.spot(), Spot::kNumber);
  EXPECT(!reader.number_is_complete());
  reader.feed("5}");
  EXPECT_EQ(reader.frames().size(), 4);
  EXPECT_EQ(reader.spot(), Spot::kAfterValue);
  reader.feed("] \n");
  EXPECT_EQ(reader.gap(), " \n");
  reader.feed("}, \"city\"");
  EXPECT_EQ(reader.spot(), Spot::kColon);
  EXPECT_EQ(reader.frames().back().property, 0);
  reader.feed(":\"x\\u00");
  EXPECT_EQ(reader.token(), "\"x\\u00");
  reader.feed("e9\"}}");
  EXPECT_EQ(reader.calls().size(), 1);
  EXPECT(!reader.in_call());
}

// G24: what is no call is content.
TEST(content_is_what_is_no_call) {
  EXPECT_EQ(content("Sure. <tool_call>\n" + kGet + "\n</tool_call> Done."), "Sure.  Done.");
  EXPECT_EQ(content("A\n```json\n" + kGet + "\n```\nB"), "A\n\nB");
  EXPECT_EQ(content("[" + kGet + "]"), "");
  EXPECT_EQ(content(kGet + "\n" + kGet + "\nEnd"), "\nEnd");
  EXPECT_EQ(content("Look: {}\n"), "Look: {}\n");
}

// --- state is a function of the bytes ---

// F04, G02, G04, G11, G12, G16, G35
TEST(any_split_gives_the_same_state) {
  for (const std::string& text : transcripts()) {
    const CallReader whole = read(text);
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      CallReader parts = read(std::string_view(text).substr(0, cut));
      const CallReader copy = parts;
      parts.feed({});
      EXPECT(parts == copy);
      parts.feed(std::string_view(text).substr(cut));
      EXPECT(parts == whole);
    }
    CallReader bytes(tools());
    for (const char byte : text) bytes.feed({&byte, 1});
    EXPECT(bytes == whole);
  }
}

TEST(noise_never_upsets_the_reader) {
  std::mt19937 random(7);
  const std::string all = [] {
    std::string all;
    for (const std::string& text : transcripts()) all += text + "\n";
    return all;
  }();
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int k = 0; k < 6; ++k) {  // pieces of calls, put together at random, some bytes broken
      const std::size_t from = random() % all.size();
      text += all.substr(from, random() % 40);
      if (random() % 4 == 0) text.push_back(static_cast<char>(random()));
    }
    CallReader bytes(tools());
    for (const char byte : text) bytes.feed({&byte, 1});
    EXPECT(bytes == read(text));
    bytes.feed("\n\n<tool_call>\n" + kGet + "\n</tool_call>");  // and it still reads a call
    const bool open = bytes.in_call() || bytes.spot() == Spot::kThinking;
    EXPECT(open || (!bytes.calls().empty() && bytes.calls().back().tool == 0));
  }
}

// G34 and more: adversaries cost no more a byte than others do.
TEST(hostile_text_is_linear) {
  const std::string open = "{\"name\": \"get\", \"arguments\": {\"city\": ";
  const Strings units = {"{",
                         "[",
                         "\"",
                         "\\",
                         "<tool_call>",
                         "```",
                         "```json\n{",
                         "<",
                         "<think></think>",
                         "\x80\xff",
                         "{\"a\":",
                         "{\"name\": \"get\"}\n",
                         "[\n",
                         "<tool_call>{\"name\"",
                         "\n"};
  const auto cpu_seconds = [](const std::string& head, const std::string& unit, std::size_t size) {
    std::string text = head;
    while (text.size() < size) text += unit;
    const std::clock_t begin = std::clock();
    CallReader reader(tools());
    for (std::size_t i = 0; i < text.size(); i += 7) {
      reader.feed(std::string_view(text).substr(i, 7));
    }
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  for (const std::string& unit : units) {
    for (const std::string& head : {std::string(), open + "\"", open}) {
      // eight times the text; what is quadratic takes 64 times as long
      const double few = cpu_seconds(head, unit, 25000);
      EXPECT(cpu_seconds(head, unit, 200000) < 30 * few + 0.02);
    }
  }
}

TEST(deep_nesting_ends_the_call_and_not_the_stack) {
  const std::string open = "{\"name\": \"get\", \"arguments\": {\"city\": ";
  EXPECT(!read(open + std::string(1000000, '[')).in_call());
  EXPECT(read(open + std::string(120, '[')).in_call());
}

// --- style ---

TEST(the_style_is_seen) {
  const CallStyle tags = read("<tool_call>\n" + kGet + "\n</tool_call>").style();
  EXPECT_EQ(tags.wrapper, Wrapper::kTags);
  EXPECT(tags.agrees_with(CallStyle::usual(Wrapper::kTags)));
  EXPECT((tags.seen & ooospec::kCloseGapFacet) != 0);
  const CallStyle llama =
      read("{\"type\":\"function\",\"name\":\"get\",\"parameters\":{\"city\":\"/\u00e9\"}}")
          .style();
  EXPECT_EQ(llama.wrapper, Wrapper::kBare);
  EXPECT_EQ(llama.arguments_key, "parameters");
  EXPECT(llama.type_key);
  EXPECT_EQ(llama.after_colon, "");
  EXPECT(!llama.spelling.ascii && (llama.seen & ooospec::kAsciiFacet) != 0);
  EXPECT(!llama.spelling.slash && (llama.seen & ooospec::kSlashFacet) != 0);
  const CallStyle indented =
      read("```json\n[\n\t{\n\t\t\"name\": \"get\",\n\t\t\"arguments\": { \"days\" : 1 }").style();
  EXPECT_EQ(indented.wrapper, Wrapper::kFencedJson);
  EXPECT(indented.list && indented.lines[0] && indented.lines[1] && !indented.lines[2]);
  EXPECT_EQ(indented.indent, "\t");
  EXPECT_EQ(indented.pad, " ");
  EXPECT_EQ(indented.before_colon, " ");
}

TEST(a_style_comes_from_a_rendered_probe) {
  const std::string text =
      "<|im_start|>assistant\n<tool_call>\n" + kGet + "\n</tool_call><|im_end|>\n";
  EXPECT(CallStyle::from_text(text, tools()).agrees_with(CallStyle::usual(Wrapper::kTags)));
  EXPECT_THROWS(CallStyle::from_text("Hello.", tools()), std::invalid_argument,
                "a call of one of the 5 tools, got 'Hello.'");
  EXPECT_THROWS(CallReader(nullptr), std::invalid_argument, "a tool set, got none");
}

// What turns out to be no call leaves no trace in the style.
TEST(no_call_no_style) {
  for (const std::string text :
       {"```json\n{\"a\" :1}\n```", "{\"name\":\"get\",\"arguments\":{\"x\" :}", "[1]"}) {
    EXPECT_EQ(+read(text).style().seen, 0);
  }
}

TEST(styles_are_learnt) {
  std::vector<ooospec::StyleGuess> guesses(ooospec::usual_styles().begin(),
                                           ooospec::usual_styles().end());
  const std::size_t size = guesses.size();
  CallStyle tabs =
      read("```json\n{\n\t\"name\": \"get\",\n\t\"arguments\": {\n\t\t\"city\": \"x\"\n\t}\n}\n```")
          .style();
  learn(guesses, tabs, 0);
  EXPECT_EQ(guesses.size(), size == 8 ? 8 : size + 1);
  EXPECT(tabs.agrees_with(guesses[0].style));
  EXPECT(guesses[0].probability == 0.5f);
  for (std::size_t k = 1; k < 5; ++k) learn(guesses, tabs, k);
  EXPECT(guesses[0].probability > 0.8f);
  const CallStyle spaces = read("{\"name\": \"get\", \"arguments\": {\"city\": \"x\"}}").style();
  learn(guesses, spaces, 5);  // one answer in another style: neither is forgotten
  EXPECT(tabs.agrees_with(guesses[0].style));
  EXPECT(spaces.agrees_with(guesses[1].style));
  EXPECT(guesses[1].probability >= 0.25f);
  float sum = 0;
  for (const auto& guess : guesses) sum += guess.probability;
  EXPECT(sum > 0.999f && sum < 1.001f);
  learn(guesses, CallStyle(), 6);  // nothing seen
  EXPECT(tabs.agrees_with(guesses[0].style));
}
