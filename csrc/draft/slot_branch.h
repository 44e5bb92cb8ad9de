// SPDX-License-Identifier: Apache-2.0
//
// The value of one parameter, as the target writes it right behind the head of its own call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "call/call_reader.h"
#include "common/types.h"
#include "draft/drafter.h"
#include "tree/draft_tree.h"

namespace ooospec {

// A second text that leaves the answer at a call's head: there the target is made to write the key
// of a parameter, and then it writes the value. Rounds of propose() and commit(), as of a drafter,
// until the value is complete, or turns out to be none. Made by Drafter::branch(); not thread-safe.
class SlotBranch {
 public:
  static constexpr std::size_t kMaxTokens = 48;  // of a value

  enum class State : std::uint8_t { kOpen, kDone, kFailed };

  // A slot, and where the branch leaves the answer.
  struct Place {
    int call = 0;
    int tool = 0;
    int parameter = 0;
    std::size_t num_tokens = 0;  // of the answer, opening included, that come before it
  };

  // drafter: behind `fed`, for the value alone. reader: where the head ends, with `fed` still to
  // come.
  SlotBranch(const Place& place, std::vector<TokenId> fed, std::unique_ptr<Drafter> drafter,
             CallReader reader, TokenId end_token);

  const Place& place() const { return place_; }

  // The tokens that the target is made to write behind the first place().num_tokens: the rest of
  // the head and the key. The last one is node 0 of the first tree.
  std::span<const TokenId> fed() const { return fed_; }

  // See Drafter.
  const DraftTree& propose(int budget) { return drafter_->propose(budget); }
  bool offer_hint(std::string_view json);

  // Takes up what the target wrote behind the last tree. Raises std::out_of_range for ids outside
  // the vocabulary.
  State commit(std::span<const TokenId> tokens);

  State state() const { return state_; }
  // The value as JSON: once it is complete, or of a string what there is of it.
  std::string_view value() const { return value_; }

 private:
  void follow(std::string_view bytes);

  Place place_;
  std::vector<TokenId> fed_;
  std::unique_ptr<Drafter> drafter_;
  CallReader reader_;
  TokenId end_token_;
  State state_ = State::kOpen;
  std::size_t num_tokens_ = 0;
  std::uint32_t value_begin_ = 0;  // in the text of the call; 0: not yet
  std::string value_;
};

}  // namespace ooospec
