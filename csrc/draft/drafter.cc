// SPDX-License-Identifier: Apache-2.0
#include "draft/drafter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "draft/drafter_numbers.h"

namespace ooospec {

namespace {

constexpr std::size_t kTextIndexBytes = 16U << 20;
constexpr float kMinOutside = 0.001F;  // least probability of a path from outside

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
  for (const TokenId token : prompt) {
    OOOSPEC_REQUIRE_INDEX(vocab_->contains(token), "begin: expected tokens in [0, ", vocab_->size(),
                          "), got ", token);
  }
  for (const TokenId token : prompt.last(num_opening)) follow(token);
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
  OOOSPEC_REQUIRE(source >= Source::kExternal, "add_path: expected a source from ",
                  static_cast<int>(Source::kExternal), " on, got ", static_cast<int>(source));
  probability = probability > kMinOutside ? std::min(probability, 1.0F) : kMinOutside;
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

void Drafter::set_costs(std::span<const float> cost_us) {
  for (const float cost : cost_us) {
    OOOSPEC_REQUIRE(cost > 0.0F && std::isfinite(cost),
                    "cost_us: expected finite times above 0, got ", cost);
  }
  cost_us_.assign(cost_us.begin(), cost_us.end());
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
  is_proposed_ = true;
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
  is_proposed_ = false;
}

void Drafter::commit(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    OOOSPEC_REQUIRE_INDEX(vocab_->contains(token), "commit: expected tokens in [0, ",
                          vocab_->size(), "), got ", token);
  }
  judge(tokens);
  // The first token comes from prefill.
  if (!cost_us_.empty() && !answer_.empty()) {
    // Costs may have been set after the proposal, for fewer rows than it has.
    const std::size_t num_rows = std::min(static_cast<std::size_t>(tree_.size()), cost_us_.size());
    allowance_.settle(cost_us_, num_rows, tokens.size());
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

void Drafter::finish() {
  take_up_successors();
  memory_->set_calibration(calibration_);
  if (options_.retrieval && options_.learn && !answer_.empty()) memory_->learn_answer(answer_);
  if (reader_.calls().empty()) return;
  memory_->learn_style(reader_.style(), request_bytes_);
  memory_->learn_keys(reader_.calls(), *tools_, slots_);
}

}  // namespace ooospec
