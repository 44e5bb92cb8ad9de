// SPDX-License-Identifier: Apache-2.0
//
// The rows of a launch as the host writes them.
#pragma once

#include <cstdint>

#include "common/types.h"

namespace ooospec {

// Arrays of N rows over S sequences, in memory that a launch reads; for their meaning see
// LaunchRows in ooospec.ops. Rows of a sequence stand together; the rest is padding.
class WaveRows {
 public:
  int num_rows = 0;       // N
  int num_sequences = 0;  // S
  TokenId* tokens = nullptr;
  std::int32_t* positions = nullptr;
  std::int32_t* sequences = nullptr;
  std::int64_t* mask = nullptr;
  std::int64_t* slots = nullptr;
  std::int32_t* lengths = nullptr;
  std::int64_t spare_slot = 0;  // of the page that takes what padding writes
  int page_size = 0;

  int used() const { return used_; }
  int room() const { return num_rows - used_; }

  // Makes all rows padding.
  void begin() {
    for (int row = 0; row < num_rows; ++row) {
      tokens[row] = positions[row] = 0;
      sequences[row] = -1;
      mask[row] = 0;
      slots[row] = spare_slot + row % page_size;
    }
    for (int sequence = 0; sequence < num_sequences; ++sequence) lengths[sequence] = 0;
    used_ = 0;
  }

  // Adds a row; returns its number. ancestors: bits of the rows above it.
  int add(TokenId token, int position, int sequence, std::uint64_t ancestors, std::int64_t slot) {
    const int row = used_++;
    tokens[row] = token;
    positions[row] = position;
    sequences[row] = sequence;
    mask[row] = static_cast<std::int64_t>(ancestors | bit(row));
    slots[row] = slot;
    return row;
  }

  static std::uint64_t bit(int row) { return row < 64 ? std::uint64_t{1} << row : 0; }

 private:
  int used_ = 0;
};

}  // namespace ooospec
