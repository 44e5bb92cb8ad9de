// SPDX-License-Identifier: Apache-2.0
#include "call/schema_keywords.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "call/tool_schema.h"

namespace ooospec {

namespace {

struct TypeName {
  std::string_view name;
  std::uint8_t bits;
};

// The types of JSON Schema, and what people write for them.
constexpr std::array kTypeNames = {
    TypeName{"string", kStringBit}, TypeName{"integer", kIntegerBit},
    TypeName{"number", kNumberBit}, TypeName{"boolean", kBooleanBit},
    TypeName{"array", kArrayBit},   TypeName{"object", kObjectBit},
    TypeName{"null", kNullBit},     TypeName{"str", kStringBit},
    TypeName{"int", kIntegerBit},   TypeName{"float", kNumberBit},
    TypeName{"bool", kBooleanBit},  TypeName{"list", kArrayBit},
    TypeName{"tuple", kArrayBit},   TypeName{"dict", kObjectBit},
    TypeName{"any", kAnyType},
};

// Keywords that change which values are allowed in ways a draft does not follow. What SchemaLinks
// followed is not met here.
constexpr std::array<std::string_view, 12> kNotUnderstood = {
    "$ref", "$dynamicRef", "$recursiveRef", "anyOf", "oneOf",       "allOf",
    "not",  "if",          "then",          "else",  "prefixItems", "dependentSchemas",
};

}  // namespace

SchemaKeywords SchemaKeywords::of(const JsonValue& document, int schema) {
  SchemaKeywords out;
  for (std::uint32_t i = static_cast<std::uint32_t>(schema) + 1; i < document.node(schema).next;) {
    const std::string_view key = document.text(static_cast<int>(i));
    const int value = static_cast<int>(i) + 1;
    if (key == "type") out.types = value;
    if (key == "properties") out.properties = value;
    if (key == "required") out.required = value;
    if (key == "items") out.items = value;
    if (key == "enum") out.choices = value;
    if (key == "const") out.constant = value;
    if (key == "nullable") out.nullable |= document.kind(value) == JsonKind::kTrue;
    if (std::ranges::find(kNotUnderstood, key) != kNotUnderstood.end()) out.understood = false;
    i = document.node(value).next;
  }
  return out;
}

std::size_t SchemaKeywords::size(const JsonValue& document, int schema) const {
  std::size_t size = document.node(schema).num_members;
  for (const int part : {properties, required, choices}) {
    if (part >= 0) size += document.node(part).num_members;
  }
  return size;
}

std::uint8_t SchemaKeywords::types_of_value(const JsonValue& document, bool& understood) const {
  if (types < 0 && items >= 0) return kArrayBit;
  if (types < 0) return properties >= 0 ? std::uint8_t{kObjectBit} : kAnyType;
  std::uint8_t out = 0;
  const auto add = [&](int idx) {
    const auto* known = std::ranges::find_if(kTypeNames, [&](const TypeName& type) {
      return document.kind(idx) == JsonKind::kString && type.name == document.text(idx);
    });
    if (known != kTypeNames.end()) out |= known->bits;
    if (known == kTypeNames.end()) understood = false;
  };
  if (document.kind(types) == JsonKind::kArray) {
    const auto end = static_cast<int>(document.node(types).next);
    for (int i = types + 1; i < end; i = static_cast<int>(document.node(i).next)) add(i);
  } else {
    add(types);
  }
  return out == 0 ? kAnyType : out;
}

std::uint8_t types_of_kind(JsonKind kind) {
  constexpr std::array<std::uint8_t, 7> kBits = {
      kNullBit,   kBooleanBit, kBooleanBit, kIntegerBit | kNumberBit,
      kStringBit, kArrayBit,   kObjectBit};
  return kBits[static_cast<std::size_t>(kind)];
}

}  // namespace ooospec
