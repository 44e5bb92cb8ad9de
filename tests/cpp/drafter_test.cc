// SPDX-License-Identifier: Apache-2.0
#include "draft/drafter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "cpp/check.h"

namespace ooospec {
namespace {

// A tokenizer of one token a byte, but "name" is one token.
constexpr TokenId kName = 256;
constexpr TokenId kEnd = 257;

std::shared_ptr<const Vocab> byte_vocab() {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
  pieces.emplace_back("name");
  pieces.emplace_back();
  return std::make_shared<Vocab>(std::move(pieces));
}

std::vector<TokenId> encode(std::string_view text) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < text.size();) {
    const bool is_name = text.substr(i, 4) == "name";
    tokens.push_back(is_name ? kName : static_cast<unsigned char>(text[i]));
    i += is_name ? 4 : 1;
  }
  return tokens;
}

constexpr std::string_view kTools =
    R"([{"type": "function", "function": {"name": "add", "parameters": {"type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}, "required": ["x"]}}}])";

struct Case {
  std::shared_ptr<DraftMemory> memory = std::make_shared<DraftMemory>(
      258, std::size_t{1} << 22, std::vector<StyleGuess>{{CallStyle::usual(Wrapper::kTags), 1.0F}});
  Drafter drafter;

  explicit Case(const DrafterOptions& options)
      : drafter(byte_vocab(), ToolSet::parse(kTools), memory, {encode}, options) {
    drafter.begin(std::vector<TokenId>{'?'});
  }
};

DrafterOptions hints_only() {
  DrafterOptions options;
  options.lookup = options.retrieval = options.recycler = false;
  options.end_token = kEnd;
  return options;
}

void offer_call(Drafter& drafter) {
  EXPECT(drafter.offer_hint(HintKind::kFunction, 0, 0, 0, "add"));
  EXPECT(drafter.offer_hint(HintKind::kValue, 0, 0, 0, "12"));
  EXPECT(drafter.offer_hint(HintKind::kValue, 0, 0, 1, "null"));
  EXPECT(drafter.offer_hint(HintKind::kEnd, 0, 0, 0, ""));
}

// Runs rounds against `answer`, returns how many there were.
int replay(Drafter& drafter, std::span<const TokenId> answer) {
  int num_rounds = 0;
  for (std::size_t done = 0; done < answer.size(); ++num_rounds) {
    const DraftTree& tree = drafter.propose(DraftTree::kMaxNodes);
    tree.check();
    std::vector<TokenId> choices;
    for (const std::int32_t depth : tree.depths()) {
      const std::size_t at = done + static_cast<std::size_t>(depth);
      choices.push_back(at < answer.size() ? answer[at] : -1);
    }
    std::vector<std::int32_t> path(static_cast<std::size_t>(tree.size()));
    const int num_accepted = tree.accept(choices, path);
    const std::size_t num =
        std::min(static_cast<std::size_t>(num_accepted) + 1, answer.size() - done);
    drafter.commit(answer.subspan(done, num));
    done += num;
  }
  drafter.finish();
  return num_rounds;
}

std::vector<TokenId> with_end(std::string_view text) {
  std::vector<TokenId> tokens = encode(text);
  tokens.push_back(kEnd);
  return tokens;
}

constexpr std::string_view kAnswer =
    "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"x\": 12}}\n</tool_call>";

TEST(a_perfect_hint_drafts_the_rest_of_the_answer) {
  Case one(hints_only());
  offer_call(one.drafter);
  one.drafter.propose(64);
  std::vector<TokenId> drafted(one.drafter.main_path().begin(), one.drafter.main_path().end());
  EXPECT(drafted == with_end(kAnswer));
  EXPECT_EQ(replay(one.drafter, with_end(kAnswer)), 1);  // 63 drafted, and the end behind them
}

