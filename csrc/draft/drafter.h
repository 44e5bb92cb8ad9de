// SPDX-License-Identifier: Apache-2.0
//
// One request's sources and their fusion into a draft tree. Usable without the engine: a serving
// stack in C++ needs this class, a tokenizer callback and nothing of Python.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "call/call_reader.h"
#include "call/call_writer.h"
#include "call/tool_schema.h"
#include "common/types.h"
#include "common/vocab.h"
#include "draft/allowance.h"
#include "draft/calibration.h"
#include "draft/draft_memory.h"
#include "draft/token_path.h"
#include "index/suffix_index.h"
#include "tree/draft_tree.h"

namespace ooospec {

// Which sources draft: a method is a set of these.
struct DrafterOptions {
  bool schema = true;          // what format and schema force or suggest; needs tools
  bool hint = true;            // what the sidecar says; needs schema
  bool span = true;            // values that stand in the request; needs schema
  bool lookup = true;          // continuations found in the prompt and the answer so far
  bool retrieval = true;       // continuations found in earlier answers
  bool recycler = true;        // successors seen before
  bool recycler_tree = false;  // as Token Recycling draws them: a whole tree of fixed shape
  bool learn = true;           // finished answers are retrieved later on
  bool branches = false;       // heads of calls are remembered, for branch(); needs schema
  bool thinking = false;       // the prompt ends inside <think>: no call is drafted before its end
  TokenId end_token = -1;      // drafted where the answer may end; -1: none
};

class SlotBranch;

// Drafts for one request. begin() once, then rounds of propose() and commit(); offer_hint() and
// prepare() at any time between them. Not thread-safe. A draft can be wrong in any way; only the
// target commits.
class Drafter {
 public:
  // encoders: the target's tokenizer; called from propose() and prepare() only.
  Drafter(std::shared_ptr<const Vocab> vocab, std::shared_ptr<const ToolSet> tools,
          std::shared_ptr<DraftMemory> memory, Encoders encoders, const DrafterOptions& options);

  // Sets the prompt; its last token is node 0 until something is committed. Its last `num_opening`
  // tokens are what the answer is made to begin with. Raises std::invalid_argument when empty or
  // shorter than that, std::out_of_range for ids outside the vocabulary.
  void begin(std::span<const TokenId> prompt, std::size_t num_opening = 0);

  // Sets the text of the request, in which values may stand: what the user said, oldest first. Its
  // length tells which of its styles the target is likely to write in.
  void read_request(std::string_view text);

  // Takes up what the sidecar said of one slot: tool and parameter are numbers in the ToolSet, text
  // is a tool name or a compact JSON value. Returns false, and changes nothing, for a slot that
  // does not exist or a value that is not JSON, and for one that a branch has said already.
  bool offer_hint(HintKind kind, int call, int tool, int parameter, std::string_view text);

  // Adds a path of a source from outside to the next proposal. Ids outside the vocabulary cut the
  // path; a probability that is none counts as the nearest one, NaN as the least. Raises
  // std::invalid_argument for a source of ours.
  void add_path(Source source, std::span<const TokenId> tokens, float probability);

  // cost_us[n - 1]: time of a round of n rows; empty: rows up to the budget are free. Raises
  // std::invalid_argument, and keeps those of before, for a time that is not finite or not above 0.
  void set_costs(std::span<const float> cost_us);

  // Returns the tree to verify next, of at most `budget` nodes (node 0 included; less than one
  // counts as one). Valid until the next call. Cost: some microseconds, plus the tokenizer where
  // text did not go on as proposed.
  const DraftTree& propose(int budget);

  // Takes up the tokens that the target committed. Raises std::out_of_range for ids outside the
  // vocabulary, before any of them is taken up.
  void commit(std::span<const TokenId> tokens);

  // Hears of the target's likeliest tokens after each node of the last tree. They are taken up by
  // prepare(), or with the next ones.
  //   rows: TokenId[nodes, TokenRecycler::kMaxSuccessors], likeliest first, -1 behind the last
  // Raises std::invalid_argument for another number, std::out_of_range for ids outside the
  // vocabulary.
  void observe_successors(std::span<const TokenId> rows);

  // Does while the target verifies what can be done before commit(): takes up what was observed,
  // writes and tokenises what new hints say, and, unless the tokenizer is slow, rehearses what is
  // likely to come. Changes no proposal. Cost: a few times that of propose().
  void prepare();

  // Ends the request: the answer is learnt by the memory for requests to come.
  void finish();

  // Takes up what the target has written in a branch: a value, behind which no hint about that slot
  // counts, or the beginning of one. Returns false, and changes nothing, where there is nothing, or
  // a hint says more.
  bool take_value(const SlotBranch& branch);

  // Number and tool of a call in whose arguments the target stands, or has stood; a tool of ours.
  struct Head {
    int call = 0;
    int tool = 0;
    bool operator==(const Head&) const = default;
  };

  // Returns the head behind which branch() may leave the answer: that of the call under way; none
  // without DrafterOptions::branches.
  std::optional<Head> head() const;

