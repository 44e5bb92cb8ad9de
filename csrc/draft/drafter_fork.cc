// SPDX-License-Identifier: Apache-2.0
//
// Where a call's arguments begin, an answer may fork: branches write values beside it.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "draft/drafter.h"
#include "draft/slot_branch.h"

namespace ooospec {

bool Drafter::may_open_arguments(std::string_view bytes) const {
  return reader_.in_call() && reader_.frames().size() == 1 && reader_.has_name() &&
         !reader_.has_arguments() && bytes.find('{') != std::string_view::npos;
}

bool Drafter::take_value(const SlotBranch& branch) {
  const auto& place = branch.place();
  const auto call = static_cast<std::size_t>(place.call);
  if (branch.value().empty() || call >= kMaxCalls) return false;
  if (slots_.size() <= call) slots_.resize(call + 1);
  const bool done = branch.state() == SlotBranch::State::kDone;
  return slots_[call].set_own(place.tool, place.parameter, branch.value(), !done);
}

std::optional<Drafter::Head> Drafter::head() const {
  if (!fork_ || !reader_.in_call()) return std::nullopt;
  if (fork_->head.call != static_cast<int>(reader_.calls().size())) return std::nullopt;
  return fork_->head;
}

bool Drafter::awaits(const Head& of, int parameter) const {
  if (head() != of || reader_.frames().size() < 2) return false;
  const Frame& arguments = reader_.frames()[1];
  const std::size_t end =
      reader_.frames().size() > 2 ? reader_.frames()[2].first_key : reader_.keys().size();
  const auto written =
      std::span(reader_.keys()).subspan(arguments.first_key, end - arguments.first_key);
  for (const WrittenKey& key : written) {
    if (key.property != parameter) continue;
    const Spot spot = reader_.spot();
    const bool complete = spot == Spot::kAfterValue || spot == Spot::kNextKey || spot == Spot::kKey;
    return arguments.property == parameter && (reader_.frames().size() > 2 || !complete);
  }
  return true;
}

std::vector<int> Drafter::open_parameters() const {
  std::vector<int> found;
  const auto of = head();
  if (!of) return found;
  const auto parameters = tools_->parameters(of->tool);
  const auto call = static_cast<std::size_t>(of->call);
  const Slots* slots = call < slots_.size() ? &slots_[call] : nullptr;
  for (const bool required : {true, false}) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const int parameter = static_cast<int>(i);
      if (parameters[i].required != required || !awaits(*of, parameter)) continue;
      if (slots != nullptr && !required) {
        const JsonValue* said = slots->find(of->tool, parameter);
        const bool ended = slots->ended && slots->tool == of->tool;
        if (said != nullptr ? said->kind() == JsonKind::kNull : ended) continue;
      }
      found.push_back(parameter);
    }
  }
  return found;
}

// A drafter that has read as far as the fork.
Drafter::Drafter(const Drafter& trunk, const Fork& fork)
    : vocab_(trunk.vocab_),
      tools_(trunk.tools_),
      memory_(trunk.memory_),
      options_(trunk.options_),
      tokenizer_(trunk.tokenizer_.first(fork.num_tokens)),
      reader_(fork.reader),
      spans_(trunk.spans_),
      writer_(trunk.writer_),
      one_value_(true),
      styles_(trunk.styles_),
      slots_(trunk.slots_),
      calibration_(trunk.calibration_),
      reader_ahead_(reader_),
      text_(SuffixIndex::kMinBytes),
      memory_cursor_(fork.memory_cursor),
      continuations_(trunk.continuations_.size()) {
  options_.lookup = options_.recycler = options_.recycler_tree = options_.learn = false;
  options_.branches = false;
}

std::unique_ptr<SlotBranch> Drafter::branch(int parameter) {
  OOOSPEC_REQUIRE(head().has_value(), "branch: expected a call under way, got none");
  const Head& head = fork_->head;
  const auto parameters = tools_->parameters(head.tool);
  if (parameter < 0 || static_cast<std::size_t>(parameter) >= parameters.size()) return nullptr;
  CallReader reader = fork_->reader;
  const std::string_view opening = vocab_->bytes(fork_->token);
  std::string text;
  for (std::size_t i = 0; i < opening.size() && reader.frames().size() < 2; ++i) {
    reader.feed(opening.substr(i, 1));
    text += opening[i];
  }
  std::string key;
  if (!writer_->write_key(reader, styles_, parameter, key)) return nullptr;
  text += key;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return nullptr;
  const SchemaNode& node = tools_->node(parameters[static_cast<std::size_t>(parameter)].node);
  // What follows the colon may be part of its token.
  if (node.types == kStringBit) text += '"';
  std::unique_ptr<Drafter> drafter(new Drafter(*this, *fork_));
  TokenPath path;
  drafter->tokenizer_.tokenise(text, path);
  const auto last = std::ranges::upper_bound(path.ends, static_cast<std::uint32_t>(colon));
  if (last == path.ends.end()) return nullptr;
  path.tokens.resize(static_cast<std::size_t>(last - path.ends.begin()) + 1);
  drafter->commit(path.tokens);
  const SlotBranch::Place place{head.call, head.tool, parameter, fork_->num_tokens};
  return std::make_unique<SlotBranch>(place, std::move(path.tokens), std::move(drafter),
                                      fork_->reader, options_.end_token);
}

}  // namespace ooospec
