// SPDX-License-Identifier: Apache-2.0
// Numbers that the parts of the drafter share.
#pragma once

#include <array>
#include <cstddef>

#include "call/call_writer.h"
#include "draft/calibration.h"
#include "tree/draft_tree.h"

namespace ooospec {

// Rates of the calibration: one for the first token of each kind of piece, one for the tokens
// behind it.
constexpr std::size_t kNumBuckets = 5;  // of match lengths
constexpr std::size_t kNumOrigins = 3;  // of pieces: schema, hint, span
constexpr std::size_t kPieceRates = 0;  // + kNumOrigins * kind + origin
constexpr std::size_t kNumPieceKinds = static_cast<std::size_t>(PieceKind::kEnd) + 1;
constexpr std::size_t kWithinPiece = kNumOrigins * kNumPieceKinds;  // + origin
constexpr std::size_t kLookupRates = kWithinPiece + Calibration::kNumWithinRates;
constexpr std::size_t kRetrievalRates = kLookupRates + 2 * kNumBuckets;
constexpr std::size_t kRecyclerRates = kRetrievalRates + 2 * kNumBuckets;  // + depth
constexpr std::size_t kMaxDepthRecycled = 3;
constexpr std::size_t kExternalRates = kRecyclerRates + kMaxDepthRecycled;
constexpr std::size_t kMaxExternal = 9;
static_assert(kLookupRates == Calibration::kNumPieceRates);
static_assert(kExternalRates + 2 * kMaxExternal <= Calibration::kNumRates);

constexpr float kAfterMatch = 0.95F;  // of each further token of a continuation
constexpr std::size_t kMaxMatch = 8;  // tokens matched at the end of the main path
constexpr int kMaxContinuations = 3;
constexpr float kMinProbability = 0.02F;  // of a continuation that is worth a node
constexpr int kMaxContinuationTokens = 16;

}  // namespace ooospec
