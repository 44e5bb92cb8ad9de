// SPDX-License-Identifier: Apache-2.0
#include "draft/allowance.h"

#include <array>

#include "cpp/check.h"

namespace ooospec {
namespace {

constexpr std::array<float, 4> kCosts = {100.0F, 180.0F, 250.0F, 400.0F};
constexpr std::array<float, 4> kFlat = {100.0F, 100.0F, 100.0F, 100.0F};

// Wrong drafts, always the largest that may run: the time lost, in rounds of plain decoding.
float lost_to_wrong_drafts(std::size_t num_rounds, float hit) {
  Allowance allowance(1000);
  float lost = 0.0F;
  for (std::size_t i = 0; i < num_rounds; ++i) {
    const std::size_t rows = allowance.num_rows(kCosts, hit);
    lost += kCosts[rows - 1] / kCosts[0] - 1.0F;
    allowance.settle(kCosts, rows, 1);
  }
  return lost;
}

TEST(wrong_drafts_lose_a_bounded_time) {
  for (const std::size_t num_rounds : {100, 1000}) {
    const float most = Allowance::kMostAtStart + Allowance::kShare * static_cast<float>(num_rounds);
    EXPECT(lost_to_wrong_drafts(num_rounds, 0.5F) <= most);
    EXPECT(lost_to_wrong_drafts(num_rounds, 0.5F) > 1.0F);
  }
}

TEST(risk_falls_with_the_chance_of_a_hit) {
  const Allowance allowance(1000);
  EXPECT(allowance.num_rows(kCosts, 0.0F) == 1);  // two rows may lose twice 0.8 of 1.5 rounds
  EXPECT(allowance.num_rows(kCosts, 0.5F) == 3);
  EXPECT(allowance.num_rows(kCosts, 0.8F) == 4);
}

TEST(a_short_prompt_allows_less) {
  EXPECT(Allowance(10).balance() < Allowance(500).balance());
  EXPECT_EQ(Allowance(100000).balance(), Allowance::kMostAtStart);
}

TEST(free_rows_are_always_allowed) {
  Allowance allowance;
  for (int i = 0; i < 10; ++i) allowance.settle(kCosts, 4, 1);
  EXPECT_EQ(allowance.balance(), Allowance::kLeast);
  EXPECT(allowance.num_rows(kFlat, 0.0F) == 4);
}

TEST(sure_drafts_run_at_any_balance) {
  Allowance allowance;
  for (int i = 0; i < 10; ++i) allowance.settle(kCosts, 4, 1);
  EXPECT(allowance.num_rows(kCosts, 0.5F) == 1);
  EXPECT(allowance.num_rows(kCosts, 0.98F) == 4);
}

TEST(gains_are_saved_up_to_a_limit) {
  Allowance allowance;
  for (int i = 0; i < 10; ++i) allowance.settle(kCosts, 4, 20);
  EXPECT_EQ(allowance.balance(), Allowance::kMost);
}

}  // namespace
}  // namespace ooospec
