// SPDX-License-Identifier: Apache-2.0
#include "call/tool_schema.h"

#include <algorithm>

namespace ooospec {

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

std::uint8_t ToolSet::ways_without(int node_idx, int property_idx, std::string_view value) const {
  const SchemaProperty& property = properties(node_idx)[static_cast<std::size_t>(property_idx)];
  std::uint8_t out = property.tagged_ways;
  for (std::uint32_t k = 0; k < property.num_tags; ++k) {
    const SchemaTag& tag = tags_[property.first_tag + k];
    if (document_.text(tag.choice) == value) out &= static_cast<std::uint8_t>(~tag.ways);
  }
  return out;
}

}  // namespace ooospec
