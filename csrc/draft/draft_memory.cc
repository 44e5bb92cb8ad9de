// SPDX-License-Identifier: Apache-2.0
#include "draft/draft_memory.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace ooospec {

DraftMemory::DraftMemory(int vocab_size, std::size_t max_bytes, std::vector<StyleGuess> styles)
    : index_(max_bytes), recycler_(vocab_size), styles_{std::move(styles), 0} {}

void DraftMemory::learn_answer(std::span<const TokenId> tokens) {
  const std::lock_guard lock(mutex_);
  index_.append(tokens);
}

// A bucket holds lengths up to twice the least of it.
std::size_t DraftMemory::length_bucket(std::size_t request_bytes) {
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(request_bytes)),
                               kNumLengths - 1);
}

void DraftMemory::learn_style(const CallStyle& style, std::size_t request_bytes) {
  const std::lock_guard lock(mutex_);
  Styles& alike = styles_by_length_[length_bucket(request_bytes)];
  if (alike.guesses.empty()) alike.guesses = styles_.guesses;
  for (Styles* styles : {&alike, &styles_}) learn(styles->guesses, style, styles->num_answers++);
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
  return styles_.guesses;
}

std::vector<StyleGuess> DraftMemory::styles(std::size_t request_bytes) const {
  const std::lock_guard lock(mutex_);
  const Styles& alike = styles_by_length_[length_bucket(request_bytes)];
  return alike.guesses.empty() ? styles_.guesses : alike.guesses;
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
