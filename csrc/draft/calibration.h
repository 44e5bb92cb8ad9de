// SPDX-License-Identifier: Apache-2.0
//
// How far the probabilities that sources claim can be believed, learnt from what the target
// committed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace ooospec {

// A running rate for each kind of drafted token: the hits seen over the hits that the claimed
// probabilities promised, both fading by `kFade` a trial, starting from some that were promised and
// came: more for the pieces of calls (the first `kNumPieceRates`), which one wrong value or order
// of keys does not make wrong, and most for the tokens inside a piece (the last of these), of which
// a path has many: one miss must not cut short all that is drafted behind it. Proposals are judged
// whether or not the target verified them: what was committed tells.
class Calibration {
 public:
  static constexpr std::size_t kNumRates = 96;
  static constexpr float kFade = 0.985F;
  static constexpr float kPriorHits = 3.0F;
  static constexpr std::size_t kNumPieceRates = 21;
  static constexpr std::size_t kNumWithinRates = 3;
  static constexpr float kPiecePriorHits = 10.0F;
  static constexpr float kWithinPriorHits = 60.0F;  // near 1 / (1 - kFade), as much as ever counts

  Calibration() {
    for (std::size_t rate = 0; rate < kNumPieceRates; ++rate) {
      const bool within = rate >= kNumPieceRates - kNumWithinRates;
      rates_[rate].claimed = rates_[rate].hits = within ? kWithinPriorHits : kPiecePriorHits;
    }
  }

  // Returns `claimed` corrected by rate `rate`, in [0.001, 0.998].
  float correct(std::size_t rate, float claimed) const {
    return std::clamp(claimed * rates_[rate].hits / rates_[rate].claimed, 0.001F, 0.998F);
  }

  // Counts one token drafted under `rate` with probability `claimed`, given that the one before it
  // was right.
  void observe(std::size_t rate, float claimed, bool hit) {
    Rate& r = rates_[rate];
    r.claimed = kFade * r.claimed + claimed;
    r.hits = kFade * r.hits + (hit ? 1.0F : 0.0F);
    ++r.num_trials;
    r.num_hits += hit ? 1U : 0U;
  }

  std::uint64_t num_trials(std::size_t rate) const { return rates_[rate].num_trials; }
  std::uint64_t num_hits(std::size_t rate) const { return rates_[rate].num_hits; }

 private:
  struct Rate {
    float claimed = kPriorHits;
    float hits = kPriorHits;
    std::uint64_t num_trials = 0;
    std::uint64_t num_hits = 0;
  };
  std::array<Rate, kNumRates> rates_{};
};

}  // namespace ooospec
