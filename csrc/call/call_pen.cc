// SPDX-License-Identifier: Apache-2.0
#include "call/call_pen.h"

#include <algorithm>

#include "call/call_priors.h"

namespace ooospec {

namespace {

using namespace priors;

constexpr std::uint64_t kTypeBitOfCall = 1, kNameBitOfCall = 2, kArgumentsBitOfCall = 4;

bool has_line_break(std::string_view text) { return text.find('\n') != std::string_view::npos; }

std::size_t code_point_size(std::string_view text) {
  std::size_t size = 1;
  while (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0u) == 0x80u) ++size;
  return size;
}

bool same_letters(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

// `partial` is an unfinished escape. Appends the rest of the escape that `text` begins with, if it
// is that one. Returns the bytes of `text` it stands for, or 0.
std::size_t finish_escape(std::string* out, std::string_view text, std::string_view partial) {
  if (text.empty()) return 0;
  const std::size_t size = code_point_size(text);
  for (const bool ascii : {false, true}) {
    std::string escape;
    append_escaped(escape, text.substr(0, size), {ascii, true});
    if (escape[0] != '\\' ||
        !same_letters(std::string_view(escape).substr(0, partial.size()), partial))
      continue;
    if (out != nullptr) out->append(escape.substr(partial.size()));
    return size;
  }
  return 0;
}

struct Match {
  bool ok = false;
  std::size_t size = 0;      // bytes of the text that are there
  std::string_view partial;  // an unfinished escape behind them
};

// Is `token` (opening quote included) how `text` begins, in any spelling?
Match match_quoted(std::string_view token, std::string_view text, std::string& scratch) {
  if (token.empty()) return {true, 0, {}};
  const std::string_view raw = token.substr(1);
  if (token[0] != '"' || raw.size() > 6 * text.size()) return {};
  if (raw.find('\\') == std::string_view::npos) return {text.starts_with(raw), raw.size(), {}};
  scratch.clear();
  const std::string_view partial = raw.substr(append_unescaped(scratch, raw));
  if (!text.starts_with(scratch)) return {};
  if (!partial.empty() && finish_escape(nullptr, text.substr(scratch.size()), partial) == 0)
    return {};
  return {true, scratch.size(), partial};
}

}  // namespace

// --- emitting ---

// White space. What the text has of it already is kept, whatever it is.
void Pen::emit_gap(std::string_view expected) {
  if (!s_.resuming) {
    path_->text.append(expected);
  } else if (s_.token.empty() && expected.starts_with(s_.gap)) {
    path_->text.append(expected.substr(s_.gap.size()));
  }
}

void Pen::emit_indent(std::size_t size) {
  scratch_.assign(1, '\n');
  scratch_.append(indentation_, 0, size);
  emit_gap(scratch_);
}

void Pen::emit_member_gap() {
  const PenFrame& frame = s_.top();
  const bool first = frame.num_members == 0;
  if (frame.lines) {
    emit_indent(frame.indent);
  } else {
    const bool array = frame.level == Level::kArray;
    emit_gap(!first ? style().after_comma : array ? style().array_pad : style().pad);
  }
}

void Pen::emit_mark(std::string_view mark) {
  path_->text.append(s_.resuming ? mark.substr(std::min(mark.size(), s_.token.size())) : mark);
  end_resuming();
}

void Pen::emit_quoted(std::string_view text) {
  std::string& out = path_->text;
  if (!s_.resuming || s_.token.empty()) {
    out.push_back('"');
  } else {
    const Match match = match_quoted(s_.token, text, scratch_);
    text.remove_prefix(match.size);
    if (!match.partial.empty()) text.remove_prefix(finish_escape(&out, text, match.partial));
  }
  end_resuming();
  append_escaped(out, text, style().spelling);
  out.push_back('"');
}

void Pen::emit_colon() {
  emit_gap(style().before_colon);
  emit_mark(":");
  emit_gap(style().after_colon);
}

void Pen::piece(PieceKind kind, Source source, float probability) {
  const auto end = static_cast<std::uint32_t>(path_->text.size());
  const bool empty = end == (path_->pieces.empty() ? 0 : path_->pieces.back().end);
  if (empty && kind != PieceKind::kEnd) return;
  path_->pieces.push_back({end, source, kind, probability});
  reach_ *= probability;
}

void Pen::add(OptionKind kind, Source source, float probability, std::int32_t arg) {
  if (num_options_ < options_.size()) options_[num_options_++] = {kind, source, probability, arg};
}

// --- deciding ---

void Pen::remember(const Option& option) {
  const float reach = reach_ * option.probability;
  std::size_t slot = num_branches_;
  if (num_branches_ == max_branches_) {
    slot = 0;
    for (std::size_t k = 1; k < num_branches_; ++k) {
      if (branches_[k].reach < branches_[slot].reach) slot = k;
    }
    if (num_branches_ == 0 || branches_[slot].reach >= reach) return;
  } else {
    ++num_branches_;
    if (branches_.size() < num_branches_) branches_.emplace_back();
  }
  Branch& branch = branches_[slot];
  branch.reach = reach;
  branch.option = option;
  branch.num_bytes = static_cast<std::uint32_t>(path_->text.size());
  branch.num_pieces = static_cast<std::uint32_t>(path_->pieces.size());
  branch.state = s_;
}

void Pen::run(const Option* forced) {
  while (s_.stage != Stage::kDone && path_->text.size() < max_bytes_) {
    if (forced != nullptr) {
      apply(*forced);
      forced = nullptr;
      continue;
    }
    num_options_ = 0;
    gather();
    if (num_options_ == 0) return;
    std::size_t best = 0;
    for (std::size_t k = 1; k < num_options_; ++k) {
      if (options_[k].probability > options_[best].probability) best = k;
    }
    const Option option = options_[best];
    if (recording_) {
      for (std::size_t k = 0; k < num_options_; ++k) {
        if (k != best) remember(options_[k]);
      }
    }
    apply(option);
  }
}

void Pen::gather() {
  switch (s_.stage) {
    case Stage::kOpening:
      return gather_opening();
    case Stage::kFunction:
      return gather_tools();
    case Stage::kValue:
      return s_.resuming && !s_.token.empty() ? gather_value_under_way() : gather_value();
    case Stage::kAfterCall:
      return gather_after_call();
    case Stage::kColon:
      return add(OptionKind::kKey, Source::kSchema, kForced, -1);
    default:
      if (s_.depth == 1) return gather_call_member();
      return s_.top().level == Level::kArray ? gather_items() : gather_members();
  }
}

void Pen::apply(const Option& option) {
  switch (option.kind) {
    case OptionKind::kStyle:
    case OptionKind::kNextCall:
      return apply_style(option);
    case OptionKind::kTool:
      return apply_tool(option);
    case OptionKind::kKey:
      return s_.depth == 1 ? apply_call_key(option) : apply_key(option);
    case OptionKind::kItem:
      return apply_item(option);
    case OptionKind::kClose:
      return apply_close(option);
    case OptionKind::kHinted:
      return apply_said(option, s_.value_said, true);
    case OptionKind::kHintedAsIs:
      return apply_said(option, s_.value_said, false);
    case OptionKind::kChoice:
      return apply_said(option, {&tools_->document(), option.arg}, false);
    case OptionKind::kEndAnswer:
      return apply_ending(option);
    default:
      return apply_literal(option);
  }
}

// --- around calls ---

void Pen::opening_text(std::string& out, const CallStyle& style) const {
  const bool list = style.list || (s_.resuming && reader_->in_list());
  out.assign(form(style.wrapper).open);
  if (!out.empty()) out.append(style.open_gap);
  if (list) {
    out.push_back('[');
    if (style.lines_of(Level::kList)) out.append("\n").append(style.indent);
  }
  out.push_back('{');
}

// From the end of a call to the '{' of the next one; empty if there can be none.
void Pen::next_text(std::string& out) const {
  const bool closed = s_.resuming && reader_->spot() == Spot::kProse;
  out.clear();
  if (closed && !style().rewrap) return;
  if (s_.in_list && !closed) {
    if (s_.resuming && reader_->list_closed()) return;
    out.assign(",");
    if (style().lines_of(Level::kList)) {
      out.append("\n").append(indentation_, 0, s_.base);
    } else {
      out.append(style().after_comma);
    }
  } else if (style().rewrap) {
    const WrapperForm& around = form(style().wrapper);
    if (!closed) out.append(style().close_gap).append(around.close);
    out.append(style().between).append(around.open).append(style().open_gap);
  } else {
    out.append(style().between);
  }
  out.push_back('{');
}

// From the end of a call to the end of the answer.
void Pen::ending_text(std::string& out) const {
  out.clear();
  if (s_.resuming && reader_->spot() == Spot::kProse) return;
  if (s_.in_list && !(s_.resuming && reader_->list_closed())) {
    if (style().lines_of(Level::kList)) {
      const std::size_t step = std::min<std::size_t>(style().indent.size(), s_.base);
      out.append("\n").append(indentation_, 0, s_.base - step);
    }
    out.push_back(']');
  }
  const std::string_view close = form(style().wrapper).close;
  if (close.empty()) return;
  // what was read behind ']' is in pending(), the bracket included
  if (s_.resuming && reader_->list_closed())
    out.append(s_.before.substr(0, s_.before.find(']') + 1));
  out.append(style().close_gap).append(close);
}

bool Pen::fits_wrapper(std::string_view expected) const {
  if (!s_.resuming || expected.starts_with(s_.before)) return true;
  return std::all_of(s_.before.begin(), s_.before.end(),
                     [](char c) { return c == ' ' || c == '\n'; });
}

// Text around calls. Other white space than expected is kept.
void Pen::emit_wrapper(std::string_view expected) {
  if (s_.resuming) {
    if (expected.starts_with(s_.before)) {
      expected.remove_prefix(s_.before.size());
    } else {
      expected.remove_prefix(std::min(expected.size(), expected.find_first_not_of(" \n")));
    }
  }
  end_resuming();
  path_->text.append(expected);
}

void Pen::gather_opening() {
  const Slots* slots = slots_of(s_.call);
  float call = kCallAfterProse;
  if (reader_->spot() == Spot::kOpened) {
    call = kCallOpened;
  } else if (slots != nullptr && slots->tool == Slots::kNoCall) {
    call = kCallGivenNoCallHint;
  } else if (reader_->answer_start()) {
    call = slots != nullptr && slots->tool >= 0 ? kCallGivenHint : kCallGivenNothing;
  }
  float sum = 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (int k = 0; k < num_styles_; ++k) {
      const float weight = style_weight_[static_cast<std::size_t>(k)];
      opening_text(scratch_, styles_[static_cast<std::size_t>(k)]);
      if (!fits_wrapper(scratch_)) continue;
      if (pass == 0) sum += weight;
      if (pass == 1) add(OptionKind::kStyle, Source::kSchema, call * weight / sum, k);
    }
  }
}

