// SPDX-License-Identifier: Apache-2.0
#include "call/pen.h"

#include <algorithm>
#include <bit>

#include "call/priors.h"

namespace ooospec {

using namespace priors;

namespace {

constexpr std::size_t kLeastBranchBytes = 16;    // of a path beside the main one,
constexpr float kBranchBytesPerChance = 256.0f;  // and more the likelier it is

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
// is that one; returns the bytes of `text` it stands for, or 0.
std::size_t finish_escape(std::string* out, std::string_view text, std::string_view partial) {
  if (text.empty()) return 0;
  const std::size_t size = code_point_size(text);
  for (const bool ascii : {false, true}) {
    std::string escape;
    append_escaped(escape, text.substr(0, size), {ascii, true});
    const std::string_view head = std::string_view(escape).substr(0, partial.size());
    if (escape[0] != '\\' || !same_letters(head, partial)) continue;
    if (out != nullptr) out->append(escape, partial.size());
    return size;
  }
  return 0;
}

}  // namespace

BegunString match_begun(std::string_view token, std::string_view text, std::string& scratch) {
  if (token.empty()) return {true, 0, {}};
  const std::string_view raw = token.substr(1);
  if (token[0] != '"' || raw.size() > 6 * text.size()) return {};
  if (raw.find('\\') == std::string_view::npos) return {text.starts_with(raw), raw.size(), {}};
  scratch.clear();
  const std::string_view partial = raw.substr(append_unescaped(scratch, raw));
  if (!text.starts_with(scratch)) return {};
  const std::string_view rest = text.substr(scratch.size());
  if (!partial.empty() && finish_escape(nullptr, rest, partial) == 0) return {};
  return {true, scratch.size(), partial};
}

std::uint32_t Said::child(std::uint32_t k) const {
  std::uint32_t i = static_cast<std::uint32_t>(idx) + 1;
  const std::uint32_t end = node().next;
  for (; k > 0 && i < end; --k) i = json->node(static_cast<int>(i)).next;
  return i < end ? i : 0;
}

PenState& PenState::operator=(const PenState& other) {
  value_said = other.value_said;
  value_node = other.value_node;
  call = other.call;
  tool = other.tool;
  base = other.base;
  stage = other.stage;
  role = other.role;
  comma_done = other.comma_done;
  in_list = other.in_list;
  other_spelling = other.other_spelling;
  resuming = other.resuming;
  style = other.style;
  depth = other.depth;
  gap = other.gap;
  token = other.token;
  before = other.before;
  std::copy_n(other.frames.begin(), other.depth, frames.begin());
  return *this;
}

// --- paths ---

void Pen::start_path(TextPath& path) {
  path.text.clear();
  path.pieces.clear();
  path.shared = 0;
  path.probability = 1;
  path.ends_answer = false;
  path_ = &path;
  path_end_ = max_bytes_;
  s_ = start_;
  reach_ = 1;
}

bool Pen::write_key(int parameter, TextPath& path) {
  start_path(path);
  if (s_.depth != 2 || s_.stage != Stage::kMember || !s_.begun().empty()) return false;
  if (parameter < 0 || parameter >= members(s_.top()).size) return false;
  apply({OptionKind::kKey, Source::kSchema, 1.0f, parameter});
  return true;
}

void Pen::write_main(TextPath& path) {
  start_path(path);
  num_branches_ = 0;
  least_reach_ = 0;
  recording_ = max_branches_ > 0;
  if (recording_ && s_.stage != Stage::kOpening) {
    float sum = 0;
    for (int k = 0; k < num_styles_; ++k) sum += style_weight_[static_cast<std::size_t>(k)];
    for (int k = 1; k < num_styles_; ++k) {
      const float weight = style_weight_[static_cast<std::size_t>(k)] / sum;
      if (weight >= kLeastStyle) remember({OptionKind::kRestyle, Source::kSchema, weight, k});
    }
  }
  run(nullptr);
  recording_ = false;
  ranked_.resize(num_branches_);
  for (std::size_t k = 0; k < num_branches_; ++k) ranked_[k] = static_cast<std::uint32_t>(k);
  std::sort(ranked_.begin(), ranked_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return branches_[a].reach > branches_[b].reach ||
           (branches_[a].reach == branches_[b].reach && a < b);
  });
}

