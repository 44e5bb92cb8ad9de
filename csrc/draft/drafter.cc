// SPDX-License-Identifier: Apache-2.0
#include "draft/drafter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "draft/slot_branch.h"

namespace ooospec {

namespace {

// Rates of the calibration: one for the first token of each kind of piece, one for the tokens
// behind it.
constexpr std::size_t kNumBuckets = 5;  // of match lengths
constexpr std::size_t kNumOrigins = 3;  // of pieces: schema, hint, span
constexpr std::size_t kPieceRates = 0;  // + kNumOrigins * kind + origin
constexpr std::size_t kNumPieceKinds = static_cast<std::size_t>(PieceKind::kEnd) + 1;
constexpr std::size_t kWithinPiece = kNumOrigins * kNumPieceKinds;  // + origin
constexpr std::size_t kLookupRates = kWithinPiece + Calibration::kNumWithinRates;
constexpr std::size_t kRetrievalRates = kLookupRates + 2 * kNumBuckets;
constexpr std::size_t kRecyclerRates = kRetrievalRates + 2 * kNumBuckets;  // + depth
constexpr std::size_t kMaxDepthRecycled = 3;
constexpr std::size_t kExternalRates = kRecyclerRates + kMaxDepthRecycled;
constexpr std::size_t kMaxExternal = 9;
static_assert(kLookupRates == Calibration::kNumPieceRates);
static_assert(kExternalRates + 2 * kMaxExternal <= Calibration::kNumRates);

// Matches of a suffix index are counted by length: what followed a long match is believed more.
constexpr std::array<int, kNumBuckets> kMatchLengths = {1, 2, 4, 8, 16};
constexpr std::array<float, kNumBuckets> kMatchClaims = {0.2F, 0.35F, 0.5F, 0.65F, 0.8F};
constexpr float kAfterMatch = 0.95F;  // of each further token of a continuation
constexpr std::array<float, kNumOrigins> kWithinClaims = {0.98F, 0.98F, 0.9F};
constexpr float kUnstable = 0.7F;  // of a last token that more text might change
constexpr std::array<float, 3> kSuccessorClaims = {0.3F, 0.12F, 0.06F};
constexpr std::array<float, TokenRecycler::kMaxSuccessors> kRankClaims = {
    0.5F, 0.15F, 0.08F, 0.05F, 0.035F, 0.025F, 0.02F, 0.015F};  // of successors by rank

constexpr int kMainNodes = 8;         // nodes that only the likeliest text gets,
constexpr int kNodesPerBranch = 7;    // and for how many more there is a branch
constexpr std::size_t kMaxMatch = 8;  // tokens matched at the end of the main path
constexpr int kMaxContinuations = 3;
constexpr float kMinProbability = 0.02F;  // of a continuation that is worth a node
constexpr int kMaxContinuationTokens = 16;
constexpr int kMaxFirstTokens = 4;  // that prepare() rehearses,
constexpr int kMaxEnds = 2;         // and nodes of the tree
constexpr std::size_t kTextIndexBytes = 16U << 20;
constexpr std::size_t kMaxTextBytes = 4096;  // of a drafted text

// A tree of successors by their ranks, of fixed shape (Token Recycling, Luo et al. 2024, section
// 3.2): the most likely nodes by kRankClaims. Node 0 is the root; parents come before children.
struct RankTree {
  std::array<std::uint8_t, DraftTree::kMaxNodes> parents{}, ranks{};

