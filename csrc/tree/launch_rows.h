// SPDX-License-Identifier: Apache-2.0
//
// The rows of a launch, in the buffers that kernels read.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "common/types.h"
#include "tree/draft_rows.h"

namespace ooospec {

// Buffers of somebody else, of one number a row; `lengths` has one a sequence.
struct LaunchBuffers {
  std::span<std::int32_t> tokens, positions, parents, sequences, lengths;
  std::span<std::uint64_t> masks;
  std::span<std::int64_t> slots;
  // how a row chooses
  std::span<std::int32_t> index, no_eos, top_k;
  std::span<double> temperature, top_p;
  std::span<std::uint64_t> key;
};

// How rows choose what comes after them.
struct RowChoice {
  int min_tokens = 0;  // before so many no end of sequence may be chosen
  double temperature = 0;
  int top_k = 0;
  double top_p = 1;
  std::uint64_t key = 0;
};

// Fills the buffers: begin(), then add() for each sequence. Rows that are not used have sequence
// -1, and slots of a page that is nobody's.
class LaunchRows {
 public:
  using Run = std::pair<std::int64_t, std::int64_t>;  // slots [first, second)

  // Raises std::invalid_argument for buffers of different sizes, or no page.
  LaunchRows(const LaunchBuffers& buffers, std::int64_t spare_slot, int page_size);

  // Forgets the rows of the last launch.
  void begin();

  // Adds rows of a sequence that has `length` tokens; returns the first of them.
  //   positions: of row i is offset + positions[i]
  //   parents, masks: of row i in terms of these rows; -1 and no bit for what is committed
  //   runs: the slots of the rows, in order
  // Raises std::invalid_argument for too many rows or sequences, or unequal sizes; nothing was
  // added then.
  int add(std::span<const TokenId> tokens, std::span<const std::int32_t> positions, int offset,
          std::span<const std::int32_t> parents, std::span<const std::uint64_t> masks,
          std::span<const Run> runs, int length);

  // Adds the rows of a draft behind a sequence of `length` tokens, and says how they choose: row i
  // stands `depths[i]` behind place `index` of its answer. Raises likewise.
  int add_draft(const DraftRows& rows, std::span<const Run> runs, int length, int index,
                const RowChoice& choice);

  int num_rows() const { return num_rows_; }
  int num_sequences() const { return num_sequences_; }

 private:
  LaunchBuffers to_;
  std::int64_t spare_slot_;
  int page_size_;
  int num_rows_ = 0;
  int num_sequences_ = 0;
};

}  // namespace ooospec
