// SPDX-License-Identifier: Apache-2.0
#include "draft/draft_memory.h"

#include <algorithm>
#include <utility>

namespace ooospec {

DraftMemory::DraftMemory(int vocab_size, std::size_t max_bytes, std::vector<StyleGuess> styles)
    : index_(max_bytes), recycler_(vocab_size), styles_(std::move(styles)) {}

void DraftMemory::learn_answer(std::span<const TokenId> tokens) {
  const std::lock_guard lock(mutex_);
  index_.append(tokens);
}

void DraftMemory::learn_style(const CallStyle& style) {
  const std::lock_guard lock(mutex_);
  learn(styles_, style, num_styled_++);
}

void DraftMemory::learn_keys(std::span<const Call> calls, const ToolSet& tools,
                             std::span<const Slots> slots) {
  const std::lock_guard lock(mutex_);
  for (std::size_t k = 0; k < calls.size(); ++k) {
    habits_.observe(calls[k], static_cast<int>(k), tools, slots);
  }
}

void DraftMemory::learn_successors(std::span<const TokenId> tokens, std::span<const TokenId> rows) {
  constexpr auto kWidth = static_cast<std::size_t>(TokenRecycler::kMaxSuccessors);
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto row = rows.subspan(i * kWidth, kWidth);
    const auto end = std::ranges::find_if(row, [](TokenId token) { return token < 0; });
    if (end != row.begin()) recycler_.update(tokens[i], {row.begin(), end});
  }
}

std::vector<StyleGuess> DraftMemory::styles() const {
  const std::lock_guard lock(mutex_);
  return styles_;
}

KeyHabits DraftMemory::habits() const {
  const std::lock_guard lock(mutex_);
  return habits_;
}

Calibration DraftMemory::calibration() const {
  const std::lock_guard lock(mutex_);
  return calibration_;
}

void DraftMemory::set_calibration(const Calibration& calibration) {
  const std::lock_guard lock(mutex_);
  calibration_ = calibration;
}

std::size_t DraftMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return index_.num_bytes();
}

}  // namespace ooospec
