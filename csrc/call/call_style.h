// SPDX-License-Identifier: Apache-2.0
//
// How a target writes calls: the one definition of the formats, used to draft, to read and to
// render.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "call/json_value.h"

namespace ooospec {

class ToolSet;

enum class Wrapper : std::uint8_t { kBare, kTags, kFencedJson, kFenced, kPythonTag };
inline constexpr int kNumWrappers = 5;

// What stands around calls, and how it is usually spaced.
struct WrapperForm {
  std::string_view name;
  std::string_view open;       // marker before the call
  std::string_view close;      // marker behind it
  std::string_view gap;        // white space inside both markers
  bool line_start;             // the marker counts only at the start of a line
  bool rewrap;                 // several calls: each in a wrapper of its own
  std::string_view between;    // several calls: what stands between them, or between their wrappers
  std::string_view arguments;  // the usual key of the arguments
};
const WrapperForm& form(Wrapper wrapper);

// The members of a call's object.
enum class Role : std::uint8_t { kType, kName, kArguments, kOther };
Role role_of(std::uint64_t key_hash);  // hash_bytes(key)

// The containers that are laid out apart from each other.
enum class Level : std::uint8_t { kList, kCall, kArguments, kObject, kArray };
inline constexpr int kNumLevels = 5;

// Parts of a style; a set of them says what was seen in a text.
enum Facet : std::uint32_t {
  kWrapperFacet = 1u << 0,
  kListFacet = 1u << 1,
  kOpenGapFacet = 1u << 2,
  kCloseGapFacet = 1u << 3,
  kBetweenFacet = 1u << 4,
  kArgumentsKeyFacet = 1u << 5,
  kTypeKeyFacet = 1u << 6,
  kIndentFacet = 1u << 7,
  kPadFacet = 1u << 8,
  kArrayPadFacet = 1u << 9,
  kBeforeCommaFacet = 1u << 10,
  kAfterCommaFacet = 1u << 11,
  kBeforeColonFacet = 1u << 12,
  kAfterColonFacet = 1u << 13,
  kAsciiFacet = 1u << 14,
  kSlashFacet = 1u << 15,
  kLinesFacet = 1u << 16,  // shifted by the Level
};
constexpr std::uint32_t lines_facet(Level level) { return kLinesFacet << static_cast<int>(level); }

struct CallStyle {
  Wrapper wrapper = Wrapper::kTags;
  bool list = false;                     // the calls stand in a JSON list
  bool rewrap = true;                    // several calls: each in a wrapper of its own
  bool type_key = false;                 // "type": "function" before the name
  std::array<bool, kNumLevels> lines{};  // members of this container stand on lines of their own
  JsonSpelling spelling;
  std::string open_gap = "\n";   // between opening marker and call
  std::string close_gap = "\n";  // between call and closing marker
  std::string between = "\n";  // several calls: what stands between them, or between their wrappers
  std::string arguments_key = "arguments";
  std::string indent = "  ";  // one step
  std::string pad;            // inside the braces of an object in one line
  std::string array_pad;      // inside the brackets of an array in one line
  std::string before_comma;
  std::string after_comma = " ";  // in one line
  std::string before_colon;
  std::string after_colon = " ";
  std::uint32_t seen = 0;  // Facet set: what was read from a text; the rest are guesses

  bool operator==(const CallStyle&) const = default;
  bool writes_like(const CallStyle& other) const;  // equal but for what was seen
  bool lines_of(Level level) const { return lines[static_cast<std::size_t>(level)]; }

  // The usual style of a wrapper: one line, or indented by `indent` where that is not empty.
  static CallStyle usual(Wrapper wrapper, std::string_view indent = "");

  // Reads the style of the calls in `text`, for instance a chat template's rendering of a probe
  // call. tools: the tools called in it. Raises std::invalid_argument if `text` holds no complete
  // call of them.
  static CallStyle from_text(std::string_view text, std::shared_ptr<const ToolSet> tools);

  // Returns this style where it was seen, `guess` elsewhere; layout that `guess` contradicts
  // follows what was seen.
  CallStyle filled_from(const CallStyle& guess) const;

  // True if no facet that was seen in this style differs in `other`.
  bool agrees_with(const CallStyle& other) const;
};

struct StyleGuess {
  CallStyle style;
  float probability = 0;
};

// The guesses for a target about which nothing is known, likeliest first.
std::span<const StyleGuess> usual_styles();

// Moves the probabilities towards a style seen in an answer of the target, of whose answers
// `num_before` were seen before, and adds it if it is new: the first answer counts half, later ones
// a quarter, since a target may go from one style to another and back. Keeps `guesses` sorted,
// likeliest first, at most 8 of them, summing to one.
void learn(std::vector<StyleGuess>& guesses, const CallStyle& seen, std::size_t num_before);

}  // namespace ooospec
