// SPDX-License-Identifier: Apache-2.0
//
// The tools of a request: names, parameters, and what their JSON Schemas say about values.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "call/json_value.h"

namespace ooospec {

enum TypeBit : std::uint8_t {
  kNullBit = 1,
  kBooleanBit = 2,
  kIntegerBit = 4,
  kNumberBit = 8,
  kStringBit = 16,
  kArrayBit = 32,
  kObjectBit = 64,
};
inline constexpr std::uint8_t kAnyType = 127;

// What is known of one value, which follows one of several schemas or, mostly, the only one. What
// is not understood leaves `understood` false: nothing is drafted for it. Nodes may form circles.
struct SchemaNode {
  bool understood = true;
  bool only_choices = true;          // if it has choices: nothing else is allowed
  std::uint8_t num_ways = 1;         // schemas that its properties are of
  std::uint8_t types = kAnyType;     // TypeBit set
  std::int32_t items = -1;           // node of an array's items, -1 if nothing is said
  std::int32_t schema = -1;          // its object in ToolSet::document(), -1 if there is none
  std::int32_t property = -1;        // the property that it, or the list it is in, is the value of
  std::uint32_t first_property = 0;  // properties of an object: [first, first + num)
  std::uint32_t num_properties = 0;
  std::uint32_t first_choice = 0;  // enum or const: [first, first + num)
  std::uint32_t num_choices = 0;
};

struct SchemaProperty {
  std::string name;
  std::uint64_t hash = 0;  // hash_bytes(name)
  std::int32_t node = -1;  // always a node
  bool required = false;   // whichever schema the object follows
  bool plain = false;      // the name is the same in every spelling of JSON
  // of the schemas that the object may follow, a bit each: those that have it, that require it
  std::uint8_t ways = 1;
  std::uint8_t required_ways = 0;
  std::uint8_t tagged_ways = 0;  // that allow listed strings only: tags [first, first + num)
  std::uint32_t first_tag = 0;
  std::uint32_t num_tags = 0;
};

// A string that a property may have, and the schemas of its object that list it.
struct SchemaTag {
  std::int32_t choice = -1;  // node of the document
  std::uint8_t ways = 0;
};

struct Tool {
  std::string name;        // any bytes: "a.b", "srv:tool", "über"
  std::int32_t root = -1;  // node of the parameters; its properties are the parameters
};

// An immutable tool list; may be shared between threads and requests.
class ToolSet {
 public:
  // text: a JSON list of OpenAI tools ({"type": "function", "function": {...}}) or of bare
  // functions. A missing, empty or null `parameters` is a tool without parameters. Local references
  // and alternatives are followed (see SchemaLinks). Other references, parts that are not
  // understood, and nesting deeper than 16 switch drafting off for the value they stand for,
  // nothing else.
  // Raises std::invalid_argument for no JSON, no list, a tool without a name, a name given twice,
  // or `parameters` or `properties` that are no objects. Cost: O(bytes), no recursion.
  static std::shared_ptr<const ToolSet> parse(std::string_view text);

  int size() const { return static_cast<int>(tools_.size()); }
  const Tool& tool(int idx) const { return tools_[static_cast<std::size_t>(idx)]; }
  const SchemaNode& node(int idx) const { return nodes_[static_cast<std::size_t>(idx)]; }

  // Parameters of a tool, in the order of its schema.
  std::span<const SchemaProperty> parameters(int tool_idx) const {
    return properties(tool(tool_idx).root);
  }
  std::span<const SchemaProperty> properties(int node_idx) const;

  // Allowed values as nodes of document(); empty if any value is.
  std::span<const std::int32_t> choices(int node_idx) const;
  const JsonValue& document() const { return document_; }

  // Name of the property that the node, or the list it is an item of, is the value of, and what
  // the schema says of it; empty if there is none.
  std::string_view name_of(int node_idx) const;
  std::string_view description_of(int node_idx) const;

  // Returns the tool of that name, or -1. O(log tools).
  int find(std::string_view name) const;

  // Tools whose names begin with `prefix`, by name. O(log tools).
  std::span<const std::int32_t> with_prefix(std::string_view prefix) const;

  // Returns the property's index among those of the node, or -1. O(log properties).
  int find_property(int node_idx, std::uint64_t hash) const;

  // Of the schemas that an object may follow, those that it does not if the string `value` stands
  // behind that property.
  std::uint8_t ways_without(int node_idx, int property_idx, std::string_view value) const;

  // Hash of the text, to look up a parsed list.
  std::uint64_t hash() const { return hash_; }

 private:
  friend class SchemaBuilder;
  JsonValue document_;
  std::vector<Tool> tools_;
  std::vector<std::int32_t> by_name_;  // tools sorted by name
  std::vector<SchemaNode> nodes_;
  std::vector<SchemaProperty> properties_;
  std::vector<std::int32_t> by_hash_;  // of each node: indices of its properties, sorted by hash
  std::vector<std::int32_t> choices_;
  std::vector<SchemaTag> tags_;
  std::uint64_t hash_ = 0;
};

}  // namespace ooospec
