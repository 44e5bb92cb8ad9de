// SPDX-License-Identifier: Apache-2.0
//
// What follows the choices of a round, without the host: accept, say what compaction has to move,
// publish.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ooospec {

inline constexpr int kMaxRows = 64;
inline constexpr int kTop = 8;

// What the host reads after a round, in mapped pinned memory. Of a sequence whose rows begin at f:
// counts[f] tokens are committed, tokens[f] ...; tokens[f + i] was chosen after row rows[f + i].
// rows[f] is f itself, the others are the accepted rows below it; the last token is the target's
// own. counts of all other rows are 0. The kernel stores everything else before `round`.
//
//   bytes     what
//      0      counts   int32[64]
//    256      tokens   int32[64]
//    512      rows     int32[64]
//    768      top8     int32[64][8]
//   2816      round    uint64, in a cache line of its own
struct RoundReport {
  std::int32_t counts[kMaxRows];
  std::int32_t tokens[kMaxRows];
  std::int32_t rows[kMaxRows];
  std::int32_t top8[kMaxRows][kTop];
  alignas(128) std::uint64_t round;
};
static_assert(offsetof(RoundReport, counts) == 0);
static_assert(offsetof(RoundReport, tokens) == 256);
static_assert(offsetof(RoundReport, rows) == 512);
static_assert(offsetof(RoundReport, top8) == 768);
static_assert(offsetof(RoundReport, round) == 2816);
static_assert(sizeof(RoundReport) == 2944);

// All pointers are the device's. Rows of one sequence are contiguous, its root first, a parent
// before its children.
struct EndOfRound {
  int num_rows;   // N, in [1, kMaxRows]
  int page_size;  // slots of a page
  int num_pages;  // P, of a row of the page table

  const std::int32_t* choices;     // int32[N]; the target's token after each row, -1: none
  const std::int32_t* top8;        // int32[N][8], or null: not published
  const std::int32_t* tokens;      // int32[N]
  const std::int32_t* parents;     // int32[N]; a row of this launch, or -1
  const std::int32_t* positions;   // int32[N]
  const std::int32_t* sequences;   // int32[N]; row of the page table, -1: padding
  const std::int64_t* slots;       // int64[N]; where the row's keys and values lie
  const std::int32_t* page_table;  // int32[S][P]

  std::int64_t* path_sources;  // int64[kMaxRows]; slots of accepted rows that must move,
  std::int64_t* path_targets;  // int64[kMaxRows]; to where,
  std::int32_t* path_count;    // int32[1]; and how many: by row, so a target is no later source
  std::uint64_t* round;        // uint64[1]; counted up by one, then published
  RoundReport* report;         // mapped: the device's address
};

// Loads the kernel, which a capture must find loaded. Returns a cudaError_t, 0 for success.
int load_end_of_round();

// Accepts from the root of each sequence the child (the lowest such row) whose token is the choice,
// and so on; writes the path and the report, then counts and publishes the round with a release
// store that the whole system sees.
//   stream: a cudaStream_t; may be capturing
// Returns a cudaError_t, 0 for success.
// Cost: one launch of one block; one warp walks a sequence.
int launch_end_of_round(const EndOfRound& round, void* stream);

}  // namespace ooospec
