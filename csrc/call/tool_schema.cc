// SPDX-License-Identifier: Apache-2.0
#include "call/tool_schema.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "common/check.h"

namespace ooospec {

namespace {

constexpr int kMaxToolsDepth = 100000;  // of the JSON text; the parser does not recurse
constexpr int kMaxSchemaDepth = 16;     // deeper parts are not drafted

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

// Keywords that change which values are allowed in ways a draft does not follow.
constexpr std::array<std::string_view, 12> kNotUnderstood = {
    "$ref", "$dynamicRef", "$recursiveRef", "anyOf", "oneOf",       "allOf",
    "not",  "if",          "then",          "else",  "prefixItems", "dependentSchemas",
};

constexpr std::array<std::uint8_t, 7> kBitOfKind = {
    kNullBit,   kBooleanBit, kBooleanBit, kIntegerBit | kNumberBit,
    kStringBit, kArrayBit,   kObjectBit};

}  // namespace

class SchemaBuilder {
 public:
  explicit SchemaBuilder(ToolSet& out) : out_(out), doc_(out.document_) {}

  void build() {
    OOOSPEC_REQUIRE(doc_.kind() == JsonKind::kArray, "tools: expected a list of functions, got ",
                    kind_name(0));
    for_each_item(0, [&](int item) { add_tool(item); });
    // properties of a node must be contiguous, so nodes wait here until it is their turn
    for (std::size_t k = 0; k < work_.size(); ++k) fill(work_[k]);
    sort_tools();
  }

 private:
  struct Work {
    int schema;  // node of the document
    int node;    // of the tool set
    int depth;
    int property;  // see SchemaNode
    bool root;
    bool nullable = false;
  };

  std::string_view kind_name(int idx) const {
    constexpr std::array<std::string_view, 7> kNames = {
        "null", "a boolean", "a boolean", "a number", "a string", "a list", "an object"};
    return kNames[static_cast<std::size_t>(doc_.kind(idx))];
  }
  bool is(int idx, JsonKind kind) const { return idx >= 0 && doc_.kind(idx) == kind; }
  bool absent(int idx) const { return idx < 0 || doc_.kind(idx) == JsonKind::kNull; }

  template <typename F>
  void for_each_item(int list, F&& f) const {
    for (std::uint32_t i = static_cast<std::uint32_t>(list) + 1; i < doc_.node(list).next;
         i = doc_.node(static_cast<int>(i)).next) {
      f(static_cast<int>(i));
    }
  }

  template <typename F>
  void for_each_member(int object, F&& f) const {
    for (std::uint32_t i = static_cast<std::uint32_t>(object) + 1; i < doc_.node(object).next;) {
      const int value = static_cast<int>(i) + 1;
      f(doc_.text(static_cast<int>(i)), value);
      i = doc_.node(value).next;
    }
  }

  int new_node(int schema, int depth, int property = -1, bool root = false) {
    const int node = static_cast<int>(out_.nodes_.size());
    out_.nodes_.emplace_back();
    work_.push_back(
        {.schema = schema, .node = node, .depth = depth, .property = property, .root = root});
    return node;
  }

  void add_tool(int item) {
    const std::size_t number = out_.tools_.size();
    OOOSPEC_REQUIRE(is(item, JsonKind::kObject), "tools[", number, "]: expected an object, got ",
                    kind_name(item));
    int function = doc_.find(item, "function");
    if (!is(function, JsonKind::kObject)) function = item;
    const int name = doc_.find(function, "name");
    OOOSPEC_REQUIRE(is(name, JsonKind::kString) && !doc_.text(name).empty(), "tools[", number,
                    "]: expected a function with a name, got ",
                    name < 0                               ? "none"
                    : doc_.kind(name) == JsonKind::kString ? "an empty one"
                                                           : kind_name(name));
    const int parameters = doc_.find(function, "parameters");
    OOOSPEC_REQUIRE(absent(parameters) || is(parameters, JsonKind::kObject), "tool '",
                    doc_.text(name), "': expected `parameters` to be an object, got ",
                    kind_name(std::max(parameters, 0)));
    Tool tool{std::string(doc_.text(name)), -1};
    tool.root = new_node(absent(parameters) ? -1 : parameters, 0, -1, true);
    out_.tools_.push_back(std::move(tool));
  }

  void fill(Work work) {
    SchemaNode node;
    if (work.schema < 0) {  // no parameters
      node.types = kObjectBit;
    } else if (!is(work.schema, JsonKind::kObject) || work.depth > kMaxSchemaDepth) {
      node.understood = is(work.schema, JsonKind::kTrue);
    } else {
      node = read(value_or_null(work));
    }
    node.schema = is(work.schema, JsonKind::kObject) ? work.schema : -1;
    node.property = work.property;
    out_.nodes_[static_cast<std::size_t>(work.node)] = node;
  }

