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

namespace ooospec {

inline constexpr int kMaxPenDepth = 12;  // containers; a path ends where it would go deeper
inline constexpr int kMaxMembers = 64;   // of an object; the rest are not drafted
inline constexpr int kMaxPenStyles = 4;

// A value that is said to come: a node of a hint or of a schema's choices.
struct Said {
  const JsonValue* json = nullptr;
  std::int32_t node = 0;
  explicit operator bool() const { return json != nullptr; }
  const JsonNode& at() const { return json->node(node); }
  std::string_view text() const { return json->text(node); }
};

struct PenFrame {
  Level level = Level::kCall;
  bool lines = false;      // its members stand on lines of their own
  std::int32_t node = -1;  // schema
  Said said;               // what a hint says of the whole container
  std::uint32_t num_members = 0;
  std::uint32_t next_item = 0;     // array: the hint's node of the next item, 0 if there is none
  std::int32_t last = -1;          // member written last
  bool descending = false;         // the last two members stand in reversed order
  std::uint64_t written = 0;       // bit per member
  std::uint16_t indent = 0;        // white space before its members, if on lines
  std::uint16_t outer_indent = 0;  // and before its closing bracket
};

enum class Stage : std::uint8_t { kOpening, kMember, kColon, kFunction, kValue, kAfterCall, kDone };
enum class Role : std::uint8_t {
  kName,
  kType,
  kArguments,
  kOther
};  // of a member of the call itself

enum class OptionKind : std::uint8_t {
  kStyle,       // begin a call in style `arg`
  kTool,        // the name of tool `arg`
  kKey,         // member `arg` of the innermost object
  kItem,        // an item of the innermost array
  kClose,       // the bracket that closes the innermost container
  kHinted,      // the hint's value, as the schema's type asks
  kHintedAsIs,  // the hint's value as it is
  kChoice,      // choice `arg` of the schema
  kWord,        // true, false, null: `arg`
  kOpen,        // the first byte of a value that is not known: `arg`
  kEndValue,    // the scalar under way ends here
  kResume,      // the scalar under way goes on as the hint does from byte `arg`
  kOther,       // the value said of another slot: `arg`
  kNextCall,
  kEndAnswer,
};

struct Option {
  OptionKind kind;
  Source source;
  float probability;
  std::int32_t arg;
};

// All that decides how a path goes on; small, so that it can be kept for every decision.
struct PenState {
  Stage stage = Stage::kDone;
  Role role = Role::kOther;
  bool comma_done = false;
  bool resuming = false;  // `gap`, `token` and `before` are what the text has already
  bool in_list = false;
  std::int8_t style = 0;
  std::int8_t depth = 0;
  std::uint16_t base = 0;  // white space before the line of the call
  std::int32_t call = 0;
  std::int32_t tool = -1;
  std::int32_t value_node = -1;  // kValue: schema of the value
  Said value_said;               // kValue: what a hint says of it
  std::string_view gap;
  std::string_view token;
  std::string_view before;  // outside: bytes of the wrapper
  std::array<PenFrame, kMaxPenDepth> frames;
  PenFrame& top() { return frames[static_cast<std::size_t>(depth - 1)]; }
  const PenFrame& top() const { return frames[static_cast<std::size_t>(depth - 1)]; }
};

// A member that an object may get.
struct Member {
  enum Presence : std::uint8_t { kLeftOut, kMaybe, kPresent };
  std::string_view name;
  std::int32_t node = -1;
  Said said;
  Presence presence = kMaybe;
  bool required = false;
};

// A decision of path 0 and what could have been decided instead.
struct Branch {
  float reach;  // probability that path 0 gets there and then leaves by this option
  Option option;
  std::uint32_t num_bytes;
  std::uint32_t num_pieces;
  PenState state;
};

class Pen {
 public:
  // Sets the pen to the reader's position. Returns false where nothing is known.
  bool begin(const CallReader& reader, std::span<const StyleGuess> guesses,
             std::span<const Slots> slots, std::size_t max_bytes, int max_branches);

