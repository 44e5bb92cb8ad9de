// SPDX-License-Identifier: Apache-2.0
//
// What one JSON Schema says of its value, before anything is followed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "call/json_value.h"

namespace ooospec {

// Where in a document a schema says what; -1: it does not.
struct SchemaKeywords {
  int types = -1, properties = -1, required = -1, items = -1, choices = -1, constant = -1;
  bool nullable = false;
  bool understood = true;  // no other keyword changes which values are allowed

  // schema: an object of the document. O(members).
  static SchemaKeywords of(const JsonValue& document, int schema);

  // Members to look at who reads all of it.
  std::size_t size(const JsonValue& document, int schema) const;

  // Types of the value, a TypeBit each: as it says, or as what it says of members tells.
  // understood: becomes false for a type that is none
  std::uint8_t types_of_value(const JsonValue& document, bool& understood) const;
};

// The TypeBits that a value of the document has.
std::uint8_t types_of_kind(JsonKind kind);

}  // namespace ooospec
