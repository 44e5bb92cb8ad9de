// SPDX-License-Identifier: Apache-2.0
//
// Retrieval: what followed earlier where the text went as it goes now.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "common/types.h"
#include "index/suffix_automaton.h"

namespace ooospec {

// Holds documents of tokens: the prompt and answer of one request, or the earlier answers of one
// tenant (one index a tenant, so that nobody drafts from another's text). A match or a continuation
// never spans two documents.
//
// Memory never exceeds `max_bytes`: there are two generations, and when the younger has filled its
// half, the older is dropped and a new one begun. A document that is open then goes on in the new
// one; what it said before is still found, but nothing that spans the cut.
//
// Threads: const calls may run side by side; append() and extend() need the index to themselves (a
// std::shared_mutex of the caller's, unless one thread does it all). A cursor belongs to one thread
// at a time, and to one index.
class SuffixIndex {
 public:
  static constexpr int kMaxTokens = 32;  // of a continuation
  static constexpr std::size_t kMinBytes = 256 * 1024;

  // The longest suffix of a text that occurs in the index, kept up to date token by token. Stays
  // good while documents are added and dropped; one that is added can be matched by tokens that are
  // still to come. Starts with an empty text.
  class Cursor {
   public:
    // Tokens of the longest match, in whichever generation has it.
    int match_length() const { return std::max(matches_[0].length, matches_[1].length); }

   private:
    friend class SuffixIndex;
    std::array<SuffixAutomaton::Match, 2> matches_;
    std::array<std::uint32_t, 2> generations_{};  // in which the matches are
  };

  // tokens[i], given the match and those before it, has probabilities[i].
  struct Continuation {
    std::array<TokenId, kMaxTokens> tokens;
    std::array<float, kMaxTokens> probabilities;
    int num_tokens = 0;
    int match_length = 0;  // of the suffix that it went on from
  };

  // max_bytes: at least kMinBytes. Some 60 bytes a token are used, less where documents repeat.
  // Raises std::invalid_argument for less.
  explicit SuffixIndex(std::size_t max_bytes);

  // Ends the open document and opens one with these tokens.
  // Raises std::invalid_argument for a negative token; nothing has been added then.
  // Cost: amortised O(1) a token.
  void append(std::span<const TokenId> document);

  // Grows the open document (an empty one, in a new index) by one token. Raises and costs likewise.
  void extend(TokenId token);

  // Moves `cursor` behind one more token of its text; any token. Cost: amortised O(1).
  void advance(Cursor& cursor, TokenId token) const;

  // Returns the longest suffix of the open document that occurs at an earlier place too: the cursor
  // to continue the open document with. Cost: O(1).
  Cursor tail() const { return tail_; }

  // Writes what may follow `cursor`'s text to `out`, best first, and returns how many; they differ
  // in their first token. First come the most frequent ones after the longest match, then those
  // after shorter matches. A first token has the share of the places where it followed, one more
  // being counted for what is new; that one's share goes to the shorter matches. Further tokens
  // are the most frequent ones, with the share of the places where they followed.
  //   min_match: tokens that must match, >= 1
  //   max_tokens: of a continuation, in [1, kMaxTokens]
  //   min_probability: what is less likely to be reached is left out
  // Raises std::invalid_argument for numbers outside of these.
  // Cost: O(out.size() x max_tokens), a few microseconds at most; no allocation.
  int continuations(const Cursor& cursor, int min_match, int max_tokens,
                    std::span<Continuation> out, float min_probability = 0.0f) const;

  // Memory taken; at most max_bytes.
  std::size_t num_bytes() const {
    return sizeof(*this) + generations_[0].num_bytes() + generations_[1].num_bytes();
  }

  // Raises std::logic_error, naming what is broken, unless every statement above holds. Cost: slow.
  void check() const;

 private:
  // Generation n is in slot n % 2.
  std::size_t young() const { return youngest_ % 2; }
  void rotate();
  void extend_unchecked(TokenId token);
  SuffixAutomaton::Match match_of(const Cursor& cursor, std::size_t slot) const;

  std::size_t max_bytes_;
  std::array<SuffixAutomaton, 2> generations_;
  std::uint32_t youngest_ = 1;  // number of the younger generation; 0 has nothing
  Cursor tail_;
};

}  // namespace ooospec
