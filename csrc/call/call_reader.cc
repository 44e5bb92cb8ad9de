// SPDX-License-Identifier: Apache-2.0
#include "call/call_reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"

namespace ooospec {

namespace {

constexpr std::size_t kMaxPending = 64;

struct Marker {
  std::string_view text;
  enum Kind { kWrapper, kFence, kThink, kThinkEnd } kind;
  Wrapper wrapper;
};
constexpr std::array kMarkers = {
    Marker{"<tool_call>", Marker::kWrapper, Wrapper::kTags},
    Marker{"<|python_tag|>", Marker::kWrapper, Wrapper::kPythonTag},
    Marker{"```", Marker::kFence, Wrapper::kFenced},
    Marker{"<think>", Marker::kThink, Wrapper::kBare},
    Marker{"</think>", Marker::kThinkEnd, Wrapper::kBare},
};
constexpr std::size_t kThinkEndMarker = 4;

std::uint32_t offset(std::size_t size) { return static_cast<std::uint32_t>(size); }

}  // namespace

CallReader::CallReader(std::shared_ptr<const ToolSet> tools, bool thinking)
    : tools_(std::move(tools)), spot_(thinking ? Spot::kThinking : Spot::kProse) {
  OOOSPEC_REQUIRE(tools_ != nullptr, "call reader: expected a tool set, got none");
}

void CallReader::feed(std::string_view bytes) {
  std::size_t i = 0;
  while (i < bytes.size()) {
    const std::size_t begin = i;
    if (in_call()) {
      i += feed_call(bytes.substr(i));
      if (i == bytes.size()) return;
      if (in_call()) abandon_call();  // the byte at i is not JSON there
      if (i > begin) continue;
    }
    bool taken = true;
    if (spot_ == Spot::kOpened) {
      taken = step_opened(bytes[i]);
    } else if (spot_ == Spot::kBetween) {
      taken = step_between(bytes[i]);
    } else if (spot_ == Spot::kThinking) {
      step_thinking(bytes[i]);
    } else {
      step_prose(bytes[i]);
    }
    i += taken ? 1 : 0;
    position_ += taken ? 1 : 0;
  }
}

// Takes bytes to the end of the call, or up to one that cannot stand there. Returns how many.
std::size_t CallReader::feed_call(std::string_view bytes) {
  std::size_t i = 0;
  while (i < bytes.size() && in_call()) {
    if (escape_ == 0 && (spot_ == Spot::kString || spot_ == Spot::kKey)) {
      const std::size_t size = skip_string(bytes.substr(i));
      i += size;
      position_ += size;
      if (i == bytes.size()) break;
    }
    if (!step_call(bytes[i])) break;
    ++i;
    ++position_;
  }
  return i;
}

// --- outside ---

void CallReader::append_pending(char byte) {
  if (pending_.size() < kMaxPending) {
    pending_.push_back(byte);
  } else {
    pending_valid_ = false;
  }
}

std::string_view CallReader::partial_marker() const {
  if (spot_ != Spot::kProse || alive_ == 0) return {};
  std::size_t k = 0;
  while (((alive_ >> k) & 1u) == 0) ++k;
  return kMarkers[k].text.substr(0, marker_size_);
}

std::string_view CallReader::partial_thinking_end() const {
  if (spot_ != Spot::kThinking) return {};
  return kMarkers[kThinkEndMarker].text.substr(0, marker_size_);
}

void CallReader::step_prose(char byte) {
  if (marker_size_ == 0 && line_start_ && (byte == '{' || byte == '[')) {
    open_wrapper(Wrapper::kBare, 0);
    step_opened(byte);
    return;
  }
  append_pending(byte);
  if (marker_size_ == 0 && byte != '<' && byte != '`') {
    if (byte == '\n') return end_line();
    line_start_ = line_start_ && is_json_space(byte);
    return;
  }
  std::uint32_t alive = 0;
  for (int attempt = 0; attempt < 2 && alive == 0; ++attempt) {
    for (std::size_t k = 0; k < kMarkers.size(); ++k) {
      const bool was_alive = marker_size_ == 0 ? kMarkers[k].kind != Marker::kFence || line_start_
                                               : ((alive_ >> k) & 1u) != 0;
      if (was_alive && kMarkers[k].text[marker_size_] == byte) alive |= 1u << k;
    }
    if (alive == 0 && marker_size_ == 0) break;
    if (alive == 0) marker_size_ = 0;  // the byte may begin another one
  }
  alive_ = alive;
  if (alive != 0) ++marker_size_;
  if (byte == '\n') return end_line();
  if (!is_json_space(byte)) line_start_ = false;
  for (std::size_t k = 0; alive != 0 && k < kMarkers.size(); ++k) {
    if (((alive >> k) & 1u) == 0 || kMarkers[k].text.size() != marker_size_) continue;
    const Marker& marker = kMarkers[k];
    alive_ = marker_size_ = 0;
    if (marker.kind == Marker::kThink) spot_ = Spot::kThinking;
    if (marker.kind == Marker::kWrapper || marker.kind == Marker::kFence) {
      open_wrapper(marker.wrapper, marker.text.size());
      fence_info_ = marker.kind == Marker::kFence;
    }
    return;
  }
}

void CallReader::end_line() {
  if (!line_start_) answer_start_ = false;
  line_start_ = true;
  if (after_call_ && pending_valid_) return;
  after_call_ = false;
  pending_.clear();
  pending_valid_ = true;
}

void CallReader::step_thinking(char byte) {
  const std::string_view end = kMarkers[kThinkEndMarker].text;
  if (byte != end[marker_size_]) marker_size_ = 0;
  if (byte == end[marker_size_]) ++marker_size_;
  if (marker_size_ < end.size()) return;
  spot_ = Spot::kProse;
  marker_size_ = 0;
  pending_.clear();
  pending_valid_ = answer_start_ = line_start_ = true;
  after_call_ = false;
}

// marker_size: bytes of the marker, already in pending_.
void CallReader::open_wrapper(Wrapper wrapper, std::size_t marker_size) {
  spot_ = Spot::kOpened;
  wrapper_ = wrapper;
  wrapper_begin_ = position_ + (marker_size > 0 ? 1 : 0) - marker_size;
  in_list_ = list_closed_ = separated_ = fence_info_ = false;
  calls_in_wrapper_ = 0;
  if (!pending_valid_ ||
      (!after_call_ && marker_size > 0)) {  // the marker may stand in the middle of a line
    pending_ = form(wrapper).open.substr(0, marker_size);
    pending_valid_ = true;
    after_call_ = false;
  }
  gap_from_ = offset(pending_.size());
  open_begin_ = offset(pending_.size() - marker_size);
  list_from_ = 0;
}

void CallReader::leave_wrapper() {
  spot_ = Spot::kProse;
  alive_ = marker_size_ = 0;
  line_start_ = answer_start_ = false;
  in_list_ = false;
}

bool CallReader::step_opened(char byte) {
  if (fence_info_) {
    if (byte != '\n' && pending_valid_) {
      append_pending(byte);
      return true;
    }
    std::string_view info = std::string_view(pending_).substr(gap_from_);
    while (!info.empty() && is_json_space(info.back())) info.remove_suffix(1);
    const bool json = info == "json" || info == "JSON";
    fence_info_ = false;
    if ((!json && !info.empty()) || !pending_valid_) {
      leave_wrapper();
      return false;
    }
    wrapper_ = json ? Wrapper::kFencedJson : Wrapper::kFenced;
    gap_from_ += offset(info.size());
  }
  if (byte == '{') {
    begin_call();
    return true;
  }
  if (!is_json_space(byte) && (byte != '[' || in_list_)) {
    leave_wrapper();
    return false;
  }
  append_pending(byte);
  if (byte == '[') {
    in_list_ = true;
    list_from_ = offset(pending_.size());
  }
  return true;
}

bool CallReader::step_between(char byte) {
  const std::string_view close = form(wrapper_).close;
  if (marker_size_ < close.size() && byte == close[marker_size_] && (!in_list_ || list_closed_) &&
      !separated_) {
    if (marker_size_ == 0) gap_from_ = offset(pending_.size());
    append_pending(byte);
    if (++marker_size_ < close.size()) return true;
    leave_wrapper();
    close_end_ = offset(pending_.size());
    if (calls_in_wrapper_ > 0) spans_.back().end = position_ + 1;
    if (pending_valid_ && !list_closed_) {
      observe(kCloseGapFacet, &CallStyle::close_gap,
              std::string_view(pending_).substr(0, gap_from_));
    }
    return true;
  }
  if (marker_size_ > 0) {  // no closing marker, perhaps an opening one
    const std::string_view partial = close.substr(0, marker_size_);
    leave_wrapper();
    pending_.resize(pending_.size() - std::min(pending_.size(), partial.size()));
    close_end_ = offset(pending_.size());
    for (const char c : partial) step_prose(c);
    return false;
  }
  if (byte == '{' && !list_closed_ && (separated_ || !in_list_)) {
    begin_call();
    return true;
  }
  if ((byte == ',' || byte == ';') && !separated_ && !list_closed_ && (byte == ',' || !in_list_)) {
    separated_ = true;
  } else if (byte == ']' && in_list_ && !list_closed_ && !separated_) {
    list_closed_ = true;
    if (calls_in_wrapper_ > 0) spans_.back().end = position_ + 1;
  } else if (!is_json_space(byte)) {
    const bool line_start = pending_.ends_with('\n');
    close_end_ = offset(pending_.size());
    leave_wrapper();
    line_start_ = line_start;
    return false;
  }
  append_pending(byte);
  return true;
}

// --- style ---

void CallReader::observe(Facet facet, std::string CallStyle::* member, std::string_view text) {
  if ((style_.seen & facet) != 0 && style_.*member == text) return;
  const bool layout = facet >= kIndentFacet;  // which never holds a line break
  if (text.size() > 16 || (layout && text.find('\n') != std::string_view::npos)) return;
  style_.*member = text;
  style_.seen |= facet;
  style_changed_ = true;
}

void CallReader::observe(std::uint32_t facet, bool& member, bool value) {
  if ((style_.seen & facet) != 0 && member == value) return;
  member = value;
  style_.seen |= facet;
  style_changed_ = true;
}

void CallReader::observe_member_gap() {
  const Frame& frame = frames_.back();
  const std::string_view space = gap();
  const std::size_t line = space.rfind('\n');
  const bool lines = line != std::string_view::npos;
  const bool array = frame.level == Level::kArray;
  if (!lines && frame.num_members > 0) observe(kAfterCommaFacet, &CallStyle::after_comma, space);
  if (frame.num_members > 0) return;
  observe(lines_facet(frame.level), style_.lines[static_cast<std::size_t>(frame.level)], lines);
  if (!lines) {
    observe(array ? kArrayPadFacet : kPadFacet, array ? &CallStyle::array_pad : &CallStyle::pad,
            space);
    return;
  }
  // one step deeper than the nearest container around it that stands on lines of its own
  std::string_view outer = base_indent_;
  for (std::size_t k = frames_.size() - 1; k-- > 0;) {
    const std::string_view around =
        call_text().substr(frames_[k].gap_begin, frames_[k].gap_end - frames_[k].gap_begin);
    const std::size_t at = around.rfind('\n');
    if (at == std::string_view::npos) continue;
    outer = around.substr(at + 1);
    break;
  }
  const std::string_view indent = space.substr(line + 1);
  if (indent.size() > outer.size()) {
    observe(kIndentFacet, &CallStyle::indent, indent.substr(outer.size()));
  }
}

// At the first byte of a call: what stands before it.
void CallReader::observe_wrapper() {
  const std::string_view before = pending_;
  const bool first = calls_in_wrapper_ == 0;
  const std::size_t line = before.rfind('\n');
  const std::string_view indent =
      line == std::string_view::npos ? std::string_view() : before.substr(line + 1);
  const bool is_indent = std::all_of(indent.begin(), indent.end(), is_json_space);
  base_indent_ = is_indent ? indent : std::string_view();
  if (first && wrapper_ == Wrapper::kBare && !after_call_ &&
      std::all_of(before.begin(), before.end(), is_json_space)) {
    base_indent_ = before;
  }
  if ((style_.seen & kWrapperFacet) == 0 || style_.wrapper != wrapper_) {
    const CallStyle usual = CallStyle::usual(wrapper_);
    style_.wrapper = wrapper_;
    style_.rewrap = usual.rewrap;
    style_.open_gap = usual.open_gap;
    style_.close_gap = usual.close_gap;
    style_.between = usual.between;
    style_.seen &= ~(kOpenGapFacet | kCloseGapFacet | kBetweenFacet);
    style_.seen |= kWrapperFacet;
    style_changed_ = true;
  }
  observe(kListFacet, style_.list, in_list_);
  if (!pending_valid_) return;
  if (first) {
    const std::size_t gap_to = in_list_ ? list_from_ - 1 : before.size();
    if (wrapper_ != Wrapper::kBare) {
      observe(kOpenGapFacet, &CallStyle::open_gap, before.substr(gap_from_, gap_to - gap_from_));
    }
    if (in_list_) {
      observe(lines_facet(Level::kList), style_.lines[0],
              before.substr(list_from_).find('\n') != std::string_view::npos);
    }
    if (after_call_ && close_end_ <= open_begin_ && !form(wrapper_).open.empty()) {
      observe(kBetweenFacet, style_.rewrap, true);
      observe(kBetweenFacet, &CallStyle::between,
              before.substr(close_end_, open_begin_ - close_end_));
    }
  } else if (!in_list_) {
    observe(kBetweenFacet, style_.rewrap, false);
    observe(kBetweenFacet, &CallStyle::between, before);
  }
}

std::vector<Call> parse_calls(std::string_view text, std::shared_ptr<const ToolSet> tools) {
  CallReader reader(std::move(tools));
  reader.feed(text);
  return reader.calls();
}

}  // namespace ooospec