void Pen::write_branch(std::size_t k, const TextPath& main, TextPath& path) {
  const Branch& branch = branches_[ranked_[k]];
  path.text.assign(main.text, 0, branch.num_bytes);
  path.pieces.assign(main.pieces.begin(), main.pieces.begin() + branch.num_pieces);
  path.probability = branch.option.probability;
  path.ends_answer = false;
  path_ = &path;
  // In steps, so that a path keeps its length, and its tokens, while it gets likelier.
  const auto more = std::bit_floor(static_cast<std::size_t>(branch.reach * kBranchBytesPerChance));
  path_end_ = std::min(max_bytes_, branch.num_bytes + kLeastBranchBytes + more);
  s_ = branch.state;
  run(&branch.option);
  const auto differ = std::mismatch(path.text.begin() + branch.num_bytes, path.text.end(),
                                    main.text.begin() + branch.num_bytes, main.text.end());
  path.shared = static_cast<std::uint32_t>(differ.first - path.text.begin());
  if (branch.option.kind != OptionKind::kRestyle) return;
  for (Piece& piece : path.pieces) {  // the first piece that is not as in the main path
    if (piece.end <= path.shared) continue;
    piece.probability *= path.probability;
    break;
  }
}

void Pen::write_whole(std::span<const RenderedCall> calls, std::span<const JsonValue> arguments,
                      const CallStyle& style, TextPath& path) {
  static const CallReader nothing(ToolSet::parse("[]"));
  const StyleGuess guess{style, 1.0f};
  begin(nothing, {&guess, 1}, {}, ~std::size_t{0}, 0);
  whole_ = calls;
  whole_arguments_ = arguments;
  write_main(path);
  whole_ = {};
}

// --- deciding ---

void Pen::add(OptionKind kind, Source source, float probability, std::int32_t arg) {
  if (num_options_ < options_.size()) options_[num_options_++] = {kind, source, probability, arg};
}

void Pen::remember(const Option& option) {
  const float reach = reach_ * option.probability;
  if (reach <= least_reach_) return;
  if (num_branches_ < max_branches_) {
    if (branches_.size() == num_branches_) branches_.emplace_back();
    least_branch_ = num_branches_++;
  }
  Branch& branch = branches_[least_branch_];
  branch.reach = reach;
  branch.option = option;
  branch.num_bytes = static_cast<std::uint32_t>(path_->text.size());
  branch.num_pieces = static_cast<std::uint32_t>(path_->pieces.size());
  branch.state = s_;
  if (num_branches_ < max_branches_) return;
  least_branch_ = 0;
  for (std::size_t k = 1; k < num_branches_; ++k) {
    if (branches_[k].reach < branches_[least_branch_].reach) least_branch_ = k;
  }
  least_reach_ = branches_[least_branch_].reach;
}

void Pen::run(const Option* forced) {
  while (s_.stage != Stage::kDone && path_->text.size() < path_end_ && !has_value()) {
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
    for (std::size_t k = 0; recording_ && k < num_options_; ++k) {
      if (k != best) remember(options_[k]);
    }
    const Option option = options_[best];
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
      if (s_.depth == 1) return gather_call_value();
      return s_.begun().empty() ? gather_value() : gather_value_under_way();
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
    case OptionKind::kRestyle:
      return restyle(option.arg);
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
    case OptionKind::kHintEscaped:
      s_.other_spelling = !s_.other_spelling;
      [[fallthrough]];
    case OptionKind::kHinted:
      return apply_said(option, s_.value_said, true);
    case OptionKind::kHintedAsIs:
      return apply_said(option, s_.value_said, false);
    case OptionKind::kChoice:
      return apply_choice(option);
    case OptionKind::kEndAnswer:
      return apply_ending(option);
    case OptionKind::kSpan:
      return apply_span(option);
    default:
      return apply_literal(option);
  }
}