  // {"anyOf": [X, {"type": "null"}]}, as Python's Optional becomes, is X or null.
  Work value_or_null(Work work) const {
    const int any_of = doc_.find(work.schema, "anyOf");
    if (!is(any_of, JsonKind::kArray) || doc_.node(any_of).num_members != 2) return work;
    const int first = any_of + 1;
    const int second = static_cast<int>(doc_.node(first).next);
    for (const auto& [value, null] : {std::pair{first, second}, std::pair{second, first}}) {
      const int type = doc_.find(null, "type");
      if (!is(type, JsonKind::kString) || doc_.text(type) != "null") continue;
      if (!is(value, JsonKind::kObject)) continue;
      work.schema = value;
      work.nullable = true;
      return work;
    }
    return work;
  }

  SchemaNode read(const Work& work) {
    SchemaNode node;
    bool nullable = work.nullable;
    int types = -1, properties = -1, required = -1, items = -1, choices = -1, constant = -1;
    for_each_member(work.schema, [&](std::string_view key, int value) {
      if (key == "type") types = value;
      if (key == "properties") properties = value;
      if (key == "required") required = value;
      if (key == "items") items = value;
      if (key == "enum") choices = value;
      if (key == "const") constant = value;
      if (key == "nullable") nullable |= doc_.kind(value) == JsonKind::kTrue;
      if (std::find(kNotUnderstood.begin(), kNotUnderstood.end(), key) != kNotUnderstood.end()) {
        node.understood = false;
      }
    });
    if (work.root) {
      check_properties(properties);
      node.understood |= is(properties, JsonKind::kObject);  // the parameters' names are known
    }
    read_types(node, types, properties, items);
    read_choices(node, choices, constant);
    if (nullable) node.types |= kNullBit;
    if (is(properties, JsonKind::kObject)) add_properties(node, properties, required, work.depth);
    if (!absent(items)) node.items = new_node(items, work.depth + 1, work.property);
    return node;
  }

  void check_properties(int properties) const {
    OOOSPEC_REQUIRE(absent(properties) || is(properties, JsonKind::kObject),
                    "tools: expected `properties` to be an object, got ",
                    kind_name(std::max(properties, 0)));
  }

  void read_types(SchemaNode& node, int types, int properties, int items) const {
    if (types < 0) {  // what is said of members tells the type
      if (properties >= 0) node.types = kObjectBit;
      if (items >= 0) node.types = kArrayBit;
      return;
    }
    node.types = 0;
    const auto add = [&](int idx) {
      const auto* known =
          std::find_if(kTypeNames.begin(), kTypeNames.end(), [&](const TypeName& t) {
            return is(idx, JsonKind::kString) && t.name == doc_.text(idx);
          });
      if (known != kTypeNames.end()) node.types |= known->bits;
      if (known == kTypeNames.end()) node.understood = false;
    };
    if (is(types, JsonKind::kArray)) {
      for_each_item(types, add);
    } else {
      add(types);
    }
    if (node.types == 0) node.types = kAnyType;
  }

  void read_choices(SchemaNode& node, int choices, int constant) {
    node.first_choice = static_cast<std::uint32_t>(out_.choices_.size());
    if (constant >= 0) {
      out_.choices_.push_back(constant);
    } else if (is(choices, JsonKind::kArray)) {
      for_each_item(choices, [&](int idx) {
        const std::uint8_t bit = kBitOfKind[static_cast<std::size_t>(doc_.kind(idx))];
        if ((bit & node.types) != 0) out_.choices_.push_back(idx);
      });
    } else if (!absent(choices)) {
      node.understood = false;
    }
    node.num_choices = static_cast<std::uint32_t>(out_.choices_.size()) - node.first_choice;
  }

  void add_properties(SchemaNode& node, int properties, int required, int depth) {
    node.first_property = static_cast<std::uint32_t>(out_.properties_.size());
    seen_.clear();
    for_each_member(properties, [&](std::string_view name, int schema) {
      const std::uint64_t hash = hash_bytes(name);
      const auto [at, is_new] = seen_.try_emplace(hash, out_.properties_.size());
      const int child = new_node(schema, depth + 1, static_cast<int>(at->second));
      if (is_new) {
        out_.properties_.push_back({std::string(name), hash, child, false, is_plain_json(name)});
      } else {  // the last one of a doubled key counts
        out_.properties_[at->second].node = child;
      }
    });
    node.num_properties = static_cast<std::uint32_t>(out_.properties_.size()) - node.first_property;
    sort_properties(node);
    if (!is(required, JsonKind::kArray)) return;
    for_each_item(required, [&](int idx) {
      if (!is(idx, JsonKind::kString)) return;
      const int k = find_in(node, hash_bytes(doc_.text(idx)));
      if (k >= 0)
        out_.properties_[node.first_property + static_cast<std::size_t>(k)].required = true;
    });
  }

