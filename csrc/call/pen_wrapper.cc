// SPDX-License-Identifier: Apache-2.0
//
// What stands around calls: opening and closing markers, lists, what separates calls.
#include <algorithm>

#include "call/pen.h"
#include "call/priors.h"

namespace ooospec {

using namespace priors;

const Slots* Pen::slots_of(int call) const {
  const auto k = static_cast<std::size_t>(call);
  return k < slots_.size() ? &slots_[k] : nullptr;
}

bool Pen::next_call_is_said() const {
  const std::size_t next = static_cast<std::size_t>(s_.call) + 1;
  if (!whole_.empty()) return next < whole_.size();
  return next < slots_.size() && slots_[next].tool >= 0;
}

void Pen::opening_text(std::string& out, const CallStyle& style) const {
  out.assign(form(style.wrapper).open);
  if (!out.empty()) out.append(style.open_gap);
  if (style.list || s_.in_list) {
    out.push_back('[');
    if (style.lines_of(Level::kList)) out.append("\n").append(style.indent);
  }
  out.push_back('{');
}

// From the end of a call to the '{' of the next one; empty if there can be none.
void Pen::next_text(std::string& out) const {
  const bool closed = s_.resuming && reader_->spot() == Spot::kProse;
  const bool list_closed = s_.resuming && s_.in_list && reader_->list_closed();
  out.clear();
  if (list_closed || (closed && !style().rewrap)) return;
  const WrapperForm& around = form(style().wrapper);
  if (s_.in_list && !closed) {
    out.push_back(',');
    if (style().lines_of(Level::kList)) {
      out.append("\n").append(indentation_, 0, s_.base);
    } else {
      out.append(style().after_comma);
    }
  } else if (style().rewrap) {
    if (!closed) out.append(style().close_gap).append(around.close);
    out.append(style().between).append(around.open).append(style().open_gap);
  } else if (s_.resuming && reader_->separated() && !style().between.starts_with(s_.before)) {
    out.append(s_.before);  // another separator than expected
  } else {
    out.append(style().between);
  }
  out.push_back('{');
}

// From the end of a call to the end of the answer.
void Pen::ending_text(std::string& out) const {
  out.clear();
  if (s_.resuming && reader_->spot() == Spot::kProse) return;  // closed already
  if (s_.in_list && s_.resuming && reader_->list_closed()) {   // up to the ']' that is there
    out.append(s_.before.substr(0, s_.before.find(']') + 1));
  } else if (s_.in_list) {
    if (style().lines_of(Level::kList)) {
      const std::size_t step = std::min<std::size_t>(style().indent.size(), s_.base);
      out.append("\n").append(indentation_, 0, s_.base - step);
    }
    out.push_back(']');
  }
  const std::string_view close = form(style().wrapper).close;
  if (!close.empty()) out.append(style().close_gap).append(close);
}

// What is left of `expected` behind what the text has of it, or nothing at all (null) if that is
// something else. Other white space than expected stays.
std::string_view Pen::rest_of(std::string_view expected) const {
  if (expected.starts_with(s_.before)) return expected.substr(s_.before.size());
  std::size_t i = 0;
  const auto skip_space = [&] {
    while (i < expected.size() && is_json_space(expected[i])) ++i;
  };
  for (const char c : s_.before) {
    if (is_json_space(c)) continue;
    skip_space();
    if (i == expected.size() || expected[i++] != c) return {};
  }
  if (!s_.before.empty() && is_json_space(s_.before.back())) skip_space();
  return expected.substr(i);
}

bool Pen::fits(std::string_view expected) const { return rest_of(expected).data() != nullptr; }

void Pen::emit_wrapper(std::string_view expected) {
  const std::string_view rest = rest_of(expected);
  end_resuming();
  append(rest);
}

void Pen::gather_opening() {
  const Slots* slots = slots_of(s_.call);
  // Behind prose a fence may hold any code, until it is said to be JSON.
  const bool prose_before = !reader_->answer_start() && s_.call == 0;
  const bool any_code = prose_before && s_.before.starts_with(form(Wrapper::kFenced).open) &&
                        !s_.before.starts_with(form(Wrapper::kFencedJson).open);
  float call = any_code ? kCallFencedAfterProse : kCallAfterProse;
  if (reader_->spot() == Spot::kOpened && !any_code) {
    call = kCallOpened;
  } else if (slots != nullptr && slots->tool == Slots::kNoCall) {
    call = kCallGivenNoCallHint;
  } else if (reader_->answer_start()) {
    call = slots != nullptr && slots->tool >= 0 ? kCallGivenHint : kCallGivenNothing;
  }
  float sum = 0;
  for (int k = 0; k < num_styles_; ++k) {
    opening_text(text_, *styles_[static_cast<std::size_t>(k)]);
    if (!fits(text_)) continue;
    const float weight = style_weight_[static_cast<std::size_t>(k)];
    sum += weight;
    add(OptionKind::kStyle, Source::kSchema, call * weight, k);
  }
  for (std::size_t k = 0; k < num_options_; ++k) options_[k].probability /= sum;
}

void Pen::apply_style(const Option& option) {
  if (option.kind == OptionKind::kStyle) {
    s_.style = static_cast<std::int8_t>(option.arg);
    opening_text(text_, style());
    s_.in_list |= style().list;
    s_.base = 0;
    if (s_.in_list && style().lines_of(Level::kList)) {
      indentation_.assign(style().indent);
      s_.base = static_cast<std::uint16_t>(indentation_.size());
    }
  } else {
    next_text(text_);
    ++s_.call;
  }
  emit_wrapper(text_);
  piece(PieceKind::kWrapper, option.source, option.probability);
  begin_call();
}

void Pen::begin_call() {
  s_.depth = 1;
  s_.tool = -1;
  s_.comma_done = false;
  s_.stage = Stage::kMember;
  PenFrame& frame = s_.top() = PenFrame();
  frame.lines = style().lines_of(Level::kCall);
  frame.indent = frame.outer_indent = s_.base;
  if (!frame.lines) return;
  indentation_.replace(std::min<std::size_t>(s_.base, indentation_.size()), style().indent.size(),
                       style().indent);
  frame.indent = static_cast<std::uint16_t>(s_.base + style().indent.size());
}

void Pen::gather_after_call() {
  const bool said = next_call_is_said();
  const float next = said ? kNextCallGivenHint : kNextCallGivenNothing;
  next_text(text_);
  if (!text_.empty() && fits(text_)) {
    add(OptionKind::kNextCall, said ? Source::kHint : Source::kSchema, next);
  }
  ending_text(text_);
  if (fits(text_)) add(OptionKind::kEndAnswer, Source::kSchema, 1.0f - next);
}

void Pen::apply_ending(const Option& option) {
  ending_text(text_);
  emit_wrapper(text_);
  piece(PieceKind::kWrapper, option.source, option.probability);
  piece(PieceKind::kEnd, option.source, kAnswerEnds);
  path_->ends_answer = true;
  s_.stage = Stage::kDone;
}

}  // namespace ooospec
