// SPDX-License-Identifier: Apache-2.0
//
// A suffix automaton over documents of tokens that counts what followed what: one generation of a
// SuffixIndex.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/types.h"

namespace ooospec {

// Elements in chunks: growing moves and copies nothing, and memory is taken a chunk at a time.
template <typename T>
class ChunkedArray {
 public:
  // Appends `value`, or returns false if that took a chunk of more than `free_bytes`.
  bool push(const T& value, std::size_t& free_bytes) {
    if (static_cast<std::size_t>(size_) == chunks_.size() * kChunk) {
      if (free_bytes < kChunkBytes) return false;
      free_bytes -= kChunkBytes;
      chunks_.push_back(std::make_unique_for_overwrite<T[]>(kChunk));
    }
    (*this)[size_++] = value;
    return true;
  }
  void clear() {
    chunks_.clear();
    size_ = 0;
  }
  int size() const { return size_; }
  T& operator[](int i) { return chunks_[static_cast<std::size_t>(i / kChunk)][i % kChunk]; }
  const T& operator[](int i) const {
    return chunks_[static_cast<std::size_t>(i / kChunk)][i % kChunk];
  }

 private:
  static constexpr unsigned kChunk = 512;
  static constexpr std::size_t kChunkBytes = kChunk * sizeof(T) + 2 * sizeof(void*);
  std::vector<std::unique_ptr<T[]>> chunks_;
  int size_ = 0;
};

// All strings that occur in its documents and end at the same places share a state. A state's
// strings are the suffixes of its longest that are longer than its link's longest; the link is the
// state of the next shorter suffix. State 0 has the empty string. No string spans two documents.
//
// An edge counts how often its token followed; the most frequent edge of a state lies in the state
// itself, the others hang off it, last seen first. Counts are kept for the kMaxCounted longest
// suffixes of each position that had been seen before, so that a token costs amortised O(1) even in
// a text of one repeated token.
class SuffixAutomaton {
 public:
  static constexpr int kMaxCounted = 32;  // suffixes of a position whose counts are kept
  static constexpr int kMaxLooked = 8;    // edges of a state that successors() looks at

  struct Match {
    std::int32_t state = 0;
    std::int32_t length = 0;  // tokens matched: at most the state's longest, more than its link's
  };

  struct Successor {
    TokenId token;
    std::int32_t state;
    std::uint32_t count;
  };

  // Takes no memory before its first document.
  explicit SuffixAutomaton(std::size_t max_bytes) : max_bytes_(max_bytes), free_bytes_(max_bytes) {}

  // Drops everything, and frees its memory.
  void clear();

  // Ends the open document and opens an empty one. Returns false if memory ran out.
  bool open_document();

  // Grows the open document by `token` >= 0. Returns false if memory ran out: this token may then
  // be known after some suffixes of the document only, and nothing more can be added.
  bool extend(TokenId token);

  // Returns the longest suffix of the open document that ends at an earlier place too.
  Match tail() const { return tail_; }

  // Returns the longest suffix of `match` + `token` that occurs. Any token, any match.
  Match advance(Match match, TokenId token) const;

  // Returns `match` in the state that it has now: states are split as documents grow. A match that
  // this automaton cannot have given becomes empty.
  Match settle(Match match) const;

  // Returns the longest suffix of a settled `match` that occurs at more places.
  Match shorten(Match match) const;

  // Writes the most frequent tokens after `state` to `out`, best first, and returns their number:
  // of the most frequent one and the kMaxLooked - 1 others that were seen last. Those that were
  // seen less than `min_count` times may be left out.
  int successors(std::int32_t state, std::span<Successor> out, float min_count = 1.0f) const;

  // Returns how many places of `state` go on, those of tokens that successors() left out included.
  std::uint32_t num_places(std::int32_t state) const { return states_[state].count; }

  // Writes the most frequent token after `state`, the most frequent one after that, ..., and the
  // share of places where each followed. Returns how many, at most tokens.size(); stops before the
  // product of the shares falls below `min_probability`.
  int follow(std::int32_t state, std::span<TokenId> tokens, std::span<float> probabilities,
             float min_probability) const;

  std::size_t num_bytes() const { return max_bytes_ - free_bytes_; }

  // Raises std::logic_error, naming what is broken, unless every statement above holds.
  void check() const;

 private:
  static constexpr TokenId kBorder = -1;
  static constexpr std::int32_t kNoState = -1;

  struct State {
    std::int32_t length = 0;         // of its longest string
    std::int32_t link = kNoState;    // kNoState for state 0
    TokenId token = kBorder;         // of its most frequent edge
    std::int32_t target = 0;         // of that edge; 0: no edge
    std::uint32_t target_count = 0;  // of that edge; at least that of any other
    std::uint32_t count = 0;         // of all its edges
    std::int32_t position = 0;       // in text_, of a token that followed
    std::int32_t others = 0;         // its other edges, last seen first; 0: none
  };

  struct Edge {
    std::int32_t state;
    TokenId token;
    std::int32_t target;
    std::uint32_t count;
    std::int32_t next, previous;  // of the same state; 0: none
    std::int32_t next_in_bucket;  // 0: none
  };

  // kInState stands for the edge in the state itself, numbers above it for edges_.
  static constexpr std::int32_t kNoEdge = -1;
  static constexpr std::int32_t kInState = 0;

  std::size_t bucket_of(std::int32_t state, TokenId token) const;
  std::int32_t find(std::int32_t state, TokenId token) const;
  std::int32_t target_of(std::int32_t state, std::int32_t edge) const;
  bool add_edge(std::int32_t state, TokenId token, std::int32_t target, std::uint32_t count);
  std::int32_t state_of_longest(std::int32_t state, TokenId token);
  void count_up(std::int32_t state, TokenId token);
  void swap_into_state(std::int32_t edge);
  void put_in_bucket(std::int32_t edge);
  void put_in_front(std::int32_t edge);
  void take_out(std::int32_t edge);
  void check_edge(std::int32_t state, std::int32_t edge) const;

  std::size_t max_bytes_;
  std::size_t free_bytes_;
  ChunkedArray<State> states_;         // empty until the first token
  ChunkedArray<Edge> edges_;           // number 0 is not used
  ChunkedArray<TokenId> text_;         // documents, each after a kBorder
  std::vector<std::int32_t> buckets_;  // (state, token) -> edges_
  std::int32_t last_ = 0;              // state of the whole open document
  Match tail_;
  bool full_ = false;
};

}  // namespace ooospec
