// SPDX-License-Identifier: Apache-2.0
//
// The part of the reader that follows the object of a call.
#include <array>
#include <utility>

#include "call/call_reader.h"

namespace ooospec {

namespace {

constexpr std::array<std::string_view, 3> kLiterals = {"true", "false", "null"};

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

// --- members and containers ---

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
    append_unescaped(call.arguments, arguments.substr(1, arguments.size() - 2), true);
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
  if (is_json_space(byte)) {
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
  } else if (byte == '-' || is_json_digit(byte)) {
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
    if (byte == '{' && role_of(key) == Role::kArguments) {
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
    append_unescaped(key, raw, true);
    hash = hash_bytes(key);
  }
  const Role role = role_of(hash);
  frame.property = tools_->find_property(frame.node, hash);
  keys_.push_back({hash, frame.property});
  if (frames_.size() == 1 && keys_.size() == 1 && (role == Role::kName || role == Role::kType)) {
    observe(kTypeKeyFacet, style_.type_key, role == Role::kType);
  }
  if (frames_.size() == 1 && role == Role::kArguments) {
    observe(kArgumentsKeyFacet, &CallStyle::arguments_key, raw);
  }
  enter(Spot::kColon);
}

void CallReader::end_value() {
  if (frames_.size() == 1) end_call_member();
  if (frames_.back().level == Level::kObject) rule_out_ways();
  enter(Spot::kAfterValue);
}

void CallReader::rule_out_ways() {
  Frame& frame = frames_.back();
  if (frame.property < 0 || text_[frame.value_begin] != '"') return;
  const std::size_t begin = frame.value_begin + 1;
  const std::string_view value = call_text().substr(begin, text_.size() - 1 - begin);
  frame.ruled_out |= tools_->ways_without(frame.node, frame.property, value);
}

void CallReader::end_call_member() {  // of two members with one key the first counts
  const Role role = role_of(keys_.back().hash);
  const std::uint32_t begin = frames_.back().value_begin;
  if (role == Role::kName && !has_name_) {
    has_name_ = text_[begin] == '"';
    name_.clear();
    if (has_name_)
      append_unescaped(name_, call_text().substr(begin + 1, text_.size() - begin - 2), true);
    tool_ = has_name_ ? tools_->find(name_) : -1;
  } else if (role == Role::kArguments && !has_arguments_) {
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
  const bool digit = is_json_digit(byte);
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

}  // namespace ooospec
