// SPDX-License-Identifier: Apache-2.0
#include "wave/wave.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "wave/function_scores.h"
#include "wave/token_lookup.h"

namespace ooospec {
namespace {

std::int64_t now_ns() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

struct Cancelled {};

constexpr int kMostDrafted = 16;  // guesses of one answer in a launch

// A slot being answered, in a lane.
struct Branch {
  const WaveSlot* slot;
  int lane;
  int length;                    // tokens of its sequence in the cache
  std::vector<TokenId> pending;  // to launch: the rest of the question, or the last token
  int choice = -1;  // where in WaveBuffers::choices the launch leaves its next token, -1: nowhere
  std::vector<TokenId> draft;  // guesses at that token and those after it, in the rows behind it
  std::vector<TokenId> answer;
  ValueReader reader;
};

}  // namespace

class WaveRun {
 public:
  WaveRun(Wave& wave, const WaveRequest& request, HintRing& ring)
      : wave_(wave),
        request_(request),
        ring_(ring),
        buffers_(wave.buffers_),
        num_prefix_(static_cast<int>(request.prefix.size())),
        page_size_(buffers_.rows.page_size),
        lookup_(request.prefix) {
    const int lane_pages = std::max(request.pages_per_lane, 1);
    num_lanes_ =
        std::min(wave.num_lanes_, static_cast<int>(request.lane_pages.size()) / lane_pages);
    check();
    for (const WaveSlot& slot : request.slots) waiting_.push_back(&slot);
    for (int lane = num_lanes_ - 1; lane >= 0; --lane) free_lanes_.push_back(lane);
  }

  WaveResult run() {
    try {
      prefill();
      fork();
      choose();
      while (!active_.empty() || next_ < waiting_.size()) {
        launch(num_to_launch() > static_cast<std::size_t>(buffers_.rows.num_rows) &&
                       !buffers_.asks.empty()
                   ? WaveProgram::kAsk
                   : WaveProgram::kStep);
        take();
      }
      end();
    } catch (const Cancelled&) {
      result_.cancelled = true;
    }
    return std::move(result_);
  }

 private:
  void check() const {
    const int capacity = static_cast<int>(request_.prefix_pages.size()) * page_size_;
    OOOSPEC_REQUIRE(num_prefix_ > 0 && num_prefix_ + buffers_.rows.num_rows <= capacity,
                    "prefix: expected 1 to ", capacity - buffers_.rows.num_rows, " tokens, got ",
                    num_prefix_);
    OOOSPEC_REQUIRE(request_.num_cached >= 0 && request_.num_cached < num_prefix_,
                    "num_cached: expected less than ", num_prefix_, ", got ", request_.num_cached);
    const auto size = static_cast<int>(request_.question.size());
    OOOSPEC_REQUIRE(size > 0 && size < buffers_.rows.num_rows, "question: expected 1 to ",
                    buffers_.rows.num_rows - 1, " tokens, got ", size);
    OOOSPEC_REQUIRE(!request_.options.empty(), "options: expected at least one, got none");
    for (const WaveOption& option : request_.options) {
      OOOSPEC_REQUIRE(!option.tokens.empty(), "option: expected at least one token, got none");
    }
    OOOSPEC_REQUIRE(request_.slots.empty() || num_lanes_ > 0,
                    "lane_pages: expected pages for at least one lane, got none");
    const int room = request_.pages_per_lane * page_size_ - num_prefix_ % page_size_;
    for (const WaveSlot& slot : request_.slots) {
      const auto needed = static_cast<int>(slot.question.size()) + wave_.max_value_tokens_;
      OOOSPEC_REQUIRE(!slot.question.empty() && needed <= room,
                      "slot: expected a question and its answer in 1 to ", room, " tokens, got ",
                      needed);
    }
  }

  std::int64_t prefix_slot(int position) const {
    return request_.prefix_slot(position, page_size_);
  }

  std::int64_t lane_slot(int lane, int position) const {
    const int page = lane * request_.pages_per_lane + position / page_size_;
    const int first = num_prefix_ / page_size_;  // of the lane's own pages
    const auto idx = static_cast<std::size_t>(page - first);
    return std::int64_t{request_.lane_pages[idx]} * page_size_ + position % page_size_;
  }

  void call(WaveProgram program, int num_rows) {
    if (wave_.cancelled_.load(std::memory_order_relaxed)) throw Cancelled();
    const std::int64_t start = now_ns();
    const char* why = wave_.launcher_.run(wave_.launcher_.self, static_cast<int>(program));
    if (why != nullptr) throw std::runtime_error(why);
    if (num_rows > 0) result_.steps.push_back({start, now_ns(), num_rows});
  }

