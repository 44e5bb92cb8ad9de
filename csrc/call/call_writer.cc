// SPDX-License-Identifier: Apache-2.0
#include "call/call_writer.h"

#include <algorithm>
#include <utility>

#include "call/pen.h"
#include "common/check.h"

namespace ooospec {

namespace {

std::uint32_t slot_key(int tool_idx, int parameter_idx) {
  return static_cast<std::uint32_t>(tool_idx) << 16 | static_cast<std::uint32_t>(parameter_idx);
}

bool before(const Slots::Entry& entry, std::uint32_t key) { return entry.key < key; }

bool parse(Slots::Entry& entry, int tool_idx, int parameter_idx, std::string_view json) {
  const bool in_range =
      tool_idx >= 0 && tool_idx <= 0xFFFF && parameter_idx >= 0 && parameter_idx <= 0xFFFF;
  if (!in_range || !JsonValue::try_parse(json, entry.value)) return false;
  entry.key = slot_key(tool_idx, parameter_idx);
  return true;
}

}  // namespace

bool Slots::set(int tool_idx, int parameter_idx, std::string_view json) {
  Entry entry;
  return parse(entry, tool_idx, parameter_idx, json) && put(std::move(entry));
}

bool Slots::set_own(int tool_idx, int parameter_idx, std::string_view json, bool begun) {
  Entry entry;
  entry.is_own = true;
  entry.is_written = false;
  if (!parse(entry, tool_idx, parameter_idx, json)) return false;
  const JsonValue* said = begun ? find(tool_idx, parameter_idx) : nullptr;
  const bool goes_on = said != nullptr && said->kind() == JsonKind::kString &&
                       said->text(0).starts_with(entry.value.text(0));
  return !goes_on && put(std::move(entry));
}

bool Slots::put(Entry entry) {
  const auto at = std::lower_bound(values_.begin(), values_.end(), entry.key, before);
  if (at == values_.end() || at->key != entry.key) {
    values_.insert(at, std::move(entry));
    return true;
  }
  if (at->is_own && !entry.is_own) return false;
  if (entry.is_own) entry.is_written = at->is_written;
  *at = std::move(entry);
  return true;
}

std::span<const Slots::Entry> Slots::of(int tool_idx) const {
  if (tool_idx < 0) return {};
  const auto begin =
      std::lower_bound(values_.begin(), values_.end(), slot_key(tool_idx, 0), before);
  const auto end = std::lower_bound(begin, values_.end(), slot_key(tool_idx + 1, 0), before);
  return {begin, end};
}

const JsonValue* Slots::find(int tool_idx, int parameter_idx) const {
  for (const Entry& entry : of(tool_idx)) {
    if (entry.parameter() == parameter_idx) return &entry.value;
  }
  return nullptr;
}

void Slots::clear() {
  tool = kUnknown;
  ended = false;
  values_.clear();
}

const Slots* slots_for(std::span<const Slots> slots, int number, int tool_idx) {
  const auto k = static_cast<std::size_t>(number);
  const Slots* found = k < slots.size() ? &slots[k] : nullptr;
  for (const Slots& other : slots) {
    if (found != nullptr && found->tool == tool_idx) break;
    if (other.tool == tool_idx) found = &other;
  }
  return found;
}

struct CallWriter::Scratch {
  Pen pen;
  std::vector<TextPath> spare;  // paths that were not needed: their buffers are warm
  TextPath key;
};

CallWriter::CallWriter() : scratch_(std::make_unique<Scratch>()) {}
CallWriter::~CallWriter() = default;
CallWriter::CallWriter(CallWriter&&) noexcept = default;
CallWriter& CallWriter::operator=(CallWriter&&) noexcept = default;

void CallWriter::set_spans(RequestSpans* spans) { scratch_->pen.set_spans(spans); }

void CallWriter::set_habits(const KeyHabits& habits) { scratch_->pen.set_habits(habits); }

void CallWriter::write_on(const CallReader& reader, std::span<const StyleGuess> styles,
                          std::span<const Slots> slots, int max_paths, std::vector<TextPath>& out,
                          std::size_t max_bytes, bool one_value) {
  OOOSPEC_REQUIRE(max_paths >= 1, "call writer: expected max_paths >= 1, got ", max_paths);
  Pen& pen = scratch_->pen;
  std::vector<TextPath>& spare = scratch_->spare;
  std::size_t num_paths = 0;
  const auto next_path = [&]() -> TextPath& {
    if (out.size() == num_paths && !spare.empty()) {
      out.push_back(std::move(spare.back()));
      spare.pop_back();
    } else if (out.size() == num_paths) {
      out.emplace_back();
    }
    return out[num_paths];
  };
  pen.set_one_value(one_value);
  if (pen.begin(reader, styles, slots, max_bytes, max_paths - 1)) {
    pen.write_main(next_path());
    if (!out[0].pieces.empty()) ++num_paths;
    for (std::size_t k = 0; num_paths > 0 && k < pen.num_branches(); ++k) {
      TextPath& path = next_path();
      pen.write_branch(k, out[0], path);
      const bool told = path.shared < path.text.size() ||
                        (path.ends_answer && path.text.size() < out[0].text.size());
      if (told) ++num_paths;
    }
  }
  for (; out.size() > num_paths; out.pop_back()) spare.push_back(std::move(out.back()));
}

bool CallWriter::write_key(const CallReader& reader, std::span<const StyleGuess> styles,
                           int parameter, std::string& out) {
  Pen& pen = scratch_->pen;
  TextPath& path = scratch_->key;
  out.clear();
  if (!pen.begin(reader, styles, {}, ~std::size_t{0}, 0)) return false;
  if (!pen.write_key(parameter, path)) return false;
  out = path.text;
  return true;
}

std::string render_calls(std::span<const RenderedCall> calls, const CallStyle& style) {
  OOOSPEC_REQUIRE(!calls.empty(), "render_calls: expected at least one call, got none");
  std::vector<JsonValue> arguments;
  for (const RenderedCall& call : calls) {
    arguments.push_back(JsonValue::parse(call.arguments));
    OOOSPEC_REQUIRE(arguments.back().kind() == JsonKind::kObject,
                    "render_calls: expected arguments of '", call.name,
                    "' to be a JSON object, got '", call.arguments.substr(0, 80), "'");
  }
  Pen pen;
  TextPath path;
  pen.write_whole(calls, arguments, style, path);
  return std::move(path.text);
}

}  // namespace ooospec