  RankTree() {
    std::array<float, DraftTree::kMaxNodes> reach{1.0F};
    std::array<std::uint8_t, DraftTree::kMaxNodes> num_children{};
    for (std::size_t node = 1; node < parents.size(); ++node) {
      std::size_t best = 0;
      float most = 0;
      for (std::size_t parent = 0; parent < node; ++parent) {
        if (num_children[parent] == kRankClaims.size()) continue;
        const float likely = reach[parent] * kRankClaims[num_children[parent]];
        if (likely > most) most = likely, best = parent;
      }
      parents[node] = static_cast<std::uint8_t>(best);
      ranks[node] = num_children[best]++;
      reach[node] = most;
    }
  }
};

std::size_t origin(const Piece& piece) {
  return piece.source == Source::kHint ? 1 : piece.source == Source::kSpan ? 2 : 0;
}

std::size_t match_bucket(int length) {
  std::size_t bucket = 0;
  while (bucket + 1 < kMatchLengths.size() && length >= kMatchLengths[bucket + 1]) ++bucket;
  return bucket;
}

}  // namespace

Drafter::Drafter(std::shared_ptr<const Vocab> vocab, std::shared_ptr<const ToolSet> tools,
                 std::shared_ptr<DraftMemory> memory, Encoders encoders,
                 const DrafterOptions& options)
    : vocab_(std::move(vocab)),
      tools_(std::move(tools)),
      memory_(std::move(memory)),
      options_(options),
      tokenizer_(vocab_, std::move(encoders)),
      reader_(tools_, options.thinking),
      writer_(std::make_shared<CallWriter>()),
      styles_(memory_->styles()),
      calibration_(memory_->calibration()),
      reader_ahead_(reader_),
      text_(kTextIndexBytes),
      continuations_(kMaxContinuations) {
  // Where there are no tools, text that looks like a call is none.
  if (tools_->size() == 0) options_.schema = options_.hint = false;
  writer_->set_habits(memory_->habits());
}

void Drafter::begin(std::span<const TokenId> prompt, std::size_t num_opening) {
  OOOSPEC_REQUIRE(!prompt.empty(), "begin: expected a prompt of at least one token, got none");
  OOOSPEC_REQUIRE(num_opening <= prompt.size(), "begin: expected an opening within the ",
                  prompt.size(), " tokens of the prompt, got ", num_opening);
  for (const TokenId token : prompt.last(num_opening)) {
    OOOSPEC_REQUIRE_INDEX(vocab_->contains(token), "begin: expected tokens in [0, ", vocab_->size(),
                          "), got ", token);
    follow(token);
  }
  last_token_ = prompt.back();
  allowance_ = Allowance(prompt.size());
  if (!options_.lookup) return;
  for (const TokenId token : prompt) {
    text_.extend(token);
  }
}

void Drafter::read_request(std::string_view text) {
  request_bytes_ = text.size();
  styles_ = memory_->styles(request_bytes_);
  if (!options_.span || !options_.schema || tools_->size() == 0) return;
  spans_ = std::make_shared<RequestSpans>(tools_, text);
  writer_->set_spans(spans_.get());
}

bool Drafter::offer_hint(HintKind kind, int call, int tool, int parameter, std::string_view text) {
  if (!options_.hint || call < 0 || static_cast<std::size_t>(call) >= kMaxCalls) return false;
  const auto index = static_cast<std::size_t>(call);
  const bool known_tool = tool >= 0 && tool < tools_->size();
  switch (kind) {
    case HintKind::kFunction:
      if (!known_tool && tool != kNoTool) return false;
      if (slots_.size() <= index) slots_.resize(index + 1);
      slots_[index].tool = known_tool ? tool : Slots::kNoCall;
      return true;
    case HintKind::kValue:
      if (!known_tool || parameter < 0 ||
          parameter >= static_cast<int>(tools_->parameters(tool).size()))
        return false;
      if (slots_.size() <= index) slots_.resize(index + 1);
      return slots_[index].set(tool, parameter, text);
    case HintKind::kEnd:
      if (slots_.size() <= index) slots_.resize(index + 1);
      slots_[index].ended = true;
      return true;
    case HintKind::kError:
      return true;
  }
  return false;
}

void Drafter::Proposal::clear() {
  path.clear();
  claimed.clear();
  rates.clear();
  sources.clear();
  base = -1;
  own = num_told = 0;
  last_node = 0;
}

void Drafter::Proposal::add(TokenId token, float probability, std::size_t rate, Source source) {
  path.tokens.push_back(token);
  claimed.push_back(probability);
  rates.push_back(static_cast<std::uint8_t>(rate));
  sources.push_back(source);
}

Drafter::Proposal& Drafter::next_proposal() {
  if (num_proposals_ == proposals_.size()) proposals_.emplace_back();
  Proposal& proposal = proposals_[num_proposals_++];
  proposal.clear();
  return proposal;
}

void Drafter::add_path(Source source, std::span<const TokenId> tokens, float probability) {
  const auto number =
      static_cast<std::size_t>(source) - static_cast<std::size_t>(Source::kExternal);
  const std::size_t rate = kExternalRates + 2 * std::min(number, kMaxExternal - 1);
  num_proposals_ = num_external_;
  Proposal& proposal = next_proposal();
  num_external_ = num_proposals_;
  for (std::size_t i = 0; i < tokens.size() && vocab_->contains(tokens[i]); ++i) {
    const bool first = i == 0;
    proposal.add(tokens[i], first ? probability : kAfterMatch, rate + (first ? 0 : 1), source);
  }
}

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

// Does as if `tokens` were committed, and a draft asked for behind them: what it takes to tokenise
// that is remembered, and what it reads is in the cache then.
void Drafter::rehearse(std::span<const TokenId> tokens) {
  if (tokenizer_.is_slow()) return;  // it may be that nothing runs meanwhile
  if (std::ranges::find(tokens, options_.end_token) != tokens.end()) return;
  ahead_.clear();
  if (options_.schema) {
    reader_ahead_ = reader_;
    for (const TokenId token : tokens) reader_ahead_.feed(vocab_->bytes(token));
    const PathTokenizer::Ahead ahead(tokenizer_, tokens);
    write_texts(reader_ahead_, ahead_);
  }
  const auto look_up = [&](const SuffixIndex& index, SuffixIndex::Cursor cursor) {
    for (const TokenId token : tokens) index.advance(cursor, token);
    index.continuations(cursor, 1, kMaxContinuationTokens, continuations_, kMinProbability);
    for (const TokenId token :
         std::span(ahead_.tokens).first(std::min(ahead_.tokens.size(), kMaxMatch))) {
      index.advance(cursor, token);
    }
    index.continuations(cursor, 1, kMaxContinuationTokens, continuations_, kMinProbability);
  };
  if (options_.lookup) look_up(text_, text_.tail());
  if (!options_.retrieval) return;
  memory_->with_stores(
      [&](const SuffixIndex& index, const TokenRecycler&) { look_up(index, memory_cursor_); });
}

// Rehearses what the tree that is verified now may lead to: that the target follows it to a node,
// and no further.
void Drafter::rehearse_ends() {
  std::array<float, DraftTree::kMaxNodes> ends;  // probability of each node to be the last
  std::ranges::copy(tree_.probabilities(), ends.begin());
  for (int node = tree_.size() - 1; node > 0; --node) {
    const auto at = static_cast<std::size_t>(node);
    ends[static_cast<std::size_t>(tree_.parents()[at])] -= tree_.probabilities()[at];
  }
  for (int i = 0; i < std::min(kMaxEnds, tree_.size() - 1); ++i) {
    const auto best = std::max_element(ends.begin() + 1, ends.begin() + tree_.size());
    *best = -1;
    path_ahead_.clear();
    for (auto node = best - ends.begin(); node > 0; node = tree_.parents()[node]) {
      path_ahead_.push_back(tree_.tokens()[static_cast<std::size_t>(node)]);
    }
    std::ranges::reverse(path_ahead_);
    rehearse(path_ahead_);
  }
}

// Prefill runs: rehearses what its token may be.
void Drafter::rehearse_first_tokens() {
  propose(budget_);
  num_proposals_ = num_external_;
  int num_left = kMaxFirstTokens;
  for (int node = 1; node < tree_.size() && num_left > 0; ++node) {
    if (tree_.parents()[static_cast<std::size_t>(node)] != 0) continue;
    rehearse(tree_.tokens().subspan(static_cast<std::size_t>(node), 1));
    --num_left;
  }
}

void Drafter::prepare() {
  take_up_successors();
  if (answer_.empty()) return rehearse_first_tokens();
  if (options_.schema) write_texts(reader_, ahead_);
  rehearse_ends();
}

void Drafter::propose_continuations(const SuffixIndex& index, SuffixIndex::Cursor cursor,
                                    std::size_t first_rate, int base, std::size_t own) {
  if (base >= 0) {
    std::span<const TokenId> path = std::span(main_path_.tokens).first(own);
    if (path.size() > kMaxMatch) {
      path = path.last(kMaxMatch);
      cursor = {};
    }
    for (const TokenId token : path) index.advance(cursor, token);
  }
  const int found =
      index.continuations(cursor, 1, kMaxContinuationTokens, continuations_, kMinProbability);
  for (int i = 0; i < found; ++i) {
    const SuffixIndex::Continuation& next = continuations_[static_cast<std::size_t>(i)];
    const std::size_t bucket = match_bucket(next.match_length);
    Proposal& proposal = next_proposal();
    proposal.base = base;
    proposal.own = own;
    for (int t = 0; t < next.num_tokens; ++t) {
      const bool first = t == 0;
      proposal.add(next.tokens[static_cast<std::size_t>(t)],
                   next.probabilities[static_cast<std::size_t>(t)] *
                       (first ? kMatchClaims[bucket] : kAfterMatch),
                   first_rate + bucket + (first ? 0 : kMatchLengths.size()), Source::kRetrieval);
    }
  }
}

// Looks for continuations of the committed text, or of that text with `own` tokens of proposal
// `base`, the main path, behind it.
void Drafter::propose_retrieval(int base, std::size_t own) {
  if (options_.lookup) propose_continuations(text_, text_.tail(), kLookupRates, base, own);
  if (!options_.retrieval) return;
  memory_->with_stores([&](const SuffixIndex& index, const TokenRecycler&) {
    propose_continuations(index, memory_cursor_, kRetrievalRates, base, own);
  });
}

// Returns the number of tokens of the main path behind which earlier text is asked how it goes on:
// up to a value that is only guessed, or to the end of a path behind which more must come.
std::size_t Drafter::num_sure(const Proposal& main) const {
  const auto guess = std::ranges::find(main.sources, Source::kSpan);
  if (guess != main.sources.end()) return static_cast<std::size_t>(guess - main.sources.begin());
  return texts_[0].ends_answer ? 0 : main_path_.tokens.size();
}

void Drafter::propose_recycler() {
  memory_->with_stores([&](const SuffixIndex&, const TokenRecycler& recycler) {
    TokenId token = last_token_;
    const auto successors = recycler.successors(token);
    const std::size_t num = std::min(successors.size(), kSuccessorClaims.size());
    for (std::size_t i = 0; i < num; ++i) {
      Proposal& proposal = next_proposal();
      token = successors[i];
      for (std::size_t depth = 0; depth < (i == 0 ? kMaxDepthRecycled : 1U); ++depth) {
        proposal.add(token, kSuccessorClaims[depth == 0 ? i : 0], kRecyclerRates + depth,
                     Source::kRecycler);
        const auto next = recycler.successors(token);
        if (next.empty()) break;
        token = next[0];
      }
    }
  });
}

void Drafter::propose_recycler_tree() {
  static const RankTree shape;
  take_up_successors();  // nothing else drafts: what was just seen counts
  constexpr TokenId kNone = -1;
  std::array<TokenId, DraftTree::kMaxNodes> tokens{last_token_};
  memory_->with_stores([&](const SuffixIndex&, const TokenRecycler& recycler) {
    for (std::size_t node = 1; node < tokens.size(); ++node) {
      const TokenId before = tokens[shape.parents[node]];
      tokens[node] = kNone;
      if (before == kNone) continue;
      const auto next = recycler.successors(before);
      if (shape.ranks[node] < next.size()) tokens[node] = next[shape.ranks[node]];
    }
  });
  std::array<bool, DraftTree::kMaxNodes> has_child{}, is_told{};
  for (std::size_t node = 1; node < tokens.size(); ++node) {
    if (tokens[node] != kNone) has_child[shape.parents[node]] = true;
  }
  for (std::size_t leaf = 1; leaf < tokens.size(); ++leaf) {
    if (tokens[leaf] == kNone || has_child[leaf]) continue;
    path_ahead_.clear();  // nodes, from the leaf up
    for (std::size_t node = leaf; node > 0; node = shape.parents[node]) {
      path_ahead_.push_back(static_cast<TokenId>(node));
    }
    Proposal& proposal = next_proposal();
    for (std::size_t depth = 0; depth < path_ahead_.size(); ++depth) {
      const auto node = static_cast<std::size_t>(path_ahead_[path_ahead_.size() - 1 - depth]);
      proposal.add(tokens[node], kRankClaims[shape.ranks[node]],
                   kRecyclerRates + std::min(depth, kMaxDepthRecycled - 1), Source::kRecycler);
      if (is_told[node]) ++proposal.num_told;
      is_told[node] = true;
    }
  }
}

// Returns the tree node behind which `proposal` starts, or -1 when its base was not taken up so
// far.
int Drafter::node_before(const Proposal& proposal) const {
  if (proposal.base < 0) return 0;
  int node = proposals_[static_cast<std::size_t>(proposal.base)].last_node;
  const auto depth = static_cast<int>(proposal.own);
  if (tree_.depths()[static_cast<std::size_t>(node)] < depth) return -1;
  while (tree_.depths()[static_cast<std::size_t>(node)] > depth) {
    node = tree_.parents()[static_cast<std::size_t>(node)];
  }
  return node;
}

void Drafter::insert(Proposal& proposal) {
  const std::size_t num_tokens = proposal.path.tokens.size();
  corrected_.resize(num_tokens);
  for (std::size_t i = 0; i < num_tokens; ++i) {
    corrected_[i] = calibration_.correct(proposal.rates[i], proposal.claimed[i]);
  }
  int node = node_before(proposal);
  for (std::size_t start = 0; start < num_tokens && node >= 0;) {
    std::size_t end = start + 1;
    while (end < num_tokens && proposal.sources[end] == proposal.sources[start]) ++end;
    node = tree_.insert(node, std::span(proposal.path.tokens).subspan(start, end - start),
                        std::span(corrected_).subspan(start, end - start), proposal.sources[start]);
    start = end;
  }
  proposal.last_node = std::max(node, 0);
}

const DraftTree& Drafter::propose(int budget) {
  budget = std::clamp(budget, 1, DraftTree::kMaxNodes);
  tree_.reset(last_token_);
  num_proposals_ = num_external_;
  budget_ = budget;
  if (budget > 1) {
    const auto main = static_cast<int>(num_proposals_);
    main_path_.clear();
    if (options_.schema) propose_text();
    propose_retrieval(-1, 0);
    if (!main_path_.tokens.empty()) {
      const std::size_t own = num_sure(proposals_[static_cast<std::size_t>(main)]);
      if (own > 0) propose_retrieval(main, own);
    }
    if (options_.recycler_tree) {
      propose_recycler_tree();
    } else if (options_.recycler) {
      propose_recycler();
    }
    for (std::size_t i = 0; i < num_proposals_; ++i) insert(proposals_[i]);
  }
  tree_.prune(num_worth_running(budget));
  return tree_;
}

// Returns the number of nodes that commits most in a time, among those that cannot lose too much.
int Drafter::num_worth_running(int budget) const {
  if (cost_us_.empty() || tree_.size() == 1) return tree_.best_size(budget, cost_us_);
  const float hit = std::ranges::max(tree_.probabilities().subspan(1));
  const std::size_t num_allowed = allowance_.num_rows(cost_us_, hit);
  return tree_.best_size(budget, std::span(cost_us_).first(num_allowed));
}

// Counts for every path how far the committed tokens went along it.
void Drafter::judge(std::span<const TokenId> committed) {
  for (std::size_t p = 0; p < num_proposals_; ++p) {
    Proposal& proposal = proposals_[p];
    proposal.num_hits = proposal.own;
    if (proposal.base >= 0 &&
        proposals_[static_cast<std::size_t>(proposal.base)].num_hits < proposal.own) {
      proposal.num_hits = 0;
      continue;
    }
    for (std::size_t i = 0; i < proposal.path.tokens.size(); ++i) {
      if (proposal.num_hits >= committed.size()) break;
      const bool hit = proposal.path.tokens[i] == committed[proposal.num_hits];
      if (i >= proposal.num_told) {
        calibration_.observe(proposal.rates[i], proposal.claimed[i], hit);
      }
      if (!hit) break;
      ++proposal.num_hits;
    }
  }
  num_proposals_ = 0;
  num_external_ = 0;
}

void Drafter::commit(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    OOOSPEC_REQUIRE_INDEX(vocab_->contains(token), "commit: expected tokens in [0, ",
                          vocab_->size(), "), got ", token);
  }
  judge(tokens);
  // The first token comes from prefill.
  if (!cost_us_.empty() && !answer_.empty()) {
    allowance_.settle(cost_us_, static_cast<std::size_t>(tree_.size()), tokens.size());
  }
  for (const TokenId token : tokens) {
    answer_.push_back(token);
    last_token_ = token;
    if (token != options_.end_token) follow(token);
    if (options_.lookup) {
      text_.extend(token);
    }
    if (options_.retrieval) {
      memory_->with_stores([&](const SuffixIndex& index, const TokenRecycler&) {
        index.advance(memory_cursor_, token);
      });
    }
  }
}

