// SPDX-License-Identifier: Apache-2.0
#include "wave/wave.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cpp/check.h"

namespace {

using ooospec::HintKind;
using ooospec::HintRecord;
using ooospec::HintRing;
using ooospec::kNoTool;
using ooospec::Launcher;
using ooospec::TokenId;
using ooospec::ValueSchema;
using ooospec::Wave;
using ooospec::WaveBuffers;
using ooospec::WaveProgram;
using ooospec::WaveRequest;
using ooospec::WaveResult;
using ooospec::WaveRows;

constexpr int kPage = 4;
constexpr int kRows = 8;
constexpr int kChunk = 8;
constexpr int kParts = 3;
constexpr int kPairs = 12;
constexpr int kSpare = 1000;
constexpr TokenId kEnd = 10;   // a line end; tokens 0 to 9 are digits
constexpr TokenId kAsked = 4;  // all tokens of a question but the last

// Memory of N rows.
struct Memory {
  Memory(int num_rows, int num_sequences)
      : numbers(static_cast<std::size_t>(3 * num_rows + num_sequences)),
        wide(static_cast<std::size_t>(2 * num_rows)) {
    rows.num_rows = num_rows;
    rows.num_sequences = num_sequences;
    rows.tokens = numbers.data();
    rows.positions = rows.tokens + num_rows;
    rows.sequences = rows.positions + num_rows;
    rows.lengths = rows.sequences + num_rows;
    rows.mask = wide.data();
    rows.slots = rows.mask + num_rows;
    rows.spare_slot = kSpare;
    rows.page_size = kPage;
  }
  std::vector<std::int32_t> numbers;
  std::vector<std::int64_t> wide;
  WaveRows rows;
};

// A model that counts: behind a digit comes the next one, behind 9 the end of the line. It keeps
// what is cached by slot, and checks that each row sees its own sequence, whole and in order.
class Model {
 public:
  explicit Model(int num_lanes) : chunk_(kChunk, 1), rows_(kRows, num_lanes + 1) {
    buffers.chunk = chunk_.rows;
    buffers.rows = rows_.rows;
    for (int i = 0; i < kParts; ++i) {
      parts_.emplace_back(kRows, num_lanes + 1);
      buffers.asks.push_back(parts_.back().rows);
    }
    buffers.wanted = wanted_.data();
    buffers.num_pairs = kPairs;
    buffers.pair_rows = pair_rows_.data();
    buffers.pair_tokens = pair_tokens_.data();
    buffers.fork_source = &fork_source_;
    fork_targets_.resize(static_cast<std::size_t>(num_lanes));
    buffers.fork_targets = fork_targets_.data();
    buffers.fork_count = &fork_count_;
    buffers.choices = choices_.data();
    buffers.scores = scores_.data();
  }

  Launcher launcher() { return {this, &Model::launch}; }

  WaveBuffers buffers;
  std::vector<WaveProgram> programs;
  std::map<std::int64_t, std::pair<TokenId, int>> cache;  // slot -> token and position
  std::vector<std::vector<std::int64_t>> pages;           // of each sequence, the prefix last
  int num_prefix = 0;
  Wave* cancels = nullptr;  // cancelled at the launch `fails_at`
  std::size_t fails_at = 1000;
  bool blind = false;
  bool told = false;  // its answers are not its own

 private:
  static const char* launch(void* self, int program) {
    auto& model = *static_cast<Model*>(self);
    model.programs.push_back(static_cast<WaveProgram>(program));
    if (model.programs.size() == model.fails_at) {
      if (model.cancels == nullptr) return "out of memory";
      model.cancels->cancel();
    }
    model.run(static_cast<WaveProgram>(program));
    return nullptr;
  }

  void run(WaveProgram program) {
    if (program == WaveProgram::kPrefill) return store(buffers.chunk, pages.size() - 1);
    if (program == WaveProgram::kFork) return fork();
    if (program == WaveProgram::kAsk) {
      for (WaveRows& part : buffers.asks) {
        store(part, 0);
        check(part);
      }
      for (int i = 0; i < kRows; ++i) {
        const WaveRows& part = buffers.asks[static_cast<std::size_t>(wanted_[i] / kRows)];
        choices_[i] = next(part.tokens[wanted_[i] % kRows]);
      }
      return;
    }
    store(buffers.rows, 0);
    check(buffers.rows);
    for (int row = 0; row < kRows; ++row) choices_[row] = next(buffers.rows.tokens[row]);
    for (int i = 0; i < kPairs; ++i) {
      scores_[i] = next(buffers.rows.tokens[pair_rows_[i]]) == pair_tokens_[i] ? -0.1f : -5.0f;
    }
  }

