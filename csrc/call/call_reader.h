// SPDX-License-Identifier: Apache-2.0
//
// Follows the text of an answer byte by byte and knows where in a tool call it stands.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "call/call_style.h"
#include "call/tool_schema.h"

namespace ooospec {

// Where the next byte stands.
enum class Spot : std::uint8_t {
  kProse,     // in no call
  kThinking,  // between <think> and </think>: nothing there counts
  kOpened,    // behind an opening marker (and '[' of a list), before the call
  kBetween,   // behind a call, before the next one or the closing marker
  // inside the call:
  kFirstKey,   // behind '{': a key or '}'
  kNextKey,    // behind ',' of an object
  kKey,        // inside a key
  kColon,      // behind a key
  kValue,      // behind ':'
  kFirstItem,  // behind '[': an item or ']'
  kNextItem,   // behind ',' of an array
  kString,
  kNumber,
  kLiteral,     // inside true, false or null
  kAfterValue,  // ',' or the end of the container
};

// An open container of the call under way. Offsets count from the call's first byte.
struct Frame {
  Level level = Level::kCall;     // kCall, kArguments, kObject or kArray
  std::int32_t node = -1;         // schema of this container, -1 if nothing is known
  std::int32_t property = -1;     // property whose value is written, -1 if not in the schema
  std::uint32_t num_members = 0;  // begun, the one under way included
  std::uint32_t first_key = 0;    // its keys in CallReader::keys(), up to the next frame's
  std::uint32_t gap_begin = 0;    // white space before its latest member
  std::uint32_t gap_end = 0;
  std::uint32_t key_begin = 0;  // latest key, between its quotes, as written
  std::uint32_t key_end = 0;
  std::uint32_t value_begin = 0;  // latest value
  std::uint8_t ruled_out = 0;     // by its values, of the schemas that it may follow; a bit each
  bool operator==(const Frame&) const = default;
};

// A key that an open object has already.
struct WrittenKey {
  std::uint64_t hash;     // of the decoded key
  std::int32_t property;  // index among the schema's properties, or -1
  bool operator==(const WrittenKey&) const = default;
};

// A call that was read to its end.
struct Call {
  int tool = -1;            // -1: not a known tool
  std::string name;         // decoded
  std::string arguments;    // as written, "{}" if left out
  std::uint64_t begin = 0;  // bytes of the answer: the call's object
  std::uint64_t end = 0;
  bool operator==(const Call&) const = default;
};

// A part of the answer that is call, not content: from the opening marker to the end of the closing
// one.
struct CallSpan {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool operator==(const CallSpan&) const = default;
};

// The state is a function of the bytes alone: however they are cut, and whatever was drafted.
// Broken JSON and unknown names are no errors: the reader is outside again, or reports a call with
// tool -1. Copyable.
class CallReader {
 public:
  // thinking: the prompt ends inside <think>.
  explicit CallReader(std::shared_ptr<const ToolSet> tools, bool thinking = false);

  // Follows committed bytes. Amortised O(1) a byte, no recursion; never throws but for lack of
  // memory.
  void feed(std::string_view bytes);

  const ToolSet& tools() const { return *tools_; }
  Spot spot() const { return spot_; }
  bool in_call() const { return spot_ >= Spot::kFirstKey; }
  std::uint64_t num_bytes() const { return position_; }

  // Complete calls, in the order of the answer.
  const std::vector<Call>& calls() const { return calls_; }
  const std::vector<CallSpan>& spans() const { return spans_; }

  // What was seen of the style, in this answer; facets not in style().seen are defaults.
  const CallStyle& style() const { return style_; }

  // Prose, kOpened and kBetween: the bytes since the point where a call, or what follows one, could
  // begin: since the start of the line, of the marker, or since the end of the last call. Valid if
  // has_pending().
  bool has_pending() const { return pending_valid_; }
  std::string_view pending() const { return pending_; }
  bool after_call() const { return after_call_; }  // pending() counts from the end of a call
  bool list_closed() const { return list_closed_; }
  bool separated() const { return spot_ == Spot::kBetween && separated_; }  // behind ',' or ';'
  Wrapper wrapper() const { return wrapper_; }                              // kOpened, kBetween
  std::string_view pending_open() const {
    return pending().substr(open_begin_);
  }  // kOpened: the marker and on
  std::string_view pending_close() const {
    return pending().substr(close_end_);
  }  // kProse: behind the closing marker
  bool answer_start() const { return answer_start_; }  // nothing but white space so far
  bool in_list() const { return in_list_; }

  // Prose: the part of a marker that the latest bytes may have begun, in the middle of a line too.
  std::string_view partial_marker() const;
  // Thinking: the part of its closing marker that they may have begun.
  std::string_view partial_thinking_end() const;