void Pen::apply_style(const Option& option) {
  std::string text;
  if (option.kind == OptionKind::kStyle) {
    s_.style = static_cast<std::int8_t>(option.arg);
    s_.in_list = style().list || (s_.resuming && reader_->in_list());
    opening_text(text, style());
    s_.base = 0;
    if (s_.in_list && style().lines_of(Level::kList)) {
      s_.base = static_cast<std::uint16_t>(style().indent.size());
      indentation_ = style().indent;
    }
  } else {
    next_text(text);
    ++s_.call;
  }
  emit_wrapper(text);
  piece(PieceKind::kWrapper, Source::kSchema, option.probability);
  begin_call_frame();
}

void Pen::begin_call_frame() {
  s_.depth = 0;
  s_.tool = -1;
  s_.comma_done = false;
  s_.stage = Stage::kMember;
  PenFrame frame;
  frame.lines = style().lines_of(Level::kCall);
  frame.outer_indent = s_.base;
  frame.indent = frame.outer_indent;
  if (frame.lines) {
    indentation_.replace(s_.base, style().indent.size(), style().indent);
    frame.indent = static_cast<std::uint16_t>(s_.base + style().indent.size());
  }
  s_.frames[static_cast<std::size_t>(s_.depth++)] = frame;
}

bool Pen::next_call_is_said() const {
  if (!whole_.empty()) return static_cast<std::size_t>(s_.call) + 1 < whole_.size();
  const std::size_t next = static_cast<std::size_t>(s_.call) + 1;
  return next < slots_.size() && slots_[next].tool >= 0;
}

