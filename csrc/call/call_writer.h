// SPDX-License-Identifier: Apache-2.0
//
// Writes on from any point of a half-written answer, in its style: what the format and the schema
// force, and what hints say.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "call/call_reader.h"
#include "call/call_style.h"
#include "call/request_spans.h"
#include "common/types.h"

namespace ooospec {

// What hints said of one call. Numbers are those of the ToolSet.
class Slots {
 public:
  struct Entry {
    std::uint32_t key = 0;  // tool << 16 | parameter
    JsonValue value;
    bool is_written = true;  // else it is not said whether the parameter is written at all
    bool is_own = false;     // the target itself said so
    int parameter() const { return static_cast<int>(key & 0xFFFFu); }
  };
  static constexpr int kUnknown = -1;
  static constexpr int kNoCall = -2;

  int tool = kUnknown;  // the function, kUnknown, or kNoCall
  bool ended = false;   // every slot of `tool` was said: what is absent is left out

  // Sets what was said of a parameter: compact JSON, `null` for "left out". Returns false, and
  // keeps what was there, for what is not JSON. A later value replaces an earlier one.
  // Where the target itself has said the value, that stays, and the answer is false too.
  bool set(int tool_idx, int parameter_idx, std::string_view json);

  // Sets what the target itself would write if it wrote the parameter. Returns false likewise.
  // begun: it is a string, and more may come; a hint that goes on so stays
  bool set_own(int tool_idx, int parameter_idx, std::string_view json, bool begun = false);

  // Whether what is absent of `tool_idx` is left out.
  bool all_said_of(int tool_idx) const { return ended && tool == tool_idx; }

  // Returns the value, or null if nothing was said. O(log values).
  const JsonValue* find(int tool_idx, int parameter_idx) const;

  // All that was said, and what was said of one tool, by parameter.
  std::span<const Entry> entries() const { return values_; }
  std::span<const Entry> of(int tool_idx) const;

  bool empty() const { return tool == kUnknown && !ended && values_.empty(); }
  void clear();

 private:
  bool put(Entry entry);

  std::vector<Entry> values_;  // sorted by key
};

// Returns what was said of call `number` of the answer, which is one of `tool_idx`: what was said
// of another call with that tool if this one was said to have another (the target may write the
// calls in another order); null if nothing was said.
const Slots* slots_for(std::span<const Slots> slots, int number, int tool_idx);

enum class PieceKind : std::uint8_t {
  kWrapper,   // marker or separator around calls, up to the '{' of the call
  kFunction,  // name, its quotes
  kKey,       // comma, white space, key, colon
  kValue,     // a scalar, a bracket that opens a container
  kClose,     // brackets that close containers
  kEnd,       // empty: the answer ends here
};

// A run of bytes of a continuation that stands or falls together.
struct Piece {
  std::uint32_t end;  // offset in the text, exclusive
  Source source;      // kSchema, kHint or kSpan
  PieceKind kind;
  float probability;  // that the target writes it, given all before it
};

// One continuation. Its pieces cover its text; a last, empty piece of kind kEnd gives the
// probability of the end of the answer there.
struct TextPath {
  std::string text;
  std::vector<Piece> pieces;
  std::uint32_t shared = 0;  // the first `shared` bytes equal those of path 0
  float probability = 1;     // of the choice in which it differs from path 0
  bool ends_answer = false;
};

struct KeyHabits;

// Writes on. Holds only scratch memory, so one may serve many readers, one after the other.
class CallWriter {
 public:
  CallWriter();
  ~CallWriter();
  CallWriter(CallWriter&&) noexcept;
  CallWriter& operator=(CallWriter&&) noexcept;

  // From now on a value that no hint says, or that is not what a hint said, may be a span of the
  // request; null: none. `spans` must live as long as it is set.
  void set_spans(RequestSpans* spans);

  // From now on optional parameters are expected as often as `habits` says.
  void set_habits(const KeyHabits& habits);

  // Writes continuations of the text that `reader` has read to `out`, the likeliest first, then
  // those that leave it, best first; none where nothing is known. `out` keeps its buffers: nothing
  // is allocated once they are warm.
  //   styles: guesses, likeliest first; what the reader has seen goes before them; empty:
  //     usual_styles()
  //   slots: by number of the call in the answer; may be empty
  //   max_paths: >= 1
  //   max_bytes: a path ends at the first piece that passes this length
  //   one_value: a path ends with the value of a parameter that it begins in or with
  // Raises std::invalid_argument for max_paths < 1. Cost: see bench/bench_host.py; independent of
  // the number of tools.
  void write_on(const CallReader& reader, std::span<const StyleGuess> styles,
                std::span<const Slots> slots, int max_paths, std::vector<TextPath>& out,
                std::size_t max_bytes = 4096, bool one_value = false);

  // Writes the key of a parameter, and what stands around it up to its value, as the first or next
  // member of the arguments that `reader` stands in: `"p": `. Returns false, and leaves `out`
  // empty, where it stands elsewhere or there is no such parameter.
  bool write_key(const CallReader& reader, std::span<const StyleGuess> styles, int parameter,
                 std::string& out);

 private:
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
};

// Renders a whole answer that consists of the given calls. arguments: a JSON object.
// Raises std::invalid_argument if `arguments` is no JSON object.
struct RenderedCall {
  std::string_view name;
  std::string_view arguments;
};
std::string render_calls(std::span<const RenderedCall> calls, const CallStyle& style);

}  // namespace ooospec
