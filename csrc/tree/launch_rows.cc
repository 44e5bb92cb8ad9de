// SPDX-License-Identifier: Apache-2.0
#include "tree/launch_rows.h"

#include <algorithm>

#include "common/check.h"

namespace ooospec {

LaunchRows::LaunchRows(const LaunchBuffers& buffers, std::int64_t spare_slot, int page_size)
    : to_(buffers), spare_slot_(spare_slot), page_size_(page_size) {
  OOOSPEC_REQUIRE(page_size >= 1, "page_size: expected at least 1, got ", page_size);
  const std::size_t num = to_.tokens.size();
  for (const std::size_t size :
       {to_.positions.size(), to_.parents.size(), to_.sequences.size(), to_.masks.size(),
        to_.slots.size(), to_.index.size(), to_.no_eos.size(), to_.top_k.size(),
        to_.temperature.size(), to_.top_p.size(), to_.key.size()}) {
    OOOSPEC_REQUIRE(size == num, "buffers: expected ", num, " numbers, one a row, got ", size);
  }
  begin();
}

void LaunchRows::begin() {
  std::ranges::fill(to_.sequences, -1);
  std::ranges::fill(to_.parents, -1);
  std::ranges::fill(to_.tokens, 0);
  std::ranges::fill(to_.positions, 0);
  std::ranges::fill(to_.masks, std::uint64_t{0});
  std::ranges::fill(to_.lengths, 0);
  for (std::size_t row = 0; row < to_.slots.size(); ++row) {
    to_.slots[row] = spare_slot_ + static_cast<std::int64_t>(row) % page_size_;
  }
  num_rows_ = num_sequences_ = 0;
}

int LaunchRows::add(std::span<const TokenId> tokens, std::span<const std::int32_t> positions,
                    int offset, std::span<const std::int32_t> parents,
                    std::span<const std::uint64_t> masks, std::span<const Run> runs, int length) {
  const std::size_t num = tokens.size();
  OOOSPEC_REQUIRE(num <= to_.tokens.size() - static_cast<std::size_t>(num_rows_) &&
                      num_sequences_ < static_cast<int>(to_.lengths.size()),
                  "launch: expected at most ", to_.tokens.size(), " rows of ", to_.lengths.size(),
                  " sequences, got ", static_cast<std::size_t>(num_rows_) + num, " rows, ",
                  num_sequences_ + 1, " sequences");
  std::int64_t num_slots = 0;
  for (const auto& [start, stop] : runs) num_slots += std::max<std::int64_t>(0, stop - start);
  OOOSPEC_REQUIRE(positions.size() == num && parents.size() == num && masks.size() == num &&
                      num_slots == static_cast<std::int64_t>(num),
                  "rows: expected ", num, ", one a token, got ", positions.size(), " positions, ",
                  parents.size(), " parents, ", masks.size(), " masks, ", num_slots, " slots");
  const int first = num_rows_;
  for (std::size_t i = 0; i < num; ++i) {
    const std::size_t row = static_cast<std::size_t>(first) + i;
    to_.tokens[row] = tokens[i];
    to_.positions[row] = offset + positions[i];
    to_.parents[row] = parents[i] >= 0 ? parents[i] + first : -1;
    to_.masks[row] = first < 64 ? masks[i] << first : 0;
    to_.sequences[row] = num_sequences_;
  }
  auto slot = to_.slots.begin() + first;
  for (const auto& [start, stop] : runs) {
    for (std::int64_t at = start; at < stop; ++at) *slot++ = at;
  }
  to_.lengths[static_cast<std::size_t>(num_sequences_++)] = length;
  num_rows_ += static_cast<int>(num);
  return first;
}

int LaunchRows::add_draft(const DraftRows& rows, std::span<const Run> runs, int length, int index,
                          const RowChoice& choice) {
  const int first = add(rows.of(rows.tokens), rows.of(rows.depths), length, rows.of(rows.parents),
                        rows.of(rows.masks), runs, length);
  for (int i = 0; i < rows.size; ++i) {
    const auto row = static_cast<std::size_t>(first + i);
    to_.index[row] = index + rows.depths[static_cast<std::size_t>(i)];
    to_.no_eos[row] = to_.index[row] < choice.min_tokens ? 1 : 0;
    to_.temperature[row] = choice.temperature;
    to_.top_k[row] = choice.top_k;
    to_.top_p[row] = choice.top_p;
    to_.key[row] = choice.key;
  }
  return first;
}

}  // namespace ooospec
