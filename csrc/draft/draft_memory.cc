// SPDX-License-Identifier: Apache-2.0
#include "draft/draft_memory.h"

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
  learn(styles_, style);
}

void DraftMemory::learn_successors(TokenId token, std::span<const TokenId> successors) {
  const std::lock_guard lock(mutex_);
  recycler_.update(token, successors);
}

std::vector<StyleGuess> DraftMemory::styles() const {
  const std::lock_guard lock(mutex_);
  return styles_;
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
