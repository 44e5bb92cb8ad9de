// SPDX-License-Identifier: Apache-2.0
//
// A guess at how an answer goes on: as a text does where the answer's last tokens stand in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/types.h"

namespace ooospec {

// Finds tokens of one text by the tokens in front of them. Const once made: for any thread.
class TokenLookup {
 public:
  // text: must live as long as this object. O(tokens).
  explicit TokenLookup(std::span<const TokenId> text) : text_(text), before_(text.size()) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto [last, is_new] = last_.try_emplace(text[i], static_cast<int>(i));
      before_[i] = is_new ? -1 : last->second;
      last->second = static_cast<int>(i);
    }
  }

  // Returns at most `count` tokens of the text: those behind the place that has most of the last
  // tokens of `answer`, up to kMostMatched, in front of it; the last of several such places. Empty
  // where the last token does not occur. O(places with that token).
  std::span<const TokenId> behind(std::span<const TokenId> answer, int count) const {
    const auto last = answer.empty() ? last_.end() : last_.find(answer.back());
    if (last == last_.end() || count <= 0) return {};
    int best = -1, most = 0;
    for (int place = last->second; place >= 0 && most < kMostMatched;
         place = before_[static_cast<std::size_t>(place)]) {
      const int matched = num_matched(answer, place);
      if (matched > most) best = place, most = matched;
    }
    const auto start = static_cast<std::size_t>(best + 1);
    return text_.subspan(start, std::min(static_cast<std::size_t>(count), text_.size() - start));
  }

 private:
  static constexpr int kMostMatched = 4;

  // How many of the last tokens of `answer` stand at `place` and before it.
  int num_matched(std::span<const TokenId> answer, int place) const {
    const int most = std::min({kMostMatched, static_cast<int>(answer.size()), place + 1});
    int count = 0;
    while (count < most && answer[answer.size() - 1 - static_cast<std::size_t>(count)] ==
                               text_[static_cast<std::size_t>(place - count)]) {
      ++count;
    }
    return count;
  }

  std::span<const TokenId> text_;
  std::unordered_map<TokenId, int> last_;  // the last place of each token
  std::vector<int> before_;                // of each place: the one before with its token, or -1
};

}  // namespace ooospec