  TokenId next(TokenId token) const { return blind ? -1 : token + 1; }

  void fork() {
    for (const std::int64_t target : fork_targets_) {
      for (int i = 0; target >= 0 && i < fork_count_; ++i)
        cache[target + i] = cache.at(fork_source_ + i);
    }
  }

  void store(const WaveRows& rows, std::size_t first_sequence) {
    for (int row = 0; row < rows.num_rows; ++row) {
      const int sequence = rows.sequences[row];
      if (sequence < 0) {
        EXPECT(rows.slots[row] >= kSpare);
        continue;
      }
      cache[rows.slots[row]] = {rows.tokens[row], rows.positions[row]};
      if (first_sequence > 0) EXPECT_EQ(rows.slots[row], slot(first_sequence, rows.positions[row]));
    }
  }

  std::int64_t slot(std::size_t sequence, int position) const {
    return pages[sequence][static_cast<std::size_t>(position / kPage)] * kPage + position % kPage;
  }

  // Every position below a row is cached once: committed, or in a row above it.
  void check(const WaveRows& rows) const {
    for (int row = 0; row < rows.num_rows; ++row) {
      const int sequence = rows.sequences[row];
      if (sequence < 0) continue;
      std::set<int> seen;
      for (int position = 0; position < rows.lengths[sequence]; ++position) {
        EXPECT_EQ(cache.at(slot(static_cast<std::size_t>(sequence), position)).second, position);
        seen.insert(position);
      }
      for (int other = 0; other <= row; ++other) {
        if ((rows.mask[row] >> other & 1) == 0) continue;
        EXPECT_EQ(rows.sequences[other], sequence);
        EXPECT(seen.insert(rows.positions[other]).second);
      }
      for (int position = num_prefix + 1; !told && position < rows.lengths[sequence]; ++position) {
        const auto lane = static_cast<std::size_t>(sequence);
        const TokenId token = cache.at(slot(lane, position)).first;
        const TokenId before = cache.at(slot(lane, position - 1)).first;
        EXPECT(token == before + 1 || before == kAsked);  // what was drafted and is wrong is gone
      }
      EXPECT_EQ(seen.size(), rows.positions[row] + 1);
      EXPECT_EQ(*seen.rbegin(), rows.positions[row]);
    }
  }

  Memory chunk_, rows_;
  std::vector<Memory> parts_;
  std::vector<std::int32_t> wanted_ = std::vector<std::int32_t>(kRows);
  std::vector<std::int32_t> pair_rows_ = std::vector<std::int32_t>(kPairs);
  std::vector<std::int32_t> pair_tokens_ = std::vector<std::int32_t>(kPairs);
  std::vector<std::int64_t> fork_targets_;
  std::int64_t fork_source_ = 0;
  std::int32_t fork_count_ = 0;
  std::vector<TokenId> choices_ = std::vector<TokenId>(kRows);
  std::vector<float> scores_ = std::vector<float>(kPairs);
};

std::shared_ptr<const ooospec::Vocab> digits() {
  std::vector<std::string> pieces;
  for (int i = 0; i < 10; ++i) pieces.push_back(std::to_string(i));
  pieces.push_back("\n");
  return std::make_shared<ooospec::Vocab>(pieces);
}

constexpr int kMaxValueTokens = 6;
constexpr double kAll = std::numeric_limits<double>::infinity();  // ask about all functions

// A request of tools with two slots each: the question of slot s ends with digit 9 - s % 4, so that
// its answer is the digits behind that.
WaveRequest make_request(int num_tools, int num_prefix, int num_lanes, Model& model) {
  WaveRequest request;
  request.request_id = 7;
  for (int i = 0; i < num_prefix; ++i) request.prefix.push_back(i % 10);
  request.question = {1, 2};
  for (int tool = 0; tool < num_tools; ++tool) {
    const TokenId first = tool == num_tools - 1 ? 3 : 5;  // the last one is the likeliest
    request.options.push_back({static_cast<std::uint16_t>(tool), {first, first + 1, first + 2}});
  }
  request.options.push_back({kNoTool, {0}});
  for (int i = 0; i < 2 * num_tools; ++i) {
    std::vector<TokenId> question(static_cast<std::size_t>(1 + i % 5), kAsked);
    question.back() = 9 - i % 4;
    request.slots.push_back({static_cast<std::uint16_t>(i / 2), static_cast<std::uint16_t>(i % 2),
                             false, question, ValueSchema("{\"type\":\"integer\"}")});
  }
  const int num_pages = (num_prefix + kRows + kPage - 1) / kPage;
  for (int i = 0; i < num_pages; ++i) request.prefix_pages.push_back(i);
  request.pages_per_lane = (num_prefix % kPage + 5 + kMaxValueTokens + kPage - 1) / kPage;
  for (int i = 0; i < num_lanes * request.pages_per_lane; ++i) {
    request.lane_pages.push_back(num_pages + i);
  }
  model.num_prefix = num_prefix;
  model.pages.clear();
  for (int lane = 0; lane < num_lanes; ++lane) {
    model.pages.emplace_back(request.prefix_pages.begin(),
                             request.prefix_pages.begin() + num_prefix / kPage);
    const auto first = request.lane_pages.begin() + lane * request.pages_per_lane;
    model.pages.back().insert(model.pages.back().end(), first, first + request.pages_per_lane);
  }
  model.pages.emplace_back(request.prefix_pages.begin(), request.prefix_pages.end());
  return request;
}

std::vector<std::string> hints(HintRing& ring) {
  std::vector<std::string> found;
  for (HintRecord record; ring.try_pop(record);) {
    const std::string slot = std::to_string(record.tool) + "." + std::to_string(record.parameter);
    found.push_back(record.kind == HintKind::kValue
                        ? slot + "=" + std::string(record.text())
                        : std::to_string(static_cast<int>(record.kind)) + ":" + slot);
  }
  return found;
}

}  // namespace

