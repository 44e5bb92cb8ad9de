// SPDX-License-Identifier: Apache-2.0
#include "wave/function_scores.h"

#include <algorithm>
#include <limits>

namespace ooospec {

FunctionScores::FunctionScores(const WaveRequest& request, WaveBuffers& buffers, int sequence)
    : request_(request), buffers_(buffers), sequence_(sequence), groups_(groups()) {}

// Tokens of an option that are scored: all, unless a launch cannot hold them.
std::size_t FunctionScores::scored_size(const WaveOption& option) const {
  const auto room = static_cast<std::size_t>(buffers_.rows.num_rows) - request_.question.size();
  const auto pairs = static_cast<std::size_t>(buffers_.num_pairs);
  return std::min({option.tokens.size(), room + 1, pairs});
}

std::vector<FunctionScores::Group> FunctionScores::groups() const {
  std::vector<Group> found;
  std::size_t num_rows = 0, num_pairs = 0;
  for (std::size_t i = 0; i < request_.options.size(); ++i) {
    const std::size_t size = scored_size(request_.options[i]);
    const bool fits = num_rows + size - 1 <= static_cast<std::size_t>(buffers_.rows.num_rows) &&
                      num_pairs + size <= static_cast<std::size_t>(buffers_.num_pairs);
    if (found.empty() || !fits) {
      found.push_back({i, i});
      num_rows = request_.question.size();
      num_pairs = 0;
    }
    num_rows += size - 1;
    num_pairs += size;
    found.back().last = i + 1;
  }
  return found;
}

void FunctionScores::add(std::size_t group) {
  added_ = groups_[group];
  WaveRows& rows = buffers_.rows;
  const auto num_prefix = static_cast<int>(request_.prefix.size());
  rows.lengths[sequence_] = num_prefix;
  std::uint64_t asked = 0;
  int last = 0, num_pairs = 0;
  const auto num_asked = static_cast<int>(request_.question.size());
  for (int i = 0; i < num_asked; ++i) {
    const TokenId token = request_.question[static_cast<std::size_t>(i)];
    const std::int64_t slot = request_.prefix_slot(num_prefix + i, rows.page_size);
    last = rows.add(token, num_prefix + i, sequence_, asked, slot);
    asked |= WaveRows::bit(last);
  }
  for (std::size_t o = added_.first; o < added_.last; ++o) {
    const WaveOption& option = request_.options[o];
    const auto size = static_cast<int>(scored_size(option));
    std::uint64_t ancestors = asked;
    int row = last;
    for (int i = 0; i < size; ++i) {
      const TokenId token = option.tokens[static_cast<std::size_t>(i)];
      buffers_.pair_rows[num_pairs] = row;
      buffers_.pair_tokens[num_pairs++] = token;
      if (i == size - 1) break;  // the last token is scored but needs no row
      const std::int64_t slot = request_.prefix_slot(num_prefix + rows.used(), rows.page_size);
      row = rows.add(token, num_prefix + num_asked + i, sequence_, ancestors, slot);
      ancestors |= WaveRows::bit(row);
    }
  }
  for (int i = num_pairs; i < buffers_.num_pairs; ++i) {
    buffers_.pair_rows[i] = buffers_.pair_tokens[i] = 0;
  }
  asked_row_ = last;
}

void FunctionScores::take() {
  buffers_.require_choice(asked_row_);
  int pair = 0;
  for (std::size_t o = added_.first; o < added_.last; ++o) {
    double total = 0;
    for (std::size_t i = scored_size(request_.options[o]); i > 0; --i) {
      total += static_cast<double>(buffers_.scores[pair++]);
    }
    scores_.push_back(total);
  }
}

void FunctionScores::set_recorded(std::uint16_t tool) {
  for (std::size_t i = 0; i < scores_.size(); ++i) {
    const bool is_it = request_.options[i].tool == tool;
    scores_[i] = is_it ? 0.0 : -std::numeric_limits<double>::infinity();
  }
}

std::uint16_t FunctionScores::likeliest() const {
  const auto best = std::max_element(scores_.begin(), scores_.end()) - scores_.begin();
  return request_.options[static_cast<std::size_t>(best)].tool;
}

double FunctionScores::of(std::uint16_t tool) const {
  const auto option = std::find_if(request_.options.begin(), request_.options.end(),
                                   [&](const WaveOption& option) { return option.tool == tool; });
  if (option == request_.options.end()) return 0.0;
  return scores_[static_cast<std::size_t>(option - request_.options.begin())];
}

}  // namespace ooospec