void Pen::gather_after_call() {
  const bool said = next_call_is_said();
  const float next = said ? kNextCallGivenHint : kNextCallGivenNothing;
  next_text(scratch_);
  if (!scratch_.empty() && fits_wrapper(scratch_)) {
    add(OptionKind::kNextCall, said ? Source::kHint : Source::kSchema, next);
  }
  ending_text(scratch_);
  if (fits_wrapper(scratch_)) add(OptionKind::kEndAnswer, Source::kSchema, 1.0f - next);
}

void Pen::apply_ending(const Option& option) {
  std::string text;
  ending_text(text);
  emit_wrapper(text);
  piece(PieceKind::kWrapper, Source::kSchema, option.probability);
  piece(PieceKind::kEnd, Source::kSchema, kAnswerEnds);
  path_->ends_answer = true;
  s_.stage = Stage::kDone;
}

// --- the call itself ---

const Slots* Pen::slots_of(int call) const {
  return static_cast<std::size_t>(call) < slots_.size() ? &slots_[static_cast<std::size_t>(call)]
                                                        : nullptr;
}

std::string_view Pen::tool_name(int idx) const {
  return whole_.empty() ? std::string_view(tools_->tool(idx).name)
                        : whole_[static_cast<std::size_t>(idx)].name;
}

bool Pen::takes_key(std::string_view key) const {
  return !s_.resuming || match_quoted(s_.token, key, scratch_).ok;
}

void Pen::gather_call_member() {
  const std::uint64_t written = s_.top().written;
  const auto offer = [&](Role role, std::uint64_t bit, std::string_view key) {
    if ((written & bit) != 0 || !takes_key(key)) return false;
    add(OptionKind::kKey, Source::kSchema, kForced, static_cast<std::int32_t>(role));
    return true;
  };
  if (style().type_key && (written & kNameBitOfCall) == 0 &&
      offer(Role::kType, kTypeBitOfCall, "type"))
    return;
  if (offer(Role::kName, kNameBitOfCall, "name")) return;
  if (offer(Role::kArguments, kArgumentsBitOfCall, style().arguments_key)) return;
  if (!s_.comma_done && s_.token.empty()) add(OptionKind::kClose, Source::kSchema, kCloseWhenDone);
}

void Pen::apply_call_key(const Option& option) {
  PenFrame& frame = s_.top();
  if (option.arg >= 0) {  // else behind the key already
    s_.role = static_cast<Role>(option.arg);
    if (!s_.comma_done && frame.num_members > 0) {
      emit_gap(style().before_comma);
      emit_mark(",");
    }
    emit_member_gap();
    s_.comma_done = false;
    ++frame.num_members;
    emit_quoted(s_.role == Role::kType   ? "type"
                : s_.role == Role::kName ? "name"
                                         : style().arguments_key);
  }
  emit_colon();
  s_.value_said = {};
  s_.value_node = -1;
  s_.stage = Stage::kValue;
  if (s_.role == Role::kName) {
    frame.written |= kNameBitOfCall;
    s_.stage = Stage::kFunction;
  } else if (s_.role == Role::kArguments) {
    frame.written |= kArgumentsBitOfCall;
  } else if (s_.role == Role::kType) {
    frame.written |= kTypeBitOfCall;
    emit_quoted("function");
    s_.stage = Stage::kMember;
  }
  piece(PieceKind::kKey, Source::kSchema, option.probability);
}

void Pen::gather_tools() {
  if (!whole_.empty()) return add(OptionKind::kTool, Source::kHint, 1.0f, s_.call);
  const Slots* slots = slots_of(s_.call);
  const int said = slots != nullptr ? slots->tool : -1;
  std::string_view prefix =
      s_.resuming && !s_.token.empty() ? s_.token.substr(1) : std::string_view();
  if (prefix.find('\\') != std::string_view::npos) return;
  const auto candidates = tools_->with_prefix(prefix);
  const bool said_fits = said >= 0 && said < tools_->size() && tool_name(said).starts_with(prefix);
  float rest = kFunctionGivenSchema;
  if (said_fits) {
    const float p = candidates.size() == 1 ? kFunctionGivenSchema : kFunctionGivenHint;
    add(OptionKind::kTool, Source::kHint, p, said);
    rest = 1.0f - p;
  }
  const std::size_t others = candidates.size() - (said_fits ? 1 : 0);
  for (std::size_t k = 0; k < candidates.size() && num_options_ < 8; ++k) {
    if (said_fits && candidates[k] == said) continue;
    add(OptionKind::kTool, Source::kSchema, rest / static_cast<float>(others), candidates[k]);
  }
}