  void prefill() {
    WaveRows& rows = buffers_.chunk;
    for (int start = request_.num_cached; start < num_prefix_;) {
      const int stop = std::min(num_prefix_, start + rows.num_rows - start % rows.num_rows);
      rows.begin();
      for (int position = start; position < stop; ++position) {
        const TokenId token = request_.prefix[static_cast<std::size_t>(position)];
        rows.add(token, position, 0, 0, prefix_slot(position));
      }
      rows.lengths[0] = start;
      call(WaveProgram::kPrefill, stop - start);
      start = stop;
    }
  }

  // Gives each lane the tokens of the prefix's last page, unless that is full.
  void fork() {
    const int count = num_prefix_ % page_size_;
    if (count == 0 || num_lanes_ == 0) return;
    *buffers_.fork_source = prefix_slot(num_prefix_ - count);
    *buffers_.fork_count = count;
    for (int lane = 0; lane < wave_.num_lanes_; ++lane) {
      const std::int64_t target = lane < num_lanes_ ? lane_slot(lane, num_prefix_ - count) : -1;
      buffers_.fork_targets[lane] = target;
    }
    call(WaveProgram::kFork, 0);
  }

  // Scores the functions, sends the likeliest, and puts the slots of likely functions first.
  void choose() {
    // If all slots get a lane at once, their order does not matter: the first go along.
    const bool all_fit = static_cast<int>(waiting_.size()) <= num_lanes_;
    FunctionScores functions(request_, buffers_, wave_.num_lanes_);
    for (std::size_t group = 0; group < functions.num_groups(); ++group) {
      buffers_.rows.begin();
      functions.add(group);
      admits_ = all_fit && group + 1 == functions.num_groups();
      launch(WaveProgram::kScore);
      functions.take();
    }
    if (request_.recorded) functions.set_recorded(*request_.recorded);
    chosen_ = functions.likeliest();
    const bool sent = ring_.try_push(request_.request_id, HintKind::kFunction, 0, chosen_, 0, "");
    result_.answers.push_back({now_ns(), HintKind::kFunction, chosen_, 0, sent});
    drop_unlikely(functions, functions.of(chosen_) - wave_.likely_within_);
    if (!all_fit) sort_waiting(functions);
    admits_ = true;
    take();
  }

  // Ends the branches of functions that score below `least`, and asks for no more of them.
  void drop_unlikely(const FunctionScores& functions, double least) {
    const std::size_t before = active_.size() + waiting_.size() - next_;
    std::erase_if(active_, [&](const Branch& branch) {
      if (functions.of(branch.slot->tool) >= least) return false;
      free_lanes_.push_back(branch.lane);
      return true;
    });
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(next_));
    next_ = 0;
    std::erase_if(waiting_, [&](const WaveSlot* slot) { return functions.of(slot->tool) < least; });
    result_.num_unsaid += static_cast<int>(before - active_.size() - waiting_.size());
  }

  void sort_waiting(const FunctionScores& functions) {
    const auto key = [&](const WaveSlot* slot) {
      return std::tuple(-functions.of(slot->tool), slot->tool, !slot->is_required, slot->parameter);
    };
    std::vector<std::pair<decltype(key(nullptr)), const WaveSlot*>> keyed;
    for (const WaveSlot* slot : waiting_) keyed.emplace_back(key(slot), slot);
    std::sort(keyed.begin(), keyed.end());
    const auto count = std::min(keyed.size(), static_cast<std::size_t>(Wave::kMaxSlots));
    waiting_.clear();
    for (std::size_t i = 0; i < count; ++i) waiting_.push_back(keyed[i].second);
  }

  // Rows that could go into the next launch if it were wide enough.
  std::size_t num_to_launch() const {
    std::size_t count = 0;
    for (const Branch& branch : active_) count += branch.pending.size();
    const std::size_t end = std::min(waiting_.size(), next_ + free_lanes_.size());
    for (std::size_t i = next_; i < end; ++i) count += waiting_[i]->question.size();
    return count;
  }

  int room() const {
    int count = 0;
    for (const WaveRows* part : parts_) count += part->room();
    return count;
  }