  // Writes the likeliest continuation, and remembers up to max_branches branches.
  void write_main(TextPath& path);

  // Writes the continuation that leaves `main` at a branch.
  void write_branch(const Branch& branch, const TextPath& main, TextPath& path);

  // Writes whole calls, with nothing read and nothing left open. arguments: one object a call.
  void write_whole(std::span<const RenderedCall> calls, std::span<const JsonValue> arguments,
                   const CallStyle& style, TextPath& path);

  // Branches of the latest write_main(), likeliest first.
  std::span<const Branch> branches() const { return {branches_.data(), num_branches_}; }

 private:
  void set_styles(std::span<const StyleGuess> guesses);
  bool begin_outside();
  Said said_of_member(const Frame& frame, const PenFrame& pen_frame) const;
  void begin_inside();
  void add_frame(const Frame& frame);
  void run(const Option* forced);
  void gather();
  void apply(const Option& option);
  void remember(const Option& option);

  void gather_opening();
  void gather_call_member();
  void gather_tools();
  void gather_members();
  void gather_items();
  void gather_value();
  void gather_value_under_way();
  void gather_after_call();

  void apply_style(const Option& option);
  void apply_tool(const Option& option);
  void apply_key(const Option& option);
  void apply_call_key(const Option& option);
  void apply_close(const Option& option);
  void apply_said(const Option& option, Said said, bool coerced);
  void open_container(char bracket, const Option& option, Said said);
  void begin_call_frame();
  void apply_item(const Option& option);
  void apply_literal(const Option& option);
  void apply_ending(const Option& option);
  void value_done();

  int members(const PenFrame& frame, std::span<Member> out) const;
  int next_in_order(const PenFrame& frame, std::span<const Member> members) const;
  bool takes_key(std::string_view key) const;
  bool takes(Said said, bool coerced) const;
  struct Scalar {
    bool quoted;
    std::string_view text;
  };
  Scalar scalar(Said said, bool coerced) const;
  const Slots* slots_of(int call) const;

  void add(OptionKind kind, Source source, float probability, std::int32_t arg = 0);
  void end_resuming() {
    s_.resuming = false;
    s_.gap = s_.token = s_.before = {};
  }
  void emit_gap(std::string_view expected);
  void emit_indent(std::size_t size);
  void emit_member_gap();
  void emit_mark(std::string_view mark);
  void emit_quoted(std::string_view text);
  void emit_colon();
  void piece(PieceKind kind, Source source, float probability);
  void emit_wrapper(std::string_view expected);
  bool fits_wrapper(std::string_view expected) const;
  void opening_text(std::string& out, const CallStyle& style) const;
  void next_text(std::string& out) const;
  void ending_text(std::string& out) const;
  std::string_view tool_name(int idx) const;
  bool next_call_is_said() const;
  const CallStyle& style() const { return styles_[static_cast<std::size_t>(s_.style)]; }

  const CallReader* reader_ = nullptr;
  const ToolSet* tools_ = nullptr;
  std::span<const Slots> slots_;
  std::size_t max_bytes_ = 0;
  std::array<CallStyle, kMaxPenStyles> styles_;
  std::array<float, kMaxPenStyles> style_weight_{};
  int num_styles_ = 0;
  std::string indentation_;              // of the deepest line so far; every outer one begins it
  std::span<const RenderedCall> whole_;  // write_whole() only
  std::span<const JsonValue> whole_arguments_;
  mutable std::string scratch_;

  PenState start_;
  PenState s_;
  TextPath* path_ = nullptr;
  float reach_ = 1;
  bool recording_ = false;
  std::array<Option, kMaxMembers + 8> options_;
  std::size_t num_options_ = 0;
  std::vector<Branch> branches_;  // sorted, likeliest first
  std::size_t num_branches_ = 0;
  std::size_t max_branches_ = 0;
};

}  // namespace ooospec