void Pen::apply_tool(const Option& option) {
  if (s_.resuming && s_.token.empty()) emit_gap(style().after_colon);
  emit_quoted(tool_name(option.arg));
  piece(PieceKind::kFunction, option.source, option.probability);
  s_.tool = option.arg;
  s_.stage = Stage::kMember;
}

// --- objects and arrays ---

// Lists what object `frame` may get. Returns how many members, or -1 if nothing is known of it.
int Pen::members(const PenFrame& frame, std::span<Member> out) const {
  int n = 0;
  if (frame.said) {
    const JsonValue& json = *frame.said.json;
    const std::uint32_t end = frame.said.at().next;
    for (std::uint32_t i = static_cast<std::uint32_t>(frame.said.node) + 1;
         i < end && n < kMaxMembers; ++n) {
      Member& member = out[static_cast<std::size_t>(n)];
      member = {json.text(static_cast<int>(i)),
                -1,
                {&json, static_cast<std::int32_t>(i) + 1},
                Member::kPresent,
                false};
      if (frame.node >= 0) {
        const int property = tools_->find_property(frame.node, hash_bytes(member.name));
        if (property >= 0)
          member.node = tools_->properties(frame.node)[static_cast<std::size_t>(property)].node;
      }
      i = json.node(static_cast<int>(i) + 1).next;
    }
    return n;
  }
  if (frame.node < 0 || !tools_->node(frame.node).understood) return -1;
  const auto properties = tools_->properties(frame.node);
  const bool top = frame.level == Level::kArguments;
  if (properties.empty() && !top) return -1;
  const Slots* slots = top ? slots_of(s_.call) : nullptr;
  for (; static_cast<std::size_t>(n) < std::min<std::size_t>(properties.size(), kMaxMembers); ++n) {
    const SchemaProperty& property = properties[static_cast<std::size_t>(n)];
    Member& member = out[static_cast<std::size_t>(n)];
    member = {property.name,
              property.node,
              {},
              property.required ? Member::kPresent : Member::kMaybe,
              property.required};
    const JsonValue* said = slots != nullptr ? slots->find(s_.tool, n) : nullptr;
    if (said != nullptr && said->kind() != JsonKind::kNull) {
      member.said = {said, 0};
      member.presence = Member::kPresent;
    } else if (said != nullptr || (slots != nullptr && slots->ended)) {
      const bool nullable = (tools_->node(property.node).types & kNullBit) != 0 &&
                            tools_->node(property.node).types != kAnyType;
      if (said != nullptr && property.required && nullable) {
        member.said = {said, 0};
      } else {
        member.presence = Member::kLeftOut;
      }
    }
  }
  return n;
}

// The eligible member that follows the last one: down if the last two stood in reversed order, else
// up; then the rest.
int Pen::next_in_order(const PenFrame& frame, std::span<const Member> members) const {
  const int n = static_cast<int>(members.size());
  const auto eligible = [&](int i) {
    return ((frame.written >> i) & 1u) == 0 &&
           members[static_cast<std::size_t>(i)].presence == Member::kPresent &&
           takes_key(members[static_cast<std::size_t>(i)].name);
  };
  if (frame.descending) {
    for (int i = frame.last - 1; i >= 0; --i) {
      if (eligible(i)) return i;
    }
  }
  for (int step = 1; step <= n; ++step) {
    const int i = (frame.last + step) % n;
    if (eligible(i)) return i;
  }
  return -1;
}

void Pen::gather_members() {
  const PenFrame& frame = s_.top();
  std::array<Member, kMaxMembers> all;
  const int n = members(frame, all);
  const bool may_close = !s_.comma_done && s_.token.empty();
  if (n < 0) {
    if (may_close && frame.num_members > 0) add(OptionKind::kClose, Source::kSchema, kCloseUnknown);
    return;
  }
  const auto known = std::span<const Member>(all).first(static_cast<std::size_t>(n));
  const int first = next_in_order(frame, known);
  constexpr std::array<float, 3> kWeights = {0.1f, 0.5f, 1.0f};  // by Presence
  std::array<float, kMaxMembers> weights{};
  int num_present = 0, num_maybe = 0;
  float sum = 0;
  for (int i = 0; i < n; ++i) {
    const Member& member = known[static_cast<std::size_t>(i)];
    if (((frame.written >> i) & 1u) != 0 || !takes_key(member.name)) continue;
    num_present += member.presence == Member::kPresent;
    num_maybe += member.presence == Member::kMaybe;
    if (i == first) continue;
    const float weight = kWeights[member.presence] * (member.required ? 2.0f : 1.0f);
    weights[static_cast<std::size_t>(i)] = weight;
    sum += weight;
  }
  float main = 0, close = 0;
  if (num_present > 0) {
    main = num_present + num_maybe == 1 ? kLastKey : kKeyInOrder;
    close = may_close ? kCloseEarly : 0.0f;
  } else if (may_close) {
    close = num_maybe > 0 ? 1.0f - kOptionalKey : kCloseWhenDone;
  }
  const auto source = [&](const Member& m) {
    return m.said && !m.required ? Source::kHint : Source::kSchema;
  };
  if (first >= 0)
    add(OptionKind::kKey, source(known[static_cast<std::size_t>(first)]), main, first);
  if (close > 0) add(OptionKind::kClose, Source::kSchema, close);
  const float share = (1.0f - main - close) * kForced;
  for (int i = 0; i < n && sum > 0; ++i) {
    const float weight = weights[static_cast<std::size_t>(i)];
    if (weight > 0)
      add(OptionKind::kKey, source(known[static_cast<std::size_t>(i)]), share * weight / sum, i);
  }
}