void Drafter::follow(TokenId token) {
  const std::string_view bytes = vocab_->bytes(token);
  const bool may_fork = options_.branches && may_open_arguments(bytes);
  if (may_fork) fork_ = Fork{reader_, token, tokenizer_.num_tokens(), memory_cursor_, {}};
  tokenizer_.commit(token);
  if (options_.schema) reader_.feed(bytes);
  if (!may_fork) return;
  fork_->head = {static_cast<int>(reader_.calls().size()), reader_.tool()};
  const bool opened = reader_.frames().size() > 1 && reader_.tool() >= 0 &&
                      reader_.frames()[1].level == Level::kArguments;
  if (!opened) fork_.reset();
}

void Drafter::observe_successors(std::span<const TokenId> rows) {
  if (!options_.recycler) return;
  constexpr auto kWidth = static_cast<std::size_t>(TokenRecycler::kMaxSuccessors);
  const std::span<const TokenId> nodes = tree_.tokens();
  OOOSPEC_REQUIRE(rows.size() == nodes.size() * kWidth, "successors: expected ", kWidth,
                  " for each of the ", nodes.size(), " nodes, got ", rows.size());
  for (const TokenId token : rows) {
    OOOSPEC_REQUIRE_INDEX(token < vocab_->size(), "successors: expected tokens below ",
                          vocab_->size(), ", got ", token);
  }
  take_up_successors();
  observed_.assign(nodes.begin(), nodes.end());
  successors_.assign(rows.begin(), rows.end());
}

void Drafter::take_up_successors() {
  memory_->learn_successors(observed_, successors_);
  observed_.clear();
}

void Drafter::finish() {
  take_up_successors();
  memory_->set_calibration(calibration_);
  if (options_.retrieval && options_.learn && !answer_.empty()) memory_->learn_answer(answer_);
  if (reader_.calls().empty()) return;
  memory_->learn_style(reader_.style(), request_bytes_);
  memory_->learn_keys(reader_.calls(), *tools_, slots_);
}

}  // namespace ooospec
