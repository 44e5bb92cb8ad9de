// SPDX-License-Identifier: Apache-2.0
//
// Reads a tool list: ToolSet::parse.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>

#include "call/schema_keywords.h"
#include "call/schema_links.h"
#include "call/tool_schema.h"
#include "common/check.h"

namespace ooospec {

namespace {

constexpr int kMaxToolsDepth = 100000;  // of the JSON text; the parser does not recurse
constexpr int kMaxSchemaDepth = 16;     // deeper parts are not drafted

}  // namespace

class SchemaBuilder {
 public:
  explicit SchemaBuilder(ToolSet& out) : out_(out), doc_(out.document_), links_(doc_) {}

  void build() {
    OOOSPEC_REQUIRE(doc_.kind() == JsonKind::kArray, "tools: expected a list of functions, got ",
                    kind_name(0));
    for_each_item(0, [&](int item) { add_tool(item); });
    // properties of a node must be contiguous, so nodes wait here until it is their turn
    for (std::size_t k = 0; k < work_.size(); ++k) fill(Work(std::move(work_[k])));
    sort_tools();
  }

 private:
  struct Work {
    std::vector<int> schemas;  // values of the document, of which it follows one; none: nothing
    int node;                  // of the tool set
    int depth = 0;
    int property = -1;  // see SchemaNode
    int root = -1;      // schema that references begin at
    bool is_root = false;
  };

  std::string_view kind_name(int idx) const {
    constexpr std::array<std::string_view, 7> kNames = {
        "null", "a boolean", "a boolean", "a number", "a string", "a list", "an object"};
    return kNames[static_cast<std::size_t>(doc_.kind(idx))];
  }
  SchemaKeywords keywords(int schema) const { return SchemaKeywords::of(doc_, schema); }
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

  int new_node(Work work) {
    work.node = static_cast<int>(out_.nodes_.size());
    out_.nodes_.emplace_back();
    work_.push_back(std::move(work));
    return work_.back().node;
  }

  // A node for a part of what `outer` describes.
  int new_part(const Work& outer, std::vector<int> schemas, int property) {
    return new_node({.schemas = std::move(schemas),
                     .node = -1,
                     .depth = outer.depth + 1,
                     .property = property,
                     .root = outer.root});
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
    Work root{.schemas = {}, .node = -1, .root = parameters, .is_root = true};
    if (!absent(parameters)) {
      root.schemas = {parameters};
      check_properties(keywords(parameters).properties);
    }
    tool.root = new_node(std::move(root));
    out_.tools_.push_back(std::move(tool));
  }

  void fill(const Work& work) {
    SchemaNode node;
    const int first = work.schemas.empty() ? -1 : work.schemas[0];
    const bool one = work.schemas.size() == 1;
    if (first < 0) {  // no parameters
      node.types = kObjectBit;
    } else if (work.depth > kMaxSchemaDepth || (one && !is(first, JsonKind::kObject))) {
      node.understood = is(first, JsonKind::kTrue);
    } else {
      node = read(work);
    }
    if (node.schema < 0 && is(first, JsonKind::kObject)) node.schema = first;
    node.property = work.property;
    out_.nodes_[static_cast<std::size_t>(work.node)] = node;
  }

  SchemaNode read(const Work& work) {
    const Alternatives all = links_.follow(work.schemas, work.root, !work.is_root);
    SchemaNode node;
    if (all.schemas == work.schemas) {
      node = read_all(all.schemas, work);
    } else {  // read once, however often it is pointed to: so circles end
      const auto [at, is_new] = known_.try_emplace(all.schemas);
      if (is_new) at->second = read_all(all.schemas, work);
      node = at->second;
      const bool described = doc_.find(work.schemas[0], "description") >= 0;
      if (!described && !all.schemas.empty()) node.schema = all.schemas[0];
    }
    if (all.nullable) node.types |= kNullBit;
    if (work.is_root) node.understood |= node.num_properties > 0;  // their names are known
    return node;
  }

  // What is known of a value that follows one of the schemas.
  SchemaNode read_all(std::span<const int> schemas, const Work& work) {
    SchemaNode node;
    node.understood = false;
    node.types = 0;
    node.first_choice = static_cast<std::uint32_t>(out_.choices_.size());
    std::vector<SchemaKeywords> objects;
    std::vector<int> items;
    for (const int schema : schemas) {
      const SchemaKeywords said = keywords(schema);
      if (schemas.size() > 1 && !links_.afford(said.size(doc_, schema))) return SchemaNode{false};
      SchemaNode one;
      one.understood = said.understood;
      one.types = said.types_of_value(doc_, one.understood);
      read_choices(one, said);
      if (schemas.size() > 1 && one.num_choices > 0 && one.types == kAnyType) {
        one.types = types_of_choices(one);
      }
      node.understood |= one.understood;
      node.only_choices &= one.num_choices > 0;
      node.types |= one.types;
      if (said.nullable) node.types |= kNullBit;
      if (is(said.properties, JsonKind::kObject)) objects.push_back(said);
      if (!absent(said.items)) items.push_back(said.items);
    }
    if (node.types == 0) node.types = kAnyType;
    node.num_choices = static_cast<std::uint32_t>(out_.choices_.size()) - node.first_choice;
    if (!objects.empty()) add_properties(node, objects, work);
    if (!items.empty()) node.items = new_part(work, std::move(items), work.property);
    return node;
  }

