// SPDX-License-Identifier: Apache-2.0
#include "call/tool_schema.h"

#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cpp/check.h"

namespace {

using ooospec::SchemaNode;
using ooospec::ToolSet;

std::shared_ptr<const ToolSet> with_parameters(std::string_view properties,
                                               std::string_view more = "") {
  return ToolSet::parse(
      "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":"
      "{\"type\":\"object\",\"properties\":" +
      std::string(properties) + std::string(more) + "}}}]");
}

const SchemaNode& parameter(const ToolSet& tools, std::string_view name) {
  for (const auto& parameter : tools.parameters(0)) {
    if (parameter.name == name) return tools.node(parameter.node);
  }
  ooospec::test::fail(__FILE__, __LINE__, "no parameter " + std::string(name));
}

std::vector<std::string> choices(const ToolSet& tools, const SchemaNode& node) {
  std::vector<std::string> out;
  for (const int choice : tools.choices(static_cast<int>(&node - &tools.node(0)))) {
    tools.document().render(out.emplace_back(), choice);
  }
  return out;
}

std::string many_tools(int num_tools, int num_parameters) {
  std::string text;
  for (int t = 0; t < num_tools; ++t) {
    text += t == 0 ? "[" : ",";
    text += "{\"type\":\"function\",\"function\":{\"name\":\"tool_" + std::to_string(t) +
            "\",\"description\":\"Does one thing and does it well.\",\"parameters\":{\"type\":"
            "\"object\",\"properties\":{";
    for (int p = 0; p < num_parameters; ++p) {
      text += (p == 0 ? "\"p" : ",\"p") + std::to_string(p) +
              "\":{\"type\":\"string\",\"description\":\"What to do it with.\"}";
    }
    text += "},\"required\":[\"p0\"]}}}";
  }
  return text + "]";
}

}  // namespace

TEST(tools_have_names_and_parameters_in_the_order_of_the_schema) {
  const auto tools = with_parameters(
      "{\"b\":{\"type\":\"integer\"},\"a\":{\"type\":[\"string\",\"null\"]},\"c\":{}}",
      ",\"required\":[\"a\",\"zz\",7]");
  EXPECT_EQ(tools->size(), 1);
  EXPECT_EQ(tools->parameters(0).size(), 3);
  EXPECT_EQ(tools->parameters(0)[0].name, "b");
  EXPECT(!tools->parameters(0)[0].required);
  EXPECT(tools->parameters(0)[1].required);
  EXPECT_EQ(parameter(*tools, "b").types, ooospec::kIntegerBit);
  EXPECT_EQ(parameter(*tools, "a").types, ooospec::kStringBit | ooospec::kNullBit);
  EXPECT_EQ(parameter(*tools, "c").types, ooospec::kAnyType);
  const int root = tools->tool(0).root;
  EXPECT_EQ(tools->find_property(root, ooospec::hash_bytes("a")), 1);
  EXPECT_EQ(tools->find_property(root, ooospec::hash_bytes("d")), -1);
  EXPECT_EQ(tools->find_property(-1, 0), -1);
}

TEST(tools_without_parameters_are_tools) {
  for (const std::string_view parameters :
       {"", ",\"parameters\":null", ",\"parameters\":{}",
        ",\"parameters\":{\"type\":\"object\",\"properties\":{}}",
        ",\"parameters\":{\"properties\":null}"}) {
    const auto tools = ToolSet::parse("[{\"name\":\"f\"" + std::string(parameters) + "}]");
    EXPECT_EQ(tools->tool(0).name, "f");
    EXPECT_EQ(tools->parameters(0).size(), 0);
    EXPECT(tools->node(tools->tool(0).root).understood);
  }
  EXPECT_EQ(ToolSet::parse("[]")->size(), 0);
}

TEST(schemas_as_users_write_them) {
  const auto tools = with_parameters(
      "{\"e\":{\"enum\":[\"x\",null,1,{\"k\":[]}]},\"c\":{\"const\":\"only\"},"
      "\"t\":{\"type\":\"string\",\"enum\":[\"x\",1]},\"n\":{\"type\":\"integer\",\"nullable\":"
      "true},"
      "\"o\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"null\"}],\"default\":null},"
      "\"a\":{\"items\":{\"type\":\"boolean\"}},\"d\":{\"type\":\"dict\"},"
      "\"p\":{\"properties\":{\"q\":{\"type\":\"string\"}},\"required\":[\"q\"]}}");
  EXPECT_EQ(choices(*tools, parameter(*tools, "e")),
            (std::vector<std::string>{"\"x\"", "null", "1", "{\"k\":[]}"}));
  EXPECT_EQ(choices(*tools, parameter(*tools, "c")), std::vector<std::string>{"\"only\""});
  EXPECT_EQ(choices(*tools, parameter(*tools, "t")), std::vector<std::string>{"\"x\""});
  EXPECT_EQ(parameter(*tools, "n").types, ooospec::kIntegerBit | ooospec::kNullBit);
  EXPECT_EQ(parameter(*tools, "o").types, ooospec::kNumberBit | ooospec::kNullBit);
  EXPECT(parameter(*tools, "o").understood);
  const SchemaNode& list = parameter(*tools, "a");
  EXPECT_EQ(list.types, ooospec::kArrayBit);
  EXPECT_EQ(tools->node(list.items).types, ooospec::kBooleanBit);
  EXPECT_EQ(parameter(*tools, "d").types, ooospec::kObjectBit);
  const SchemaNode& object = parameter(*tools, "p");
  EXPECT_EQ(object.types, ooospec::kObjectBit);
  EXPECT_EQ(object.num_properties, 1);
}

