// SPDX-License-Identifier: Apache-2.0
//
// Types that every part of the core shares.
#pragma once

#include <cstdint>
#include <string_view>

namespace ooospec {

using TokenId = std::int32_t;

// Who drafted a token. Values from kExternal on belong to sources from outside, in the order they
// were added.
enum class Source : std::uint8_t {
  kRoot = 0,       // node 0, the last committed token
  kSchema = 1,     // forced or suggested by format and schema
  kHint = 2,       // said by the sidecar
  kRetrieval = 3,  // continuation found in the prompt or in earlier calls
  kRecycler = 4,   // successors seen before
  kSpan = 5,       // a value that stands in the request
  kExternal = 16,
};

// Ids of the records that a sidecar sends and a drafter understands (see ring/hint_ring.h).
enum class HintKind : std::uint8_t {
  kFunction = 1,  // the function choice: `tool`, or kNoTool for "no call"
  kValue = 2,     // compact JSON value of (`tool`, `parameter`), or `null` for "left out"
  kEnd = 3,       // every slot of `call` has been said
  kError = 4,     // the sidecar gave up; text says why
};

inline constexpr std::uint16_t kNoTool = 0xFFFF;

}  // namespace ooospec