TEST(every_slot_gets_its_answer_whatever_lanes_and_prefix) {
  for (const int num_lanes : {1, 3, 7}) {
    for (const int num_tools : {1, 3, 6}) {
      for (const int num_prefix : {1, 7, 8, 21}) {
        Model model(num_lanes);
        const WaveRequest request = make_request(num_tools, num_prefix, num_lanes, model);
        HintRing ring;
        Wave wave(digits(), {}, kMaxValueTokens, num_lanes, kAll, model.buffers, model.launcher());
        const WaveResult result = wave.run(request, ring);
        const std::vector<std::string> found = hints(ring);
        EXPECT_EQ(found.front(), "1:" + std::to_string(num_tools - 1) + ".0");
        // A question that ends with 9 is answered by an empty line, which is no value.
        std::set<std::string> expected;
        int num_invalid = 0;
        for (std::size_t i = 0; i < request.slots.size(); ++i) {
          std::string text = std::to_string(i / 2) + "." + std::to_string(i % 2) + "=";
          for (TokenId token = request.slots[i].question.back() + 1; token < kEnd; ++token) {
            text += std::to_string(token);
          }
          if (text.back() == '=')
            ++num_invalid;
          else
            expected.insert(text);
        }
        EXPECT_EQ(found.size(), expected.size() + 2);
        EXPECT_EQ(std::set<std::string>(found.begin() + 1, found.end() - 1), expected);
        EXPECT_EQ(result.num_invalid, num_invalid);
        EXPECT_EQ(result.answers.size(), request.slots.size() + 1);
      }
    }
  }
}

TEST(what_stands_in_the_prefix_takes_fewer_launches) {
  std::vector<std::size_t> launches;
  for (const std::vector<TokenId>& prefix :
       {std::vector<TokenId>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
        std::vector<TokenId>{5, 1, 6, 1, 7, 1, 8, 1, 9, 1},     // never right
        std::vector<TokenId>{5, 6, 7, 0, 8, 9, 3, 6, 8, 0},     // here and there
        std::vector<TokenId>{0, 0, 5, 6, 7, 8, 9, kEnd, 0, 0},  // always right
        std::vector<TokenId>{0, 0, 0, 0, 0, 5, 6, 7, 8, 9}}) {  // to its end
    Model model(3);
    WaveRequest request = make_request(1, 10, 3, model);
    request.prefix = prefix;
    request.slots[0].question = {5};
    request.slots[1].question = {kAsked, 4};
    HintRing ring;
    Wave wave(digits(), {}, kMaxValueTokens, 3, kAll, model.buffers, model.launcher());
    const WaveResult result = wave.run(request, ring);
    const std::vector<std::string> found = hints(ring);
    EXPECT(std::set<std::string>(found.begin() + 1, found.end() - 1) ==
           (std::set<std::string>{"0.0=6789", "0.1=56789"}));
    for (const ooospec::WaveStep& step : result.steps) EXPECT(step.num_rows <= kRows);
    launches.push_back(model.programs.size());
  }
  EXPECT_EQ(launches[1], launches[0]);
  EXPECT(launches[2] < launches[1]);
  EXPECT(launches[3] < launches[2]);
  EXPECT(launches[4] < launches[2]);
}

