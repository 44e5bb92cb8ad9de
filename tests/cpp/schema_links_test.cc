// SPDX-License-Identifier: Apache-2.0
#include "call/schema_links.h"

#include <algorithm>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "call/call_writer.h"
#include "cpp/check.h"

namespace {

using namespace ooospec;

const std::string kSource =
    R"({"type":"object","required":["path","line"],"properties":{"path":{"type":"string"},)"
    R"("line":{"type":"integer"},"mode":{"enum":["r","w"]}}})";
const std::string kDir =
    R"({"type":"object","properties":{"dir":{"type":"string"}},"required":["dir"]})";
const std::string kFile = R"({"type":"object","required":["file","asString"],"properties":)"
                          R"({"file":{"type":"string"},"asString":{"type":"boolean"}}})";
const std::string kDefs = R"("$defs":{"Src":)" + kSource + R"(,"Dir":)" + kDir + R"(,"File":)" +
                          kFile +
                          R"(,"a/b~c %":{"const":"odd"},)"
                          R"("To":{"$ref":"#/$defs/Src"},"A":{"$ref":"#/$defs/B"},)"
                          R"("B":{"allOf":[{"$ref":"#/$defs/A"}]}},"definitions":{"Src":)" +
                          kSource + "}";

// One tool `f` with a parameter `x` of the schema.
std::shared_ptr<const ToolSet> with_x(const std::string& schema) {
  return ToolSet::parse(R"([{"name":"f","parameters":{"type":"object","properties":{"x":)" +
                        schema + R"(},"required":["x"],)" + kDefs + "}}]");
}

std::vector<std::string> drafts(const std::shared_ptr<const ToolSet>& tools,
                                const std::string& begun) {
  CallReader reader(tools);
  reader.feed(R"({"name": "f", "arguments": {"x": )" + begun);
  CallWriter writer;
  std::vector<TextPath> paths;
  const StyleGuess bare{CallStyle::usual(Wrapper::kBare), 1.0f};
  writer.write_on(reader, {&bare, 1}, {}, 16, paths);
  std::vector<std::string> out;
  for (const TextPath& path : paths) out.push_back(path.text);
  return out;
}

std::string main_draft(const std::shared_ptr<const ToolSet>& tools, const std::string& begun = "") {
  const auto out = drafts(tools, begun);
  return out.empty() ? "(none)" : out[0];
}
std::string main_draft(const std::string& schema, const std::string& begun = "") {
  return main_draft(with_x(schema), begun);
}

bool some_begin(const std::vector<std::string>& texts, std::string_view head) {
  return std::ranges::any_of(texts,
                             [&](const std::string& text) { return text.starts_with(head); });
}

}  // namespace