  // Returns the parameters of head() that are still to be written, as far as is known: the required
  // ones first, in the order of the schema; none where there is no head, or hints leave them out.
  std::vector<int> open_parameters() const;

  // Whether the value of a slot may still come: its call is under way, and the value not complete.
  bool awaits(const Head& head, int parameter) const;

  // Returns a branch for the value of a parameter of head(), which must be there; null where its
  // key cannot be written. The branch drafts as this object does, without its index of the prompt,
  // and knows the hints of now. Cost: some ten microseconds, and the tokenizer.
  std::unique_ptr<SlotBranch> branch(int parameter);

  const Vocab& vocab() const { return *vocab_; }
  const CallReader& reader() const { return reader_; }
  const DraftTree& tree() const { return tree_; }
  // The likeliest text of the last proposal as tokens, whole: the tree may hold less of it.
  std::span<const TokenId> main_path() const { return main_path_.tokens; }
  const Calibration& calibration() const { return calibration_; }
  std::uint64_t num_encodes() const { return tokenizer_.num_encodes(); }
  double encode_us() const { return tokenizer_.encode_us(); }

 private:
  static constexpr std::size_t kMaxCalls = 16;  // of an answer, of which hints are heard

  // A drafted path and, per token, the probability claimed for it and the rate it is counted under.
  // It starts behind the first `own` tokens of proposal `base`, or at node 0 when base is -1.
  struct Proposal {
    TokenPath path;
    std::vector<float> claimed;
    std::vector<std::uint8_t> rates;
    std::vector<Source> sources;
    int base = -1;
    std::size_t own = 0;
    std::size_t num_told = 0;  // first tokens that stand in an earlier proposal too
    int last_node = 0;         // of the draft tree
    std::size_t num_hits = 0;  // committed tokens that it and its base foresaw

    void clear();
    void add(TokenId token, float probability, std::size_t rate, Source source);
  };

  // Where a call's arguments begin.
  struct Fork {
    CallReader reader;           // before
    TokenId token = -1;          // the token that opens them,
    std::size_t num_tokens = 0;  // and so many of the answer before it
    SuffixIndex::Cursor memory_cursor;
    Head head;
  };

  Drafter(const Drafter& trunk, const Fork& fork);
  bool may_open_arguments(std::string_view bytes) const;
  Proposal& next_proposal();
  void write_texts(const CallReader& reader, TokenPath& main);
  void propose_text();
  void take_up_successors();
  void rehearse(std::span<const TokenId> tokens);
  void rehearse_ends();
  void rehearse_first_tokens();
  std::size_t num_sure(const Proposal& main) const;
  void propose_retrieval(int base, std::size_t own);
  void propose_continuations(const SuffixIndex& index, SuffixIndex::Cursor cursor,
                             std::size_t first_rate, int base, std::size_t own);
  void propose_recycler();
  void propose_recycler_tree();
  void label_text(const TextPath& text, Proposal& proposal) const;
  void insert(Proposal& proposal);
  int node_before(const Proposal& proposal) const;
  int num_worth_running(int budget) const;
  void judge(std::span<const TokenId> committed);
  void follow(TokenId token);

  std::shared_ptr<const Vocab> vocab_;
  std::shared_ptr<const ToolSet> tools_;
  std::shared_ptr<DraftMemory> memory_;
  DrafterOptions options_;
  PathTokenizer tokenizer_;
  CallReader reader_;
  std::shared_ptr<RequestSpans> spans_;
  std::shared_ptr<CallWriter> writer_;  // shared with branches
  bool one_value_ = false;              // of a branch: it ends with the value
  std::optional<Fork> fork_;            // of the latest call
  std::size_t request_bytes_ = 0;
  std::vector<StyleGuess> styles_;
  std::vector<Slots> slots_;
  Calibration calibration_;
  CallReader reader_ahead_;  // of prepare()
  SuffixIndex text_;         // one document: prompt and answer so far
  SuffixIndex::Cursor memory_cursor_;
  DraftTree tree_;
  std::vector<float> cost_us_;
  Allowance allowance_;
  TokenId last_token_ = -1;
  int budget_ = DraftTree::kMaxNodes;  // of the last proposal
  bool is_proposed_ = false;           // and nothing was committed since
  std::vector<TokenId> answer_;
  std::vector<TextPath> texts_;
  TokenPath main_path_;  // texts_[0] as tokens, with the end token where the answer may end
  std::vector<Proposal> proposals_;  // the first num_proposals_ are this round's
  std::size_t num_proposals_ = 0;
  std::size_t num_external_ = 0;  // of these, the first ones come from outside
  std::vector<SuffixIndex::Continuation> continuations_;
  std::vector<float> corrected_;
  std::vector<TokenId> path_ahead_;
  TokenPath ahead_;                  // texts_[0] as prepare() found it
  std::vector<TokenId> observed_;    // nodes, and
  std::vector<TokenId> successors_;  // rows of what comes after them
};

}  // namespace ooospec
