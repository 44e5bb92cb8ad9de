// SPDX-License-Identifier: Apache-2.0
//
// How often a target writes parameters that may be left out, learnt from its calls.
#pragma once

#include <span>

#include "call/call_reader.h"
#include "call/call_writer.h"
#include "call/priors.h"

namespace ooospec {

// A running rate that starts from a guess.
class Habit {
 public:
  explicit constexpr Habit(float guess) : times_(kGuessCounts * guess) {}

  void observe(bool done) {
    times_ = kFade * times_ + (done ? 1.0f : 0.0f);
    chances_ = kFade * chances_ + 1.0f;
  }
  float rate() const { return times_ / chances_; }
  bool operator==(const Habit&) const = default;

 private:
  static constexpr float kGuessCounts = 3.0f;
  static constexpr float kFade = 0.985f;
  float times_;
  float chances_ = kGuessCounts;
};

struct KeyHabits {
  Habit unsaid{priors::kOptionalKey};          // no hint says whether it is written
  Habit left_out{priors::kOptionalKeyDenied};  // a hint says that it is not

  bool operator==(const KeyHabits&) const = default;

  // Takes up which optional parameters a call has. slots: what hints said, by number of the call.
  void observe(const Call& call, int number, const ToolSet& tools, std::span<const Slots> slots);
};

}  // namespace ooospec
