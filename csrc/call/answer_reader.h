// SPDX-License-Identifier: Apache-2.0
//
// Cuts the text of an answer, as it comes, into content, thinking and tool calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "call/call_reader.h"

namespace ooospec {

// What a stretch of an answer is.
enum class Part : std::uint8_t {
  kContent,
  kThinking,
  kCall,       // a call begins: text is its function's name
  kArguments,  // of the latest call, as the model wrote them
  kCallEnd,    // of the latest call, which is complete; text is empty
  kCallCut,    // the same where the answer broke off inside of it
};

struct AnswerPart {
  Part part = Part::kContent;
  std::string text;
  std::uint64_t end = 0;  // bytes of the answer that were read when all of this was certain
  bool operator==(const AnswerPart&) const = default;
};

// A stretch becomes a part as soon as it is certain what it is. The parts, joined, do not depend on
// how the bytes come in pieces, and nothing comes twice.
//
// A call begins when its function is known to be one of the tools and its arguments begin; from
// then on it stands, even if the text breaks off. Calls of other names, and what looked like a call
// and is none, are content as written. Markers around calls belong to them. White space between
// content and a call is nobody's, and so is what stands before the first content if thinking or a
// call came before.
class AnswerReader {
 public:
  // tools: null: nothing is a call, whatever it looks like. thinking: the prompt ends inside
  // <think>.
  explicit AnswerReader(std::shared_ptr<const ToolSet> tools, bool thinking = false);

  // Follows whole characters of UTF-8. Amortised O(1) a byte.
  void feed(std::string_view text);

  // The answer is over: what is still undecided is no call. To be called once.
  void finish();

  // Returns what became certain since the last time.
  std::vector<AnswerPart> take_parts();

  std::uint64_t num_bytes() const { return reader_.num_bytes(); }

 private:
  // Text whose white space at both ends waits until something follows it.
  struct Trimmed {
    std::string space;
    bool begun = false;
  };

  void step(char byte);
  void step_outside(Spot before);
  void follow_call(char byte, Spot before);
  void end_call();
  void break_off();
  void leave_wrapper();
  void resolve(std::size_t size);
  void begin_call(std::string_view name);
  void add_argument_byte(char byte);
  void add_text(Part part, std::string_view text);
  void add(Part part, std::string_view text);

  CallReader reader_;
  bool calls_;                 // something may be a call
  std::string held_;           // read, and not known yet what it is
  std::string escape_;         // of the arguments: part of an escape, or of a surrogate pair
  bool begun_ = false;         // the call under way is a part already
  bool in_arguments_ = false;  // and its arguments go on
  bool known_ = false;         // the wrapper under way held a call of ours
  bool foreign_ = false;       // or others only: its closing marker is content too
  bool has_other_ = false;     // thinking or a call came
  Trimmed content_;
  Trimmed thinking_;
  std::vector<AnswerPart> parts_;
};

}  // namespace ooospec