void Pen::apply_key(const Option& option) {
  PenFrame& frame = s_.top();
  if (option.arg >= 0) {  // else behind the key already
    std::array<Member, kMaxMembers> all;
    const int n = members(frame, all);
    if (option.arg >= n) {
      s_.stage = Stage::kDone;
      return;
    }
    const Member& member = all[static_cast<std::size_t>(option.arg)];
    if (!s_.comma_done && frame.num_members > 0) {
      emit_gap(style().before_comma);
      emit_mark(",");
    }
    emit_member_gap();
    s_.comma_done = false;
    ++frame.num_members;
    emit_quoted(member.name);
    frame.written |= std::uint64_t{1} << option.arg;
    frame.descending = frame.last >= 0 && option.arg < frame.last;
    frame.last = option.arg;
    s_.value_node = member.node;
    s_.value_said = member.said;
  }
  emit_colon();
  piece(PieceKind::kKey, option.source, option.probability);
  s_.stage = Stage::kValue;
}

void Pen::gather_items() {
  const PenFrame& frame = s_.top();
  const bool may_close = !s_.comma_done;
  const bool empty = frame.num_members == 0;
  if (frame.said && (frame.next_item > 0 || may_close)) {
    const bool more = frame.next_item > 0;
    add(OptionKind::kItem, Source::kHint, more ? kHintItem : 1.0f - kHintItem);
    if (may_close) add(OptionKind::kClose, Source::kHint, more ? 1.0f - kHintItem : kHintItem);
    return;
  }
  add(OptionKind::kItem, Source::kSchema, empty || !may_close ? kOpening : kItemFollows);
  if (may_close)
    add(OptionKind::kClose, Source::kSchema, empty ? 1.0f - kOpening : 1.0f - kItemFollows);
}

void Pen::apply_item(const Option& option) {
  PenFrame& frame = s_.top();
  if (!s_.comma_done && frame.num_members > 0) {
    emit_gap(style().before_comma);
    emit_mark(",");
  }
  emit_member_gap();
  end_resuming();
  s_.comma_done = false;
  ++frame.num_members;
  s_.value_node = frame.node >= 0 ? tools_->node(frame.node).items : -1;
  s_.value_said = {};
  if (frame.next_item > 0) {
    s_.value_said = {frame.said.json, static_cast<std::int32_t>(frame.next_item)};
    const std::uint32_t next = s_.value_said.at().next;
    frame.next_item = next < frame.said.at().next ? next : 0;
  }
  piece(PieceKind::kKey, option.source, option.probability);
  s_.stage = Stage::kValue;
}

void Pen::apply_close(const Option& option) {
  const PenFrame frame = s_.top();
  const bool array = frame.level == Level::kArray;
  if (frame.num_members > 0) {
    if (frame.lines) {
      emit_indent(frame.outer_indent);
    } else {
      emit_gap(array ? style().array_pad : style().pad);
    }
  }
  emit_mark(array ? "]" : "}");
  piece(PieceKind::kClose, option.source, option.probability);
  --s_.depth;
  s_.stage = s_.depth == 0 ? Stage::kAfterCall : Stage::kMember;
}

void Pen::value_done() { s_.stage = Stage::kMember; }

// --- values ---

// How a scalar is written: as it is, or as the schema's type asks.
Pen::Scalar Pen::scalar(Said said, bool coerced) const {
  const JsonKind kind = said.at().kind;
  const int types = s_.value_node >= 0 ? tools_->node(s_.value_node).types : kAnyType;
  const bool numeric = (types & (kIntegerBit | kNumberBit)) != 0;
  const bool boolean = (types & kBooleanBit) != 0;
  const bool string = (types & kStringBit) != 0;
  switch (kind) {
    case JsonKind::kTrue:
    case JsonKind::kFalse:
      return {coerced && !boolean && string, kind == JsonKind::kTrue ? "true" : "false"};
    case JsonKind::kNull:
      return {false, "null"};
    case JsonKind::kNumber:
      return {coerced && !numeric && string, said.text()};
    default:
      break;
  }
  const std::string_view text = said.text();
  const bool bare =
      (numeric && is_json_number(text)) || (boolean && (text == "true" || text == "false"));
  return {!(coerced && !string && bare), text};
}

bool Pen::takes(Said said, bool coerced) const {
  if (!s_.resuming || s_.token.empty()) return true;
  if (said.at().kind >= JsonKind::kArray) return false;
  const Scalar value = scalar(said, coerced);
  return value.quoted ? match_quoted(s_.token, value.text, scratch_).ok
                      : value.text.starts_with(s_.token);
}

void Pen::gather_value() {
  if (s_.depth == 1) {  // of the call itself
    if (s_.role == Role::kArguments) add(OptionKind::kOpen, Source::kSchema, kForced, '{');
    return;
  }
  const std::int32_t node = s_.value_node;
  const auto choices = tools_ != nullptr ? tools_->choices(node) : std::span<const std::int32_t>();
  const bool known = node >= 0 && tools_->node(node).understood;
  const int types = known ? tools_->node(node).types : 0;
  float rest = kChoice;
  if (s_.value_said) {
    const bool container = s_.value_said.at().kind >= JsonKind::kArray;
    const bool other_type =
        !container && scalar(s_.value_said, true).quoted != scalar(s_.value_said, false).quoted;
    add(OptionKind::kHinted, Source::kHint, kHintValue);
    if (other_type) add(OptionKind::kHintedAsIs, Source::kHint, kHintOtherType);
    rest = kChoiceGivenHint;
  }
  for (const std::int32_t choice : choices.first(std::min<std::size_t>(choices.size(), 32))) {
    add(OptionKind::kChoice, Source::kSchema, rest / static_cast<float>(choices.size()), choice);
  }
  if (!choices.empty() || types == 0 || types == kAnyType) return;
  const int kinds = types & ~kNullBit;
  if ((types & kNullBit) != 0)
    add(OptionKind::kWord, Source::kSchema, kinds == 0 ? kForced : kNullable, 2);
  if (kinds == kBooleanBit) {
    add(OptionKind::kWord, Source::kSchema, rest / 2, 0);
    add(OptionKind::kWord, Source::kSchema, rest / 2, 1);
  } else if (!s_.value_said && (kinds == kStringBit || kinds == kObjectBit || kinds == kArrayBit)) {
    const char opening = kinds == kStringBit ? '"' : kinds == kObjectBit ? '{' : '[';
    add(OptionKind::kOpen, Source::kSchema, kOpening, opening);
  }
}

