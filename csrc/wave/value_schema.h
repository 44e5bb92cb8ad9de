// SPDX-License-Identifier: Apache-2.0
//
// What the schema of a parameter makes of an answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "call/json_value.h"

namespace ooospec {

// Immutable. Of a JSON Schema it reads `const`, `enum` and `type`; what else it says is not
// checked.
class ValueSchema {
 public:
  // Raises std::invalid_argument for what is no JSON object.
  explicit ValueSchema(std::string_view json);

  // Appends the compact JSON that `answer` stands for; returns false, appending nothing, where it
  // is no value.
  // A bare word is a string where a string may stand; numbers, booleans and members of an enum are
  // brought to the type of the schema; numbers keep their digits. A type that cannot be meant is no
  // value; `null` always is one.
  bool to_hint(std::string_view answer, std::string& out) const;

  // Returns whether `null` is a value, rather than a sign that there is none.
  bool is_nullable() const { return is_nullable_; }

 private:
  struct Answer;

  bool to_kind(std::string_view kind, const Answer& answer, std::string& out) const;
  bool to_member(const Answer& answer, std::string& out) const;

  JsonValue schema_;
  bool is_nullable_ = false;
  bool has_members_ = false;
  std::vector<int> members_;  // nodes of the values that are allowed, if has_members_
  std::vector<int> kinds_;    // nodes of what stands under `type`; -1: nothing that is understood
};

}  // namespace ooospec