TEST(a_hint_is_used_from_any_token_on) {
  const std::vector<TokenId> answer = with_end(kAnswer);
  for (std::size_t done = 1; done < answer.size(); ++done) {
    Case one(hints_only());
    one.drafter.commit(std::span(answer).first(done));
    offer_call(one.drafter);
    one.drafter.propose(64);
    const auto path = one.drafter.main_path();
    EXPECT(std::vector<TokenId>(path.begin(), path.end()) ==
           std::vector<TokenId>(answer.begin() + static_cast<std::ptrdiff_t>(done), answer.end()));
  }
}

TEST(hints_of_slots_that_do_not_exist_are_refused) {
  Case one(hints_only());
  EXPECT(!one.drafter.offer_hint(HintKind::kFunction, 0, 1, 0, "other"));
  EXPECT(!one.drafter.offer_hint(HintKind::kFunction, -1, 0, 0, "add"));
  EXPECT(!one.drafter.offer_hint(HintKind::kFunction, 99, 0, 0, "add"));
  EXPECT(!one.drafter.offer_hint(HintKind::kValue, 0, 0, 2, "1"));
  EXPECT(!one.drafter.offer_hint(HintKind::kValue, 0, 0, 0, "not json"));
  EXPECT(one.drafter.offer_hint(HintKind::kFunction, 0, kNoTool, 0, "none"));
}

TEST(a_method_without_hints_takes_none) {
  DrafterOptions options = hints_only();
  options.hint = false;
  Case one(options);
  EXPECT(!one.drafter.offer_hint(HintKind::kFunction, 0, 0, 0, "add"));
}

// The tree of a proposal, as numbers.
std::vector<float> numbers(const DraftTree& tree) {
  std::vector<float> found(tree.tokens().begin(), tree.tokens().end());
  found.insert(found.end(), tree.parents().begin(), tree.parents().end());
  found.insert(found.end(), tree.probabilities().begin(), tree.probabilities().end());
  return found;
}

TEST(to_prepare_changes_no_proposal) {
  const std::vector<TokenId> answer = with_end(kAnswer);
  DrafterOptions options;
  options.end_token = kEnd;
  for (std::size_t step = 1; step < 9; ++step) {
    Case plain(options), prepared(options);
    for (std::size_t done = 0; done < answer.size(); done += step) {
      prepared.drafter.prepare();
      if (done == 3 * step) {
        offer_call(plain.drafter);
        offer_call(prepared.drafter);
      }
      prepared.drafter.prepare();
      const auto tokens = std::span(answer).subspan(done, std::min(step, answer.size() - done));
      plain.drafter.commit(tokens);
      prepared.drafter.commit(tokens);
      EXPECT(numbers(plain.drafter.propose(64)) == numbers(prepared.drafter.propose(64)));
    }
  }
}

// Of a loop whose first round begins behind the prompt, too.
TEST(to_prepare_leaves_the_tree_that_is_verified) {
  const auto num_trials = [](const Drafter& drafter) {
    std::uint64_t sum = 0;
    for (std::size_t rate = 0; rate < Calibration::kNumRates; ++rate) {
      sum += drafter.calibration().num_trials(rate);
    }
    return sum;
  };
  const std::vector<TokenId> answer = with_end(kAnswer);
  Case plain(hints_only()), prepared(hints_only());
  for (std::size_t done = 0; done < 3; ++done) {
    plain.drafter.propose(64);
    const std::vector<float> verified = numbers(prepared.drafter.propose(64));
    if (done == 0) {
      offer_call(plain.drafter);
      offer_call(prepared.drafter);
    }
    prepared.drafter.prepare();
    EXPECT(numbers(prepared.drafter.tree()) == verified);
    for (Drafter* drafter : {&plain.drafter, &prepared.drafter}) {
      drafter->commit(std::span(answer).subspan(done, 1));
    }
    EXPECT_EQ(num_trials(prepared.drafter), num_trials(plain.drafter));
  }
}