// Goes on in another style; only what is still open can differ.
void Pen::restyle(int style_idx) {
  s_.style = static_cast<std::int8_t>(style_idx);
  if (s_.depth == 0) return;
  PenFrame& frame = s_.top();
  if (frame.num_members > 0 || !s_.gap.empty()) return;
  frame.lines = style().lines_of(frame.level);
  frame.indent = frame.outer_indent;
  if (!frame.lines) return;
  indentation_.replace(frame.indent, std::string::npos, style().indent);
  frame.indent = static_cast<std::uint16_t>(indentation_.size());
}

// --- emitting ---

void Pen::end_resuming() {
  s_.resuming = false;
  s_.gap = s_.token = s_.before = {};
}

void Pen::piece(PieceKind kind, Source source, float probability) {
  std::vector<Piece>& pieces = path_->pieces;
  const auto end = static_cast<std::uint32_t>(path_->text.size());
  const bool empty = end == (pieces.empty() ? 0 : pieces.back().end);
  if (empty && kind != PieceKind::kEnd) return;
  pieces.push_back({end, source, kind, probability});
  reach_ *= probability;
}

// White space. What the text has of it already stays, whatever it is.
void Pen::emit_gap(std::string_view expected) {
  if (!s_.resuming) {
    append(expected);
  } else if (s_.token.empty() && expected.starts_with(s_.gap)) {
    append(expected.substr(s_.gap.size()));
  }
}

void Pen::emit_line(std::size_t indent) {
  const std::string_view white = std::string_view(indentation_).substr(0, indent);
  if (!s_.resuming) {
    path_->text.push_back('\n');
    append(white);
  } else if (s_.token.empty() && s_.gap.empty()) {
    path_->text.push_back('\n');
    append(white);
  } else if (s_.token.empty() && s_.gap[0] == '\n' && white.starts_with(s_.gap.substr(1))) {
    append(white.substr(s_.gap.size() - 1));
  }
}

// What stands before a member of the innermost container.
void Pen::emit_comma_and_gap() {
  PenFrame& frame = s_.top();
  if (!s_.comma_done && frame.num_members > 0) {
    emit_gap(style().before_comma);
    emit_mark(",");
  }
  s_.comma_done = false;
  if (frame.lines) {
    emit_line(frame.indent);
  } else if (frame.num_members > 0) {
    emit_gap(style().after_comma);
  } else {
    emit_gap(frame.level == Level::kArray ? style().array_pad : style().pad);
  }
  ++frame.num_members;
}

void Pen::emit_mark(std::string_view mark) {
  if (s_.resuming) {
    mark.remove_prefix(std::min(mark.size(), s_.token.size()));
    end_resuming();
  }
  append(mark);
}

void Pen::emit_quoted(std::string_view text, bool plain) {
  std::string& out = path_->text;
  if (s_.begun().empty()) {
    out.push_back('"');
  } else {
    const BegunString begun = match_begun(s_.token, text, scratch_);
    text.remove_prefix(begun.size);
    if (!begun.partial.empty()) {
      const bool wide = static_cast<unsigned char>(text[0]) >= 0x80;
      if (wide) s_.other_spelling = !style().spelling.ascii;  // what is escaped once is always
      text.remove_prefix(finish_escape(&out, text, begun.partial));
    }
  }
  if (s_.resuming) end_resuming();
  append_string(text, plain);
}

// The rest of a string, and the quote that closes it.
void Pen::append_string(std::string_view text, bool plain) {
  if (plain) {
    append(text);
  } else {
    append_escaped(path_->text, text, spelling());
  }
  path_->text.push_back('"');
}

void Pen::emit_colon() {
  emit_gap(style().before_colon);
  emit_mark(":");
  append(style().after_colon);
}

JsonSpelling Pen::spelling() const {
  JsonSpelling spelling = style().spelling;
  spelling.ascii ^= s_.other_spelling;
  return spelling;
}

// Is the string or key under way, if there is one, the beginning of `text`?
bool Pen::begins(std::string_view text) const {
  return s_.begun().empty() || match_begun(s_.token, text, scratch_).ok;
}

}  // namespace ooospec
