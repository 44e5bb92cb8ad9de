// SPDX-License-Identifier: Apache-2.0
//
// Private to call_writer: a machine that writes one continuation, decision by decision, and
// remembers the decisions at which others would leave it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "call/call_writer.h"
#include "call/key_habits.h"
#include "call/schema_links.h"

namespace ooospec {

inline constexpr int kMaxPenDepth = 12;  // containers; nothing is drafted deeper down
inline constexpr int kMaxMembers = 64;   // of an object; the rest are not drafted
inline constexpr int kMaxPenStyles = 4;

// A value that is said to come: a node of a hint, or of a schema's choices.
struct Said {
  const JsonValue* json = nullptr;
  std::int32_t idx = 0;
  explicit operator bool() const { return json != nullptr; }
  const JsonNode& node() const { return json->node(idx); }
  std::string_view text() const { return json->text(idx); }
  bool is_container() const { return node().kind >= JsonKind::kArray; }

  // Item or member `k` of a container, as a node; 0 if there is none. O(k).
  std::uint32_t child(std::uint32_t k) const;
};

// A member that an object may get.
struct Member {
  enum Presence : std::uint8_t { kLeftOut, kMaybe, kPresent };
  std::string_view name;
  Said said;
  std::int32_t node;  // schema
  bool plain;         // the name is the same in every spelling
  bool required;
  Presence presence;
};

// What an object may get, with the facts as bits.
struct Members {
  bool known = false;
  std::int32_t tool = -2;  // of which the members are the parameters
  std::int32_t call = -2;
  int size = 0;
  std::uint64_t present = 0, maybe = 0, left_out = 0;
  std::uint64_t habitual = 0;  // of maybe and left_out: the target writes such, as a rule
  std::size_t num_ways = 0;    // schemas that the object may follow still, if several
  std::array<std::uint64_t, kMaxAlternatives> ways;  // what each of them requires
  std::array<Member, kMaxMembers> all;

  void clear() {
    known = false;
    size = 0;
    present = maybe = left_out = habitual = 0;
    num_ways = 0;
  }
};

struct PenFrame {
  Said said;                       // what a hint says of the whole container
  std::uint64_t written = 0;       // bit per member; of the call itself, per Role
  std::int32_t node = -1;          // schema
  std::int32_t last = -1;          // member written last
  std::uint32_t num_members = 0;   //
  std::uint32_t next_item = 0;     // array: what the hint says of the next item; 0: nothing
  std::uint16_t indent = 0;        // white space before its members, if on lines
  std::uint16_t outer_indent = 0;  // and before its closing bracket
  std::uint8_t ruled_out = 0;      // see Frame
  Level level = Level::kCall;
  bool lines = false;       // its members stand on lines of their own
  bool descending = false;  // the last two members stood in reversed order
  bool unordered = false;   // one of the members stood in no order with those before it
};

enum class Stage : std::uint8_t { kOpening, kMember, kColon, kFunction, kValue, kAfterCall, kDone };

enum class OptionKind : std::uint8_t {
  kRestyle,      // go on in style `arg`
  kStyle,        // begin a call in style `arg`
  kTypeWord,     // "function"
  kTool,         // the name of tool `arg`
  kKey,          // member `arg` of the innermost object; -1: its key is there already
  kItem,         // an item of the innermost array
  kClose,        // the bracket that closes the innermost container
  kHinted,       // the hint's value, as the schema's type asks
  kHintedAsIs,   // the hint's value as it is
  kHintEscaped,  // the same in the other spelling
  kChoice,       // choice `arg` of the schema
  kWord,         // true, false, null: `arg`
  kOpen,         // the first byte of a value of which nothing else is known: `arg`
  kEndValue,     // the scalar under way ends here
  kResume,       // the scalar under way goes on as the hint does from byte `arg`
  kSpan,         // span `arg` of those that the request has for the value
  kOtherSlot,    // the string under way is what was said of another parameter: entry `arg`
  kNextCall,
  kEndAnswer,
};

struct Option {
  OptionKind kind;
  Source source;
  float probability;
  std::int32_t arg;
};

// All that decides how a path goes on. Copies take no more of the frames than are open.
struct PenState {
  Said value_said;               // kValue: what a hint says of it
  std::int32_t value_node = -1;  // kValue: its schema
  std::int32_t call = 0;         // number of the call in the answer
  std::int32_t tool = -1;        //
  std::uint16_t base = 0;        // white space before the line of the call
  Stage stage = Stage::kDone;    //
  Role role = Role::kOther;      // of the call's member under way
  bool comma_done = false;       //
  bool in_list = false;          //
  bool other_spelling = false;   //
  bool resuming = false;         // gap, token and before are what the text has already
  std::int8_t style = 0;         //
  std::int8_t depth = 0;         //
  std::string_view gap;          // inside a call: white space,
  std::string_view token;        // and what was begun behind it
  std::string_view before;       // outside: bytes of what stands around calls
  std::array<PenFrame, kMaxPenDepth> frames;