  // Inside a call: its text so far, its tool (-1 while unknown), its open containers (outermost
  // first), their keys.
  std::string_view call_text() const { return text_; }
  bool has_name() const { return has_name_; }
  bool has_arguments() const { return has_arguments_; }
  int tool() const { return tool_; }
  const std::vector<Frame>& frames() const { return frames_; }
  const std::vector<WrittenKey>& keys() const { return keys_; }
  std::string_view base_indent() const { return base_indent_; }  // of the line the call began in

  // Inside a call: the white space since the last mark ({ [ , : or the end of a value), and the
  // key, string, number or literal under way behind it, opening quote included; empty if none is.
  std::string_view gap() const {
    return call_text().substr(gap_begin_, (in_token() ? token_begin_ : text_.size()) - gap_begin_);
  }
  std::string_view token() const {
    return in_token() ? call_text().substr(token_begin_) : std::string_view();
  }
  bool in_token() const {
    return spot_ == Spot::kKey || (spot_ >= Spot::kString && spot_ <= Spot::kLiteral);
  }
  bool in_escape() const { return escape_ != 0; }
  bool number_is_complete() const;  // kNumber: the number could end here

  bool operator==(const CallReader&) const = default;

 private:
  // Each of these takes one byte; false: the byte is not theirs, and the reader is outside now.
  bool step_opened(char byte);
  bool step_between(char byte);
  bool step_call(char byte);
  bool step_string(char byte);
  bool step_number(char byte);
  void step_prose(char byte);
  void step_thinking(char byte);
  std::size_t feed_call(std::string_view bytes);
  void end_line();
  std::size_t skip_string(std::string_view bytes);

  void append_pending(char byte);
  void open_wrapper(Wrapper wrapper, std::size_t marker_size);
  void leave_wrapper();
  void begin_call();
  void end_call();
  void abandon_call();

  void begin_member();
  bool begin_value(char byte);
  bool begin_container(char byte);
  void end_key();
  void end_value();
  void end_call_member();
  void rule_out_ways();
  bool close_container(char byte);
  void enter(Spot spot);  // a spot that white space may stand in

  void observe(Facet facet, std::string CallStyle::* member, std::string_view text);
  void observe(std::uint32_t facet, bool& member, bool value);
  void observe_member_gap();
  void observe_wrapper();

  std::shared_ptr<const ToolSet> tools_;
  std::uint64_t position_ = 0;  // bytes fed
  Spot spot_ = Spot::kProse;
  CallStyle style_;
  CallStyle style_before_;  // the call under way: comes back if it turns out to be none
  bool style_changed_ = false;
  std::vector<Call> calls_;
  std::vector<CallSpan> spans_;

  // outside; offsets are those of pending_
  std::string pending_;
  bool pending_valid_ = true;
  bool after_call_ = false;
  bool answer_start_ = true;
  bool line_start_ = true;    // only white space since the last line break
  bool in_list_ = false;      // behind '['
  bool list_closed_ = false;  // behind its ']'
  bool separated_ = false;    // behind ',' or ';'
  bool fence_info_ = false;   // in the rest of the line behind ```
  Wrapper wrapper_ = Wrapper::kBare;
  std::uint32_t alive_ = 0;        // kProse: the markers, a bit each, that the latest bytes begin
  std::uint32_t marker_size_ = 0;  // and how many bytes of them; kBetween: of the closing marker
  std::uint32_t close_end_ = 0;    // behind the closing marker of the call before
  std::uint32_t open_begin_ = 0;   // the opening marker
  std::uint32_t gap_from_ = 0;     // behind it
  std::uint32_t list_from_ = 0;    // behind '['
  std::uint64_t wrapper_begin_ = 0;
  std::uint32_t calls_in_wrapper_ = 0;

  // inside a call; offsets are those of text_
  std::string text_;
  std::uint64_t call_begin_ = 0;
  std::vector<Frame> frames_;
  std::vector<WrittenKey> keys_;
  std::string base_indent_;
  std::string name_;
  int tool_ = -1;
  bool has_name_ = false;
  bool has_arguments_ = false;
  std::uint32_t arguments_begin_ = 0;
  std::uint32_t arguments_end_ = 0;
  std::uint32_t gap_begin_ = 0;
  std::uint32_t token_begin_ = 0;
  std::uint16_t unit_ = 0;    // of the \u escape under way
  std::uint8_t escape_ = 0;   // 0 none, 1 behind a backslash, 2 to 5 behind \u and 0 to 3 digits
  std::uint8_t number_ = 0;   // NumberState
  std::uint8_t literal_ = 0;  // which one
};

// Reads a whole answer.
std::vector<Call> parse_calls(std::string_view text, std::shared_ptr<const ToolSet> tools);

}  // namespace ooospec