// F18: the keys of what a local reference means are drafted, wherever it stands.
TEST(local_references_are_followed) {
  for (const std::string_view at : {"#/$defs/Src", "#/definitions/Src", "#/$defs/To"}) {
    const std::string reference = R"({"$ref":")" + std::string(at) + R"("})";
    EXPECT_EQ(main_draft(reference), R"({"path": ")");
    EXPECT_EQ(main_draft(R"({"type":"array","items":)" + reference + "}"), R"([{"path": ")");
    EXPECT_EQ(
        main_draft(R"({"allOf":[)" + reference + R"(],"description":"d"})", R"({"path": "p")"),
        R"(, "line": )");
  }
  const auto items = with_x(R"({"type":"array","items":{"$ref":"#/$defs/Src"}})");
  EXPECT(some_begin(drafts(items, R"([{"path": "p", "line": 1, "mode": )"), R"("r"}]}})"));
  EXPECT(some_begin(drafts(items, R"([{"path": "p", "line": 1}, )"), R"({"path": ")"));
  EXPECT_EQ(main_draft(R"({"$ref":"#/$defs/a~1b~0c%20%25"})"), R"("odd"}})");
  const auto nullable = drafts(with_x(R"({"$ref":"#/$defs/Src","nullable":true})"), "");
  EXPECT_EQ(nullable[0], R"({"path": ")");
  EXPECT(some_begin(nullable, "null}}"));
  const std::string whole = R"([{"name":"f","parameters":{"$ref":"#/$defs/P","$defs":{"P":)"
                            R"({"properties":{"x":{"$ref":"#/$defs/D"}}},"D":)" +
                            kDir + "}}}]";
  EXPECT_EQ(main_draft(ToolSet::parse(whole)), R"({"dir": ")");
  const std::string by_place = R"([{"name":"f","parameters":{"properties":{"y":{"anyOf":[)" + kDir +
                               R"(]},"x":{"$ref":"#/properties/y/anyOf/0"}}}}])";
  EXPECT_EQ(main_draft(ToolSet::parse(by_place)), R"({"dir": ")");
}

// F20: and of what is elsewhere, nowhere, or points to itself, nothing.
TEST(other_references_switch_their_own_value_off) {
  for (const std::string_view at :
       {"", "http://a/b#/$defs/Src", "Src", "#Src", "#/$defs/None", "#/$defs/A", "#/$defs/B",
        "#/required/0", "#/required/7", "#/$defs/Src/type", "#//"}) {
    const std::string reference = R"({"$ref":")" + std::string(at) + R"("})";
    EXPECT_EQ(main_draft(reference), "(none)");
    EXPECT_EQ(main_draft(R"({"type":"array","items":)" + reference + "}"), "[");
  }
  EXPECT_EQ(main_draft(R"({"$ref":7})"), "(none)");
  EXPECT_EQ(main_draft(R"({"$ref":"#/$defs/Src","anyOf":[true]})"), "(none)");
  EXPECT_EQ(main_draft(R"({"allOf":[{"$ref":"#/$defs/Src"},{"$ref":"#/$defs/Dir"}]})"), "(none)");
}

// F21: a schema that refers to itself is drafted as deep as others.
TEST(schemas_may_contain_themselves) {
  const auto tree = with_x(R"({"type":"object","required":["name","left","right"],"properties":)"
                           R"({"name":{"const":"n"},"left":{"$ref":"#/properties/x"},"right":)"
                           R"({"$ref":"#/properties/x"}}})");
  const std::string head = R"({"name": "n", "left": {"name": "n", "left": {"name": )";
  EXPECT(main_draft(tree).starts_with(head));
  EXPECT(tree->node(0).num_properties == 1);
  const auto list = with_x(R"({"type":"array","items":{"$ref":"#/properties/x"}})");
  EXPECT(main_draft(list).starts_with("[[[[[[[["));
  const auto both = with_x(R"({"anyOf":[{"$ref":"#/properties/x"},)" + kDir + "]}");
  EXPECT_EQ(main_draft(both), R"({"dir": ")");
}

// What stands beside a link is not lost: a choice is drafted; what is not understood is not.
TEST(what_stands_beside_a_link_counts) {
  const auto choice = with_x(R"({"anyOf":[{"type":"string"}],"enum":["red","green"]})");
  EXPECT(some_begin(drafts(choice, ""), R"("red")"));
  const auto denied = with_x(R"({"$ref":"#/$defs/Dir","not":{"required":["dir"]}})");
  EXPECT(!some_begin(drafts(denied, ""), R"({"dir)"));
}

// F19: the keys of each alternative are siblings, and what was written tells the alternative.
TEST(alternatives_are_siblings) {
  const std::string link = R"({"type":"object","properties":{"file":{"type":"string"},)"
                           R"("url":{"type":"string"}},"required":["file","url"]})";
  for (const std::string_view keyword : {"anyOf", "oneOf"}) {
    const std::string open = R"({")" + std::string(keyword) + R"(":[)";
    const auto two = with_x(open + R"({"$ref":"#/$defs/Dir"},)" + kFile + "]}");
    EXPECT_EQ(main_draft(two), R"({"dir": ")");
    EXPECT(some_begin(drafts(two, ""), R"({"file": ")"));
    EXPECT_EQ(main_draft(two, R"({"dir": "d")"), "}}}");
    EXPECT(some_begin(drafts(two, R"({"fi)"), R"(le": )"));
    const auto file = drafts(two, R"({"file": "f")");
    EXPECT(some_begin(file, R"(, "asString": true}}})"));
    EXPECT(some_begin(file, R"(, "asString": false}}})"));
    EXPECT(!some_begin({file[0]}, "}"));
    // what they begin with alike comes once
    const auto shared = with_x(open + kFile + "," + link + R"(,{"type":"null"}]})");
    const auto first = drafts(shared, "{");
    EXPECT_EQ(first[0], R"("file": ")");
    EXPECT_EQ(std::ranges::count_if(first, [](auto& t) { return t.starts_with("\"file"); }), 1);
    const auto second = drafts(shared, R"({"file": "f")");
    EXPECT(some_begin(second, R"(, "asString": )") && some_begin(second, R"(, "url": ")"));
    EXPECT(some_begin(drafts(shared, ""), "null}}"));
  }
}

TEST(a_tag_tells_the_alternative) {
  const auto tagged = [](std::string_view kind, std::string_view key) {
    return R"({"type":"object","required":["kind",")" + std::string(key) +
           R"("],"properties":{"kind":)" + std::string(kind) + ",\"" + std::string(key) +
           R"(":{"type":"string"}}})";
  };
  const auto tools = with_x(R"({"oneOf":[)" + tagged(R"({"const":"dir"})", "path") + "," +
                            tagged(R"({"enum":["web","ftp"]})", "url") + "," +
                            tagged(R"({"type":"string"})", "any") + "]}");
  const auto first = drafts(tools, "{");
  EXPECT(some_begin(first, R"("kind": "dir", "path": ")"));
  EXPECT(some_begin(first, R"("kind": "web", "url": ")"));
  EXPECT(some_begin(first, R"("kind": "ftp", "url": ")"));
  const auto web = drafts(tools, R"({"kind": "web")");
  EXPECT(some_begin(web, R"(, "url": ")") && some_begin(web, R"(, "any": ")"));
  EXPECT(!some_begin({web[0]}, R"(, "path": ")"));
  EXPECT_EQ(main_draft(tools, R"({"kind": "other")"), R"(, "any": ")");
  EXPECT_EQ(main_draft(tools, R"({"kind": "dir", "pa)"), R"(th": ")");
  EXPECT(some_begin(drafts(tools, R"({"kind": "d)"), R"(ir", "path": ")"));
  EXPECT_EQ(main_draft(tools, R"({"url": "u", "kind": "ftp")"), "}}}");
}

TEST(alternatives_of_any_kind_are_read) {
  const auto mixed = drafts(with_x(R"({"anyOf":[{"const":"all"},{"type":"array","items":)"
                                   R"({"type":"string"}}]})"),
                            "");
  EXPECT(some_begin(mixed, R"("all"}})") && some_begin(mixed, R"([")"));
  const auto words = drafts(with_x(R"({"anyOf":[{"enum":["a","b"]},{"const":"c"}]})"), "");
  EXPECT_EQ(std::ranges::count(words, "\""), 0);  // closed: no other string begins
  EXPECT(some_begin(words, R"("a"}})") && some_begin(words, R"("c"}})"));
  const auto lists =
      drafts(with_x(R"({"oneOf":[{"items":)" + kDir + R"(},{"items":)" + kFile + "}]}"), "");
  EXPECT(some_begin(lists, R"([{"dir": ")") && some_begin(lists, R"([{"file": ")"));
  // a part that is not understood, beside others
  EXPECT_EQ(main_draft(R"({"anyOf":[{"$ref":"http://a"},)" + kDir + "]}", "{"), R"("dir": ")");
  EXPECT_EQ(main_draft(R"({"anyOf":[]})"), "(none)");
  EXPECT_EQ(main_draft(R"({"anyOf":[7]})"), "(none)");
  // any value is read
  CallReader reader(with_x(R"({"anyOf":[)" + kDir + "," + kFile + "]}"));
  reader.feed(
      R"({"name": "f", "arguments": {"x": {"dir": 3, "file": [], "asString": {}, "z": 1}}})");
  EXPECT_EQ(reader.calls().size(), 1);
}

// Schemas that are all references, or merge over and over, cost no more than others.
TEST(the_work_is_bounded) {
  std::string wide = R"([{"name":"f","parameters":{"properties":{)";
  for (int k = 0; k < 20000; ++k) {
    wide += "\"p" + std::to_string(k) + R"(":{"$ref":"#/$defs/d)" + std::to_string(k) + "\"},";
  }
  wide += R"("x":{}},"$defs":{)";
  for (int k = 0; k < 20000; ++k) {
    wide += "\"d" + std::to_string(k) + R"(":{"$ref":"#/$defs/d)" + std::to_string(k / 2) + "\"},";
  }
  wide += R"("z":{}}}}])";
  std::string merging;  // eight alternatives of eight properties, of which each is one of them
  for (int k = 0; k < 8; ++k) {
    merging +=
        (k == 0 ? "\"" : ",\"") + std::string(1, static_cast<char>('a' + k)) + R"(":{"anyOf":[)";
    for (int way = 0; way < 8; ++way) {
      merging += way == 0 ? "" : ",";
      merging += R"({"properties":{)";
      for (int p = 0; p < 8; ++p) {
        merging += (p == 0 ? "\"" : ",\"") + std::to_string(p) + R"(":{"$ref":"#/$defs/)" +
                   static_cast<char>('a' + (k * way + p * p) % 8) + "\"}";
      }
      merging += "}}";
    }
    merging += "]}";
  }
  merging = R"([{"name":"f","parameters":{"properties":{"x":{"$ref":"#/$defs/b"}},"$defs":{)" +
            merging + "}}}]";
  for (const std::string& text : {wide, merging}) {
    const std::clock_t begin = std::clock();
    const auto tools = ToolSet::parse(text);
    EXPECT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 2);
    EXPECT(tools->parameters(0).size() >= 1);
    drafts(tools, "{");
  }
}
