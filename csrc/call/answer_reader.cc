// SPDX-License-Identifier: Apache-2.0
#include "call/answer_reader.h"

#include <algorithm>
#include <utility>

#include "call/json_text.h"

namespace ooospec {

namespace {

bool is_first_half(std::string_view escape) {  // of a surrogate pair: "\ud83d"
  return escape.size() == 6 && (escape[2] == 'd' || escape[2] == 'D') &&
         std::string_view("89abAB").find(escape[3]) != std::string_view::npos;
}

std::size_t size_without_space(std::string_view text) {
  while (!text.empty() && is_json_space(text.back())) text.remove_suffix(1);
  return text.size();
}

}  // namespace

AnswerReader::AnswerReader(std::shared_ptr<const ToolSet> tools, bool thinking)
    : reader_(tools != nullptr ? tools : ToolSet::parse("[]"), thinking),
      calls_(tools != nullptr),
      has_other_(thinking) {}

void AnswerReader::feed(std::string_view text) {
  for (const char byte : text) step(byte);
}

std::vector<AnswerPart> AnswerReader::take_parts() { return std::exchange(parts_, {}); }

void AnswerReader::step(char byte) {
  const Spot before = reader_.spot();
  const bool was_inside = reader_.in_call();
  const std::size_t num_ended = reader_.calls().size();
  reader_.feed({&byte, 1});
  const bool thinking = before == Spot::kThinking || reader_.spot() == Spot::kThinking;
  if (calls_ && reader_.calls().size() > num_ended) {
    held_.push_back(byte);
    return end_call();
  }
  if (calls_ && reader_.in_call()) return follow_call(byte, before);
  if (was_inside && begun_) break_off();
  held_.push_back(byte);
  if (!calls_ && !thinking) return resolve(held_.size() - reader_.partial_marker().size());
  step_outside(was_inside ? Spot::kProse : before);
}

void AnswerReader::finish() {
  if (begun_) break_off();
  if (reader_.spot() == Spot::kBetween) {
    leave_wrapper();
    const std::size_t space = held_.find_first_not_of(" \n\t\r");  // a closing marker may be cut
    const std::string_view rest =
        space == std::string::npos ? std::string_view() : std::string_view(held_).substr(space);
    if (form(reader_.wrapper()).close.starts_with(rest)) held_.clear();
  }
  add_text(reader_.spot() == Spot::kThinking ? Part::kThinking : Part::kContent, held_);
  held_.clear();
  if (!has_other_) add(Part::kContent, content_.space);
}

// --- outside of calls ---

void AnswerReader::step_outside(Spot before) {
  const Spot spot = reader_.spot();
  if (spot == Spot::kOpened || spot == Spot::kBetween) return;
  if (spot == Spot::kThinking && before == spot) {
    const std::size_t size = held_.size() - reader_.partial_thinking_end().size();
    add_text(Part::kThinking, std::string_view(held_).substr(0, size));
    held_.erase(0, size);
    return;
  }
  if (spot == Spot::kThinking || before == Spot::kThinking) {  // behind a marker of it
    has_other_ = true;
    held_.clear();
    return;
  }
  if (before == Spot::kBetween) leave_wrapper();
  resolve(held_.size() - reader_.partial_marker().size());
}

// Behind the last call of a wrapper: what of held_ belongs to the wrapper goes.
void AnswerReader::leave_wrapper() {
  const std::uint64_t begin = reader_.num_bytes() - held_.size();
  const std::uint64_t end = reader_.spans().back().end;
  const std::size_t size = end > begin ? static_cast<std::size_t>(end - begin) : 0;
  if (foreign_) add_text(Part::kContent, std::string_view(held_).substr(0, size));
  held_.erase(0, size);
  known_ = foreign_ = false;
}

// The first bytes of held_ are content.
void AnswerReader::resolve(std::size_t size) {
  add_text(Part::kContent, std::string_view(held_).substr(0, size));
  held_.erase(0, size);
}

// --- calls ---

void AnswerReader::follow_call(char byte, Spot before) {
  if (before == Spot::kBetween) {  // what stands between two calls
    if (foreign_) add_text(Part::kContent, held_);
    held_.clear();
  }
  const std::vector<Frame>& frames = reader_.frames();
  if (!begun_) {
    held_.push_back(byte);
    const bool begins = byte == '{' && frames.size() == 2 && frames[1].num_members == 0 &&
                        frames[1].level == Level::kArguments && reader_.tool() >= 0 &&
                        !reader_.has_arguments();
    if (!begins) return;
    begin_call(reader_.tools().tool(reader_.tool()).name);
    in_arguments_ = true;
  }
  if (in_arguments_) add_argument_byte(byte);
  if (frames.size() == 1) in_arguments_ = false;
}

void AnswerReader::end_call() {
  const Call& call = reader_.calls().back();
  if (!begun_ && call.tool < 0) {
    add_text(Part::kContent, held_);
    foreign_ = !known_;
  } else if (!begun_) {  // the name came behind the arguments, or these are no object
    begin_call(call.name);
    add(Part::kArguments, call.arguments);
  }
  if (begun_) add(Part::kCallEnd, {});
  begun_ = in_arguments_ = false;
  held_.clear();
}

// The call under way is broken or cut off; it stands as far as it went.
void AnswerReader::break_off() {
  add(Part::kArguments, escape_);
  add(Part::kCallCut, {});
  escape_.clear();
  held_.clear();
  begun_ = in_arguments_ = known_ = foreign_ = false;
}

void AnswerReader::begin_call(std::string_view name) {
  add(Part::kCall, name);
  held_.clear();
  begun_ = known_ = has_other_ = true;
  foreign_ = false;
  content_.space.clear();
}

void AnswerReader::add_argument_byte(char byte) {
  if (escape_.empty() && !reader_.in_escape()) return add(Part::kArguments, {&byte, 1});
  escape_.push_back(byte);
  if (reader_.in_escape() || is_first_half(escape_)) return;
  add(Part::kArguments, escape_);
  escape_.clear();
}

// --- parts ---

void AnswerReader::add_text(Part part, std::string_view text) {
  Trimmed& trimmed = part == Part::kContent ? content_ : thinking_;
  const std::size_t size = size_without_space(text);
  if (size > 0) {
    const bool leads = !trimmed.begun && (part == Part::kThinking || has_other_);
    if (leads) {
      trimmed.space.clear();
      const std::size_t space = text.find_first_not_of(" \n\t\r");
      add(part, text.substr(space, size - space));
    } else {
      add(part, trimmed.space);
      add(part, text.substr(0, size));
    }
    trimmed.begun = true;
    trimmed.space.clear();
  }
  trimmed.space += text.substr(size);
}

void AnswerReader::add(Part part, std::string_view text) {
  const bool marks = part != Part::kContent && part != Part::kThinking && part != Part::kArguments;
  if (text.empty() && !marks) return;
  if (marks || parts_.empty() || parts_.back().part != part) parts_.push_back({part, {}, 0});
  parts_.back().text += text;
  parts_.back().end = reader_.num_bytes();
}

}  // namespace ooospec
