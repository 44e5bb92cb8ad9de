// SPDX-License-Identifier: Apache-2.0
#include "call/schema_links.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace ooospec {

namespace {

constexpr std::size_t kMaxSchemas = 32;  // met on the way to one value

// What a schema says besides a link is lost with those who follow it.
constexpr std::array<std::string_view, 12> kOwnWords = {
    "properties", "enum", "const",       "items",       "not",           "if",
    "then",       "else", "prefixItems", "$dynamicRef", "$recursiveRef", "dependentSchemas",
};

// Part of a JSON pointer in the fragment of a URI: %41 is A, ~1 is a slash, ~0 is ~.
std::string unescaped(std::string_view part) {
  std::string out;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const int high = part[i] == '%' && i + 2 < part.size() ? hex_digit(part[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(part[i + 2]) : -1;
    out.push_back(low >= 0 ? static_cast<char>(high * 16 + low) : part[i]);
    if (low >= 0) i += 2;
  }
  for (std::size_t i = out.find('~'); i != std::string::npos; i = out.find('~', i + 1)) {
    const char next = i + 1 < out.size() ? out[i + 1] : '\0';
    if (next == '0' || next == '1') out.replace(i, 2, next == '0' ? "~" : "/");
  }
  return out;
}

}  // namespace

bool SchemaLinks::afford(std::size_t num_looks) {
  const bool affordable = num_looks <= looks_left_;
  looks_left_ -= affordable ? num_looks : looks_left_;
  return affordable;
}

bool SchemaLinks::is_null(int schema) const {
  const int type = doc_.find(schema, "type");
  return is(type, JsonKind::kString) && doc_.text(type) == "null";
}

Alternatives SchemaLinks::follow(std::span<const int> schemas, int root, bool with_alternatives) {
  Alternatives out;
  std::vector<int> met;
  std::vector<int> open(schemas.rbegin(), schemas.rend());  // the next one last
  while (!open.empty() && met.size() < kMaxSchemas) {
    const int schema = open.back();
    open.pop_back();
    if (!is(schema, JsonKind::kObject) || std::ranges::find(met, schema) != met.end()) continue;
    met.push_back(schema);
    const std::vector<int> next = behind(schema, root, with_alternatives, out.nullable);
    if (!next.empty()) {
      open.insert(open.end(), next.rbegin(), next.rend());
    } else if (out.schemas.size() < kMaxAlternatives) {
      out.schemas.push_back(schema);
    }
  }
  return out;
}

// The schemas that `schema` only points to, in order; none if it says something itself, or what it
// points to is not there.
std::vector<int> SchemaLinks::behind(int schema, int root, bool with_alternatives, bool& nullable) {
  int reference = -1, alternatives = -1, all_of = -1, num_links = 0;
  bool may_be_null = false;
  for (std::uint32_t i = static_cast<std::uint32_t>(schema) + 1; i < doc_.node(schema).next;) {
    const std::string_view key = doc_.text(static_cast<int>(i));
    const int value = static_cast<int>(i) + 1;
    if (std::ranges::find(kOwnWords, key) != kOwnWords.end()) return {};
    const bool any_of = key == "anyOf" || key == "oneOf";
    if (key == "$ref") reference = value;
    if (any_of) alternatives = value;
    if (key == "allOf") all_of = value;
    if (key == "nullable") may_be_null = doc_.kind(value) == JsonKind::kTrue;
    num_links += any_of || key == "$ref" || key == "allOf" ? 1 : 0;
    i = doc_.node(value).next;
  }
  if (num_links != 1) return {};
  std::vector<int> out;
  if (is(reference, JsonKind::kString)) {
    const int found = target(doc_.text(reference), root);
    if (is(found, JsonKind::kObject)) out.push_back(found);
  }
  const int list = with_alternatives && alternatives >= 0 ? alternatives : all_of;
  const bool several = list >= 0 && list == alternatives;
  if (is(list, JsonKind::kArray) && (several || doc_.node(list).num_members == 1)) {
    const auto end = doc_.node(list).next;
    for (auto i = static_cast<std::uint32_t>(list) + 1; i < end;
         i = doc_.node(static_cast<int>(i)).next) {
      const int one = static_cast<int>(i);
      if (!afford(1)) return {};
      if (!is(one, JsonKind::kObject)) continue;
      if (several && is_null(one)) {
        may_be_null = true;
      } else {
        out.push_back(one);
      }
    }
  }
  nullable |= may_be_null && !out.empty();
  return out;
}

// Returns the item of a list that a number names, or -1.
int SchemaLinks::item(int list, std::string_view number) const {
  std::uint32_t k = 0;
  const auto [end, error] = std::from_chars(number.begin(), number.end(), k);
  if (error != std::errc() || end != number.end() || k >= doc_.node(list).num_members) return -1;
  int at = list + 1;
  for (; k > 0; --k) at = static_cast<int>(doc_.node(at).next);
  return at;
}

// Returns the value that a reference of the form #/a/b leads to, or -1.
int SchemaLinks::target(std::string_view reference, int root) {
  if (!reference.starts_with('#')) return -1;
  reference.remove_prefix(1);
  int at = root;
  while (!reference.empty() && at >= 0) {
    if (!reference.starts_with('/') || !afford(doc_.node(at).num_members)) return -1;
    const std::size_t size = std::min(reference.find('/', 1), reference.size());
    const std::string name = unescaped(reference.substr(1, size - 1));
    reference.remove_prefix(size);
    at = is(at, JsonKind::kArray) ? item(at, name) : doc_.find(at, name);
  }
  return at;
}

}  // namespace ooospec