  // Fills a launch with what the branches have pending, guesses and new questions, and runs it. One
  // that scores has its first rows already.
  void launch(WaveProgram program) {
    parts_.clear();
    num_wanted_ = 0;
    if (program == WaveProgram::kAsk) {
      for (WaveRows& part : buffers_.asks) parts_.push_back(&part);
    } else {
      parts_.push_back(&buffers_.rows);
    }
    if (program != WaveProgram::kScore) {
      for (WaveRows* part : parts_) part->begin();
    }
    const bool asks = program == WaveProgram::kAsk;
    num_spare_ = asks ? 0 : room() - static_cast<int>(num_to_launch());
    num_to_draft_ = static_cast<int>(std::count_if(
        active_.begin(), active_.end(), [](const Branch& one) { return one.pending.size() == 1; }));
    if (!asks) add_steps(true);
    add_steps(false);
    while (admits_ && next_ < waiting_.size() && !free_lanes_.empty() && room() > 0) {
      const WaveSlot* slot = waiting_[next_++];
      const int lane = free_lanes_.back();
      free_lanes_.pop_back();
      active_.push_back({slot, lane, num_prefix_, slot->question, -1, {}, {}, {}});
      add_pending(active_.back());
    }
    if (asks) add_steps(true);  // who is ahead can wait, so that all questions may fit
    int used = 0;
    for (const WaveRows* part : parts_) used += part->used();
    call(program, used);
  }

  // Adds the branches that have one token to launch, with guesses behind it, or those with more.
  void add_steps(bool one) {
    for (Branch& branch : active_) {
      if (branch.pending.empty()) continue;  // in this launch already
      if ((branch.pending.size() == 1) != one) continue;
      add_pending(branch);
      if (one) add_draft(branch);
    }
  }

  // Adds guesses behind the branch's only token, in rows that nobody needs: most values stand in
  // the request, and a launch costs the same with them.
  void add_draft(Branch& branch) {
    branch.draft.clear();
    const int share = num_spare_ / std::max(num_to_draft_--, 1);
    if (branch.choice < 0 || parts_[0] != &buffers_.rows) return;
    const int left = wave_.max_value_tokens_ - static_cast<int>(branch.answer.size()) - 1;
    for (const TokenId token :
         lookup_.behind(branch.answer, std::min({share, left, kMostDrafted}))) {
      const int position = branch.length + static_cast<int>(branch.draft.size());
      const std::int64_t slot = lane_slot(branch.lane, position);
      const int row = buffers_.rows.add(token, position, branch.lane, ancestors_, slot);
      ancestors_ |= WaveRows::bit(row);
      branch.draft.push_back(token);
      --num_spare_;
    }
  }

  // Adds the branch's tokens; those without room come next time.
  void add_pending(Branch& branch) {
    const int count = std::min(static_cast<int>(branch.pending.size()), room());
    branch.choice = -1;
    int row = 0, first = 0;  // of the branch in its part; the first row of the part
    for (int i = 0; i < count; ++i) {
      std::size_t part = 0;
      while (parts_[part]->room() == 0) ++part;
      WaveRows& rows = *parts_[part];
      if (i == 0 || rows.used() == 0) {
        rows.lengths[branch.lane] = branch.length;
        ancestors_ = 0;
      }
      const TokenId token = branch.pending[static_cast<std::size_t>(i)];
      const std::int64_t slot = lane_slot(branch.lane, branch.length);
      row = rows.add(token, branch.length++, branch.lane, ancestors_, slot);
      ancestors_ |= WaveRows::bit(row);
      first = static_cast<int>(part) * rows.num_rows;
    }
    branch.pending.erase(branch.pending.begin(), branch.pending.begin() + count);
    if (count == 0 || !branch.pending.empty()) return;
    branch.choice = row;
    if (parts_[0] != &buffers_.rows) {
      buffers_.wanted[num_wanted_] = first + row;
      branch.choice = num_wanted_++;
    }
  }

  // Takes up the token that every branch has got; those that ended make room.
  void take() {
    std::erase_if(active_, [this](Branch& branch) { return branch.choice >= 0 && finish(branch); });
  }

  // Takes up the branch's new tokens: the choice, and where that was drafted the one behind it, and
  // so on. Returns whether the answer ended, and sends it if so.
  bool finish(Branch& branch) {
    for (std::size_t i = 0;; ++i) {
      const int row = branch.choice + static_cast<int>(i);
      buffers_.require_choice(row);
      const std::vector<TokenId>& told = branch.slot->recorded;
      const std::size_t place = branch.answer.size();
      const TokenId token = place < told.size() ? told[place] : buffers_.choices[row];
      if (answer(branch, token)) return true;
      if (i == branch.draft.size() || branch.draft[i] != token) {
        branch.pending.assign(1, token);
        branch.draft.clear();
        return false;
      }
      ++branch.length;
    }
  }

