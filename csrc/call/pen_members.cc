// SPDX-License-Identifier: Apache-2.0
//
// The members of the call, of its arguments, and of the objects and arrays in them.
#include <algorithm>
#include <bit>

#include "call/pen.h"
#include "call/priors.h"

namespace ooospec {

using namespace priors;

namespace {

constexpr std::uint64_t bit(int k) { return std::uint64_t{1} << k; }
constexpr std::uint64_t bit(Role role) { return bit(static_cast<int>(role)); }

constexpr std::size_t kMaxToolOptions = 8;

}  // namespace

// --- the call itself ---

void Pen::gather_call_member() {
  const std::uint64_t written = s_.top().written;
  const auto offer = [&](Role role, std::string_view key) {
    if ((written & bit(role)) != 0 || !begins(key)) return false;
    add(OptionKind::kKey, Source::kSchema, kForced, static_cast<std::int32_t>(role));
    return true;
  };
  const bool type_first = style().type_key && (written & bit(Role::kName)) == 0;
  if (type_first && offer(Role::kType, "type")) return;
  if (offer(Role::kName, "name")) return;
  if (offer(Role::kArguments, style().arguments_key)) return;
  if (!s_.comma_done && s_.begun().empty()) {
    add(OptionKind::kClose, Source::kSchema, kCloseWhenDone);
  }
}

void Pen::apply_call_key(const Option& option) {
  if (option.arg >= 0) {
    s_.role = static_cast<Role>(option.arg);
    emit_comma_and_gap();
    emit_quoted(s_.role == Role::kType   ? "type"
                : s_.role == Role::kName ? "name"
                                         : style().arguments_key,
                true);
  }
  emit_colon();
  s_.top().written |= bit(s_.role);
  s_.value_said = {};
  s_.value_node = -1;
  s_.stage = s_.role == Role::kName ? Stage::kFunction : Stage::kValue;
  piece(PieceKind::kKey, Source::kSchema, option.probability);
}

void Pen::gather_call_value() {
  if (s_.role == Role::kArguments && s_.begun().empty()) {
    add(OptionKind::kOpen, Source::kSchema, kForced, '{');
  } else if (s_.role == Role::kType && begins("function")) {
    add(OptionKind::kTypeWord, Source::kSchema, kForced);
  } else if (s_.role == Role::kOther && !s_.begun().empty()) {
    gather_value_under_way();
  }
}

std::string_view Pen::tool_name(int idx) const {
  if (!whole_.empty()) return whole_[static_cast<std::size_t>(idx)].name;
  return tools_->tool(idx).name;
}

void Pen::gather_tools() {
  if (!whole_.empty()) return add(OptionKind::kTool, Source::kHint, 1.0f, s_.call);
  const Slots* slots = slots_of(s_.call);
  const int said = slots != nullptr && slots->tool < tools_->size() ? slots->tool : -1;
  std::string_view prefix = s_.begun().empty() ? std::string_view() : s_.token.substr(1);
  const bool escaped = prefix.find('\\') != std::string_view::npos;
  if (escaped) {
    text_.clear();
    append_unescaped(text_, prefix);
    prefix = text_;
  }
  const auto candidates = tools_->with_prefix(prefix);
  const auto fits = [&](int idx) {
    const std::string_view name = tool_name(idx);
    return name.starts_with(prefix) && (!escaped || begins(name));
  };
  const bool said_fits = said >= 0 && fits(said);
  float rest = kFunctionGivenSchema;
  if (said_fits) {
    const float p = candidates.size() == 1 ? kFunctionGivenSchema : kFunctionGivenHint;
    add(OptionKind::kTool, Source::kHint, p, said);
    rest = kFunctionGivenSchema - p;
  }
  const std::size_t others = std::min(candidates.size() - (said_fits ? 1 : 0), 2 * kMaxToolOptions);
  for (std::size_t k = 0; k < candidates.size() && num_options_ < kMaxToolOptions; ++k) {
    if ((said_fits && candidates[k] == said) || !fits(candidates[k])) continue;
    const float p = rest / static_cast<float>(others);
    add(OptionKind::kTool, Source::kSchema, p, candidates[k]);
  }
}

void Pen::apply_tool(const Option& option) {
  if (s_.begun().empty()) emit_gap(s_.resuming ? style().after_colon : "");
  emit_quoted(tool_name(option.arg), false);
  piece(PieceKind::kFunction, option.source, option.probability);
  s_.tool = option.arg;
  s_.stage = Stage::kMember;
}

// --- what an object may get ---

const Members& Pen::members(const PenFrame& frame) {
  if (frame.level != Level::kArguments || frame.said) {
    object_.clear();
    if (frame.said) {
      list_said(object_, frame);
    } else if (frame.node >= 0 && tools_->node(frame.node).num_properties > 0) {
      list_properties(object_, frame);
    }
    return object_;
  }
  for (const Members& known : parameters_) {
    if (known.tool == s_.tool && known.call == s_.call) return known;
  }
  Members& out = parameters_[next_parameters_];
  next_parameters_ = (next_parameters_ + 1) % parameters_.size();
  out.tool = s_.tool;
  out.call = s_.call;
  out.clear();
  if (frame.node >= 0) list_parameters(out, frame);
  return out;
}

void Pen::list_properties(Members& out, const PenFrame& frame) {
  const auto properties =
      tools_->properties(frame.node)
          .first(std::min<std::size_t>(tools_->node(frame.node).num_properties, kMaxMembers));
  const int num_ways = tools_->node(frame.node).num_ways;
  std::uint32_t ways = (1u << num_ways) - 1;  // what is written leaves of them
  if ((ways & ~frame.ruled_out) != 0) ways &= ~frame.ruled_out;
  std::uint64_t written = frame.written;
  for (std::size_t k = 0; num_ways > 1 && k < properties.size(); ++k, written >>= 1) {
    const std::uint32_t left = ways & properties[k].ways;
    if ((written & 1) != 0 && left != 0) ways = left;
  }
  out.known = true;
  for (const SchemaProperty& property : properties) {
    const bool required = (property.required_ways & ways) != 0;
    const auto presence = required                      ? Member::kPresent
                          : (property.ways & ways) != 0 ? Member::kMaybe
                                                        : Member::kLeftOut;
    (required                     ? out.present
     : presence == Member::kMaybe ? out.maybe
                                  : out.left_out) |= bit(out.size);
    out.all[static_cast<std::size_t>(out.size++)] = {property.name,  {},       property.node,
                                                     property.plain, required, presence};
  }
  if (std::has_single_bit(ways)) return;
  for (; ways != 0; ways &= ways - 1) {
    std::uint64_t& way = out.ways[out.num_ways++] = 0;
    for (std::size_t k = 0; k < properties.size(); ++k) {
      if (((properties[k].required_ways & ways) >> std::countr_zero(ways) & 1) != 0) {
        way |= bit(static_cast<int>(k));
      }
    }
  }
}

// Parameters of the call's tool, with what the hints say.
void Pen::list_parameters(Members& out, const PenFrame& frame) {
  list_properties(out, frame);
  if (habits_.unsaid.rate() > kHabit) out.habitual = out.maybe;
  const Slots* slots = slots_for(slots_, s_.call, s_.tool);
  if (slots == nullptr) return;
  const bool all_said = slots->all_said_of(s_.tool);
  auto entry = slots->of(s_.tool).begin();
  const auto end = slots->of(s_.tool).end();
  for (int k = 0; k < out.size; ++k) {
    Member& member = out.all[static_cast<std::size_t>(k)];
    while (entry != end && entry->parameter() < k) ++entry;
    const JsonValue* said = entry != end && entry->parameter() == k ? &entry->value : nullptr;
    if (said == nullptr && !all_said) continue;
    const SchemaNode& node = tools_->node(member.node);
    const bool left_out = said == nullptr || said->kind() == JsonKind::kNull;
    if (said != nullptr && !entry->is_written) {
      if (!left_out) member.said = {said, 0};
      continue;
    }
    const bool null = left_out && member.required && said != nullptr && node.types != kAnyType &&
                      (node.types & kNullBit) != 0;
    if (!left_out || null) member.said = {said, 0};
    member.presence = left_out && !null ? Member::kLeftOut : Member::kPresent;
    for (std::uint64_t* set : {&out.present, &out.maybe, &out.habitual}) *set &= ~bit(k);
    (left_out && !null ? out.left_out : out.present) |= bit(k);
    const bool habitual = left_out && !member.required && habits_.left_out.rate() > kHabit;
    if (habitual) out.habitual |= bit(k);
  }
}

// Members of the object that a hint says.
void Pen::list_said(Members& out, const PenFrame& frame) {
  out.known = true;
  const JsonValue& json = *frame.said.json;
  for (std::uint32_t i = frame.said.child(0); i > 0 && i < frame.said.node().next;) {
    if (out.size == kMaxMembers) return;
    const JsonNode& key = json.node(static_cast<int>(i));
    Member& member = out.all[static_cast<std::size_t>(out.size)];
    member = {json.text(static_cast<int>(i)),
              {&json, static_cast<std::int32_t>(i) + 1},
              -1,
              key.plain,
              false,
              Member::kPresent};
    const int property = tools_->find_property(frame.node, hash_bytes(member.name));
    if (property >= 0) {
      member.node = tools_->properties(frame.node)[static_cast<std::size_t>(property)].node;
    }
    out.present |= bit(out.size++);
    i = json.node(static_cast<int>(i) + 1).next;
  }
}

// Who begins with the last of several members, or steps down, is taken to go on downwards; who
// passes one over that must come may keep to no order. all: null where nothing is known of them.
void Pen::mark_written(PenFrame& frame, int member, const Members* all) {
  const std::uint64_t next =
      all != nullptr ? next_keys(frame, *all, all->present & ~frame.written) : 0;
  frame.unordered |= next != 0 && (next & bit(member)) == 0;
  const bool is_last = all != nullptr && member > 1 && member == all->size - 1;
  frame.descending = frame.last < 0 ? is_last : member < frame.last;
  frame.written |= bit(member);
  frame.last = member;
}

// The eligible member that follows the last one (down, if the last two stood in reversed order),
// then those on its other side; -1 if there is none.
int Pen::next_in_order(const PenFrame& frame, std::uint64_t eligible) {
  if (eligible == 0) return -1;
  const std::uint64_t up_to_last = frame.last < 0 ? 0 : ~std::uint64_t{0} >> (63 - frame.last);
  const std::uint64_t below = eligible & up_to_last;
  const std::uint64_t above = eligible & ~up_to_last;
  if (frame.descending && below != 0) return 63 - std::countl_zero(below);
  return std::countr_zero(above != 0 ? above : below);
}

// The keys of `due` that may come next if their order is kept: of each schema that the object may
// follow, one.
std::uint64_t Pen::next_keys(const PenFrame& frame, const Members& all, std::uint64_t due) {
  std::uint64_t next = 0;
  const auto take = [&](std::uint64_t eligible) {
    const int member = next_in_order(frame, eligible);
    if (member >= 0) next |= bit(member);
  };
  for (std::size_t k = 0; k < all.num_ways; ++k) take(all.ways[k] & due);
  if (next == 0) take(due);
  return next;
}

// --- objects ---

void Pen::gather_members() {
  const PenFrame& frame = s_.top();
  const Members& all = members(frame);
  const bool may_close = !s_.comma_done && s_.begun().empty();
  if (!all.known) {
    const bool closable = may_close && frame.num_members > 0;
    if (closable) add(OptionKind::kClose, Source::kSchema, kCloseUnknown);
    return;
  }
  std::uint64_t left = (all.present | all.maybe | all.left_out) & ~frame.written;
  if (!s_.begun().empty()) {
    for (int k = 0; k < all.size; ++k) {
      if (!begins(all.all[static_cast<std::size_t>(k)].name)) left &= ~bit(k);
    }
  }
  const std::uint64_t present = left & all.present, maybe = left & all.maybe;
  const std::uint64_t habitual = left & all.habitual;
  const std::uint64_t next = next_keys(frame, all, present | habitual);
  const auto habit = [&](int k) {
    return ((all.maybe & bit(k)) != 0 ? habits_.unsaid : habits_.left_out).rate();
  };
  float main = 0, close = 0;
  if ((present | habitual) != 0) {
    main = std::has_single_bit(present | maybe | habitual) ? kLastKey
           : frame.num_members == 0                        ? kFirstKeyInOrder
           : frame.unordered                               ? kKeyOutOfOrder
                                                           : kKeyInOrder;
    close = may_close ? kCloseEarly : 0.0f;
    const auto* ways_end = all.ways.begin() + all.num_ways;
    const bool complete = std::any_of(all.ways.begin(), ways_end, [&](std::uint64_t required) {
      return (required & ~frame.written) == 0;
    });
    if (may_close && complete) close = main = main / 2;
    if ((next & habitual) != 0) {
      const float rate = habit(std::countr_zero(next));
      main *= rate;
      if (may_close && present == 0) close = 1.0f - rate;
    }
  } else if (may_close) {
    close = maybe != 0 ? 1.0f - habits_.unsaid.rate() : kCloseWhenDone;
  }
  constexpr std::array<float, 3> kWeights = {0.1f, 0.5f, 1.0f};  // by Presence
  const auto weight = [&](int k) {
    const Member& member = all.all[static_cast<std::size_t>(k)];
    return kWeights[member.presence] * (member.required ? 2.0f : 1.0f);
  };
  const auto offer = [&](int k, float p) {
    const Member& member = all.all[static_cast<std::size_t>(k)];
    const bool by_hint = member.said && !member.required;
    add(OptionKind::kKey, by_hint ? Source::kHint : Source::kSchema, p, k);
  };
  for (std::uint64_t rest = next; rest != 0; rest &= rest - 1) {
    offer(std::countr_zero(rest), main / static_cast<float>(std::popcount(next)));
  }
  left &= ~next;
  if (close > 0) add(OptionKind::kClose, Source::kSchema, close);
  if (!recording_ && num_options_ > 0) return;
  float sum = 0;
  for (std::uint64_t rest = left; rest != 0; rest &= rest - 1)
    sum += weight(std::countr_zero(rest));
  const float share = kForced * (1.0f - main - close) / sum;
  for (std::uint64_t rest = left; rest != 0; rest &= rest - 1) {
    offer(std::countr_zero(rest), share * weight(std::countr_zero(rest)));
  }
}

void Pen::apply_key(const Option& option) {
  if (option.arg >= 0) {
    PenFrame& frame = s_.top();
    const Members& all = members(frame);
    const Member& member = all.all[static_cast<std::size_t>(option.arg)];
    emit_comma_and_gap();
    emit_quoted(member.name, member.plain);
    mark_written(frame, option.arg, &all);
    s_.value_node = member.node;
    s_.value_said = member.said;
  }
  emit_colon();
  piece(PieceKind::kKey, option.source, option.probability);
  s_.stage = Stage::kValue;
}

// --- arrays, closing ---

void Pen::gather_items() {
  const PenFrame& frame = s_.top();
  const bool may_close = !s_.comma_done;
  const bool empty = frame.num_members == 0;
  if (frame.said && (frame.next_item > 0 || may_close)) {
    const float more = frame.next_item > 0 ? kHintItem : 1.0f - kHintItem;
    add(OptionKind::kItem, Source::kHint, more);
    if (may_close) add(OptionKind::kClose, Source::kHint, 1.0f - more);
    return;
  }
  const float more = empty || !may_close ? kOpening : kItemFollows;
  add(OptionKind::kItem, Source::kSchema, more);
  if (may_close) add(OptionKind::kClose, Source::kSchema, 1.0f - more);
}

void Pen::apply_item(const Option& option) {
  emit_comma_and_gap();
  end_resuming();
  PenFrame& frame = s_.top();
  s_.value_node = frame.node >= 0 ? tools_->node(frame.node).items : -1;
  s_.value_said = {};
  if (frame.next_item > 0) {
    s_.value_said = {frame.said.json, static_cast<std::int32_t>(frame.next_item)};
    const std::uint32_t next = s_.value_said.node().next;
    frame.next_item = next < frame.said.node().next ? next : 0;
  }
  piece(PieceKind::kKey, option.source, option.probability);
  s_.stage = Stage::kValue;
}

void Pen::apply_close(const Option& option) {
  const PenFrame& frame = s_.top();
  const bool array = frame.level == Level::kArray;
  if (frame.num_members > 0 && frame.lines) {
    emit_line(frame.outer_indent);
  } else if (frame.num_members > 0) {
    emit_gap(array ? style().array_pad : style().pad);
  }
  emit_mark(array ? "]" : "}");
  piece(PieceKind::kClose, option.source, option.probability);
  --s_.depth;
  s_.stage = s_.depth == 0 ? Stage::kAfterCall : Stage::kMember;
}

}  // namespace ooospec
