// SPDX-License-Identifier: Apache-2.0
// What followed the last tokens before: in prompt and answer, and in earlier answers.
#include <algorithm>
#include <array>

#include "draft/drafter.h"
#include "draft/drafter_numbers.h"

namespace ooospec {

namespace {

// Matches of a suffix index are counted by length: what followed a long match is believed more.
constexpr std::array<int, kNumBuckets> kMatchLengths = {1, 2, 4, 8, 16};
constexpr std::array<float, kNumBuckets> kMatchClaims = {0.2F, 0.35F, 0.5F, 0.65F, 0.8F};

std::size_t match_bucket(int length) {
  std::size_t bucket = 0;
  while (bucket + 1 < kMatchLengths.size() && length >= kMatchLengths[bucket + 1]) ++bucket;
  return bucket;
}

}  // namespace

void Drafter::propose_continuations(const SuffixIndex& index, SuffixIndex::Cursor cursor,
                                    std::size_t first_rate, int base, std::size_t own) {
  if (base >= 0) {
    std::span<const TokenId> path = std::span(main_path_.tokens).first(own);
    if (path.size() > kMaxMatch) {
      path = path.last(kMaxMatch);
      cursor = {};
    }
    for (const TokenId token : path) index.advance(cursor, token);
  }
  const int found =
      index.continuations(cursor, 1, kMaxContinuationTokens, continuations_, kMinProbability);
  for (int i = 0; i < found; ++i) {
    const SuffixIndex::Continuation& next = continuations_[static_cast<std::size_t>(i)];
    const std::size_t bucket = match_bucket(next.match_length);
    Proposal& proposal = next_proposal();
    proposal.base = base;
    proposal.own = own;
    for (int t = 0; t < next.num_tokens; ++t) {
      const bool first = t == 0;
      proposal.add(next.tokens[static_cast<std::size_t>(t)],
                   next.probabilities[static_cast<std::size_t>(t)] *
                       (first ? kMatchClaims[bucket] : kAfterMatch),
                   first_rate + bucket + (first ? 0 : kMatchLengths.size()), Source::kRetrieval);
    }
  }
}

// Looks for continuations of the committed text, or of that text with `own` tokens of proposal
// `base`, the main path, behind it.
void Drafter::propose_retrieval(int base, std::size_t own) {
  if (options_.lookup) propose_continuations(text_, text_.tail(), kLookupRates, base, own);
  if (!options_.retrieval) return;
  memory_->with_stores([&](const SuffixIndex& index, const TokenRecycler&) {
    propose_continuations(index, memory_cursor_, kRetrievalRates, base, own);
  });
}

// Returns the number of tokens of the main path behind which earlier text is asked how it goes on:
// up to a value that is only guessed, or to the end of a path behind which more must come.
std::size_t Drafter::num_sure(const Proposal& main) const {
  const auto guess = std::ranges::find(main.sources, Source::kSpan);
  if (guess != main.sources.end()) return static_cast<std::size_t>(guess - main.sources.begin());
  return texts_[0].ends_answer ? 0 : main_path_.tokens.size();
}

}  // namespace ooospec
