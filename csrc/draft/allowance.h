// SPDX-License-Identifier: Apache-2.0
//
// How much time drafts may lose, so that a request in which they fail takes hardly longer than
// plain decoding.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace ooospec {

// A balance in rounds of plain decoding. It starts with a share of the time of prefill; every round
// adds what it gained or lost against decoding its tokens one by one, and a share of that plain
// time. A round may risk no more than the balance; rows that are free risk nothing. Only a few
// rounds are saved up: a call that went well is no licence to slow the prose behind it. Nor is a
// heavy loss held against the rest of the answer.
class Allowance {
 public:
  static constexpr float kStart = 0.5F;
  static constexpr float kPromptToken = 0.0015F;  // for its prefill, a share of its time too
  static constexpr float kMostAtStart = 1.5F;
  static constexpr float kShare = 0.015F;  // of the plain time
  static constexpr float kMost = 4.0F;
  static constexpr float kLeast = -1.0F;
  static constexpr float kAlways = 0.2F;   // may be risked at any balance
  static constexpr float kCaution = 2.0F;  // a loss counts as so many times what it is likely to be

  explicit Allowance(std::size_t num_prompt_tokens = 0)
      : balance_(std::min(kMostAtStart,
                          kStart + kPromptToken * static_cast<float>(num_prompt_tokens))) {}

  // Returns the most rows, at least one, that may run now.
  //   cost_us: cost_us[n - 1] > 0 is the time of a round of n rows; not empty
  //   hit: probability that the round commits a second token, which counts as no loss
  std::size_t num_rows(std::span<const float> cost_us, float hit) const {
    const float most = std::max(balance_, kAlways);
    std::size_t num_rows = 1;
    while (num_rows < cost_us.size() &&
           kCaution * (1.0F - hit) * (cost_us[num_rows] / cost_us[0] - 1.0F) <= most) {
      ++num_rows;
    }
    return num_rows;
  }

  // Counts a round of `num_rows` rows, one of `cost_us`, that committed `num_tokens` tokens.
  void settle(std::span<const float> cost_us, std::size_t num_rows, std::size_t num_tokens) {
    const float gained = static_cast<float>(num_tokens) - cost_us[num_rows - 1] / cost_us[0];
    balance_ += gained + kShare * static_cast<float>(num_tokens);
    balance_ = std::clamp(balance_, kLeast, kMost);
  }

  float balance() const { return balance_; }

 private:
  float balance_;
};

}  // namespace ooospec
