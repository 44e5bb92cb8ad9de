// SPDX-License-Identifier: Apache-2.0
//
// Values: what hints say, what schemas allow, and how a value goes on that left its hint.
#include <algorithm>
#include <bit>

#include "call/pen.h"
#include "call/priors.h"

namespace ooospec {

using namespace priors;

namespace {

constexpr std::size_t kMaxChoices = 32;
constexpr std::size_t kMaxOtherSlots = 2;
constexpr std::size_t kMaxSpans = 8;
constexpr std::size_t kLongestOverlap = 12, kShortestOverlap = 3;
constexpr std::array<std::string_view, 3> kWords = {"true", "false", "null"};

}  // namespace

// How a scalar is written: as it is, or, for a parameter, as the schema's type asks.
Pen::Scalar Pen::scalar(Said said, bool coerced) const {
  coerced &= s_.depth == 2;
  const JsonNode& node = said.node();
  const int types = s_.value_node >= 0 ? tools_->node(s_.value_node).types : kAnyType;
  const bool numeric = (types & (kIntegerBit | kNumberBit)) != 0;
  const bool boolean = (types & kBooleanBit) != 0;
  const bool string = (types & kStringBit) != 0;
  switch (node.kind) {
    case JsonKind::kTrue:
      return {coerced && !boolean && string, true, "true"};
    case JsonKind::kFalse:
      return {coerced && !boolean && string, true, "false"};
    case JsonKind::kNull:
      return {false, true, "null"};
    case JsonKind::kNumber:
      return {coerced && !numeric && string, true, said.text()};
    default:
      break;
  }
  const std::string_view text = said.text();
  const bool bare =
      coerced && !string &&
      ((numeric && is_json_number(text)) || (boolean && (text == kWords[0] || text == kWords[1])));
  return {!bare, node.plain, text};
}

// Is what the text has of the value, if anything, the beginning of `said`?
bool Pen::takes(Said said, bool coerced) const {
  if (s_.begun().empty()) return true;
  if (said.is_container()) return false;
  const Scalar value = scalar(said, coerced);
  return value.quoted ? begins(value.text) : value.text.starts_with(s_.token);
}

// --- a value to begin ---

void Pen::gather_value() {
  const std::int32_t node = s_.value_node;
  const auto choices = tools_->choices(node);
  float rest = kChoice;
  if (s_.value_said) {
    rest = kChoiceGivenHint;
    add(OptionKind::kHintedAsIs, Source::kHint, kHintValue);
    if (!recording_) return;
    if (!s_.value_said.is_container()) {
      const Scalar said = scalar(s_.value_said, false);
      if (said.quoted != scalar(s_.value_said, true).quoted) {
        add(OptionKind::kHinted, Source::kHint, kHintOtherType);
      }
      const bool ascii_seen = (reader_->style().seen & kAsciiFacet) != 0;
      const auto wide = [](char c) { return static_cast<unsigned char>(c) >= 0x80; };
      if (said.quoted && !said.plain && !ascii_seen &&
          std::any_of(said.text.begin(), said.text.end(), wide)) {
        add(OptionKind::kHintEscaped, Source::kHint, kHintEscaped);
      }
    }
  }
  const bool known = node >= 0 && tools_->node(node).understood;
  const bool closed = !choices.empty() && (!known || tools_->node(node).only_choices);
  if (!choices.empty() && !closed) rest /= 2;
  for (const std::int32_t choice : choices.first(std::min(choices.size(), kMaxChoices))) {
    const float p = rest / static_cast<float>(choices.size());
    add(OptionKind::kChoice, Source::kSchema, p, choice);
  }
  const int types = known ? tools_->node(node).types : 0;
  if (closed || types == 0 || types == kAnyType) return;
  const int kinds = types & ~kNullBit;
  if (kinds != types) {
    add(OptionKind::kWord, Source::kSchema, kinds == 0 ? kForced : kNullable, 2);
  }
  if (kinds == kBooleanBit) {
    add(OptionKind::kWord, Source::kSchema, rest / 2, 0);
    add(OptionKind::kWord, Source::kSchema, rest / 2, 1);
  } else if (!s_.value_said && !gather_spans()) {
    const int num_kinds = std::popcount(
        static_cast<unsigned>((kinds & kIntegerBit) != 0 ? kinds & ~kNumberBit : kinds));
    const float share = kOpening / static_cast<float>(num_kinds);
    if ((kinds & kStringBit) != 0) add(OptionKind::kOpen, Source::kSchema, share, '"');
    if ((kinds & kObjectBit) != 0) add(OptionKind::kOpen, Source::kSchema, share, '{');
    if ((kinds & kArrayBit) != 0) add(OptionKind::kOpen, Source::kSchema, share, '[');
  }
}

// The value is not said: spans of the request, of the type that is asked for. Returns whether the
// main path should be led through one.
bool Pen::gather_spans() {
  if (request_ == nullptr) return false;
  const auto spans = request_->of(s_.value_node);
  for (std::size_t k = 0; k < std::min(spans.size(), kMaxSpans); ++k) {
    if (spans[k].probability < kSpanEnough) break;
    add(OptionKind::kSpan, Source::kSpan, spans[k].probability, static_cast<std::int32_t>(k));
  }
  return !spans.empty() && spans[0].probability >= kSpanLeads;
}

void Pen::apply_said(const Option& option, Said said, bool coerced) {
  if (s_.resuming && s_.token.empty()) emit_gap(style().after_colon);
  if (said.is_container()) {
    return open_container(said.node().kind == JsonKind::kArray ? '[' : '{', option, said);
  }
  const Scalar value = scalar(said, coerced);
  if (value.quoted) {
    emit_quoted(value.text, value.plain);
  } else {
    emit_mark(value.text);
  }
  piece(PieceKind::kValue, option.source, option.probability);
  s_.stage = Stage::kMember;
}

void Pen::open_container(char bracket, const Option& option, Said said) {
  emit_mark(std::string_view(&bracket, 1));
  piece(PieceKind::kValue, option.source, option.probability);
  s_.stage = Stage::kMember;
  s_.comma_done = false;
  if (s_.depth == kMaxPenDepth) {
    s_.stage = Stage::kDone;
    return;
  }
  const std::uint16_t outer = s_.top().indent;
  ++s_.depth;
  PenFrame& frame = s_.top() = PenFrame();
  frame.level = bracket == '[' ? Level::kArray : Level::kObject;
  frame.node = s_.value_node;
  frame.said = said;
  if (s_.depth == 2) {
    frame.level = Level::kArguments;
    if (!whole_.empty()) {
      frame.said = {&whole_arguments_[static_cast<std::size_t>(s_.call)], 0};
    } else if (s_.tool >= 0) {
      frame.node = tools_->tool(s_.tool).root;
    }
  }
  if (frame.node >= 0 && !tools_->node(frame.node).understood) frame.node = -1;
  if (frame.level == Level::kArray && said) frame.next_item = said.child(0);
  frame.lines = style().lines_of(frame.level);
  frame.indent = frame.outer_indent = outer;
  if (!frame.lines) return;
  indentation_.replace(std::min<std::size_t>(outer, indentation_.size()), style().indent.size(),
                       style().indent);
  frame.indent = static_cast<std::uint16_t>(outer + style().indent.size());
}

// --- a scalar under way ---

void Pen::gather_value_under_way() {
  const char first = s_.token[0];
  if (first == 't' || first == 'f' || first == 'n') {
    const int word = first == 't' ? 0 : first == 'f' ? 1 : 2;
    return add(OptionKind::kWord, Source::kSchema, kForced, word);
  }
  if (s_.value_said && takes(s_.value_said, false)) {
    add(OptionKind::kHintedAsIs, Source::kHint, kHintGoesOn);
  } else if (s_.value_said && takes(s_.value_said, true)) {
    add(OptionKind::kHinted, Source::kHint, kHintGoesOn);
  }
  const bool hinted = num_options_ > 0;
  const auto all = tools_->choices(s_.value_node);
  const auto choices = all.first(std::min(all.size(), kMaxChoices));
  int fitting = 0;
  for (const std::int32_t choice : choices) fitting += takes({&tools_->document(), choice}, false);
  const float p = (hinted ? kHintEndsEarly : kChoice) / static_cast<float>(std::max(fitting, 1));
  for (const std::int32_t choice : choices) {
    const bool fits = takes({&tools_->document(), choice}, false);
    if (fits) add(OptionKind::kChoice, Source::kSchema, p, choice);
  }
  if (first == '"') {
    if (!hinted && fitting == 0) gather_string_recovery();
    const bool spans = !hinted && fitting == 0 && gather_spans_under_way();
    const float ends = hinted || fitting > 0 || spans ? kHintEndsEarly : kStringEnds;
    if (!reader_->in_escape()) add(OptionKind::kEndValue, Source::kSchema, ends);
  } else if (!hinted && fitting == 0) {
    gather_spans_under_way();
    if (reader_->number_is_complete()) add(OptionKind::kEndValue, Source::kSchema, kNumberEnds);
  }
}

// Spans that begin as the value has begun. Returns whether there are any.
bool Pen::gather_spans_under_way() {
  if (request_ == nullptr || s_.value_node < 0) return false;
  const bool string = s_.token[0] == '"';
  if (string != ((tools_->node(s_.value_node).types & kStringBit) != 0)) return false;
  const auto spans = request_->of(s_.value_node);
  const std::size_t first = num_options_;
  float sum = 0;
  for (std::size_t k = 0; k < spans.size() && num_options_ < first + kMaxSpans; ++k) {
    const std::string_view text = spans[k].text;
    if (!(string ? begins(text) : text.starts_with(s_.token))) continue;
    sum += spans[k].probability;
    add(OptionKind::kSpan, Source::kSpan, spans[k].probability, static_cast<std::int32_t>(k));
  }
  const bool told = s_.token.size() > (string ? 1 : 0);  // that the others are out
  for (std::size_t k = first; told && k < num_options_; ++k) {
    options_[k].probability *= kSpanGoesOn / sum;
  }
  return num_options_ > first;
}

// A string that is not what was said of it: perhaps what was said of another parameter, or what was
// said, but for a part that lies behind now.
void Pen::gather_string_recovery() {
  const Slots* slots = slots_of(s_.call);
  const std::size_t begun = s_.token.size() - 1;
  if (slots != nullptr && begun >= kShortestOverlap) {
    std::size_t found = 0;
    std::int32_t k = 0;
    for (const Slots::Entry& entry : slots->entries()) {
      const bool fits = entry.value.kind() == JsonKind::kString && takes({&entry.value, 0}, false);
      if (fits && found++ < kMaxOtherSlots) {
        add(OptionKind::kOtherSlot, Source::kHint, kOtherSlot, k);
      }
      ++k;
    }
  }
  if (s_.value_said && s_.value_said.node().kind == JsonKind::kString) {
    const std::int32_t at = resume_at(s_.value_said.text());
    if (at > 0) add(OptionKind::kResume, Source::kHint, kHintResumes, at);
  }
}

// Where in `said` a string goes on that ends as the text does now; 0 if nowhere.
std::int32_t Pen::resume_at(std::string_view said) const {
  const std::string_view begun = s_.token.substr(1);
  const std::string_view tail =
      begun.substr(begun.size() - std::min(begun.size(), kLongestOverlap));
  if (tail.find('\\') != std::string_view::npos) return 0;
  for (std::size_t size = tail.size(); size >= kShortestOverlap; --size) {
    const std::size_t at = said.find(tail.substr(tail.size() - size));
    if (at != std::string_view::npos && at + size < said.size()) {
      return static_cast<std::int32_t>(at + size);
    }
  }
  return 0;
}

void Pen::apply_choice(const Option& option) {
  const Said choice{&tools_->document(), option.arg};
  PenFrame& frame = s_.top();
  const bool of_property = frame.level == Level::kObject && !frame.said && frame.node >= 0;
  if (of_property && frame.last >= 0 && choice.node().kind == JsonKind::kString) {
    frame.ruled_out |= tools_->ways_without(frame.node, frame.last, choice.text());
  }
  apply_said(option, choice, false);
}

void Pen::apply_span(const Option& option) {
  if (s_.resuming && s_.token.empty()) emit_gap(style().after_colon);
  const auto spans = request_->of(s_.value_node);
  const RequestSpans::Span& span = spans[static_cast<std::size_t>(option.arg)];
  if ((tools_->node(s_.value_node).types & kStringBit) == 0) {
    emit_mark(span.text);
  } else if (s_.begun().empty()) {
    emit_mark("\"");  // a piece of its own: it comes with every string
    piece(PieceKind::kValue, Source::kSchema, kOpening);
    append_string(span.text, span.plain);
  } else {
    emit_quoted(span.text, span.plain);
  }
  if (s_.resuming) end_resuming();
  piece(PieceKind::kValue, option.source, option.probability);
  s_.stage = Stage::kMember;
}

void Pen::apply_literal(const Option& option) {
  if (s_.resuming && s_.token.empty()) emit_gap(style().after_colon);
  const bool open = option.kind == OptionKind::kOpen;
  if (open && option.arg != '"') {
    return open_container(static_cast<char>(option.arg), option, {});
  }
  switch (option.kind) {
    case OptionKind::kWord:
      emit_mark(kWords[static_cast<std::size_t>(option.arg)]);
      break;
    case OptionKind::kTypeWord:
      emit_quoted("function", true);
      break;
    case OptionKind::kOpen:
      emit_mark("\"");
      break;
    case OptionKind::kOtherSlot: {
      const Slots::Entry& entry =
          slots_of(s_.call)->entries()[static_cast<std::size_t>(option.arg)];
      emit_quoted(entry.value.text(), entry.value.node(0).plain);
      break;
    }
    case OptionKind::kResume:
      append_escaped(path_->text, s_.value_said.text().substr(static_cast<std::size_t>(option.arg)),
                     spelling());
      path_->text.push_back('"');
      break;
    default:  // kEndValue
      if (s_.token[0] == '"') path_->text.push_back('"');
  }
  if (s_.resuming) end_resuming();
  piece(PieceKind::kValue, option.source, option.probability);
  s_.stage = open ? Stage::kDone : Stage::kMember;
}

}  // namespace ooospec
