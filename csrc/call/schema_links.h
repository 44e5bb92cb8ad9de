// SPDX-License-Identifier: Apache-2.0
//
// What stands behind a JSON Schema that only points elsewhere: local references and alternatives.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "call/json_value.h"

namespace ooospec {

inline constexpr std::size_t kMaxAlternatives = 8;  // of a value; the rest is not drafted

// The schemas of which a value follows one.
struct Alternatives {
  std::vector<int> schemas;  // objects of the document, each once; empty: not understood
  bool nullable = false;     // or null
};

// Follows `$ref` within the document of a tool, `anyOf`, `oneOf`, and `allOf` of one schema. What
// points elsewhere, nowhere or in a circle is left as it is.
class SchemaLinks {
 public:
  // document: must live as long as this object.
  explicit SchemaLinks(const JsonValue& document) : doc_(document) {}

  // schemas: values of the document; what is no object is left out.
  // root: the schema that `#` means. with_alternatives: else `anyOf` and `oneOf` are left alone
  // Cost: O(members on the way), bounded over the life of this object: then nothing is followed.
  Alternatives follow(std::span<const int> schemas, int root, bool with_alternatives = true);

  // Takes `num_looks` from what may still be looked at; returns whether there were so many.
  bool afford(std::size_t num_looks);

 private:
  bool is(int idx, JsonKind kind) const { return idx >= 0 && doc_.kind(idx) == kind; }
  bool is_null(int schema) const;
  std::vector<int> behind(int schema, int root, bool with_alternatives, bool& nullable);
  int item(int list, std::string_view number) const;
  int target(std::string_view reference, int root);

  const JsonValue& doc_;
  std::size_t looks_left_ = std::size_t{1} << 18;
};

}  // namespace ooospec