  // Takes up a token; returns whether the answer ended.
  bool answer(Branch& branch, TokenId token) {
    branch.answer.push_back(token);
    const std::vector<TokenId>& eos = wave_.eos_ids_;
    bool ended = std::find(eos.begin(), eos.end(), token) != eos.end();
    if (!ended && wave_.vocab_->contains(token)) {
      ended = branch.reader.feed(wave_.vocab_->bytes(token));
    }
    if (!ended && static_cast<int>(branch.answer.size()) < wave_.max_value_tokens_) return false;
    const WaveSlot& slot = *branch.slot;
    const bool sent = ended && send(slot, branch.reader.answer());
    result_.answers.push_back({now_ns(), HintKind::kValue, slot.tool, slot.parameter, sent});
    result_.num_invalid += !ended;
    free_lanes_.push_back(branch.lane);
    return true;
  }

  bool send(const WaveSlot& slot, std::string_view answer) {
    hint_.clear();
    const bool is_value = slot.schema.to_hint(answer, hint_);
    if (is_value && hint_ == "null" && slot.tool != chosen_) {
      ++result_.num_unsaid;
      return false;
    }
    if (!is_value || (hint_ == "null" && slot.is_required && !slot.schema.is_nullable())) {
      ++result_.num_invalid;
      return false;
    }
    const bool sent =
        ring_.try_push(request_.request_id, HintKind::kValue, 0, slot.tool, slot.parameter, hint_);
    result_.num_sent += sent;
    return sent;
  }

  void end() {
    const auto num_slots = static_cast<int>(request_.slots.size());
    const int missing = num_slots - result_.num_sent - result_.num_unsaid;
    const std::string text =
        missing > 0 ? concat(missing, " of ", num_slots, " slots have no valid value") : "";
    const HintKind kind = missing > 0 ? HintKind::kError : HintKind::kEnd;
    ring_.try_push(request_.request_id, kind, 0, 0, 0, text);
  }

  Wave& wave_;
  const WaveRequest& request_;
  HintRing& ring_;
  WaveBuffers& buffers_;
  const int num_prefix_;
  const int page_size_;
  int num_lanes_ = 0;
  bool admits_ = false;
  std::uint16_t chosen_ = 0;
  std::vector<const WaveSlot*> waiting_;
  std::size_t next_ = 0;  // of those that wait
  std::vector<int> free_lanes_;
  std::vector<WaveRows*> parts_;  // of the launch under way
  int num_wanted_ = 0;
  int num_spare_ = 0;            // rows of it for guesses
  int num_to_draft_ = 0;         // branches that may still have some
  std::uint64_t ancestors_ = 0;  // of the next row of a branch, in its part
  std::vector<Branch> active_;
  const TokenLookup lookup_;
  std::string hint_;
  WaveResult result_;
};

Wave::Wave(std::shared_ptr<const Vocab> vocab, std::vector<TokenId> eos_ids, int max_value_tokens,
           int num_lanes, double likely_within, const WaveBuffers& buffers, Launcher launcher)
    : vocab_(std::move(vocab)),
      eos_ids_(std::move(eos_ids)),
      max_value_tokens_(max_value_tokens),
      num_lanes_(num_lanes),
      likely_within_(likely_within),
      buffers_(buffers),
      launcher_(launcher) {
  OOOSPEC_REQUIRE(max_value_tokens >= 1, "max_value_tokens: expected at least 1, got ",
                  max_value_tokens);
  OOOSPEC_REQUIRE(num_lanes >= 1 && num_lanes < buffers.rows.num_sequences,
                  "num_lanes: expected 1 to ", buffers.rows.num_sequences - 1, ", got ", num_lanes);
  OOOSPEC_REQUIRE(likely_within >= 0, "likely_within: expected at least 0, got ", likely_within);
  OOOSPEC_REQUIRE(num_lanes < buffers.rows.num_rows && buffers.rows.num_rows <= 64,
                  "rows: expected more than ", num_lanes, " and at most 64, got ",
                  buffers.rows.num_rows);
}

WaveResult Wave::run(const WaveRequest& request, HintRing& ring) {
  return WaveRun(*this, request, ring).run();
}

}  // namespace ooospec