  void sort_properties(const SchemaNode& node) {
    out_.by_hash_.resize(out_.properties_.size());
    const auto begin = out_.by_hash_.begin() + node.first_property;
    std::iota(begin, out_.by_hash_.end(), 0);
    std::sort(begin, out_.by_hash_.end(), [&](int a, int b) {
      return out_.properties_[node.first_property + static_cast<std::size_t>(a)].hash <
             out_.properties_[node.first_property + static_cast<std::size_t>(b)].hash;
    });
  }

  int find_in(const SchemaNode& node, std::uint64_t hash) const {
    const auto begin = out_.by_hash_.begin() + node.first_property;
    const auto end = begin + node.num_properties;
    const auto hash_of = [&](int k) {
      return out_.properties_[node.first_property + static_cast<std::size_t>(k)].hash;
    };
    const auto found =
        std::lower_bound(begin, end, hash, [&](int k, std::uint64_t h) { return hash_of(k) < h; });
    return found != end && hash_of(*found) == hash ? *found : -1;
  }

  void sort_tools() {
    const std::vector<Tool>& tools = out_.tools_;
    out_.by_name_.resize(tools.size());
    std::iota(out_.by_name_.begin(), out_.by_name_.end(), 0);
    const auto name = [&](int k) -> const std::string& {
      return tools[static_cast<std::size_t>(k)].name;
    };
    std::sort(out_.by_name_.begin(), out_.by_name_.end(),
              [&](int a, int b) { return name(a) < name(b); });
    for (std::size_t k = 1; k < tools.size(); ++k) {
      OOOSPEC_REQUIRE(name(out_.by_name_[k - 1]) != name(out_.by_name_[k]),
                      "tools: expected every name once, got '", name(out_.by_name_[k]), "' twice");
    }
  }

  friend class ToolSet;
  ToolSet& out_;
  const JsonValue& doc_;
  std::vector<Work> work_;
  std::unordered_map<std::uint64_t, std::size_t> seen_;  // properties of one node, by hash
};

std::shared_ptr<const ToolSet> ToolSet::parse(std::string_view text) {
  auto out = std::make_shared<ToolSet>();
  std::string why;
  OOOSPEC_REQUIRE(JsonValue::try_parse(text, out->document_, &why, kMaxToolsDepth), "tools: ", why);
  out->hash_ = hash_bytes(text);
  SchemaBuilder(*out).build();
  return out;
}

std::span<const SchemaProperty> ToolSet::properties(int node_idx) const {
  if (node_idx < 0) return {};
  const SchemaNode& n = node(node_idx);
  return std::span(properties_).subspan(n.first_property, n.num_properties);
}

std::span<const std::int32_t> ToolSet::choices(int node_idx) const {
  if (node_idx < 0) return {};
  const SchemaNode& n = node(node_idx);
  return std::span(choices_).subspan(n.first_choice, n.num_choices);
}

std::string_view ToolSet::name_of(int node_idx) const {
  if (node_idx < 0 || node(node_idx).property < 0) return {};
  return properties_[static_cast<std::size_t>(node(node_idx).property)].name;
}

std::string_view ToolSet::description_of(int node_idx) const {
  const SchemaNode* n = node_idx < 0 ? nullptr : &node(node_idx);
  int text = n == nullptr || n->schema < 0 ? -1 : document_.find(n->schema, "description");
  if (text < 0 && n != nullptr && n->property >= 0) {  // an item: what is said of the list
    const int list = properties_[static_cast<std::size_t>(n->property)].node;
    if (node(list).schema >= 0) text = document_.find(node(list).schema, "description");
  }
  return text >= 0 && document_.kind(text) == JsonKind::kString ? document_.text(text)
                                                                : std::string_view();
}

std::span<const std::int32_t> ToolSet::with_prefix(std::string_view prefix) const {
  const auto head = [&](int k) { return std::string_view(tool(k).name).substr(0, prefix.size()); };
  const auto begin = std::lower_bound(by_name_.begin(), by_name_.end(), prefix,
                                      [&](int k, std::string_view p) { return head(k) < p; });
  const auto end = std::upper_bound(begin, by_name_.end(), prefix,
                                    [&](std::string_view p, int k) { return p < head(k); });
  return {begin, end};
}

int ToolSet::find(std::string_view name) const {
  const auto candidates = with_prefix(name);  // the name itself sorts before all it begins
  return !candidates.empty() && tool(candidates[0]).name == name ? candidates[0] : -1;
}

int ToolSet::find_property(int node_idx, std::uint64_t hash) const {
  if (node_idx < 0) return -1;
  const SchemaNode& n = node(node_idx);
  const auto begin = by_hash_.begin() + n.first_property;
  const auto hash_of = [&](int k) {
    return properties_[n.first_property + static_cast<std::size_t>(k)].hash;
  };
  const auto found = std::lower_bound(begin, begin + n.num_properties, hash,
                                      [&](int k, std::uint64_t h) { return hash_of(k) < h; });
  return found != begin + n.num_properties && hash_of(*found) == hash ? *found : -1;
}

}  // namespace ooospec