  PenState() = default;
  PenState(const PenState& other) { *this = other; }
  PenState& operator=(const PenState& other);
  PenFrame& top() { return frames[static_cast<std::size_t>(depth - 1)]; }
  const PenFrame& top() const { return frames[static_cast<std::size_t>(depth - 1)]; }
  std::string_view begun() const { return resuming ? token : std::string_view(); }
};

// A decision of path 0, and what could have been decided instead.
struct Branch {
  float reach = 0;  // probability that path 0 gets there and then leaves by this option
  Option option{};
  std::uint32_t num_bytes = 0;
  std::uint32_t num_pieces = 0;
  PenState state;
};

class Pen {
 public:
  // See CallWriter::set_spans().
  void set_spans(RequestSpans* spans) { request_ = spans; }
  void set_habits(const KeyHabits& habits) { habits_ = habits; }

  // Sets the pen to where the reader stands. Returns false where nothing is known.
  // max_branches: how many decisions the main path shall remember
  bool begin(const CallReader& reader, std::span<const StyleGuess> guesses,
             std::span<const Slots> slots, std::size_t max_bytes, int max_branches);

  // Writes the likeliest continuation.
  void write_main(TextPath& path);

  // Writes member `parameter` of the arguments, up to its value. Returns false where the pen does
  // not stand between members of them, or there is no such parameter.
  bool write_key(int parameter, TextPath& path);

  // Paths end with the value that they begin in or with.
  void set_one_value(bool one_value) { one_value_ = one_value; }

  // Branches of the latest write_main(), likeliest first.
  std::size_t num_branches() const { return num_branches_; }

  // Writes the continuation that leaves `main` at branch `k`; the less likely, the shorter.
  void write_branch(std::size_t k, const TextPath& main, TextPath& path);

  // Writes whole calls; arguments: an object for each.
  void write_whole(std::span<const RenderedCall> calls, std::span<const JsonValue> arguments,
                   const CallStyle& style, TextPath& path);

 private:
  // pen.cc: decisions, emitting
  void run(const Option* forced);
  void start_path(TextPath& path);
  bool has_value() const { return one_value_ && s_.stage == Stage::kMember && s_.depth == 2; }
  void gather();
  void apply(const Option& option);
  void remember(const Option& option);
  void restyle(int style);
  void add(OptionKind kind, Source source, float probability, std::int32_t arg = 0);
  void piece(PieceKind kind, Source source, float probability);
  void append(std::string_view text) { path_->text.append(text); }
  void end_resuming();
  void emit_gap(std::string_view expected);
  void emit_line(std::size_t indent);
  void emit_comma_and_gap();
  void emit_mark(std::string_view mark);
  void emit_quoted(std::string_view text, bool plain);
  void append_string(std::string_view text, bool plain);
  void emit_colon();
  bool begins(std::string_view text) const;
  JsonSpelling spelling() const;
  const CallStyle& style() const { return *styles_[static_cast<std::size_t>(s_.style)]; }

  // pen_start.cc: where the reader stands
  void set_styles(std::span<const StyleGuess> guesses);
  bool begin_outside();
  bool begin_opening(std::string_view before);
  void begin_inside();
  void add_frame(const Frame& frame);
  void set_indent(PenFrame& frame, const Frame& read);
  void set_written(PenFrame& frame, const Frame& read);
  Said said_of_member(const Frame& frame, const PenFrame& pen_frame);

