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

constexpr std::array<std::string_view, 3> kLiterals = {"true", "false", "null"};

const std::uint64_t kNameHash = hash_bytes("name");
const std::uint64_t kTypeHash = hash_bytes("type");
const std::uint64_t kArgumentsHash = hash_bytes("arguments");
const std::uint64_t kParametersHash = hash_bytes("parameters");

enum NumberState : std::uint8_t {
  kSign,
  kZero,
  kInteger,
  kPoint,
  kFraction,
  kE,
  kESign,
  kExponent
};

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::uint32_t offset(std::size_t size) { return static_cast<std::uint32_t>(size); }

// What the bytes of a string mean to the loop that skips them.
enum : std::uint8_t { kStop = 1, kNotAscii = 2, kSlash = 4 };
constexpr std::array<std::uint8_t, 256> kStringByte = [] {
  std::array<std::uint8_t, 256> table{};
  for (std::size_t c = 0; c < 0x20; ++c) table[c] = kStop;
  for (std::size_t c = 0x80; c < 0x100; ++c) table[c] = kNotAscii;
  table['"'] = table['\\'] = kStop;
  table['/'] = kSlash;
  return table;
}();

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

void CallReader::step_prose(char byte) {
  if (marker_size_ == 0 && line_start_ && (byte == '{' || byte == '[')) {
    open_wrapper(Wrapper::kBare, 0);
    step_opened(byte);
    return;
  }
  append_pending(byte);
  if (marker_size_ == 0 && byte != '<' && byte != '`') {
    if (byte == '\n') return end_line();
    line_start_ = line_start_ && is_space(byte);
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
  if (!is_space(byte)) line_start_ = false;
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
    while (!info.empty() && is_space(info.back())) info.remove_suffix(1);
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
  if (!is_space(byte) && (byte != '[' || in_list_)) {
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
  } else if (!is_space(byte)) {
    const bool line_start = pending_.ends_with('\n');
    close_end_ = offset(pending_.size());
    leave_wrapper();
    line_start_ = line_start;
    return false;
  }
  append_pending(byte);
  return true;
}

// --- the call's object ---

void CallReader::begin_call() {
  if (style_changed_) style_before_ = style_;
  style_changed_ = false;
  observe_wrapper();
  call_begin_ = position_;
  text_.assign(1, '{');
  frames_.assign(1, Frame{});
  keys_.clear();
  name_.clear();
  tool_ = -1;
  has_name_ = has_arguments_ = false;
  arguments_begin_ = arguments_end_ = 0;
  marker_size_ = 0;
  enter(Spot::kFirstKey);
}

void CallReader::abandon_call() {
  if (style_changed_) style_ = style_before_;
  style_changed_ = false;
  frames_.clear();
  keys_.clear();
  text_.clear();
  gap_begin_ = token_begin_ = 0;
  escape_ = number_ = literal_ = 0;
  unit_ = 0;
  leave_wrapper();
  pending_.clear();
  pending_valid_ = after_call_ = false;
}

void CallReader::end_call() {
  if (!has_name_ || (tool_ < 0 && !has_arguments_)) {
    abandon_call();
    return;
  }
  Call call{tool_, name_, "{}", call_begin_, position_ + 1};
  const std::string_view arguments =
      call_text().substr(arguments_begin_, has_arguments_ ? arguments_end_ - arguments_begin_ : 0);
  if (arguments.starts_with('{')) {
    call.arguments = arguments;
  } else if (arguments.starts_with('"')) {  // an object written as a string
    call.arguments.clear();
    append_unescaped(call.arguments, arguments.substr(1, arguments.size() - 2));
  } else if (!arguments.empty() && arguments != "null") {
    call.arguments = arguments;
  }
  calls_.push_back(std::move(call));
  if (++calls_in_wrapper_ == 1) spans_.push_back({wrapper_begin_, 0});
  spans_.back().end = position_ + 1;
  frames_.clear();
  keys_.clear();
  text_.clear();
  gap_begin_ = token_begin_ = 0;
  spot_ = Spot::kBetween;
  separated_ = false;
  marker_size_ = 0;
  pending_.clear();
  pending_valid_ = after_call_ = true;
  close_end_ = 0;
}

void CallReader::enter(Spot spot) {
  spot_ = spot;
  gap_begin_ = offset(text_.size());
}

bool CallReader::step_call(char byte) {
  if (spot_ == Spot::kKey || spot_ == Spot::kString) return step_string(byte);
  if (spot_ == Spot::kNumber) {
    if (step_number(byte)) {
      text_.push_back(byte);
      return true;
    }
    if (!number_is_complete()) return false;
    end_value();
  }
  if (spot_ == Spot::kLiteral) {
    const std::string_view word = kLiterals[literal_];
    if (word[text_.size() - token_begin_] != byte) return false;
    text_.push_back(byte);
    if (text_.size() - token_begin_ == word.size()) end_value();
    return true;
  }
  if (is_space(byte)) {
    text_.push_back(byte);
    return true;
  }
  switch (spot_) {
    case Spot::kFirstKey:
    case Spot::kNextKey:
      if (byte == '}' && spot_ == Spot::kFirstKey) return close_container(byte);
      if (byte != '"') return false;
      begin_member();
      token_begin_ = offset(text_.size());
      text_.push_back(byte);
      spot_ = Spot::kKey;
      return true;
    case Spot::kColon:
      if (byte != ':') return false;
      observe(kBeforeColonFacet, &CallStyle::before_colon, gap());
      text_.push_back(byte);
      enter(Spot::kValue);
      return true;
    case Spot::kValue:
      observe(kAfterColonFacet, &CallStyle::after_colon, gap());
      return begin_value(byte);
    case Spot::kFirstItem:
    case Spot::kNextItem:
      if (byte == ']' && spot_ == Spot::kFirstItem) return close_container(byte);
      begin_member();
      return begin_value(byte);
    default:
      break;
  }
  if (byte != ',') return close_container(byte);
  observe(kBeforeCommaFacet, &CallStyle::before_comma, gap());
  text_.push_back(byte);
  enter(frames_.back().level == Level::kArray ? Spot::kNextItem : Spot::kNextKey);
  return true;
}

void CallReader::begin_member() {
  observe_member_gap();
  Frame& frame = frames_.back();
  frame.gap_begin = gap_begin_;
  frame.gap_end = offset(text_.size());
  ++frame.num_members;
}

bool CallReader::begin_value(char byte) {
  token_begin_ = offset(text_.size());
  frames_.back().value_begin = token_begin_;
  if (byte == '{' || byte == '[') return begin_container(byte);
  if (byte == '"') {
    spot_ = Spot::kString;
  } else if (byte == '-' || is_digit(byte)) {
    spot_ = Spot::kNumber;
    number_ = byte == '-' ? kSign : byte == '0' ? kZero : kInteger;
  } else {
    literal_ = byte == 't' ? 0 : byte == 'f' ? 1 : 2;
    if (byte != kLiterals[literal_][0]) return false;
    spot_ = Spot::kLiteral;
  }
  text_.push_back(byte);
  return true;
}

bool CallReader::begin_container(char byte) {
  if (frames_.size() >= static_cast<std::size_t>(JsonValue::kMaxDepth)) return false;
  const Frame& outer = frames_.back();
  Frame frame;
  frame.first_key = offset(keys_.size());
  frame.level = byte == '[' ? Level::kArray : Level::kObject;
  if (frames_.size() == 1) {
    const std::uint64_t key = keys_.back().hash;
    if (byte == '{' && (key == kArgumentsHash || key == kParametersHash)) {
      frame.level = Level::kArguments;
      if (tool_ >= 0) frame.node = tools_->tool(tool_).root;
    }
  } else if (outer.node >= 0 && outer.level == Level::kArray) {
    frame.node = tools_->node(outer.node).items;
  } else if (outer.node >= 0 && outer.property >= 0) {
    frame.node = tools_->properties(outer.node)[static_cast<std::size_t>(outer.property)].node;
  }
  if (frame.node >= 0 && !tools_->node(frame.node).understood) frame.node = -1;
  frames_.push_back(frame);
  text_.push_back(byte);
  enter(byte == '[' ? Spot::kFirstItem : Spot::kFirstKey);
  return true;
}

bool CallReader::close_container(char byte) {
  const Frame& frame = frames_.back();
  if (byte != (frame.level == Level::kArray ? ']' : '}')) return false;
  const std::string_view space = gap();
  if (frame.num_members > 0 && space.find('\n') == std::string_view::npos) {
    const bool array = frame.level == Level::kArray;
    observe(array ? kArrayPadFacet : kPadFacet, array ? &CallStyle::array_pad : &CallStyle::pad,
            space);
  }
  text_.push_back(byte);
  keys_.resize(frame.first_key);
  frames_.pop_back();
  if (frames_.empty()) {
    end_call();
  } else {
    end_value();
  }
  return true;
}

void CallReader::end_key() {
  Frame& frame = frames_.back();
  frame.key_begin = token_begin_ + 1;
  frame.key_end = offset(text_.size()) - 1;
  const std::string_view raw = call_text().substr(frame.key_begin, frame.key_end - frame.key_begin);
  std::uint64_t hash = 0;
  if (raw.find('\\') == std::string_view::npos) {
    hash = hash_bytes(raw);
  } else {
    std::string key;
    append_unescaped(key, raw);
    hash = hash_bytes(key);
  }
  frame.property = tools_->find_property(frame.node, hash);
  keys_.push_back({hash, frame.property});
  if (frames_.size() == 1 && (hash == kNameHash || hash == kTypeHash) && keys_.size() == 1) {
    observe(kTypeKeyFacet, style_.type_key, hash == kTypeHash);
  }
  if (frames_.size() == 1 && (hash == kArgumentsHash || hash == kParametersHash)) {
    observe(kArgumentsKeyFacet, &CallStyle::arguments_key, raw);
  }
  enter(Spot::kColon);
}

void CallReader::end_value() {
  if (frames_.size() == 1) end_call_member();
  enter(Spot::kAfterValue);
}

void CallReader::end_call_member() {
  const std::uint64_t key = keys_.back().hash;
  const std::uint32_t begin = frames_.back().value_begin;
  if (key == kNameHash) {
    has_name_ = text_[begin] == '"';
    name_.clear();
    if (has_name_) append_unescaped(name_, call_text().substr(begin + 1, text_.size() - begin - 2));
    tool_ = has_name_ ? tools_->find(name_) : -1;
  } else if (key == kArgumentsHash || key == kParametersHash) {
    has_arguments_ = true;
    arguments_begin_ = begin;
    arguments_end_ = offset(text_.size());
  }
}

// --- strings and numbers ---

// Takes the bytes of a string up to one that needs a look.
std::size_t CallReader::skip_string(std::string_view bytes) {
  std::size_t i = 0;
  std::uint8_t met = 0;
  for (; i < bytes.size(); ++i) {
    const std::uint8_t what = kStringByte[static_cast<unsigned char>(bytes[i])];
    if ((what & kStop) != 0) break;
    met |= what;
  }
  text_.append(bytes.substr(0, i));
  if ((met & kNotAscii) != 0) observe(kAsciiFacet, style_.spelling.ascii, false);
  if ((met & kSlash) != 0) observe(kSlashFacet, style_.spelling.slash, false);
  return i;
}

// A byte of a string that skip_string() left: a quote, a control character, or part of an escape.
bool CallReader::step_string(char byte) {
  if (static_cast<unsigned char>(byte) < 0x20) return false;
  if (escape_ == 0) {
    text_.push_back(byte);
    if (byte == '\\') {
      escape_ = 1;
    } else if (spot_ == Spot::kKey) {
      end_key();
    } else {
      end_value();
    }
    return true;
  }
  if (escape_ == 1) {
    if (std::string_view("\"\\/bfnrtu").find(byte) == std::string_view::npos) return false;
    escape_ = byte == 'u' ? 2 : 0;
    unit_ = 0;
    if (byte == '/') observe(kSlashFacet, style_.spelling.slash, true);
  } else {
    const int digit = hex_digit(byte);
    if (digit < 0) return false;
    unit_ = static_cast<std::uint16_t>(unit_ * 16 + digit);
    escape_ = escape_ == 5 ? 0 : static_cast<std::uint8_t>(escape_ + 1);
    if (escape_ == 0 && unit_ >= 0x80) observe(kAsciiFacet, style_.spelling.ascii, true);
    if (escape_ == 0) unit_ = 0;
  }
  text_.push_back(byte);
  return true;
}

bool CallReader::number_is_complete() const {
  return number_ == kZero || number_ == kInteger || number_ == kFraction || number_ == kExponent;
}

bool CallReader::step_number(char byte) {
  const bool digit = is_digit(byte);
  const bool e = byte == 'e' || byte == 'E';
  switch (number_) {
    case kSign:
      if (digit) number_ = byte == '0' ? kZero : kInteger;
      return digit;
    case kInteger:
      if (digit) return true;
      [[fallthrough]];
    case kZero:
      if (byte == '.') number_ = kPoint;
      if (e) number_ = kE;
      return byte == '.' || e;
    case kPoint:
    case kFraction:
      if (e && number_ == kFraction) {
        number_ = kE;
        return true;
      }
      if (digit) number_ = kFraction;
      return digit;
    case kE:
      if (byte == '+' || byte == '-') {
        number_ = kESign;
        return true;
      }
      [[fallthrough]];
    default:
      if (digit) number_ = kExponent;
      return digit;
  }
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
  const bool is_indent = std::all_of(indent.begin(), indent.end(), is_space);
  base_indent_ = is_indent ? indent : std::string_view();
  if (first && wrapper_ == Wrapper::kBare && !after_call_ &&
      std::all_of(before.begin(), before.end(), is_space)) {
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