TEST(many_questions_go_in_one_wide_launch) {
  Model model(7);
  const WaveRequest request = make_request(6, 9, 7, model);
  HintRing ring;
  Wave wave(digits(), {}, kMaxValueTokens, 7, kAll, model.buffers, model.launcher());
  const WaveResult result = wave.run(request, ring);
  EXPECT(std::count(model.programs.begin(), model.programs.end(), WaveProgram::kAsk) > 0);
  for (const ooospec::WaveStep& step : result.steps) EXPECT(step.num_rows <= kParts * kRows);
}

TEST(a_failure_and_an_end_at_any_launch) {
  Model counted(3);
  const WaveRequest plain = make_request(3, 9, 3, counted);
  HintRing ring;
  Wave(digits(), {}, kMaxValueTokens, 3, kAll, counted.buffers, counted.launcher())
      .run(plain, ring);
  for (std::size_t at = 1; at <= counted.programs.size(); ++at) {
    for (const bool cancels : {false, true}) {
      Model model(3);
      const WaveRequest request = make_request(3, 9, 3, model);
      Wave wave(digits(), {}, kMaxValueTokens, 3, kAll, model.buffers, model.launcher());
      model.fails_at = at;
      model.cancels = cancels ? &wave : nullptr;
      if (cancels) {
        EXPECT_EQ(wave.run(request, ring).cancelled, at < counted.programs.size());
        EXPECT_EQ(model.programs.size(), at);
      } else {
        EXPECT_THROWS(wave.run(request, ring), std::runtime_error, "out of memory");
      }
    }
  }
  Model model(3);
  model.blind = true;
  const WaveRequest request = make_request(3, 9, 3, model);
  Wave wave(digits(), {}, kMaxValueTokens, 3, kAll, model.buffers, model.launcher());
  EXPECT_THROWS(wave.run(request, ring), std::runtime_error, "no usable logits");
}

TEST(what_was_recorded_is_said_by_the_same_launches) {
  Model plain(3), model(3);
  const WaveRequest asked = make_request(3, 9, 3, plain);
  HintRing ring;
  Wave first(digits(), {}, kMaxValueTokens, 3, 0.0, plain.buffers, plain.launcher());
  first.run(asked, ring);
  const std::vector<std::string> own = hints(ring);
  WaveRequest told = make_request(3, 9, 3, model);
  model.told = true;
  told.recorded = 1;  // the model itself finds tool 2 the likeliest
  told.slots[2].recorded = {4, 2, kEnd};
  told.slots[3].recorded = {7, kEnd};
  Wave wave(digits(), {}, kMaxValueTokens, 3, 0.0, model.buffers, model.launcher());
  const WaveResult result = wave.run(told, ring);
  EXPECT_EQ(own.front(), "1:2.0");
  const std::vector<std::string> expected = {"1:1.0", "1.1=7", "1.0=42", "3:0.0"};
  EXPECT(hints(ring) == expected);
  EXPECT_EQ(result.num_sent, 2);
  EXPECT_EQ(result.num_unsaid, 4);  // of the others, which are unlikely
  // A slot of n tokens takes n launches behind its question.
  EXPECT(result.answers[1].time_ns >= result.steps[result.steps.size() - 2].stop_ns);
  EXPECT(result.answers[2].time_ns >= result.steps.back().stop_ns);
}

TEST(an_end_of_sequence_and_a_limit_end_an_answer) {
  Model model(3);
  WaveRequest request = make_request(1, 5, 3, model);
  request.slots[0].question = {5};  // 6789 and the line: five tokens
  request.slots[1].question = {4};  // 56789 and the line: six
  for (const auto& [limit, eos, expected] :
       {std::tuple(6, std::vector<TokenId>{}, std::vector<std::string>{"6789", "56789"}),
        std::tuple(5, std::vector<TokenId>{}, std::vector<std::string>{"6789"}),
        std::tuple(6, std::vector<TokenId>{8}, std::vector<std::string>{"67", "567"})}) {
    HintRing ring;
    Wave wave(digits(), eos, limit, 3, kAll, model.buffers, model.launcher());
    const WaveResult result = wave.run(request, ring);
    EXPECT_EQ(result.num_sent, expected.size());
    const std::vector<std::string> found = hints(ring);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(found[i + 1], "0." + std::to_string(i) + "=" + expected[i]);
    }
  }
}
