// SPDX-License-Identifier: Apache-2.0
#include "draft/slot_branch.h"

#include <utility>

namespace ooospec {

SlotBranch::SlotBranch(const Place& place, std::vector<TokenId> fed,
                       std::unique_ptr<Drafter> drafter, CallReader reader, TokenId end_token)
    : place_(place),
      fed_(std::move(fed)),
      drafter_(std::move(drafter)),
      reader_(std::move(reader)),
      end_token_(end_token) {
  for (const TokenId token : fed_) follow(drafter_->vocab().bytes(token));
}

bool SlotBranch::offer_hint(std::string_view json) {
  return drafter_->offer_hint(HintKind::kValue, place_.call, place_.tool, place_.parameter, json);
}

SlotBranch::State SlotBranch::commit(std::span<const TokenId> tokens) {
  drafter_->commit(tokens);
  for (const TokenId token : tokens) {
    if (state_ != State::kOpen) break;
    if (token == end_token_ || ++num_tokens_ > kMaxTokens) {
      state_ = State::kFailed;
      break;
    }
    follow(drafter_->vocab().bytes(token));
  }
  if (state_ == State::kOpen && reader_.spot() == Spot::kString && reader_.frames().size() == 2) {
    value_ = reader_.token();
    if (reader_.in_escape()) value_.erase(value_.rfind('\\'));
    value_ += '"';
  }
  return state_;
}

// Reads on until the value ends: at its last byte, or, of a number, at the byte behind it.
void SlotBranch::follow(std::string_view bytes) {
  for (const char byte : bytes) {
    const bool in_number = reader_.spot() == Spot::kNumber && reader_.frames().size() == 2;
    const std::size_t size = reader_.call_text().size();
    reader_.feed({&byte, 1});
    const std::size_t depth = reader_.frames().size();
    if (depth == 0) {
      state_ = State::kFailed;  // that is no call any more
      return;
    }
    const bool in_scalar = depth == 2 && reader_.in_token() && reader_.spot() != Spot::kKey;
    if (in_scalar || depth > 2) value_begin_ = reader_.frames()[1].value_begin;
    const bool ended =
        depth < 2 ||
        (depth == 2 && (reader_.spot() == Spot::kAfterValue || reader_.spot() == Spot::kNextKey));
    if (!ended || value_begin_ == 0) continue;
    const std::size_t end = in_number ? size : reader_.call_text().size();
    value_ = reader_.call_text().substr(value_begin_, end - value_begin_);
    state_ = State::kDone;
    return;
  }
}

}  // namespace ooospec