TEST(a_tokenizer_that_fails_leaves_the_drafter_as_it_was) {
  const std::vector<TokenId> answer = with_end(kAnswer);
  bool fails = false;
  const Encode failing = [&](std::string_view text) {
    if (fails) throw std::runtime_error("no tokens today");
    return encode(text);
  };
  Case one(hints_only());
  Drafter other(byte_vocab(), ToolSet::parse(kTools), one.memory, {failing}, hints_only());
  other.begin(std::vector<TokenId>{'?'});
  for (std::size_t done = 0; done < answer.size(); done += 3) {
    fails = true;
    try {
      other.prepare();
    } catch (const std::runtime_error&) {
    }
    fails = false;
    const auto tokens =
        std::span(answer).subspan(done, std::min<std::size_t>(3, answer.size() - done));
    one.drafter.commit(tokens);
    other.commit(tokens);
    if (done == 6) {
      offer_call(one.drafter);
      offer_call(other);
    }
    EXPECT(numbers(one.drafter.propose(64)) == numbers(other.propose(64)));
  }
}

TEST(earlier_answers_are_found_again) {
  DrafterOptions options = hints_only();
  options.schema = options.hint = false;
  options.retrieval = true;
  Case first(options);
  const std::vector<TokenId> answer = with_end(kAnswer);
  const int cold = replay(first.drafter, answer);
  Drafter second(byte_vocab(), ToolSet::parse(kTools), first.memory, {encode}, options);
  second.begin(std::vector<TokenId>{'?'});
  EXPECT(replay(second, answer) < cold / 3);
}

// Whatever hints say of them, and without hints.
TEST(optional_parameters_are_drafted_once_the_target_writes_them) {
  const std::string head = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"x\": 12";
  for (const bool hinted : {true, false}) {
    const Case one(hints_only());
    const auto drafts_y = [&] {
      Drafter drafter(byte_vocab(), ToolSet::parse(kTools), one.memory, {encode}, hints_only());
      drafter.begin(std::vector<TokenId>{'?'});
      if (hinted) offer_call(drafter);
      drafter.commit(encode(head));
      drafter.propose(64);
      const bool found = drafter.main_path()[0] == ',';
      replay(drafter, with_end(", \"y\": \"\"}}\n</tool_call>"));
      return found;
    };
    EXPECT(!drafts_y());
    for (int k = 0; k < 6; ++k) drafts_y();
    EXPECT(drafts_y());
  }
}

// A target may write the calls of long dialogues in another style than those of short ones.
TEST(the_length_of_a_request_tells_its_style) {
  const std::string kSpread =
      "<tool_call>\n{\n  \"name\": \"add\",\n  \"arguments\": {\n    \"x\": 12\n  "
      "}\n}\n</tool_call>";
  const std::string brief = "add 12", lengthy(2000, 'z');
  const Case one(hints_only());
  const auto begins = [&](const std::string& request, std::string_view answer) {
    Drafter drafter(byte_vocab(), ToolSet::parse(kTools), one.memory, {encode}, hints_only());
    drafter.begin(std::vector<TokenId>{'?'});
    drafter.read_request(request);
    offer_call(drafter);
    drafter.propose(64);
    const std::vector<TokenId> expected = with_end(answer);
    const bool found = std::ranges::equal(drafter.main_path(), expected);
    replay(drafter, expected);
    return found;
  };
  for (int k = 0; k < 4; ++k) {
    begins(brief, kSpread);
    begins(lengthy, kAnswer);
  }
  EXPECT(begins(brief, kSpread));
  EXPECT(begins(lengthy, kAnswer));
  EXPECT(begins("add 14", kSpread));  // of the same length
  const auto of_all = one.memory->styles();
  const auto of_unseen = one.memory->styles(100000);
  EXPECT(of_all.size() == of_unseen.size() && of_all[0].style == of_unseen[0].style);
}

TEST(a_bad_token_is_refused_before_anything_is_taken_up) {
  Case one(hints_only());
  one.drafter.commit(std::vector<TokenId>{'<'});
  EXPECT_THROWS(one.drafter.commit(std::vector<TokenId>({'t', 258})), std::out_of_range, "got 258");
  EXPECT_THROWS(one.drafter.commit(std::vector<TokenId>{-1}), std::out_of_range, "got -1");
  EXPECT_EQ(one.drafter.reader().num_bytes(), 1U);
  EXPECT_THROWS(one.drafter.begin({}), std::invalid_argument, "at least one token");
  EXPECT_THROWS(one.drafter.begin(std::vector<TokenId>({258, '?'})), std::out_of_range, "got 258");
  EXPECT_THROWS(one.drafter.begin(std::vector<TokenId>({'?', -1})), std::out_of_range, "got -1");
}

