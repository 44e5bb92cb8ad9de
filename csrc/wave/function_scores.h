// SPDX-License-Identifier: Apache-2.0
//
// How likely each function is: the log probabilities of the names behind "which function?".
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "wave/wave.h"

namespace ooospec {

// Scores the options of a request, those of a group by one launch: the question and the names are a
// tree of rows behind the prefix. For each group: add(), a launch of WaveProgram::kScore, take().
class FunctionScores {
 public:
  // request, buffers: must live as long as this object. sequence: of the prefix. The question has
  // fewer tokens than buffers.rows has rows.
  FunctionScores(const WaveRequest& request, WaveBuffers& buffers, int sequence);

  std::size_t num_groups() const { return groups_.size(); }

  // Adds the rows and pairs of a group to a launch that has no rows yet.
  void add(std::size_t group);

  // Takes up the scores of the group that was added last, in the order of the groups. Raises
  // std::runtime_error if the model gave no usable logits.
  void take();

  // Lets `tool` count as the only likely function.
  void set_recorded(std::uint16_t tool);

  // Returns the likeliest function, of equals the first.
  std::uint16_t likeliest() const;

  // Returns the log probability of a function; 0 where it is no option.
  double of(std::uint16_t tool) const;

 private:
  // Options [first, last).
  struct Group {
    std::size_t first;
    std::size_t last;
  };

  std::vector<Group> groups() const;
  std::size_t scored_size(const WaveOption& option) const;

  const WaveRequest& request_;
  WaveBuffers& buffers_;
  const int sequence_;
  const std::vector<Group> groups_;
  Group added_{0, 0};
  int asked_row_ = 0;  // the last one of the question
  std::vector<double> scores_;
};

}  // namespace ooospec
