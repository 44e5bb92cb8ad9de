// SPDX-License-Identifier: Apache-2.0
//
// The spans of a request that a value is likely to be: what most arguments of calls are copied
// from.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "call/tool_schema.h"

namespace ooospec {

// Finds quoted text, numbers, dates, addresses, names, words and phrases once, and ranks them for
// each parameter when it is asked for: by the type and kind of value that the schema asks for, and
// by the words around them that name or describe the parameter. Not thread-safe.
class RequestSpans {
 public:
  static constexpr std::size_t kMaxBytes = 32768;  // of a request; of a longer one the end is read
  static constexpr std::size_t kMaxFound = 512;    // of these the last ones are kept
  static constexpr std::size_t kMaxRanked = 32;

  struct Span {
    std::string text;   // of a string, or of a number as JSON has it
    float probability;  // that the value is this one
    bool plain;         // the same in every spelling
  };

  // request: what the user said, oldest first.
  RequestSpans(std::shared_ptr<const ToolSet> tools, std::string_view request);

  // Returns spans for the value of a schema node, likeliest first; strings where the node's type
  // takes strings, else numbers where it takes numbers. Valid as long as this object. Cost: some
  // microseconds for a node that is asked for the first time.
  std::span<const Span> of(std::int32_t node);

 private:
  enum class Kind : std::uint8_t {
    kQuoted,
    kNumber,
    kCode,  // letters, digits and marks in one: ids, times, passwords
    kDate,
    kMail,
    kLink,
    kName,    // a capitalised word
    kNames,   // several
    kPhrase,  // several words
    kWord,
  };
  static constexpr std::size_t kNumBefore = 4, kNumAfter = 2;

  struct Found {
    std::uint32_t group;  // of equal texts
    float place;          // in the request, in [0, 1]
    Kind kind;
    // stems of the words around it, nearest first; 0: none
    std::array<std::uint32_t, kNumBefore> before;
    std::array<std::uint32_t, kNumAfter> after;
    std::uint32_t own;  // its own stem, of a single word
  };
  struct Group {
    std::string text;
    std::string number;  // the text as JSON has it, if it is a number
    bool plain;
  };
  struct Asked;
  struct Word;

  void read(std::string_view text);
  void find_quoted(std::string_view text, std::span<const Word> words);
  void find_runs(std::string_view text, std::span<const Word> words);
  void find_dates(std::string_view text, std::span<const Word> words);
  void add(Kind kind, std::string_view text, std::span<const Word> words, std::size_t first,
           std::size_t last);
  Asked asked(std::int32_t node) const;
  static float weigh(const Found& found, const Asked& asked);
  void rank(std::int32_t node, std::vector<Span>& out);

  std::shared_ptr<const ToolSet> tools_;
  std::vector<Group> groups_;
  std::unordered_map<std::string, std::uint32_t> group_of_;
  std::vector<Found> found_;
  std::vector<float> weights_;                                  // scratch of rank()
  std::unordered_map<std::int32_t, std::vector<Span>> ranked_;  // by node
};

}  // namespace ooospec
