// SPDX-License-Identifier: Apache-2.0
#include "call/call_style.h"

#include <algorithm>
#include <utility>

#include "call/call_reader.h"
#include "common/check.h"

namespace ooospec {

namespace {

constexpr std::array<WrapperForm, kNumWrappers> kForms = {{
    {"bare", "", "", "", true, false, "\n", "arguments"},
    {"tags", "<tool_call>", "</tool_call>", "\n", false, true, "\n", "arguments"},
    {"fenced_json", "```json", "```", "\n", true, true, "\n", "arguments"},
    {"fenced", "```", "```", "\n", true, true, "\n", "arguments"},
    {"python_tag", "<|python_tag|>", "", "", false, false, "; ", "parameters"},
}};

constexpr std::size_t kMaxGuesses = 8;
constexpr float kLearningRate = 0.25f;  // at least; the first answers count more

// Calls f(facet, member of the style) for every facet that is a plain member.
template <typename F>
void for_each_facet(F&& f) {
  f(kWrapperFacet, &CallStyle::wrapper);
  f(kListFacet, &CallStyle::list);
  f(kOpenGapFacet, &CallStyle::open_gap);
  f(kCloseGapFacet, &CallStyle::close_gap);
  f(kBetweenFacet, &CallStyle::rewrap);
  f(kBetweenFacet, &CallStyle::between);
  f(kArgumentsKeyFacet, &CallStyle::arguments_key);
  f(kTypeKeyFacet, &CallStyle::type_key);
  f(kIndentFacet, &CallStyle::indent);
  f(kPadFacet, &CallStyle::pad);
  f(kArrayPadFacet, &CallStyle::array_pad);
  f(kBeforeCommaFacet, &CallStyle::before_comma);
  f(kAfterCommaFacet, &CallStyle::after_comma);
  f(kBeforeColonFacet, &CallStyle::before_colon);
  f(kAfterColonFacet, &CallStyle::after_colon);
}

}  // namespace

Role role_of(std::uint64_t key_hash) {
  static const std::uint64_t name = hash_bytes("name"), type = hash_bytes("type");
  static const std::uint64_t arguments = hash_bytes("arguments");
  static const std::uint64_t parameters = hash_bytes("parameters");
  if (key_hash == name) return Role::kName;
  if (key_hash == type) return Role::kType;
  return key_hash == arguments || key_hash == parameters ? Role::kArguments : Role::kOther;
}

const WrapperForm& form(Wrapper wrapper) { return kForms[static_cast<std::size_t>(wrapper)]; }

CallStyle CallStyle::usual(Wrapper wrapper, std::string_view indent) {
  const WrapperForm& f = form(wrapper);
  CallStyle style;
  style.wrapper = wrapper;
  style.rewrap = f.rewrap;
  style.open_gap = style.close_gap = f.gap;
  style.between = f.between;
  style.arguments_key = f.arguments;
  if (!indent.empty()) {
    style.indent = indent;
    style.lines.fill(true);
  }
  return style;
}

CallStyle CallStyle::from_text(std::string_view text, std::shared_ptr<const ToolSet> tools) {
  CallReader reader(std::move(tools));
  reader.feed(text);
  const auto known = std::count_if(reader.calls().begin(), reader.calls().end(),
                                   [](const Call& call) { return call.tool >= 0; });
  OOOSPEC_REQUIRE(known > 0, "call style: expected a text with a call of one of the ",
                  reader.tools().size(), " tools, got '", text.substr(0, 80), "'");
  return reader.style().filled_from(usual(reader.style().wrapper));
}

CallStyle CallStyle::filled_from(const CallStyle& guess) const {
  CallStyle out = guess;
  out.seen = seen;
  const auto saw = [&](std::uint32_t facet) { return (seen & facet) != 0; };
  if (saw(kWrapperFacet) &&
      wrapper != guess.wrapper) {  // what belongs to the other wrapper tells nothing
    const CallStyle ours = usual(wrapper);
    out.list = ours.list;
    out.rewrap = ours.rewrap;
    out.open_gap = ours.open_gap;
    out.close_gap = ours.close_gap;
    out.between = ours.between;
    out.arguments_key = ours.arguments_key;
  }
  // containers are mostly laid out like those around them
  for (int outer = static_cast<int>(Level::kCall); outer < kNumLevels; ++outer) {
    const auto level = static_cast<std::size_t>(outer);
    if (!saw(lines_facet(static_cast<Level>(outer)))) continue;
    if (lines[level] != out.lines[level]) {
      std::fill(out.lines.begin() + outer, out.lines.end(), lines[level]);
    }
    out.lines[level] = lines[level];
  }
  if (saw(lines_facet(Level::kList))) out.lines[0] = lines[0];
  if (saw(kAfterColonFacet) && after_colon != guess.after_colon) out.after_comma = after_colon;
  for_each_facet([&](Facet facet, auto member) {
    if (saw(facet)) out.*member = this->*member;
  });
  if (saw(kAsciiFacet)) out.spelling.ascii = spelling.ascii;
  if (saw(kSlashFacet)) out.spelling.slash = spelling.slash;
  return out;
}

bool CallStyle::writes_like(const CallStyle& other) const {
  bool alike = lines == other.lines && spelling == other.spelling;
  for_each_facet([&](Facet, auto member) { alike = alike && this->*member == other.*member; });
  return alike;
}

bool CallStyle::agrees_with(const CallStyle& other) const {
  bool agrees = true;
  for_each_facet([&](Facet facet, auto member) {
    agrees = agrees && ((seen & facet) == 0 || this->*member == other.*member);
  });
  if (!agrees) return false;
  for (int level = 0; level < kNumLevels; ++level) {
    const auto i = static_cast<std::size_t>(level);
    if ((seen & lines_facet(static_cast<Level>(level))) != 0 && lines[i] != other.lines[i])
      agrees = false;
  }
  if ((seen & kAsciiFacet) != 0 && spelling.ascii != other.spelling.ascii) agrees = false;
  if ((seen & kSlashFacet) != 0 && spelling.slash != other.spelling.slash) agrees = false;
  return agrees;
}

std::span<const StyleGuess> usual_styles() {
  static const std::vector<StyleGuess> guesses = [] {
    CallStyle llama = CallStyle::usual(Wrapper::kBare);
    llama.arguments_key = "parameters";
    return std::vector<StyleGuess>{
        {CallStyle::usual(Wrapper::kTags), 0.35f},
        {CallStyle::usual(Wrapper::kFencedJson, "  "), 0.25f},
        {CallStyle::usual(Wrapper::kBare), 0.12f},
        {llama, 0.08f},
        {CallStyle::usual(Wrapper::kFencedJson), 0.08f},
        {CallStyle::usual(Wrapper::kBare, "  "), 0.05f},
        {CallStyle::usual(Wrapper::kPythonTag), 0.04f},
        {CallStyle::usual(Wrapper::kFenced, "  "), 0.03f},
    };
  }();
  return guesses;
}

void learn(std::vector<StyleGuess>& guesses, const CallStyle& seen, std::size_t num_before) {
  if ((seen.seen & kWrapperFacet) == 0) return;
  auto match = std::find_if(guesses.begin(), guesses.end(),
                            [&](const StyleGuess& g) { return seen.agrees_with(g.style); });
  if (match == guesses.end()) {
    if (guesses.size() == kMaxGuesses) guesses.pop_back();
    const auto kin = std::find_if(guesses.begin(), guesses.end(), [&](const StyleGuess& g) {
      return g.style.wrapper == seen.wrapper;
    });
    const CallStyle base = kin != guesses.end() ? kin->style : CallStyle::usual(seen.wrapper);
    guesses.push_back({seen.filled_from(base), 0.0f});
    match = guesses.end() - 1;
  }
  const float rate = std::max(kLearningRate, 1.0f / static_cast<float>(num_before + 2));
  float sum = 0;
  for (StyleGuess& guess : guesses) sum += guess.probability;
  for (StyleGuess& guess : guesses) guess.probability *= sum > 0 ? (1.0f - rate) / sum : 0.0f;
  match->probability += sum > 0 ? rate : 1.0f;
  std::stable_sort(guesses.begin(), guesses.end(), [](const StyleGuess& a, const StyleGuess& b) {
    return a.probability > b.probability;
  });
}

}  // namespace ooospec
