// SPDX-License-Identifier: Apache-2.0
//
// A whole wave in one call: prefill, the scores of the functions, and every slot's answer, each
// sent as soon as it is known: a token a launch, and more where the prompt tells what comes next.
// Nothing here knows what computes the launches.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/launcher.h"
#include "common/types.h"
#include "common/vocab.h"
#include "ring/hint_ring.h"
#include "wave/value_reader.h"
#include "wave/value_schema.h"
#include "wave/wave_rows.h"

namespace ooospec {

// Programs of a wave's launcher, by number.
enum class WaveProgram : int {
  kPrefill = 0,  // the rows of WaveBuffers::chunk, without results
  kFork = 1,     // copies the last page of the prefix to each lane
  kStep = 2,     // the rows of WaveBuffers::rows, which leaves choices
  kScore = 3,    // the same, which leaves scores too
  kAsk = 4,      // the rows of WaveBuffers::asks, which leaves choices behind those wanted
};

// A parameter to ask for. recorded: tokens that count as its answer, whatever the launches chose,
// each once the launch of its step has ended; empty: the launches' own.
struct WaveSlot {
  std::uint16_t tool = 0;
  std::uint16_t parameter = 0;
  bool is_required = false;
  std::vector<TokenId> question;
  ValueSchema schema;
  std::vector<TokenId> recorded = {};
};

// An answer to "which function?". tool: its number, or kNoTool.
struct WaveOption {
  std::uint16_t tool = 0;
  std::vector<TokenId> tokens;
};

// What a wave runs on. Sequence i < num_lanes of the rows is lane i; the one behind the lanes is
// the prefix. recorded: the function that counts as chosen, and as the only likely one, whatever
// the scores.
struct WaveRequest {
  std::uint64_t request_id = 0;
  std::vector<TokenId> prefix;
  int num_cached = 0;  // tokens of the prefix that lie in its pages already
  std::vector<TokenId> question;
  std::vector<WaveOption> options;  // ascending by tool; at least one
  std::vector<WaveSlot> slots;
  std::vector<std::int32_t> prefix_pages;  // with room for a launch of rows behind the prefix
  std::vector<std::int32_t> lane_pages;    // [lanes][pages_per_lane]: from the prefix's last page,
  int pages_per_lane = 0;                  // unless that is full, to the end of the longest answer
  std::optional<std::uint16_t> recorded;

  // Where the prefix has a position, or what is tried behind it.
  std::int64_t prefix_slot(int position, int page_size) const {
    const auto page = static_cast<std::size_t>(position / page_size);
    return std::int64_t{prefix_pages[page]} * page_size + position % page_size;
  }
};

// Memory that launches read and write; lives longer than the wave.
struct WaveBuffers {
  WaveRows chunk;  // of one sequence, the prefix
  WaveRows rows;
  std::vector<WaveRows> asks;         // parts of a wider launch for many questions; may be none.
                                      // Rows of earlier parts count as committed.
  std::int32_t* wanted = nullptr;     // int32[rows of `rows`]; rows of `asks`; choices[i] is behind
                                      // row wanted[i]
  int num_pairs = 0;                  // P
  std::int32_t* pair_rows = nullptr;  // int32[P]; scores[i] is the log probability of
  std::int32_t* pair_tokens = nullptr;   // int32[P]; pair_tokens[i] behind row pair_rows[i]
  std::int64_t* fork_source = nullptr;   // int64[1]; first slot of the page to copy
  std::int64_t* fork_targets = nullptr;  // int64[lanes]; first slots of its copies
  std::int32_t* fork_count = nullptr;    // int32[1]; slots to copy
  const TokenId* choices = nullptr;      // int32[N]; the likeliest token behind a row, -1: none
  const float* scores = nullptr;         // float[P]

  // Raises std::runtime_error if a launch left no choice behind a row that asked for one.
  void require_choice(int row) const {
    if (choices[row] >= 0) return;
    throw std::runtime_error("the sidecar gave no usable logits: expected a finite maximum");
  }
};

// Times of the steady clock.
struct WaveStep {
  std::int64_t start_ns;
  std::int64_t stop_ns;
  std::int32_t num_rows;
};

// The end of a slot, or the choice of a function. sent: it was a value, and went out.
struct WaveAnswer {
  std::int64_t time_ns;
  HintKind kind;
  std::uint16_t tool;
  std::uint16_t parameter;
  bool sent;
};

// num_unsaid: slots that are not worth a record: nulls of functions that were not chosen, and all
// of functions that are unlikely.
struct WaveResult {
  bool cancelled = false;
  int num_sent = 0;
  int num_unsaid = 0;
  int num_invalid = 0;
  std::vector<WaveStep> steps;
  std::vector<WaveAnswer> answers;
};

// Runs waves, one after another, for one thread; cancel() is for any.
class Wave {
 public:
  static constexpr int kMaxSlots = 256;  // asked for; those of the least likely functions are not

  // eos_ids: end an answer. num_lanes: branches that advance together; at most sequences - 1 of
  // buffers.rows. likely_within: a function is asked about if the log probability of its name is
  // at most so much below the best.
  // Raises std::invalid_argument for counts below one or sequences that are too few.
  Wave(std::shared_ptr<const Vocab> vocab, std::vector<TokenId> eos_ids, int max_value_tokens,
       int num_lanes, double likely_within, const WaveBuffers& buffers, Launcher launcher);

  // Answers every slot. The last record is END, or ERROR where a slot had no valid answer or was
  // not asked.
  // Raises std::invalid_argument for a request that does not fit the buffers, std::runtime_error
  // with the launcher's reason, or if the model gave no usable logits.
  WaveResult run(const WaveRequest& request, HintRing& ring);

  // Ends the wave that runs before its next launch. reset(): the next one may run.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  void reset() { cancelled_.store(false, std::memory_order_relaxed); }

 private:
  friend class WaveRun;

  std::shared_ptr<const Vocab> vocab_;
  std::vector<TokenId> eos_ids_;
  int max_value_tokens_;
  int num_lanes_;
  double likely_within_;
  WaveBuffers buffers_;
  Launcher launcher_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace ooospec