void Pen::gather_value_under_way() {
  const std::string_view token = s_.token;
  if (token[0] == 't' || token[0] == 'f' || token[0] == 'n') {
    return add(OptionKind::kWord, Source::kSchema, kForced,
               token[0] == 't'   ? 0
               : token[0] == 'f' ? 1
                                 : 2);
  }
  if (s_.value_said && takes(s_.value_said, true)) {
    add(OptionKind::kHinted, Source::kHint, kHintGoesOn);
  } else if (s_.value_said && takes(s_.value_said, false)) {
    add(OptionKind::kHintedAsIs, Source::kHint, kHintGoesOn);
  }
  const bool hinted = num_options_ > 0;
  const auto choices =
      tools_ != nullptr ? tools_->choices(s_.value_node) : std::span<const std::int32_t>();
  int fitting = 0;
  for (const std::int32_t choice : choices) fitting += takes({&tools_->document(), choice}, false);
  for (const std::int32_t choice : choices) {
    if (num_options_ >= 8 || !takes({&tools_->document(), choice}, false)) continue;
    add(OptionKind::kChoice, Source::kSchema,
        (hinted ? kCloseEarly : kChoice) / static_cast<float>(fitting), choice);
  }
  const bool string = token[0] == '"';
  if (string && num_options_ == 0) {
    scratch_.clear();
    if (append_unescaped(scratch_, token.substr(1)) == token.size() - 1) {
      add(OptionKind::kEndValue, Source::kSchema, kStringEnds);
    }
  } else if (!string && !hinted && reader_->number_is_complete()) {
    add(OptionKind::kEndValue, Source::kSchema, kNumberEnds);
  }
}

void Pen::apply_said(const Option& option, Said said, bool coerced) {
  if (s_.resuming && s_.token.empty())
    emit_gap(s_.top().level == Level::kArray ? "" : style().after_colon);
  const JsonKind kind = said.at().kind;
  if (kind >= JsonKind::kArray)
    return open_container(kind == JsonKind::kArray ? '[' : '{', option, said);
  const Scalar value = scalar(said, coerced);
  if (value.quoted) {
    emit_quoted(value.text);
  } else {
    emit_mark(value.text);
  }
  piece(PieceKind::kValue, option.source, option.probability);
  value_done();
}

void Pen::apply_literal(const Option& option) {
  constexpr std::array<std::string_view, 3> kWords = {"true", "false", "null"};
  if (s_.resuming && s_.token.empty())
    emit_gap(s_.top().level == Level::kArray ? "" : style().after_colon);
  if (option.kind == OptionKind::kOpen && option.arg != '"') {
    return open_container(static_cast<char>(option.arg), option, {});
  }
  if (option.kind == OptionKind::kWord) {
    emit_mark(kWords[static_cast<std::size_t>(option.arg)]);
  } else if (option.kind == OptionKind::kOpen) {
    emit_mark("\"");
  } else if (s_.token[0] == '"') {  // kEndValue
    path_->text.push_back('"');
  }
  end_resuming();
  piece(PieceKind::kValue, option.source, option.probability);
  s_.stage = option.kind == OptionKind::kOpen ? Stage::kDone : Stage::kMember;
}

void Pen::open_container(char bracket, const Option& option, Said said) {
  emit_mark(std::string_view(&bracket, 1));
  piece(PieceKind::kValue, option.source, option.probability);
  if (s_.depth == kMaxPenDepth) {
    s_.stage = Stage::kDone;
    return;
  }
  const PenFrame& outer = s_.top();
  PenFrame frame;
  frame.level = bracket == '[' ? Level::kArray : Level::kObject;
  frame.node = s_.value_node;
  frame.said = said;
  if (s_.depth == 1) {
    frame.level = Level::kArguments;
    if (!whole_.empty()) {
      frame.said = {&whole_arguments_[static_cast<std::size_t>(s_.call)], 0};
    } else if (s_.tool >= 0) {
      frame.node = tools_->tool(s_.tool).root;
    }
  }
  if (frame.level == Level::kArray && said && said.at().num_members > 0) {
    frame.next_item = static_cast<std::uint32_t>(said.node) + 1;
  }
  frame.lines = style().lines_of(frame.level);
  frame.indent = frame.outer_indent = outer.indent;
  if (frame.lines) {
    indentation_.replace(std::min<std::size_t>(outer.indent, indentation_.size()),
                         style().indent.size(), style().indent);
    frame.indent = static_cast<std::uint16_t>(outer.indent + style().indent.size());
  }
  s_.frames[static_cast<std::size_t>(s_.depth++)] = frame;
  s_.comma_done = false;
  s_.stage = Stage::kMember;
}

// --- where the reader stands ---

