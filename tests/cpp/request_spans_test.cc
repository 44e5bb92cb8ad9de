// SPDX-License-Identifier: Apache-2.0
#include "call/request_spans.h"

#include <algorithm>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "call/call_reader.h"
#include "call/call_writer.h"
#include "cpp/check.h"

namespace {

using namespace ooospec;

std::shared_ptr<const ToolSet> tools() {
  static const auto tools = ToolSet::parse(R"([{"name": "book", "parameters": {"properties": {
      "user_name": {"type": "string"},
      "city": {"type": "string", "description": "Where to go."},
      "numGuests": {"type": "integer"},
      "price": {"type": "number"},
      "date": {"type": "string", "description": "As %Y-%m-%d."},
      "email": {"type": "string"},
      "tags": {"type": "array", "items": {"type": "string"}, "description": "Labels to add."},
      "sure": {"type": "boolean"}}}}])");
  return tools;
}

std::int32_t node(std::string_view name) {
  for (const SchemaProperty& property : tools()->parameters(0)) {
    if (property.name == name) return property.node;
  }
  ooospec::test::fail(__FILE__, __LINE__, "no parameter " + std::string(name));
}

std::vector<std::string> spans(std::string_view request, std::int32_t of) {
  RequestSpans found(tools(), request);
  std::vector<std::string> out;
  float sum = 0, before = 1;
  for (const RequestSpans::Span& span : found.of(of)) {
    EXPECT(span.probability > 0 && span.probability <= before);
    EXPECT_EQ(std::count(out.begin(), out.end(), span.text), 0);
    EXPECT_EQ(span.plain, is_plain_json(span.text));
    sum += before = span.probability;
    out.push_back(span.text);
  }
  EXPECT(sum < 1);
  EXPECT(out.size() <= RequestSpans::kMaxRanked);
  return out;
}

std::string first(std::string_view request, std::int32_t of) {
  const auto found = spans(request, of);
  return found.empty() ? "(none)" : found[0];
}

bool has(const std::vector<std::string>& all, std::string_view text) {
  return std::find(all.begin(), all.end(), text) != all.end();
}

}  // namespace

TEST(what_follows_the_name_of_a_parameter_comes_first) {
  const std::string_view request = "Book for me. My user name is foo42, my city is called Ulm.";
  EXPECT_EQ(first(request, node("user_name")), "foo42");
  EXPECT_EQ(first(request, node("city")), "Ulm");
}

TEST(quoted_text_is_one_span_without_its_quotes) {
  const auto found =
      spans("Add 'so la la' and \"x, y\" and `f(1)`, “ä b” too; it's John's.", node("city"));
  for (const auto* text : {"so la la", "x, y", "f(1)", "ä b", "John"}) EXPECT(has(found, text));
}

TEST(numbers_are_asked_for_by_type) {
  const std::string_view request =
      "We are 3 or four guests, and pay $1,200.50, not 7e3, on 2024-05-01.";
  const auto guests = spans(request, node("numGuests"));
  EXPECT(has(guests, "3"));
  EXPECT(has(guests, "4"));
  EXPECT(!has(guests, "1200.50"));
  EXPECT(!has(guests, "guests"));
  EXPECT(has(spans(request, node("price")), "1200.50"));
}

TEST(dates_are_found_as_they_stand_and_as_iso_8601) {
  const auto found = spans("On March 3rd, 2023 or 24 Dec 2024.", node("date"));
  for (const auto* text : {"March 3rd, 2023", "2023-03-03", "24 Dec 2024", "2024-12-24"}) {
    EXPECT(has(found, text));
  }
}

TEST(addresses_end_before_the_marks_behind_them) {
  const auto found = spans("Write to (a.b@c.org), see https://x.org/a?b=1.", node("email"));
  EXPECT_EQ(found[0], "a.b@c.org");
  EXPECT(has(found, "https://x.org/a?b=1"));
}

TEST(names_and_phrases_are_spans_of_several_words) {
  const auto found = spans("Please go to the Gulf of Mexico with red running shoes.", node("city"));
  EXPECT(has(found, "Gulf of Mexico"));
  EXPECT(has(found, "red running shoes"));
  EXPECT(!has(found, "Please"));
}

TEST(items_of_a_list_are_asked_for_by_its_name) {
  const std::int32_t items = tools()->node(node("tags")).items;
  EXPECT_EQ(tools()->name_of(items), "tags");
  EXPECT_EQ(tools()->description_of(items), "Labels to add.");
  EXPECT_EQ(first("The weather is fine. The tags are urgent.", items), "urgent");
}

TEST(strange_requests_have_few_spans_or_none) {
  EXPECT(spans("", node("city")).empty());
  EXPECT(spans(" .,'\"`“ \n", node("city")).empty());
  EXPECT(spans("of the and", node("city")).empty());
  EXPECT(spans("Rome", -1).empty());
  EXPECT(spans("Rome", node("sure")).empty());
  EXPECT(spans("Rome", node("tags")).empty());
  spans(std::string(100000, 'a'), node("city"));
  std::string wide;
  for (int i = 0; i < 40000; ++i) wide += i % 7 == 0 ? " " : "ä";
  for (const std::string& text : spans(wide, node("city"))) {
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t size = utf8_size(text, i, false);
      EXPECT(size > 0);
      i += size;
    }
  }
  std::string quotes;
  for (int i = 0; i < 20000; ++i) quotes += "'\"`";
  spans(quotes, node("city"));
}

TEST(time_is_linear) {
  const auto cpu_seconds = [](const std::string& unit, std::size_t size) {
    std::string text;
    while (text.size() < size) text += unit;
    const std::clock_t begin = std::clock();
    RequestSpans found(tools(), text);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  for (const std::string unit : {"a,", "ab;", "a(b)", "a@,", "日本、", "'a ", "\"a ", "“a "}) {
    // eight times the text; what is quadratic takes 64 times as long
    const double few = cpu_seconds(unit, RequestSpans::kMaxBytes / 8);
    EXPECT(cpu_seconds(unit, RequestSpans::kMaxBytes) < 30 * few + 0.02);
  }
}

// --- in what is written ---

TEST(a_value_that_nobody_said_is_written_from_the_request) {
  RequestSpans found(tools(), "I am going to a city called Ulm for 3 guests.");
  CallWriter writer;
  writer.set_spans(&found);
  const std::vector<StyleGuess> bare = {{CallStyle::usual(Wrapper::kBare), 1.0f}};
  std::vector<TextPath> out;
  const auto write = [&](std::string_view text, std::span<const Slots> slots = {}) {
    CallReader reader(tools());
    reader.feed(text);
    writer.write_on(reader, bare, slots, 8, out);
    return out.empty() ? std::string() : out[0].text;
  };
  const std::string head = "{\"name\": \"book\", \"arguments\": {\"city\":";
  EXPECT(write(head).starts_with(" \"Ulm\""));
  EXPECT_EQ(out[0].pieces[0].source, Source::kSchema);
  EXPECT_EQ(out[0].pieces[1].source, Source::kSpan);
  EXPECT(write(head + " \"").starts_with("Ulm\""));
  EXPECT(write(head + " \"Ul").starts_with("m\""));
  EXPECT(write("{\"name\": \"book\", \"arguments\": {\"numGuests\": ").starts_with("3"));
  Slots said;
  EXPECT(said.set(0, 1, "\"Rome\""));
  EXPECT(write(head, {&said, 1}).starts_with(" \"Rome\""));
  writer.set_spans(nullptr);
  EXPECT_EQ(write(head), " \"");
}