  // pen_wrapper.cc: what stands around calls
  void gather_opening();
  void gather_after_call();
  void apply_style(const Option& option);
  void apply_ending(const Option& option);
  void begin_call();
  void opening_text(std::string& out, const CallStyle& style) const;
  void next_text(std::string& out) const;
  void ending_text(std::string& out) const;
  std::string_view rest_of(std::string_view expected) const;
  bool fits(std::string_view expected) const;
  void emit_wrapper(std::string_view expected);
  const Slots* slots_of(int call) const;
  bool next_call_is_said() const;

  // pen_members.cc: the call, its arguments, objects and arrays
  void gather_call_member();
  void gather_call_value();
  void gather_tools();
  void gather_members();
  void gather_items();
  void apply_call_key(const Option& option);
  void apply_tool(const Option& option);
  void apply_key(const Option& option);
  void apply_item(const Option& option);
  void apply_close(const Option& option);
  std::string_view tool_name(int idx) const;
  const Members& members(const PenFrame& frame);
  void list_parameters(Members& out, const PenFrame& frame);
  void list_said(Members& out, const PenFrame& frame);
  void list_properties(Members& out, const PenFrame& frame);
  static void mark_written(PenFrame& frame, int member, const Members* all);
  static int next_in_order(const PenFrame& frame, std::uint64_t eligible);
  static std::uint64_t next_keys(const PenFrame& frame, const Members& all, std::uint64_t due);

  // pen_values.cc
  struct Scalar {
    bool quoted;
    bool plain;
    std::string_view text;
  };
  void gather_value();
  bool gather_spans();
  void gather_value_under_way();
  bool gather_spans_under_way();
  void gather_string_recovery();
  void apply_said(const Option& option, Said said, bool coerced);
  void apply_span(const Option& option);
  void apply_choice(const Option& option);
  void apply_literal(const Option& option);
  void open_container(char bracket, const Option& option, Said said);
  Scalar scalar(Said said, bool coerced) const;
  bool takes(Said said, bool coerced) const;
  std::int32_t resume_at(std::string_view said) const;

  RequestSpans* request_ = nullptr;
  KeyHabits habits_;
  const CallReader* reader_ = nullptr;
  const ToolSet* tools_ = nullptr;
  std::span<const Slots> slots_;
  std::span<const RenderedCall> whole_;  // write_whole() only
  std::span<const JsonValue> whole_arguments_;
  std::size_t max_bytes_ = 0;
  std::size_t path_end_ = 0;  // a path ends at the first piece that passes it
  bool one_value_ = false;    // or with the first value of the arguments

  std::array<const CallStyle*, kMaxPenStyles> styles_{};  // likeliest first
  std::array<float, kMaxPenStyles> style_weight_{};
  std::array<CallStyle, kMaxPenStyles> merged_;
  int num_styles_ = 0;
  std::string indentation_;  // of the deepest line; all others are the beginnings of it

  PenState start_;
  PenState s_;
  TextPath* path_ = nullptr;
  float reach_ = 1;
  bool recording_ = false;
  std::array<Option, kMaxMembers + 16> options_;
  std::size_t num_options_ = 0;
  std::vector<Branch> branches_;
  std::vector<std::uint32_t> ranked_;
  std::size_t num_branches_ = 0;
  std::size_t least_branch_ = 0;
  float least_reach_ = 0;  // once max_branches_ are kept
  std::size_t max_branches_ = 0;
  std::array<Members, 3> parameters_;  // of the tools met, taken in turns
  std::size_t next_parameters_ = 0;
  Members object_;               // of the object asked for last
  std::string text_;             // scratch: around calls
  mutable std::string scratch_;  // scratch: comparing strings
};

// How much of `text` a begun string has, in any spelling.
struct BegunString {
  bool ok = false;
  std::size_t size = 0;      // bytes of `text`
  std::string_view partial;  // an unfinished escape behind them
};
BegunString match_begun(std::string_view token, std::string_view text, std::string& scratch);

}  // namespace ooospec