  void check_properties(int properties) const {
    OOOSPEC_REQUIRE(absent(properties) || is(properties, JsonKind::kObject),
                    "tools: expected `properties` to be an object, got ",
                    kind_name(std::max(properties, 0)));
  }

  void read_choices(SchemaNode& node, const SchemaKeywords& said) {
    node.first_choice = static_cast<std::uint32_t>(out_.choices_.size());
    if (said.constant >= 0) {
      out_.choices_.push_back(said.constant);
    } else if (is(said.choices, JsonKind::kArray)) {
      for_each_item(said.choices, [&](int idx) {
        const std::uint8_t bit = types_of_kind(doc_.kind(idx));
        if ((bit & node.types) != 0) out_.choices_.push_back(idx);
      });
    } else if (!absent(said.choices)) {
      node.understood = false;
    }
    node.num_choices = static_cast<std::uint32_t>(out_.choices_.size()) - node.first_choice;
  }

  std::uint8_t types_of_choices(const SchemaNode& node) const {
    std::uint8_t types = 0;
    for (std::uint32_t k = 0; k < node.num_choices; ++k) {
      const int choice = out_.choices_[node.first_choice + k];
      types |= types_of_kind(doc_.kind(choice));
    }
    return types;
  }

  // The properties of an object that follows one of `ways`; a name that several have is one.
  void add_properties(SchemaNode& node, std::span<const SchemaKeywords> ways, const Work& work) {
    node.first_property = static_cast<std::uint32_t>(out_.properties_.size());
    node.num_ways = static_cast<std::uint8_t>(ways.size());
    seen_.clear();
    std::vector<std::vector<int>> schemas;  // by property
    for (std::size_t way = 0; way < ways.size(); ++way) {
      const auto bit = static_cast<std::uint8_t>(1u << way);
      for_each_member(ways[way].properties, [&](std::string_view name, int schema) {
        const std::uint64_t hash = hash_bytes(name);
        const auto [at, is_new] = seen_.try_emplace(hash, schemas.size());
        if (is_new) {
          out_.properties_.push_back({std::string(name), hash, -1, false, is_plain_json(name), 0});
          schemas.emplace_back();
        }
        SchemaProperty& property = out_.properties_[node.first_property + at->second];
        if ((property.ways & bit) != 0) schemas[at->second].pop_back();  // the last of twins counts
        property.ways |= bit;
        schemas[at->second].push_back(schema);
      });
    }
    node.num_properties = static_cast<std::uint32_t>(schemas.size());
    for (std::size_t k = 0; k < schemas.size(); ++k) {
      const std::size_t property = node.first_property + k;
      if (schemas[k].size() > 1) read_tags(out_.properties_[property], schemas[k]);
      out_.properties_[property].node =
          new_part(work, std::move(schemas[k]), static_cast<int>(property));
    }
    sort_properties(node);
    for (std::size_t way = 0; way < ways.size(); ++way) {
      if (is(ways[way].required, JsonKind::kArray)) require(node, ways[way].required, way);
    }
  }

  // What a property may be in each of the schemas that have it: `kind` of a tagged union.
  void read_tags(SchemaProperty& property, std::span<const int> schemas) {
    property.first_tag = static_cast<std::uint32_t>(out_.tags_.size());
    std::uint8_t ways = property.ways;
    for (const int schema : schemas) {
      const auto way = static_cast<std::uint8_t>(ways & -ways);
      ways ^= way;
      if (!is(schema, JsonKind::kObject)) continue;
      const SchemaKeywords said = keywords(schema);
      if (!links_.afford(said.size(doc_, schema))) continue;
      const auto add = [&](int choice) {
        if (is(choice, JsonKind::kString)) out_.tags_.push_back({choice, way});
      };
      if (said.constant >= 0) add(said.constant);
      if (said.constant < 0 && is(said.choices, JsonKind::kArray)) for_each_item(said.choices, add);
      if (said.constant >= 0 || said.choices >= 0) property.tagged_ways |= way;
    }
    property.num_tags = static_cast<std::uint32_t>(out_.tags_.size()) - property.first_tag;
  }

  void require(const SchemaNode& node, int names, std::size_t way) {
    for_each_item(names, [&](int idx) {
      if (!is(idx, JsonKind::kString)) return;
      const int k = find_in(node, hash_bytes(doc_.text(idx)));
      if (k < 0) return;
      SchemaProperty& property =
          out_.properties_[node.first_property + static_cast<std::size_t>(k)];
      property.required_ways |= property.ways & static_cast<std::uint8_t>(1u << way);
      property.required = property.required_ways == (1u << node.num_ways) - 1;
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
  SchemaLinks links_;
  std::map<std::vector<int>, SchemaNode> known_;  // what several places may point to
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

}  // namespace ooospec
