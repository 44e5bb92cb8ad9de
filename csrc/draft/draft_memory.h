// SPDX-License-Identifier: Apache-2.0
//
// What drafting has learnt about one target and outlives a request.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "call/call_style.h"
#include "call/key_habits.h"
#include "common/types.h"
#include "draft/calibration.h"
#include "index/suffix_index.h"
#include "index/token_recycler.h"

namespace ooospec {

// Earlier answers, successors, call styles and acceptance rates of one (target, method, tenant).
// Requests that run at the same time may share one object: every member function locks.
class DraftMemory {
 public:
  // vocab_size: tokens are in [0, vocab_size). max_bytes: cap of the index over earlier answers.
  // styles: how this target is thought to write calls, with probabilities; the likeliest two open
  // the first answers.
  DraftMemory(int vocab_size, std::size_t max_bytes, std::vector<StyleGuess> styles);

  // Takes up a finished answer.
  void learn_answer(std::span<const TokenId> tokens);

  // Takes up the style in which an answer's calls were written, to a request of so many bytes.
  void learn_style(const CallStyle& style, std::size_t request_bytes);

  // Takes up the target's successors of tokens: TokenId[tokens, TokenRecycler::kMaxSuccessors],
  // likeliest first, -1 behind the last.
  void learn_successors(std::span<const TokenId> tokens, std::span<const TokenId> rows);

  // Takes up which parameters an answer's calls have. slots: what hints said of them.
  void learn_keys(std::span<const Call> calls, const ToolSet& tools, std::span<const Slots> slots);

  // Returns what was learnt of styles, likeliest first: of all answers, and of those to requests of
  // about that length (a target with two styles may write the calls of long dialogues in one line).
  std::vector<StyleGuess> styles() const;
  std::vector<StyleGuess> styles(std::size_t request_bytes) const;

  // Returns what was learnt of keys and of acceptance.
  KeyHabits habits() const;
  Calibration calibration() const;

  // Keeps the rates of a finished request for the next one.
  void set_calibration(const Calibration& calibration);

  // Runs `read(index, recycler)` under the lock.
  template <typename Read>
  auto with_stores(Read&& read) const {
    const std::lock_guard lock(mutex_);
    return read(index_, recycler_);
  }

  std::size_t bytes() const;

 private:
  static constexpr std::size_t kNumLengths = 17;  // of requests: bits of the number of bytes

  // Styles, and the number of answers that they were learnt from.
  struct Styles {
    std::vector<StyleGuess> guesses;
    std::size_t num_answers = 0;
  };
  static std::size_t length_bucket(std::size_t request_bytes);

  mutable std::mutex mutex_;
  SuffixIndex index_;
  TokenRecycler recycler_;
  Styles styles_;
  std::array<Styles, kNumLengths> styles_by_length_;  // no guesses: as styles_
  KeyHabits habits_;
  Calibration calibration_;
};

}  // namespace ooospec