DrafterOptions outside_only() {
  DrafterOptions options = hints_only();
  options.schema = options.hint = options.span = false;
  return options;
}

TEST(paths_from_outside_are_cut_at_ids_that_do_not_exist) {
  Case one(outside_only());
  one.drafter.add_path(Source::kExternal, std::vector<TokenId>{'a', 'b', 999, 'c'}, 0.9F);
  EXPECT_EQ(one.drafter.propose(64).size(), 3);
  EXPECT_EQ(one.drafter.propose(2).size(), 2);
  EXPECT_EQ(one.drafter.propose(1).size(), 1);
  EXPECT_EQ(one.drafter.propose(0).size(), 1);
  one.drafter.commit(std::vector<TokenId>{'z'});
  EXPECT_EQ(one.drafter.propose(64).size(), 1);
}

// Also where such paths came true: what is learnt of the source stays a number.
TEST(probabilities_from_outside_that_are_none_count_as_the_nearest_one) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<TokenId> path = {'a', 'b'};
  for (const float odd : {std::nanf(""), -kInfinity, -1.0F, 0.0F, 1.5F, kInfinity}) {
    Case one(outside_only());
    for (int round = 0; round < 200; ++round) {
      one.drafter.add_path(Source::kExternal, path, odd);
      const DraftTree& tree = one.drafter.propose(64);
      tree.check();
      EXPECT_EQ(tree.size(), 3);
      one.drafter.commit(round % 2 == 0 ? path : std::vector<TokenId>{'z'});
    }
    one.drafter.add_path(Source::kExternal, path, 0.5F);
    EXPECT(one.drafter.propose(64).probabilities()[1] > 0.1F);
  }
  Case one(outside_only());
  EXPECT_THROWS(one.drafter.add_path(Source::kHint, path, 0.5F), std::invalid_argument,
                "expected a source from 16 on, got 2");
}

TEST(costs_may_be_set_for_fewer_rows_than_a_proposal_has) {
  Case one(outside_only());
  one.drafter.commit(std::vector<TokenId>{'a'});
  one.drafter.add_path(Source::kExternal, std::vector<TokenId>{'b', 'c'}, 0.9F);
  EXPECT_EQ(one.drafter.propose(64).size(), 3);
  one.drafter.set_costs(std::vector<float>{100.0F});
  one.drafter.commit(std::vector<TokenId>{'b'});
  one.drafter.add_path(Source::kExternal, std::vector<TokenId>{'c'}, 0.9F);
  EXPECT_EQ(one.drafter.propose(64).size(), 1);
}

TEST(costs_that_are_no_times_are_refused) {
  Case one(outside_only());
  one.drafter.set_costs(std::vector<float>{100.0F});
  for (const float odd : {0.0F, -1.0F, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    EXPECT_THROWS(one.drafter.set_costs(std::vector<float>({100.0F, odd})), std::invalid_argument,
                  "cost_us: expected finite times above 0, got ");
  }
  one.drafter.add_path(Source::kExternal, std::vector<TokenId>{'a'}, 0.9F);
  EXPECT_EQ(one.drafter.propose(64).size(), 1);
}

TEST(calibration_believes_a_source_less_that_is_wrong) {
  Calibration calibration;
  for (int i = 0; i < 200; ++i) calibration.observe(0, 0.8F, false);
  for (int i = 0; i < 200; ++i) calibration.observe(1, 0.2F, true);
  EXPECT(calibration.correct(0, 0.8F) < 0.05F);
  EXPECT(calibration.correct(1, 0.2F) > 0.9F);
  EXPECT_EQ(calibration.num_trials(0), 200U);
  EXPECT_EQ(calibration.num_hits(1), 200U);
}

}  // namespace
}  // namespace ooospec
