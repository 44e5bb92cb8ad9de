// SPDX-License-Identifier: Apache-2.0
#include "index/suffix_automaton.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/check.h"

namespace ooospec {

void SuffixAutomaton::clear() {
  states_.clear();
  edges_.clear();
  text_.clear();
  buckets_ = {};
  free_bytes_ = max_bytes_;
  last_ = 0;
  tail_ = {};
  full_ = false;
}

bool SuffixAutomaton::open_document() {
  if (states_.size() == 0) {
    // At some 60 bytes a token and less than one edge outside its state, chains stay short.
    buckets_.assign(std::bit_ceil(max_bytes_ / 128), 0);
    free_bytes_ -= buckets_.size() * sizeof(buckets_[0]);
    full_ = !states_.push({}, free_bytes_) || !edges_.push({}, free_bytes_);
  }
  last_ = 0;
  tail_ = {};
  full_ = full_ || !text_.push(kBorder, free_bytes_);
  return !full_;
}

bool SuffixAutomaton::extend(TokenId token) {
  if (full_ || !text_.push(token, free_bytes_)) return false;
  full_ = true;  // until all is done
  std::int32_t suffix = last_;
  std::int32_t whole = find(suffix, token) == kNoEdge ? states_.size() : kNoState;
  if (whole != kNoState) {
    if (!states_.push({.length = states_[last_].length + 1, .link = 0}, free_bytes_)) return false;
    for (; suffix != kNoState && find(suffix, token) == kNoEdge; suffix = states_[suffix].link) {
      if (!add_edge(suffix, token, whole, 1)) return false;
    }
  }
  const std::int32_t seen = suffix == kNoState ? 0 : state_of_longest(suffix, token);
  if (seen == kNoState) return false;
  if (whole != kNoState) states_[whole].link = seen;
  last_ = whole != kNoState ? whole : seen;
  tail_ = {seen, states_[seen].length};
  count_up(suffix, token);
  full_ = false;
  return true;
}

SuffixAutomaton::Match SuffixAutomaton::advance(Match match, TokenId token) const {
  if (states_.size() == 0) return {};
  match = settle(match);
  std::int32_t edge = find(match.state, token);
  while (edge == kNoEdge && match.state != 0) {
    match = shorten(match);
    edge = find(match.state, token);
  }
  if (edge == kNoEdge) return {};
  return {target_of(match.state, edge), match.length + 1};
}

SuffixAutomaton::Match SuffixAutomaton::settle(Match match) const {
  if (match.length <= 0 || match.state <= 0 || match.state >= states_.size()) return {};
  if (match.length > states_[match.state].length) return {};
  while (states_[states_[match.state].link].length >= match.length) {
    match.state = states_[match.state].link;
  }
  return match;
}

SuffixAutomaton::Match SuffixAutomaton::shorten(Match match) const {
  const std::int32_t link = states_[match.state].link;
  return {link, states_[link].length};
}

int SuffixAutomaton::successors(std::int32_t state, std::span<Successor> out,
                                float min_count) const {
  const State& from = states_[state];
  if (from.target == 0 || out.empty()) return 0;
  out[0] = {from.token, from.target, from.target_count};
  std::size_t num_found = 1;
  std::int32_t edge = from.others;
  std::uint32_t left = from.count - from.target_count;  // of edges that were not looked at
  for (int looked = 1; looked < kMaxLooked; ++looked, edge = edges_[edge].next) {
    if (edge == 0 || static_cast<float>(left) < min_count) break;
    const Edge& other = edges_[edge];
    left -= other.count;
    std::size_t at = num_found;
    while (at > 1 && out[at - 1].count < other.count) --at;
    if (at == out.size()) continue;
    num_found = std::min(num_found + 1, out.size());
    std::copy_backward(out.begin() + at, out.begin() + num_found - 1, out.begin() + num_found);
    out[at] = {other.token, other.target, other.count};
  }
  return static_cast<int>(num_found);
}

int SuffixAutomaton::follow(std::int32_t state, std::span<TokenId> tokens,
                            std::span<float> probabilities, float min_probability) const {
  std::size_t n = 0;
  float reached = 1.0f;
  while (n < tokens.size() && states_[state].target != 0) {
    const State& from = states_[state];
    if (from.count == 1) {  // from here on there is one text only
      for (int at = from.position; n < tokens.size() && at < text_.size(); ++at, ++n) {
        if (text_[at] == kBorder) break;
        tokens[n] = text_[at];
        probabilities[n] = 1.0f;
      }
      break;
    }
    const float share = static_cast<float>(from.target_count) / static_cast<float>(from.count);
    if ((reached *= share) < min_probability) break;
    tokens[n] = from.token;
    probabilities[n++] = share;
    state = from.target;
  }
  return static_cast<int>(n);
}

std::size_t SuffixAutomaton::bucket_of(std::int32_t state, TokenId token) const {
  const std::uint64_t key =
      std::uint64_t{static_cast<std::uint32_t>(state)} << 32 | static_cast<std::uint32_t>(token);
  return (key * 0x9E3779B97F4A7C15u >> 32) & (buckets_.size() - 1);
}

// Returns the edge of `state` for `token`, or kNoEdge. Cost: most states have one edge, in place.
std::int32_t SuffixAutomaton::find(std::int32_t state, TokenId token) const {
  const State& from = states_[state];
  if (from.target == 0) return kNoEdge;
  if (from.token == token) return kInState;
  if (from.others == 0) return kNoEdge;
  std::int32_t edge = buckets_[bucket_of(state, token)];
  while (edge != 0 && (edges_[edge].state != state || edges_[edge].token != token)) {
    edge = edges_[edge].next_in_bucket;
  }
  return edge != 0 ? edge : kNoEdge;
}

std::int32_t SuffixAutomaton::target_of(std::int32_t state, std::int32_t edge) const {
  return edge == kInState ? states_[state].target : edges_[edge].target;
}

// Adds an edge to the token at the end of the text. Returns false if memory ran out.
bool SuffixAutomaton::add_edge(std::int32_t state, TokenId token, std::int32_t target,
                               std::uint32_t count) {
  State& from = states_[state];
  if (from.target == 0) {
    from.token = token;
    from.target = target;
    from.target_count = count;
    from.position = text_.size() - 1;
  } else {
    const Edge edge = {state, token, target, count, 0, 0, 0};
    if (!edges_.push(edge, free_bytes_)) return false;
    put_in_bucket(edges_.size() - 1);
    put_in_front(edges_.size() - 1);
  }
  from.count += count;
  return true;
}

// Returns the state whose longest string is `state`'s longest + `token`, an edge that it has;
// splits it off from the edge's target if need be. Returns kNoState if memory ran out.
std::int32_t SuffixAutomaton::state_of_longest(std::int32_t state, TokenId token) {
  const std::int32_t target = target_of(state, find(state, token));
  const int length = states_[state].length + 1;
  if (states_[target].length == length) return target;
  const std::int32_t shorter = states_.size();
  State copy = states_[target];
  std::int32_t edge = copy.others;
  copy.length = length;
  copy.count = copy.target_count;
  copy.others = 0;
  if (!states_.push(copy, free_bytes_)) return kNoState;
  states_[target].link = shorter;
  bool complete = true;
  while (edge != 0 && edges_[edge].next != 0) edge = edges_[edge].next;
  for (; edge != 0 && complete; edge = edges_[edge].previous) {
    const Edge other = edges_[edge];
    complete = add_edge(shorter, other.token, other.target, other.count);
  }
  for (; state != kNoState; state = states_[state].link) {
    const std::int32_t taken = find(state, token);
    if (target_of(state, taken) != target) break;
    (taken == kInState ? states_[state].target : edges_[taken].target) = shorter;
  }
  return complete ? shorter : kNoState;
}

// Counts that `token` followed `state` and its suffixes, all of which have that edge.
void SuffixAutomaton::count_up(std::int32_t state, TokenId token) {
  for (int i = 0; i < kMaxCounted && state > 0; ++i, state = states_[state].link) {
    State& from = states_[state];
    ++from.count;
    const std::int32_t edge = find(state, token);
    if (edge == kInState) {
      ++from.target_count;
      continue;
    }
    ++edges_[edge].count;
    if (from.others != edge) {
      take_out(edge);
      put_in_front(edge);
    }
    if (edges_[edge].count > from.target_count) swap_into_state(edge);
  }
}

void SuffixAutomaton::swap_into_state(std::int32_t edge) {
  Edge& other = edges_[edge];
  State& from = states_[other.state];
  std::int32_t* link = &buckets_[bucket_of(other.state, other.token)];
  while (*link != edge) link = &edges_[*link].next_in_bucket;
  *link = other.next_in_bucket;
  std::swap(from.token, other.token);
  std::swap(from.target, other.target);
  std::swap(from.target_count, other.count);
  put_in_bucket(edge);
}

void SuffixAutomaton::put_in_bucket(std::int32_t edge) {
  std::int32_t& bucket = buckets_[bucket_of(edges_[edge].state, edges_[edge].token)];
  edges_[edge].next_in_bucket = bucket;
  bucket = edge;
}

void SuffixAutomaton::put_in_front(std::int32_t edge) {
  State& from = states_[edges_[edge].state];
  edges_[edge].next = from.others;
  edges_[edge].previous = 0;
  if (from.others != 0) edges_[from.others].previous = edge;
  from.others = edge;
}

// Takes an edge that is not the first out of the list of its state.
void SuffixAutomaton::take_out(std::int32_t edge) {
  const auto [next, previous] = std::pair(edges_[edge].next, edges_[edge].previous);
  edges_[previous].next = next;
  if (next != 0) edges_[next].previous = previous;
}

namespace {

void expect(bool condition, const char* what, int state) {
  if (!condition) throw std::logic_error(concat("suffix_automaton: state ", state, ": ", what));
}

}  // namespace

void SuffixAutomaton::check() const {
  if (states_.size() == 0) return;
  expect(states_[0].length == 0 && states_[0].link == kNoState, "not the empty string", 0);
  for (std::int32_t state = 0; state < states_.size(); ++state) {
    const State& from = states_[state];
    if (state > 0) {
      expect(from.link >= 0 && from.link < states_.size(), "link out of range", state);
      expect(states_[from.link].length < from.length, "link not shorter", state);
    }
    std::uint64_t count = from.target_count;
    check_edge(state, kInState);
    for (std::int32_t edge = from.others, before = 0; edge != 0; edge = edges_[edge].next) {
      expect(edges_[edge].state == state, "edge of another state", state);
      expect(edges_[edge].previous == std::exchange(before, edge), "list of edges", state);
      expect(edges_[edge].count <= from.target_count, "most frequent edge not in place", state);
      expect(find(state, edges_[edge].token) == edge, "edge not found", state);
      check_edge(state, edge);
      count += edges_[edge].count;
    }
    expect(from.count == count, "counts do not add up", state);
    if (from.count != 1) continue;
    expect(from.position > 0 && from.position < text_.size(), "position out of range", state);
    expect(text_[from.position] == from.token, "position of another token", state);
  }
}

void SuffixAutomaton::check_edge(std::int32_t state, std::int32_t edge) const {
  const State& from = states_[state];
  const std::int32_t target = target_of(state, edge);
  if (edge == kInState && target == 0) {
    return expect(from.others == 0 && from.target_count == 0, "edges but none in place", state);
  }
  expect(target > 0 && target < states_.size(), "target out of range", state);
  expect(states_[target].length > from.length, "target not longer", state);
  if (full_ || from.link == kNoState) return;  // the last token may be missing after suffixes
  const TokenId token = edge == kInState ? from.token : edges_[edge].token;
  const std::int32_t shorter = find(from.link, token);
  expect(shorter != kNoEdge, "a suffix does not go on alike", state);
  const std::int32_t other = target_of(from.link, shorter);
  expect(other == target || other == states_[target].link, "a suffix leads elsewhere", state);
}

}  // namespace ooospec