// F20, F21: odd and broken schemas switch off what they stand in, and nothing else.
TEST(what_is_not_understood_is_off_alone) {
  const auto tools = with_parameters(
      "{\"any\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]},"
      "\"empty\":{\"$ref\":\"\"},\"circle\":{\"$ref\":\"#/$defs/A\"},"
      "\"lost\":{\"$ref\":\"#/$defs/Nothing\"},"
      "\"odd\":{\"type\":\"quaternion\"},\"seven\":7,\"text\":\"string\",\"yes\":true,"
      "\"list\":{\"type\":\"array\",\"items\":{\"$ref\":\"a\"}},\"enum\":{\"enum\":\"x\"},"
      "\"good\":{\"type\":\"string\",\"x-unknown\":{\"$ref\":\"\"}}}",
      ",\"$defs\":{\"A\":{\"$ref\":\"#/$defs/B\"},\"B\":{\"$ref\":\"#/$defs/A\"}}");
  for (const std::string_view off : {"empty", "circle", "lost", "odd", "seven", "text", "enum"}) {
    EXPECT(!parameter(*tools, off).understood);
  }
  EXPECT_EQ(parameter(*tools, "any").types, ooospec::kStringBit | ooospec::kIntegerBit);
  EXPECT(parameter(*tools, "yes").understood);
  EXPECT(parameter(*tools, "good").understood);
  EXPECT(parameter(*tools, "list").understood);
  EXPECT(!tools->node(parameter(*tools, "list").items).understood);
  std::string deep = "{\"type\":\"string\"}";
  for (int k = 0; k < 20000; ++k) deep = "{\"items\":" + deep + "}";
  const auto nested = with_parameters("{\"deep\":" + deep + ",\"good\":{\"type\":\"string\"}}");
  EXPECT_EQ(parameter(*nested, "good").types, ooospec::kStringBit);
  EXPECT(parameter(*nested, "deep").understood);
}

TEST(bad_lists_raise_one_clear_error) {
  EXPECT_THROWS(ToolSet::parse("{"), std::invalid_argument, "tools: JSON: expected");
  EXPECT_THROWS(ToolSet::parse("{}"), std::invalid_argument,
                "expected a list of functions, got an object");
  EXPECT_THROWS(ToolSet::parse("[1]"), std::invalid_argument,
                "tools[0]: expected an object, got a number");
  EXPECT_THROWS(ToolSet::parse("[{}]"), std::invalid_argument,
                "expected a function with a name, got none");
  EXPECT_THROWS(ToolSet::parse("[{\"name\":\"a\"},{\"function\":{\"name\":\"\"}}]"),
                std::invalid_argument,
                "tools[1]: expected a function with a name, got an empty one");
  EXPECT_THROWS(ToolSet::parse("[{\"name\":7}]"), std::invalid_argument, "got a number");
  EXPECT_THROWS(ToolSet::parse("[{\"name\":\"a\"},{\"name\":\"a\"}]"), std::invalid_argument,
                "got 'a' twice");
  EXPECT_THROWS(ToolSet::parse("[{\"name\":\"a\",\"parameters\":[]}]"), std::invalid_argument,
                "tool 'a': expected `parameters` to be an object, got a list");
  EXPECT_THROWS(ToolSet::parse("[{\"name\":\"a\",\"parameters\":{\"properties\":[]}}]"),
                std::invalid_argument, "`properties` to be an object, got a list");
}

// G33: names are bytes, whatever they are.
TEST(names_are_opaque) {
  const auto tools = ToolSet::parse(
      "[{\"name\":\"get_all\"},{\"name\":\"a.b\"},{\"name\":\"srv:tool\"},{\"name\":\"\u00fcber\"},"
      "{\"name\":\"get\"},{\"name\":\"x-y\"},{\"name\":\"q\\\"\\\\\"}]");
  for (int k = 0; k < tools->size(); ++k) EXPECT_EQ(tools->find(tools->tool(k).name), k);
  EXPECT_EQ(tools->find("ge"), -1);
  EXPECT_EQ(tools->find("get_"), -1);
  EXPECT_EQ(tools->find(""), -1);
  const auto found = tools->with_prefix("get");
  EXPECT_EQ(std::vector<int>(found.begin(), found.end()), (std::vector<int>{4, 0}));
  EXPECT_EQ(tools->with_prefix("").size(), 7);
  EXPECT_EQ(tools->with_prefix("\xc3").size(), 1);
  EXPECT_EQ(tools->with_prefix("zzz").size(), 0);
}

TEST(doubled_properties_count_once) {
  const auto tools =
      with_parameters("{\"a\":{\"type\":\"string\"},\"b\":{},\"a\":{\"type\":\"integer\"}}");
  EXPECT_EQ(tools->parameters(0).size(), 2);
  EXPECT_EQ(parameter(*tools, "a").types, ooospec::kIntegerBit);
}

// F22: a long list is no matter of tens of seconds, and its hash finds it again.
TEST(long_lists_are_read_at_once) {
  const std::string text = many_tools(128, 10);
  const std::clock_t begin = std::clock();
  for (int run = 0; run < 5; ++run) EXPECT_EQ(ToolSet::parse(text)->size(), 128);
  EXPECT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / 5 < 0.05);
  EXPECT_EQ(ToolSet::parse(text)->hash(), ToolSet::parse(text)->hash());
  EXPECT(ToolSet::parse(many_tools(2, 2))->hash() != ToolSet::parse(many_tools(2, 3))->hash());
}
