// SPDX-License-Identifier: Apache-2.0
//
// Where the reader stands: the pen takes over the open containers and what was begun.
#include <algorithm>

#include "call/pen.h"
#include "call/priors.h"

namespace ooospec {

using namespace priors;

namespace {

constexpr std::size_t kMaxIndent = 1024;

}  // namespace

bool Pen::begin(const CallReader& reader, std::span<const StyleGuess> guesses,
                std::span<const Slots> slots, std::size_t max_bytes, int max_branches) {
  reader_ = &reader;
  tools_ = &reader.tools();
  slots_ = slots;
  whole_ = {};
  max_bytes_ = max_bytes;
  max_branches_ = static_cast<std::size_t>(max_branches);
  for (Members& known : parameters_) known.tool = -2;
  set_styles(guesses.empty() ? usual_styles() : guesses);
  s_.stage = Stage::kDone;
  s_.resuming = true;
  s_.comma_done = s_.other_spelling = false;
  s_.gap = s_.token = s_.before = {};
  s_.style = s_.depth = 0;
  s_.tool = s_.value_node = -1;
  s_.value_said = {};
  s_.in_list = reader.in_list();
  s_.call = static_cast<std::int32_t>(reader.calls().size());
  indentation_.assign(reader.base_indent());
  s_.base = static_cast<std::uint16_t>(indentation_.size());
  bool known = true;
  if (!reader.in_call()) {
    known = begin_outside();
  } else if (reader.frames().size() <= kMaxPenDepth) {
    begin_inside();
  }
  start_ = s_;
  return known && s_.stage != Stage::kDone;
}

// Completes the likeliest guesses from what was seen.
void Pen::set_styles(std::span<const StyleGuess> guesses) {
  const CallStyle& seen = reader_->style();
  std::array<float, 16> weights;
  std::array<bool, 16> agrees;
  const std::size_t n = std::min(guesses.size(), weights.size());
  for (std::size_t k = 0; k < n; ++k) {
    agrees[k] = seen.seen == 0 || seen.agrees_with(guesses[k].style);
    weights[k] = guesses[k].probability * (agrees[k] ? 1.0f : kStyleDisagrees);
  }
  num_styles_ = 0;
  for (std::size_t taken = 0; taken < n && num_styles_ < kMaxPenStyles; ++taken) {
    const auto best = static_cast<std::size_t>(
        std::max_element(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(n)) -
        weights.begin());
    if (num_styles_ > 0 && weights[best] < kLeastStyle * style_weight_[0]) break;
    const auto slot = static_cast<std::size_t>(num_styles_);
    styles_[slot] = &guesses[best].style;
    if (!agrees[best]) {
      merged_[slot] = seen.filled_from(guesses[best].style);
      styles_[slot] = &merged_[slot];
    }
    style_weight_[slot] = weights[best];
    weights[best] = -1;
    bool twin = false;
    for (std::size_t k = 0; k < slot; ++k) twin |= styles_[k]->writes_like(*styles_[slot]);
    if (!twin) ++num_styles_;
  }
}

// --- outside ---

bool Pen::begin_outside() {
  const CallReader& reader = *reader_;
  if (reader.spot() == Spot::kThinking) return false;
  if (reader.spot() == Spot::kOpened) {
    if (!reader.has_pending()) return false;
    const std::string_view before = reader.pending_open();
    if (!begin_opening(before)) {  // a wrapper that no guess has
      merged_[0] = CallStyle::usual(reader.wrapper());
      styles_[0] = &merged_[0];
      style_weight_[0] = 1;
      num_styles_ = 1;
      return begin_opening(before);
    }
    return true;
  }
  if (reader.after_call() && reader.has_pending()) {
    const bool open = reader.spot() == Spot::kBetween;
    s_.before = open ? reader.pending() : reader.pending_close();
    s_.stage = Stage::kAfterCall;
    --s_.call;
    return true;
  }
  s_.in_list = false;
  if (reader.spot() != Spot::kProse) return false;
  if (reader.has_pending() && begin_opening(reader.pending())) return true;
  const std::string_view marker = reader.partial_marker();  // in the middle of a line
  return marker.size() >= 2 && begin_opening(marker);
}

// before: bytes of an opening. Returns whether one of the styles begins with them.
bool Pen::begin_opening(std::string_view before) {
  s_.before = before;
  s_.stage = Stage::kOpening;
  for (int k = 0; k < num_styles_; ++k) {
    opening_text(text_, *styles_[static_cast<std::size_t>(k)]);
    if (fits(text_)) return true;
  }
  return false;
}

// --- inside ---

void Pen::begin_inside() {
  const CallReader& reader = *reader_;
  const Spot spot = reader.spot();
  s_.gap = reader.gap();
  s_.token = reader.token();
  s_.tool = reader.tool();
  s_.comma_done = spot == Spot::kNextKey || spot == Spot::kNextItem || spot == Spot::kKey;
  for (const Frame& frame : reader.frames()) add_frame(frame);
  s_.stage = Stage::kMember;
  const bool colon = spot == Spot::kColon;
  const bool value = spot == Spot::kValue || (spot >= Spot::kString && spot <= Spot::kLiteral);
  if (!colon && !value) return;
  s_.stage = colon ? Stage::kColon : Stage::kValue;
  const Frame& frame = reader.frames().back();
  const PenFrame& top = s_.top();
  s_.value_said = said_of_member(frame, top);
  if (top.level == Level::kArray) {
    s_.value_node = frame.node >= 0 ? tools_->node(frame.node).items : -1;
  } else if (frame.property >= 0) {
    s_.value_node = tools_->properties(frame.node)[static_cast<std::size_t>(frame.property)].node;
  }
  if (s_.depth > 1) return;
  s_.role = role_of(reader.keys().back().hash);
  if (s_.role == Role::kName && value) s_.stage = Stage::kFunction;
  const bool other = s_.role == Role::kArguments && value && spot != Spot::kValue;
  if (other) s_.stage = Stage::kDone;  // arguments that are no object
}

// Takes over an open container of the text.
void Pen::add_frame(const Frame& read) {
  PenFrame frame;
  frame.level = read.level;
  frame.node = read.node;
  frame.num_members = read.num_members;
  frame.ruled_out = read.ruled_out;
  const auto depth = static_cast<std::size_t>(s_.depth);
  if (depth > 1) {
    frame.said = said_of_member(reader_->frames()[depth - 1], s_.top());
    const auto kind = read.level == Level::kArray ? JsonKind::kArray : JsonKind::kObject;
    if (frame.said && frame.said.node().kind != kind) frame.said = {};
  }
  set_indent(frame, read);
  if (read.level == Level::kArray) {
    frame.next_item = frame.said ? frame.said.child(read.num_members) : 0;
  } else {
    set_written(frame, read);
  }
  ++s_.depth;
  s_.top() = frame;
}

void Pen::set_indent(PenFrame& frame, const Frame& read) {
  frame.indent = frame.outer_indent = s_.depth > 0 ? s_.top().indent : s_.base;
  const bool begun = read.num_members > 0;
  const std::string_view gap =
      begun ? reader_->call_text().substr(read.gap_begin, read.gap_end - read.gap_begin) : s_.gap;
  const std::size_t line = gap.rfind('\n');
  frame.lines = line != std::string_view::npos;
  if (!begun && gap.empty()) frame.lines = style().lines_of(frame.level);
  if (!frame.lines) return;
  if (begun) {
    indentation_.assign(gap.substr(line + 1, kMaxIndent));
    frame.outer_indent =
        static_cast<std::uint16_t>(std::min<std::size_t>(frame.outer_indent, indentation_.size()));
  } else {
    indentation_.replace(std::min<std::size_t>(frame.outer_indent, indentation_.size()),
                         std::string::npos, style().indent);
  }
  frame.indent = static_cast<std::uint16_t>(indentation_.size());
}

// Which members an object has already.
void Pen::set_written(PenFrame& frame, const Frame& read) {
  const auto& frames = reader_->frames();
  const auto& keys = reader_->keys();
  const auto depth = static_cast<std::size_t>(s_.depth);
  const std::size_t end = depth + 1 < frames.size() ? frames[depth + 1].first_key : keys.size();
  const bool listed = depth > 0 && read.first_key < end && (frame.said || frame.node >= 0);
  const Members* all = listed ? &members(frame) : nullptr;
  const bool several = listed && !frame.said && tools_->node(frame.node).num_ways > 1;
  for (std::size_t i = read.first_key; i < end; ++i) {
    if (several) all = &members(frame);  // what was written tells which of its schemas it follows
    int k = keys[i].property;
    if (depth == 0) k = static_cast<int>(role_of(keys[i].hash));
    if (frame.said) {
      for (k = all->size - 1; k >= 0; --k) {
        if (hash_bytes(all->all[static_cast<std::size_t>(k)].name) == keys[i].hash) break;
      }
    }
    if (k < 0 || k >= kMaxMembers) continue;
    mark_written(frame, k, all);
  }
}

// What hints say of the member of an open container that is under way.
Said Pen::said_of_member(const Frame& frame, const PenFrame& pen_frame) {
  if (frame.level == Level::kCall) return {};
  if (frame.level == Level::kArguments && !pen_frame.said) {
    if (frame.property < 0 || frame.property >= kMaxMembers) return {};
    const Members& all = members(pen_frame);
    return frame.property < all.size ? all.all[static_cast<std::size_t>(frame.property)].said
                                     : Said();
  }
  if (!pen_frame.said) return {};
  if (frame.level == Level::kArray) {
    const std::uint32_t item = pen_frame.said.child(std::max(frame.num_members, 1u) - 1);
    return item > 0 ? Said{pen_frame.said.json, static_cast<std::int32_t>(item)} : Said{};
  }
  const std::size_t size = frame.key_end - frame.key_begin;
  scratch_.clear();
  append_unescaped(scratch_, reader_->call_text().substr(frame.key_begin, size), true);
  const int found = pen_frame.said.json->find(pen_frame.said.idx, scratch_);
  return found >= 0 ? Said{pen_frame.said.json, found} : Said{};
}

}  // namespace ooospec