bool Pen::begin(const CallReader& reader, std::span<const StyleGuess> guesses,
                std::span<const Slots> slots, std::size_t max_bytes, int max_branches) {
  reader_ = &reader;
  tools_ = &reader.tools();
  slots_ = slots;
  whole_ = {};
  max_bytes_ = max_bytes;
  max_branches_ = static_cast<std::size_t>(max_branches);
  s_ = PenState();
  s_.resuming = true;
  set_styles(guesses.empty() ? usual_styles() : guesses);
  indentation_.assign(reader.base_indent());
  s_.base = static_cast<std::uint16_t>(indentation_.size());
  s_.in_list = reader.in_list();
  s_.call = static_cast<std::int32_t>(reader.calls().size());
  bool known = true;
  if (reader.in_call()) {
    known = reader.frames().size() <= kMaxPenDepth;
    if (known) begin_inside();
  } else {
    known = begin_outside();
  }
  start_ = s_;
  return known && s_.stage != Stage::kDone;
}

void Pen::set_styles(std::span<const StyleGuess> guesses) {
  std::uint64_t used = 0;
  num_styles_ = 0;
  const std::size_t n = std::min<std::size_t>(guesses.size(), 64);
  const auto weight = [&](std::size_t k) {
    return guesses[k].probability *
           (reader_->style().agrees_with(guesses[k].style) ? 1.0f : kStyleDisagrees);
  };
  while (num_styles_ < kMaxPenStyles) {
    std::size_t best = n;
    for (std::size_t k = 0; k < n; ++k) {
      if (((used >> k) & 1u) == 0 && (best == n || weight(k) > weight(best))) best = k;
    }
    if (best == n) break;
    used |= std::uint64_t{1} << best;
    const auto slot = static_cast<std::size_t>(num_styles_);
    styles_[slot] = reader_->style().filled_from(guesses[best].style);
    style_weight_[slot] = weight(best);
    const bool twin = std::find(styles_.begin(), styles_.begin() + num_styles_, styles_[slot]) !=
                      styles_.begin() + num_styles_;
    if (!twin) ++num_styles_;
  }
}

bool Pen::begin_outside() {
  const CallReader& reader = *reader_;
  const bool after = reader.after_call() && reader.has_pending();
  if (reader.spot() == Spot::kOpened) {
    if (!reader.has_pending()) return false;
    s_.before = reader.pending_open();
    s_.stage = Stage::kOpening;
    const bool fits =
        std::any_of(styles_.begin(), styles_.begin() + num_styles_, [&](const CallStyle& style) {
          opening_text(scratch_, style);
          return style.wrapper == reader.wrapper() && fits_wrapper(scratch_);
        });
    if (!fits) {  // a wrapper that no guess has
      styles_[0] = CallStyle::usual(reader.wrapper());
      style_weight_[0] = 1;
      num_styles_ = 1;
    }
    return true;
  }
  if (after) {
    s_.before = reader.spot() == Spot::kBetween ? reader.pending() : reader.pending_close();
    s_.stage = Stage::kAfterCall;
    --s_.call;
    return true;
  }
  if (reader.spot() != Spot::kProse) return false;
  s_.stage = Stage::kOpening;
  s_.in_list = false;
  if (reader.has_pending()) s_.before = reader.pending();
  const bool fits =
      reader.has_pending() &&
      std::any_of(styles_.begin(), styles_.begin() + num_styles_, [&](const CallStyle& style) {
        opening_text(scratch_, style);
        return scratch_.starts_with(s_.before);
      });
  if (!fits) s_.before = reader.partial_marker();
  return fits || s_.before.size() >= 2;
}

void Pen::begin_inside() {
  const CallReader& reader = *reader_;
  s_.gap = reader.gap();
  s_.token = reader.token();
  s_.tool = reader.tool();
  const Spot spot = reader.spot();
  s_.comma_done = spot == Spot::kNextKey || spot == Spot::kNextItem || spot == Spot::kKey;
  for (const Frame& frame : reader.frames()) add_frame(frame);
  PenFrame& top = s_.top();
  const Frame& frame = reader.frames().back();
  switch (spot) {
    case Spot::kColon:
      s_.stage = Stage::kColon;
      break;
    case Spot::kValue:
    case Spot::kString:
    case Spot::kNumber:
    case Spot::kLiteral:
      s_.stage = Stage::kValue;
      break;
    default:
      s_.stage = Stage::kMember;
      return;
  }
  s_.value_said = said_of_member(frame, top);
  if (top.level == Level::kArray) {
    s_.value_node = frame.node >= 0 ? tools_->node(frame.node).items : -1;
  } else if (frame.property >= 0) {
    s_.value_node = tools_->properties(frame.node)[static_cast<std::size_t>(frame.property)].node;
  }
  if (s_.depth > 1) return;
  const std::string_view key =
      reader.call_text().substr(frame.key_begin, frame.key_end - frame.key_begin);
  s_.role = key == "name"                               ? Role::kName
            : key == "type"                             ? Role::kType
            : key == "arguments" || key == "parameters" ? Role::kArguments
                                                        : Role::kOther;
  if (s_.role == Role::kName && spot != Spot::kColon) s_.stage = Stage::kFunction;
  if (s_.role == Role::kArguments && spot != Spot::kColon && spot != Spot::kValue)
    s_.stage = Stage::kDone;
}

