// SPDX-License-Identifier: Apache-2.0
#include "index/suffix_index.h"

#include <algorithm>

#include "common/check.h"

namespace ooospec {

namespace {

constexpr int kMaxSuffixes = 16;  // that continuations() looks at
constexpr int kMaxBranches = 8;   // that it takes after each

void require_token(TokenId token) {
  OOOSPEC_REQUIRE(token >= 0, "document: expected tokens >= 0, got ", token);
}

}  // namespace

SuffixIndex::SuffixIndex(std::size_t max_bytes)
    : max_bytes_(max_bytes),
      generations_{SuffixAutomaton((max_bytes - std::min(max_bytes, sizeof(*this))) / 2),
                   SuffixAutomaton((max_bytes - std::min(max_bytes, sizeof(*this))) / 2)} {
  OOOSPEC_REQUIRE(max_bytes >= kMinBytes, "max_bytes: expected at least ", kMinBytes, ", got ",
                  max_bytes);
  append({});
}

void SuffixIndex::append(std::span<const TokenId> document) {
  std::for_each(document.begin(), document.end(), require_token);
  tail_ = {};
  if (!generations_[young()].open_document()) rotate();
  for (const TokenId token : document) extend_unchecked(token);
}

void SuffixIndex::extend(TokenId token) {
  require_token(token);
  extend_unchecked(token);
}

void SuffixIndex::extend_unchecked(TokenId token) {
  if (!generations_[young()].extend(token)) {
    rotate();
    generations_[young()].extend(token);
  }
  advance(tail_, token);
  tail_.matches_[young()] = generations_[young()].tail();
}

void SuffixIndex::rotate() {
  ++youngest_;
  generations_[young()].clear();
  generations_[young()].open_document();
}

void SuffixIndex::advance(Cursor& cursor, TokenId token) const {
  for (std::size_t slot = 0; slot < 2; ++slot) {
    cursor.matches_[slot] = generations_[slot].advance(match_of(cursor, slot), token);
    cursor.generations_[slot] = slot == young() ? youngest_ : youngest_ - 1;
  }
}

// Returns the match in the generation that is in `slot` now.
SuffixAutomaton::Match SuffixIndex::match_of(const Cursor& cursor, std::size_t slot) const {
  const std::uint32_t generation = slot == young() ? youngest_ : youngest_ - 1;
  if (cursor.generations_[slot] != generation) return {};
  return generations_[slot].settle(cursor.matches_[slot]);
}

int SuffixIndex::continuations(const Cursor& cursor, int min_match, int max_tokens,
                               std::span<Continuation> out, float min_probability) const {
  OOOSPEC_REQUIRE(min_match >= 1, "min_match: expected at least 1, got ", min_match);
  OOOSPEC_REQUIRE(max_tokens >= 1 && max_tokens <= kMaxTokens, "max_tokens: expected one of [1, ",
                  kMaxTokens, "], got ", max_tokens);
  std::array<SuffixAutomaton::Match, 2> matches = {match_of(cursor, 0), match_of(cursor, 1)};
  std::size_t num_found = 0;
  float left = 1.0f;  // probability that is not given away yet
  for (int i = 0; i < kMaxSuffixes && num_found < out.size(); ++i) {
    const std::size_t slot =
        matches[young()].length >= matches[1 - young()].length ? young() : 1 - young();
    SuffixAutomaton::Match& match = matches[slot];
    if (match.length < min_match) break;
    const SuffixAutomaton& automaton = generations_[slot];
    const float num_places = 1.0f + static_cast<float>(automaton.num_places(match.state));
    std::array<SuffixAutomaton::Successor, kMaxBranches> branches;
    const int num_branches =
        automaton.successors(match.state, branches, min_probability * num_places / left);
    for (int b = 0; b < num_branches && num_found < out.size(); ++b) {
      const auto& [token, state, count] = branches[b];
      const float probability = left * static_cast<float>(count) / num_places;
      if (probability < min_probability) break;
      const auto known = out.first(num_found);
      if (std::any_of(known.begin(), known.end(),
                      [&](const Continuation& other) { return other.tokens[0] == token; })) {
        continue;
      }
      Continuation& continuation = out[num_found++];
      const auto rest = static_cast<std::size_t>(max_tokens - 1);
      continuation.tokens[0] = token;
      continuation.probabilities[0] = probability;
      continuation.match_length = match.length;
      continuation.num_tokens =
          1 + automaton.follow(state, std::span(continuation.tokens).subspan(1, rest),
                               std::span(continuation.probabilities).subspan(1, rest),
                               min_probability / probability);
    }
    left /= num_places;
    match = automaton.shorten(match);
  }
  return static_cast<int>(num_found);
}

void SuffixIndex::check() const {
  if (num_bytes() > max_bytes_) {
    throw std::logic_error(
        concat("suffix_index: expected at most ", max_bytes_, " bytes, got ", num_bytes()));
  }
  for (const SuffixAutomaton& generation : generations_) generation.check();
}

}  // namespace ooospec
