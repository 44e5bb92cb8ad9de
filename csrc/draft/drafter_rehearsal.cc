// SPDX-License-Identifier: Apache-2.0
// What is done while the target verifies: likely next rounds are gone through beforehand.
#include <algorithm>
#include <array>

#include "draft/drafter.h"
#include "draft/drafter_numbers.h"

namespace ooospec {

namespace {

constexpr int kMaxFirstTokens = 4;  // that prepare() rehearses,
constexpr int kMaxEnds = 2;         // and nodes of the tree

}  // namespace

// Does as if `tokens` were committed, and a draft asked for behind them: what it takes to tokenise
// that is remembered, and what it reads is in the cache then.
void Drafter::rehearse(std::span<const TokenId> tokens) {
  if (tokenizer_.is_slow()) return;  // it may be that nothing runs meanwhile
  if (std::ranges::find(tokens, options_.end_token) != tokens.end()) return;
  ahead_.clear();
  if (options_.schema) {
    reader_ahead_ = reader_;
    for (const TokenId token : tokens) reader_ahead_.feed(vocab_->bytes(token));
    const PathTokenizer::Ahead ahead(tokenizer_, tokens);
    write_texts(reader_ahead_, ahead_);
  }
  const auto look_up = [&](const SuffixIndex& index, SuffixIndex::Cursor cursor) {
    for (const TokenId token : tokens) index.advance(cursor, token);
    index.continuations(cursor, 1, kMaxContinuationTokens, continuations_, kMinProbability);
    for (const TokenId token :
         std::span(ahead_.tokens).first(std::min(ahead_.tokens.size(), kMaxMatch))) {
      index.advance(cursor, token);
    }
    index.continuations(cursor, 1, kMaxContinuationTokens, continuations_, kMinProbability);
  };
  if (options_.lookup) look_up(text_, text_.tail());
  if (!options_.retrieval) return;
  memory_->with_stores(
      [&](const SuffixIndex& index, const TokenRecycler&) { look_up(index, memory_cursor_); });
}

// Rehearses what the tree that is verified now may lead to: that the target follows it to a node,
// and no further.
void Drafter::rehearse_ends() {
  std::array<float, DraftTree::kMaxNodes> ends;  // probability of each node to be the last
  std::ranges::copy(tree_.probabilities(), ends.begin());
  for (int node = tree_.size() - 1; node > 0; --node) {
    const auto at = static_cast<std::size_t>(node);
    ends[static_cast<std::size_t>(tree_.parents()[at])] -= tree_.probabilities()[at];
  }
  for (int i = 0; i < std::min(kMaxEnds, tree_.size() - 1); ++i) {
    const auto best = std::max_element(ends.begin() + 1, ends.begin() + tree_.size());
    *best = -1;
    path_ahead_.clear();
    for (auto node = best - ends.begin(); node > 0; node = tree_.parents()[node]) {
      path_ahead_.push_back(tree_.tokens()[static_cast<std::size_t>(node)]);
    }
    std::ranges::reverse(path_ahead_);
    rehearse(path_ahead_);
  }
}

// Prefill runs: rehearses what its token may be.
void Drafter::rehearse_first_tokens() {
  propose(budget_);
  num_proposals_ = num_external_;
  is_proposed_ = false;
  int num_left = kMaxFirstTokens;
  for (int node = 1; node < tree_.size() && num_left > 0; ++node) {
    if (tree_.parents()[static_cast<std::size_t>(node)] != 0) continue;
    rehearse(tree_.tokens().subspan(static_cast<std::size_t>(node), 1));
    --num_left;
  }
}

void Drafter::prepare() {
  take_up_successors();
  if (answer_.empty() && !is_proposed_) return rehearse_first_tokens();
  if (options_.schema) write_texts(reader_, ahead_);
  rehearse_ends();
}

}  // namespace ooospec