// Takes over an open container of the text.
void Pen::add_frame(const Frame& frame) {
  const CallReader& reader = *reader_;
  PenFrame out;
  out.level = frame.level;
  out.node = frame.node;
  out.num_members = frame.num_members;
  const std::size_t depth = static_cast<std::size_t>(s_.depth);
  if (depth > 1) {
    out.said = said_of_member(reader.frames()[depth - 1], s_.top());
    const JsonKind kind = frame.level == Level::kArray ? JsonKind::kArray : JsonKind::kObject;
    if (out.said && out.said.at().kind != kind) out.said = {};
  }
  const std::uint16_t outer = depth > 0 ? s_.top().indent : s_.base;
  out.indent = out.outer_indent = outer;
  const std::string_view gap =
      frame.num_members > 0
          ? reader.call_text().substr(frame.gap_begin, frame.gap_end - frame.gap_begin)
          : s_.gap;
  out.lines =
      frame.num_members == 0 && gap.empty() ? style().lines_of(frame.level) : has_line_break(gap);
  if (frame.num_members > 0 && out.lines) {
    const std::string_view indent = gap.substr(gap.rfind('\n') + 1);
    indentation_.assign(indent);
    out.indent = static_cast<std::uint16_t>(std::min<std::size_t>(indent.size(), 1024));
    out.outer_indent = std::min(out.outer_indent, out.indent);
  } else if (out.lines) {
    indentation_.replace(std::min<std::size_t>(outer, indentation_.size()), style().indent.size(),
                         style().indent);
    out.indent = static_cast<std::uint16_t>(outer + style().indent.size());
  }
  // what it has already
  const auto& keys = reader.keys();
  const std::size_t end =
      depth + 1 < reader.frames().size() ? reader.frames()[depth + 1].first_key : keys.size();
  const auto written = std::span(keys).subspan(frame.first_key, end - frame.first_key);
  if (frame.level == Level::kArray) {
    if (out.said) {
      std::uint32_t item = static_cast<std::uint32_t>(out.said.node) + 1;
      for (std::uint32_t k = 0; k < frame.num_members && item < out.said.at().next; ++k) {
        item = out.said.json->node(static_cast<int>(item)).next;
      }
      out.next_item = item < out.said.at().next ? item : 0;
    }
  } else if (depth == 0) {
    for (const WrittenKey& key : written) {
      if (key.hash == hash_bytes("name")) out.written |= kNameBitOfCall;
      if (key.hash == hash_bytes("type")) out.written |= kTypeBitOfCall;
      if (key.hash == hash_bytes("arguments") || key.hash == hash_bytes("parameters"))
        out.written |= kArgumentsBitOfCall;
    }
  } else {
    std::array<Member, kMaxMembers> all;
    const int n = out.said ? members(out, all) : -1;
    for (const WrittenKey& key : written) {
      int k = key.property;
      if (out.said) {
        for (k = n - 1; k >= 0 && hash_bytes(all[static_cast<std::size_t>(k)].name) != key.hash;)
          --k;
      }
      if (k < 0 || k >= kMaxMembers) continue;
      out.written |= std::uint64_t{1} << k;
      out.descending = out.last >= 0 && k < out.last;
      out.last = k;
    }
  }
  s_.frames[static_cast<std::size_t>(s_.depth++)] = out;
}

// What hints say of the member that is under way in `frame`.
Said Pen::said_of_member(const Frame& frame, const PenFrame& pen_frame) const {
  const CallReader& reader = *reader_;
  if (frame.level == Level::kCall) return {};
  if (frame.level == Level::kArray) {
    if (!pen_frame.said) return {};
    std::uint32_t item = static_cast<std::uint32_t>(pen_frame.said.node) + 1;
    for (std::uint32_t k = 1; k < frame.num_members && item < pen_frame.said.at().next; ++k) {
      item = pen_frame.said.json->node(static_cast<int>(item)).next;
    }
    return item < pen_frame.said.at().next
               ? Said{pen_frame.said.json, static_cast<std::int32_t>(item)}
               : Said{};
  }
  if (frame.level == Level::kArguments) {
    const Slots* slots = slots_of(s_.call);
    const JsonValue* said =
        slots != nullptr && frame.property >= 0 ? slots->find(s_.tool, frame.property) : nullptr;
    return said != nullptr ? Said{said, 0} : Said{};
  }
  if (!pen_frame.said) return {};
  scratch_.clear();
  append_unescaped(scratch_,
                   reader.call_text().substr(frame.key_begin, frame.key_end - frame.key_begin));
  const int found = pen_frame.said.json->find(pen_frame.said.node, scratch_);
  return found >= 0 ? Said{pen_frame.said.json, found} : Said{};
}

// --- paths ---

void Pen::write_main(TextPath& path) {
  path.text.clear();
  path.pieces.clear();
  path.shared = 0;
  path.probability = 1;
  path.ends_answer = false;
  path_ = &path;
  s_ = start_;
  reach_ = 1;
  num_branches_ = 0;
  recording_ = true;
  run(nullptr);
  recording_ = false;
  std::sort(branches_.begin(), branches_.begin() + static_cast<std::ptrdiff_t>(num_branches_),
            [](const Branch& a, const Branch& b) { return a.reach > b.reach; });
}

void Pen::write_branch(const Branch& branch, const TextPath& main, TextPath& path) {
  path.text.assign(main.text, 0, branch.num_bytes);
  path.pieces.assign(main.pieces.begin(), main.pieces.begin() + branch.num_pieces);
  path.probability = branch.option.probability;
  path.ends_answer = false;
  path_ = &path;
  s_ = branch.state;
  run(&branch.option);
  const auto diverges =
      std::mismatch(path.text.begin(), path.text.end(), main.text.begin(), main.text.end());
  path.shared = static_cast<std::uint32_t>(diverges.first - path.text.begin());
}

void Pen::write_whole(std::span<const RenderedCall> calls, std::span<const JsonValue> arguments,
                      const CallStyle& style, TextPath& path) {
  static const CallReader reader(ToolSet::parse("[]"));
  const StyleGuess guess{style, 1.0f};
  begin(reader, {&guess, 1}, {}, ~std::size_t{0}, 0);
  styles_[0] = style;
  whole_ = calls;
  whole_arguments_ = arguments;
  s_.stage = Stage::kOpening;
  start_ = s_;
  write_main(path);
  whole_ = {};
}

}  // namespace ooospec
