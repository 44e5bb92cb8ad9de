// SPDX-License-Identifier: Apache-2.0
// Texts that the call may go on with, tokenised, each token with the piece that it is part of.
#include <algorithm>

#include "draft/drafter.h"
#include "draft/drafter_numbers.h"

namespace ooospec {

namespace {

constexpr std::array<float, kNumOrigins> kWithinClaims = {0.98F, 0.98F, 0.9F};
constexpr float kUnstable = 0.7F;            // of a last token that more text might change
constexpr int kMainNodes = 8;                // nodes that only the likeliest text gets,
constexpr int kNodesPerBranch = 7;           // and for how many more there is a branch
constexpr std::size_t kMaxTextBytes = 4096;  // of a drafted text

std::size_t origin(const Piece& piece) {
  return piece.source == Source::kHint ? 1 : piece.source == Source::kSpan ? 2 : 0;
}

}  // namespace

// Says of each token of a tokenised text which piece it opens or goes on with.
void Drafter::label_text(const TextPath& text, Proposal& proposal) const {
  const std::size_t num_tokens = proposal.path.tokens.size();
  const std::uint32_t begin = proposal.own > 0 ? main_path_.ends[proposal.own - 1] : 0;
  std::size_t piece = 0;
  std::uint32_t start = 0;
  while (piece < text.pieces.size() && text.pieces[piece].end <= begin) {
    start = text.pieces[piece++].end;
  }
  bool opened = start < begin;  // the first token of `piece` has been seen
  for (std::size_t i = 0; i < num_tokens; ++i) {
    // A branch may leave the main path inside a piece: there its choice is taken.
    if (i == 0 && opened && proposal.base >= 0) opened = false;
    // A token may reach over several pieces: then it is right only if all of them are.
    float claim = 1.0F;
    if (opened && piece < text.pieces.size()) claim = kWithinClaims[origin(text.pieces[piece])];
    std::size_t rate = kWithinPiece;
    Source source = Source::kSchema;
    for (bool first = true; piece < text.pieces.size(); first = false) {
      const Piece& p = text.pieces[piece];
      if (!first && start >= proposal.path.ends[i]) break;
      if (!opened) {
        claim *= p.probability;
        rate = kPieceRates + kNumOrigins * static_cast<std::size_t>(p.kind) + origin(p);
        opened = true;
      } else if (first) {
        rate = kWithinPiece + origin(p);
      }
      if (first || origin(p) > 0) source = p.source;
      if (p.end > proposal.path.ends[i]) break;
      start = p.end;
      ++piece;
      opened = false;
      if (p.end == proposal.path.ends[i]) break;
    }
    proposal.claimed.push_back(claim);
    proposal.rates.push_back(static_cast<std::uint8_t>(rate));
    proposal.sources.push_back(source);
  }
}

// Writes the texts that may come and tokenises them: texts_[0] to `main`, the others to the
// tokenizer's memory.
void Drafter::write_texts(const CallReader& reader, TokenPath& main) {
  const int max_paths = 1 + std::max(budget_ - kMainNodes, 0) / kNodesPerBranch;
  writer_->write_on(reader, styles_, slots_, max_paths, texts_, kMaxTextBytes, one_value_);
  main.clear();
  if (texts_.empty()) return;
  tokenizer_.tokenise(texts_[0].text, main);
  for (const TextPath& branch : std::span(texts_).subspan(1)) {
    tokenizer_.expect_branch(branch.text, branch.shared, main);
  }
  tokenizer_.encode_expected();
}

void Drafter::propose_text() {
  write_texts(reader_, main_path_);
  const std::size_t main = num_proposals_;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const TextPath& text = texts_[i];
    Proposal& proposal = next_proposal();
    TokenPath& path = proposal.path;
    if (i == 0) {
      path = main_path_;
    } else {
      proposal.base = static_cast<int>(main);
      proposal.own = tokenizer_.tokenise_branch(text.text, text.shared, main_path_, path);
    }
    label_text(text, proposal);
    if (path.tokens.empty() && proposal.own == 0 && !text.text.empty()) continue;  // untokenised
    if (text.ends_answer && options_.end_token >= 0) {
      path.ends.push_back(static_cast<std::uint32_t>(text.text.size()));
      proposal.add(options_.end_token, text.pieces.back().probability,
                   kPieceRates + kNumOrigins * static_cast<std::size_t>(PieceKind::kEnd),
                   Source::kSchema);
    } else if (!text.ends_answer && !path.tokens.empty()) {
      proposal.claimed.back() *= kUnstable;
    }
    if (i == 0) main_path_ = path;
  }
}

}  // namespace ooospec
