// SPDX-License-Identifier: Apache-2.0
//
// Measures hint_ring from inside C++, and tries it hard; bench/bench_hint_ring.py compiles and runs
// it.
//
//   clock NUM        prints NUM times between two readings of the clock, in ns
//   pair NUM         prints NUM times of a push and a pop in one process, clock included, in ns
//   stream NUM       NUM records from a child to this process, the writer retrying while the ring
//   is full; prints JSON kill NUM SEED    NUM children that push until they are killed at a random
//   moment; prints JSON
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ring/hint_ring.h"

namespace {

using ooospec::HintKind;
using ooospec::HintRecord;
using ooospec::HintRing;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kRecordsPerRequest = 20;

// What record `idx` must say: 5 to 165 bytes, 85 on average.
class Expected {
 public:
  Expected() {
    std::mt19937_64 random(1);
    for (auto& text : texts_) {
      text.resize(5 + random() % 161);
      for (char& c : text) c = static_cast<char>(' ' + random() % 95);
    }
  }

  bool push(HintRing& ring, std::uint64_t idx) const {
    return ring.try_push(idx / kRecordsPerRequest, HintKind::kValue,
                         static_cast<std::uint16_t>(idx), static_cast<std::uint16_t>(idx >> 16),
                         static_cast<std::uint16_t>(idx >> 32), texts_[idx % texts_.size()]);
  }

  bool is(const HintRecord& record, std::uint64_t idx) const {
    return record.request_id == idx / kRecordsPerRequest && record.kind == HintKind::kValue &&
           record.call == static_cast<std::uint16_t>(idx) &&
           record.tool == static_cast<std::uint16_t>(idx >> 16) &&
           record.parameter == static_cast<std::uint16_t>(idx >> 32) &&
           record.text() == texts_[idx % texts_.size()];
  }

 private:
  std::vector<std::string> texts_ = std::vector<std::string>(1024);
};

const Expected kExpected;

// Gives the core away now and then: the other end may need it.
class Patience {
 public:
  void wait() {
    if (++num_waits_ % 256 == 0) ::sched_yield();
  }

 private:
  unsigned num_waits_ = 0;
};

[[noreturn]] void write_records(HintRing& ring, std::uint64_t num_records) {
  Patience patience;
  for (std::uint64_t idx = 0; idx < num_records; ++idx) {
    while (!kExpected.push(ring, idx)) patience.wait();
  }
  std::_Exit(0);
}

pid_t fork_writer(int fd, std::uint64_t num_records) {
  const pid_t child = ::fork();
  if (child == 0) write_records(*HintRing::attach(fd), num_records);
  if (child < 0) {
    std::perror("fork");
    std::exit(1);
  }
  return child;
}

std::int64_t ns_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count();
}

void print_clock(std::uint64_t num_times) {
  for (std::uint64_t i = 0; i < num_times; ++i) {
    const auto start = Clock::now();
    std::printf("%lld\n", static_cast<long long>(ns_between(start, Clock::now())));
  }
}

void print_pairs(std::uint64_t num_pairs) {
  HintRing ring;
  HintRecord record;
  std::vector<std::int64_t> times(num_pairs);
  for (std::uint64_t idx = 0; idx < num_pairs; ++idx) {
    const auto start = Clock::now();
    const bool is_through = kExpected.push(ring, idx) && ring.try_pop(record);
    times[idx] = ns_between(start, Clock::now());
    if (!is_through || !kExpected.is(record, idx)) {
      std::fprintf(stderr, "pair: record %llu is wrong\n", static_cast<unsigned long long>(idx));
      std::exit(1);
    }
  }
  for (const auto time : times) std::printf("%lld\n", static_cast<long long>(time));
}

void print_stream(std::uint64_t num_records) {
  HintRing ring(std::size_t{1} << 20, true);
  HintRecord record;
  Patience patience;
  const pid_t child = fork_writer(ring.fd(), num_records);
  std::uint64_t num_read = 0;
  std::uint64_t num_wrong = 0;
  auto start = Clock::now();
  for (bool is_alive = true; num_read < num_records;) {
    if (ring.try_pop(record)) {
      if (num_read == 0) start = Clock::now();
      num_wrong += !kExpected.is(record, num_read++);
    } else if (is_alive) {
      patience.wait();
      is_alive = ::waitpid(child, nullptr, WNOHANG) == 0;
    } else {
      break;
    }
  }
  const double seconds = 1e-9 * static_cast<double>(ns_between(start, Clock::now()));
  ::waitpid(child, nullptr, 0);
  std::printf(
      "{\"records\": %llu, \"lost\": %llu, \"wrong\": %llu, \"torn\": %llu, \"seconds\": %f}\n",
      static_cast<unsigned long long>(num_read),
      static_cast<unsigned long long>(num_records - num_read),
      static_cast<unsigned long long>(num_wrong), static_cast<unsigned long long>(ring.torn()),
      seconds);
}

struct Killed {
  std::uint64_t num_read = 0;
  std::uint64_t num_wrong = 0;
  std::uint64_t num_torn = 0;
};

// One writer's life: most are killed within 200 us of their first record, some before they begin.
void kill_one(std::mt19937_64& random, Killed& killed) {
  HintRing ring(4096, true);
  HintRecord record;
  std::uint64_t idx = 0;
  const auto drain = [&] {
    while (ring.try_pop(record)) killed.num_wrong += !kExpected.is(record, idx++);
  };
  const pid_t child = fork_writer(ring.fd(), ~std::uint64_t{0});
  Patience patience;
  while (random() % 1'000'000 != 0 && idx == 0) {
    drain();
    patience.wait();
  }
  const auto end = Clock::now() + std::chrono::nanoseconds(random() % 200'000);
  while (Clock::now() < end) drain();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  drain();
  killed.num_read += idx;
  killed.num_torn += ring.torn();
}

void print_kills(std::uint64_t num_kills, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Killed killed;
  for (std::uint64_t i = 0; i < num_kills; ++i) kill_one(random, killed);
  std::printf("{\"killed\": %llu, \"records\": %llu, \"wrong\": %llu, \"torn\": %llu}\n",
              static_cast<unsigned long long>(num_kills),
              static_cast<unsigned long long>(killed.num_read),
              static_cast<unsigned long long>(killed.num_wrong),
              static_cast<unsigned long long>(killed.num_torn));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 2 ? argv[1] : "";
  const std::uint64_t num = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (mode == "clock") {
    print_clock(num);
  } else if (mode == "pair") {
    print_pairs(num);
  } else if (mode == "stream") {
    print_stream(num);
  } else if (mode == "kill" && argc > 3) {
    print_kills(num, std::strtoull(argv[3], nullptr, 10));
  } else {
    std::fprintf(stderr,
                 "usage: hint_ring_bench clock NUM | pair NUM | stream NUM | kill NUM SEED\n");
    return 2;
  }
  return 0;
}
