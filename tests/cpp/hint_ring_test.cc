// SPDX-License-Identifier: Apache-2.0
#include "ring/hint_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cpp/check.h"

namespace {

using ooospec::HintKind;
using ooospec::HintRecord;
using ooospec::HintRing;

constexpr std::size_t kHeaderBytes = 640;
constexpr std::size_t kTailOffset = 128;
constexpr std::size_t kHeadOffset = 256;

std::string text_of(std::uint64_t idx, std::size_t max_bytes) {
  std::string text((idx * 37) % (max_bytes + 1), '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + (idx + i) % 26);
  return text;
}

bool push(HintRing& ring, std::uint64_t request_id, std::string_view text) {
  return ring.try_push(request_id, HintKind::kValue, 1, 2, 3, text);
}

// The second mapping that a hostile process would have, to write what it likes.
class Scribble {
 public:
  explicit Scribble(const HintRing& ring) : num_bytes_(kHeaderBytes + ring.capacity_bytes()) {
    void* address = ::mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd(), 0);
    EXPECT(address != MAP_FAILED);
    bytes_ = static_cast<unsigned char*>(address);
  }
  ~Scribble() { ::munmap(bytes_, num_bytes_); }
  unsigned char& operator[](std::size_t offset) { return bytes_[offset]; }
  std::size_t size() const { return num_bytes_; }

  template <typename T>
  void put(std::size_t offset, T value) {
    std::memcpy(bytes_ + offset, &value, sizeof value);
  }
  template <typename T>
  T get(std::size_t offset) const {
    T value;
    std::memcpy(&value, bytes_ + offset, sizeof value);
    return value;
  }

 private:
  std::size_t num_bytes_;
  unsigned char* bytes_ = nullptr;
};

int num_open_fds() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
  return count;
}

}  // namespace

TEST(fields_arrive) {
  HintRing ring(1024);
  HintRecord record;
  EXPECT(!ring.try_pop(record));
  EXPECT(ring.try_push(~0ull, HintKind::kFunction, 65535, ooospec::kNoTool, 7, "get\0weather"));
  EXPECT(ring.try_push(5, HintKind::kError, 0, 1, 65535, ""));
  EXPECT(ring.try_pop(record));
  EXPECT_EQ(record.request_id, ~0ull);
  EXPECT_EQ(record.kind, HintKind::kFunction);
  EXPECT_EQ(record.call, 65535);
  EXPECT_EQ(record.tool, ooospec::kNoTool);
  EXPECT_EQ(record.parameter, 7);
  EXPECT_EQ(record.sequence, 0);
  EXPECT_EQ(record.text(), "get\0weather");
  EXPECT(ring.try_pop(record));
  EXPECT_EQ(record.kind, HintKind::kError);
  EXPECT_EQ(record.sequence, 1);
  EXPECT_EQ(record.text(), "");
  EXPECT(!ring.try_pop(record));
}

TEST(every_length_at_every_wrap) {
  for (const bool shared : {false, true}) {
    HintRing ring(256, shared);
    HintRecord record;
    for (std::uint64_t i = 0; i < 3000; ++i) {
      const std::string text = text_of(i, 224);
      EXPECT(push(ring, i, text));
      EXPECT(ring.try_pop(record));
      EXPECT_EQ(record.text(), text);
      EXPECT_EQ(record.request_id, i);
    }
    EXPECT_EQ(ring.torn(), 0);
    EXPECT_EQ(ring.dropped(), 0);
  }
}

TEST(full_ring_drops_the_newest) {
  HintRing ring(64);
  HintRecord record;
  EXPECT(push(ring, 0, ""));
  EXPECT(!push(ring, 1, "x"));  // 40 bytes, 32 left
  EXPECT(push(ring, 2, ""));
  EXPECT(!push(ring, 3, ""));
  EXPECT_EQ(ring.dropped(), 2);
  EXPECT(ring.try_pop(record));
  EXPECT_EQ(record.request_id, 0);
  EXPECT(push(ring, 4, ""));
  EXPECT(ring.try_pop(record));
  EXPECT_EQ(record.request_id, 2);
  EXPECT(ring.try_pop(record));
  EXPECT_EQ(record.request_id, 4);
  EXPECT_EQ(record.sequence, 4);  // the gap shows the drops
  EXPECT(!ring.try_pop(record));
}

TEST(text_cap) {
  HintRing ring(1 << 16);
  HintRecord record;
  const std::string longest(HintRecord::kMaxTextBytes, 'x');
  EXPECT(push(ring, 0, longest));
  EXPECT(!push(ring, 0, longest + "x"));
  EXPECT_EQ(ring.dropped(), 1);
  EXPECT(ring.try_pop(record));
  EXPECT_EQ(record.text(), longest);
}

TEST(request_cap) {
  HintRing ring;
  HintRecord record;
  const std::size_t num_allowed = HintRing::kMaxRequestBytes / HintRing::kRecordBytes;
  for (std::size_t i = 0; i < num_allowed; ++i) EXPECT(push(ring, 7, ""));
  EXPECT(!push(ring, 7, ""));
  while (ring.try_pop(record)) continue;
  EXPECT(!push(ring, 7, ""));  // room does not help
  EXPECT(push(ring, 8, ""));   // nor does one request hurt another
  EXPECT_EQ(ring.dropped(), 2);
  for (std::size_t i = 0; i < HintRing::kMaxRequests; ++i) EXPECT(push(ring, 100 + i, ""));
  EXPECT(push(ring, 7, ""));  // forgotten after 64 others
}

TEST(a_refused_record_costs_its_request_nothing) {
  HintRing ring(64);
  HintRecord record;
  for (std::size_t i = 0; i < HintRing::kMaxRequestBytes / HintRing::kRecordBytes; ++i) {
    EXPECT(push(ring, 7, ""));
    EXPECT(!push(ring, 7, "does not fit"));
    EXPECT(ring.try_pop(record));
  }
  EXPECT(!push(ring, 7, ""));
}

TEST(bad_arguments) {
  EXPECT_THROWS(HintRing(63), std::invalid_argument, "got 63");
  EXPECT_THROWS(HintRing(HintRing::kMaxCapacityBytes + 1), std::invalid_argument, "[64, ");
  EXPECT_EQ(HintRing(65).capacity_bytes(), 128);
  EXPECT_EQ(HintRing(64).fd(), -1);
  HintRing ring(64);
  EXPECT_THROWS(ring.try_push(0, static_cast<HintKind>(0), 0, 0, 0, ""), std::invalid_argument,
                "got 0");
  EXPECT_THROWS(ring.try_push(0, static_cast<HintKind>(5), 0, 0, 0, ""), std::invalid_argument,
                "got 5");
}

TEST(attach_reads_on_where_the_ring_stands) {
  HintRing writer(256, true);
  HintRecord record;
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT(push(writer, i, text_of(i, 100)));
    EXPECT(HintRing::attach(writer.fd())->try_pop(record));
    EXPECT_EQ(record.text(), text_of(i, 100));
  }
  const auto reader = HintRing::attach(writer.fd());
  EXPECT(!reader->try_pop(record));
  EXPECT(!push(writer, 0, std::string(500, 'x')));
  EXPECT_EQ(reader->dropped(), 1);
  EXPECT(reader->fd() != writer.fd());
}

TEST(attach_refuses_what_is_no_ring) {
  EXPECT_THROWS(HintRing::attach(-1), std::system_error, "descriptor");
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  EXPECT_THROWS(HintRing::attach(ends[0]), std::invalid_argument, "another file");
  HintRing ring(256, true);
  Scribble bytes(ring);
  const auto refuses = [&](std::size_t offset, auto wrong, const char* message) {
    const auto right = bytes.get<decltype(wrong)>(offset);
    bytes.put(offset, wrong);
    EXPECT_THROWS(HintRing::attach(ring.fd()), std::invalid_argument, message);
    bytes.put(offset, right);
  };
  refuses(0, std::uint64_t{1}, "expected magic");
  refuses(8, std::uint32_t{2}, "expected version 1, got 2");
  refuses(12, std::uint32_t{64}, "expected header_bytes 640, got 64");
  refuses(16, std::uint64_t{255}, "power of two");
  refuses(16, std::uint64_t{0}, "power of two");
  refuses(16, ~std::uint64_t{0}, "power of two");
  refuses(16, std::uint64_t{512}, "expected 1152 bytes of memory, got 896");
  EXPECT(HintRing::attach(ring.fd()) != nullptr);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(nobody_can_shrink_the_memory) {
  HintRing ring(256, true);
  EXPECT(::ftruncate(ring.fd(), 0) != 0);
  const int unsealed = ::memfd_create("not-a-ring", MFD_CLOEXEC);
  EXPECT_EQ(::ftruncate(unsealed, 896), 0);
  EXPECT_THROWS(HintRing::attach(unsealed), std::invalid_argument, "sealed");
  ::close(unsealed);
}

TEST(descriptors_are_given_back) {
  const int before = num_open_fds();
  {
    HintRing ring(256, true);
    const auto other = HintRing::attach(ring.fd());
    EXPECT_EQ(num_open_fds(), before + 2);
    const int unsealed = ::memfd_create("not-a-ring", MFD_CLOEXEC);
    EXPECT_THROWS(HintRing::attach(unsealed), std::invalid_argument, "");
    ::close(unsealed);
  }
  EXPECT_EQ(num_open_fds(), before);
}

TEST(a_torn_record_is_skipped_and_the_next_one_read) {
  for (std::size_t offset = 0; offset < 72; ++offset) {  // every byte of the middle record
    HintRing ring(1024, true);
    Scribble bytes(ring);
    HintRecord record;
    for (std::uint64_t i = 0; i < 3; ++i) EXPECT(push(ring, i, std::string(40, 'x')));
    bytes[kHeaderBytes + 72 + offset] ^= 0x40;
    EXPECT(ring.try_pop(record));
    EXPECT_EQ(record.request_id, 0);
    const bool is_length = offset >= 20 && offset < 24;  // what follows cannot be found
    EXPECT_EQ(ring.try_pop(record), !is_length);
    EXPECT(ring.torn() >= 1);
    if (!is_length) EXPECT_EQ(record.request_id, 2);
    EXPECT(!ring.try_pop(record));
    EXPECT(push(ring, 3, "after"));
    EXPECT(ring.try_pop(record));
    EXPECT_EQ(record.text(), "after");
  }
}

TEST(a_length_too_long_for_a_record_or_for_what_is_published) {
  for (const std::uint32_t length : {4097u, 8000u, 12'345u, ~0u, ~0u - 6}) {
    HintRing ring(1 << 14, true);
    Scribble bytes(ring);
    HintRecord record;
    for (int i = 0; i < 3; ++i) EXPECT(push(ring, 1, std::string(4000, 'x')));
    bytes.put(kHeaderBytes + 20, length);
    EXPECT(!ring.try_pop(record));
    EXPECT_EQ(ring.torn(), 1);
  }
  for (std::uint32_t length = 41; length <= 4096; length += 5) {
    HintRing ring(1 << 14, true);
    Scribble bytes(ring);
    HintRecord record;
    EXPECT(push(ring, 1, std::string(40, 'x')));
    bytes.put(kHeaderBytes + 20, length);
    EXPECT(!ring.try_pop(record));
    EXPECT(push(ring, 2, "after"));
    EXPECT(ring.try_pop(record));
    EXPECT_EQ(record.text(), "after");
  }
}

TEST(an_unknown_kind_with_a_right_checksum) {
  for (int kind = 0; kind < 256; ++kind) {
    HintRing ring(256, true);
    Scribble bytes(ring);
    HintRecord record;
    EXPECT(push(ring, 1, ""));
    bytes[kHeaderBytes + 30] = static_cast<unsigned char>(kind);
    std::uint64_t states[2] = {0, bytes.get<std::uint64_t>(0)};  // as the head of hint_ring.h says
    const auto mix = [](std::uint64_t state, std::uint64_t word) {
      state = (state ^ word) * 0x9E3779B97F4A7C15;
      return state ^ (state >> 32);
    };
    for (std::size_t i = 1; i < 4; ++i) {
      states[0] = mix(states[0], bytes.get<std::uint64_t>(kHeaderBytes + 8 * i));
      std::swap(states[0], states[1]);
    }
    bytes.put(kHeaderBytes, mix(states[0], states[1]));
    EXPECT_EQ(ring.try_pop(record), kind >= 1 && kind <= 4);
    EXPECT_EQ(ring.torn(), kind >= 1 && kind <= 4 ? 0 : 1);
  }
}

TEST(a_record_of_an_earlier_lap_does_not_pass) {
  HintRing ring(64, true);
  Scribble bytes(ring);
  HintRecord record;
  EXPECT(push(ring, 1, std::string(32, 'x')));
  EXPECT(ring.try_pop(record));
  bytes.put<std::uint64_t>(kTailOffset, 128);  // published, but never written
  EXPECT(!ring.try_pop(record));
  EXPECT_EQ(ring.torn(), 1);
}

TEST(an_impossible_tail_is_counted_once_and_forgiven) {
  for (const std::uint64_t tail : {0ull, 39ull, 41ull, 304ull, ~0ull, 1ull << 63}) {
    HintRing ring(256, true);
    Scribble bytes(ring);
    HintRecord record;
    EXPECT(push(ring, 1, "a"));
    EXPECT(ring.try_pop(record));  // head and tail are at 40
    bytes.put(kTailOffset, tail);
    for (int i = 0; i < 3; ++i) EXPECT(!ring.try_pop(record));
    EXPECT_EQ(ring.torn(), 1);
    EXPECT(push(ring, 2, "b"));
    EXPECT(ring.try_pop(record));
    EXPECT_EQ(record.text(), "b");
  }
}

TEST(random_bytes_over_the_whole_mapping) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    HintRing ring(1024, true);
    const auto reader = HintRing::attach(ring.fd());
    Scribble bytes(ring);
    HintRecord record;
    for (std::uint64_t i = 0; i < 5; ++i) push(ring, i, text_of(i, 100));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(random());
    if (round % 2 == 0) bytes.put<std::uint64_t>(kTailOffset, (1 + random() % 128) * 8);
    for (int i = 0; i < 50; ++i) EXPECT(!reader->try_pop(record));
    EXPECT(reader->torn() >= 1);
    for (int i = 0; i < 50; ++i) {
      push(ring, 9, "the writer lives on");
      if (reader->try_pop(record)) EXPECT_EQ(record.text(), "the writer lives on");
    }
  }
}

// A writer that knows the format: right checksums, cursors and words changed while they are read.
// It pushes through the mapping that is read, so that TSan sees whether every access is atomic.
TEST(hostile_writer_while_popping) {
  constexpr int kNumRounds = 60;
  std::uint64_t num_read = 0;
  std::uint64_t num_torn = 0;
  for (int round = 0; round < kNumRounds; ++round) {
    HintRing ring(1024, true);
    Scribble bytes(ring);
    std::atomic<bool> done = false;
    std::thread hostile([&] {
      std::mt19937_64 random(round);
      for (std::uint64_t i = 0; i < 1000; ++i) {
        push(ring, i, text_of(random(), 200));
        const auto tail = bytes.get<std::uint64_t>(kTailOffset);
        if (i % 3 == 0) bytes.put<std::uint64_t>(kHeaderBytes + random() % 128 * 8, random() % 500);
        if (i % 5 == 0) bytes.put<std::uint64_t>(kHeadOffset, tail);  // writes over unread bytes
        if (i % 7 == 0) bytes.put<std::uint64_t>(kTailOffset, tail + random() % 128 * 8);
        if (i % 11 == 0) bytes.put<std::uint64_t>(kTailOffset, random());
        if (i % 16 == 0) std::this_thread::yield();
      }
      done = true;
    });
    HintRecord record;
    while (!done) {
      if (!ring.try_pop(record)) continue;
      ++num_read;
      EXPECT(record.length <= 200);
      EXPECT_EQ(record.kind, HintKind::kValue);
      for (std::size_t i = 1; i < record.length; ++i) {
        EXPECT_EQ((record.bytes[i] - record.bytes[i - 1] + 26) % 26, 1);
      }
    }
    hostile.join();
    num_torn += ring.torn();
  }
  EXPECT(num_read > 0);
  EXPECT(num_torn > 0);
  std::printf("hostile writer: %llu records read, %llu torn\n",
              static_cast<unsigned long long>(num_read), static_cast<unsigned long long>(num_torn));
}

TEST(threads_lose_and_tear_nothing) {
  for (const std::size_t capacity : {std::size_t{64}, std::size_t{1024}, std::size_t{1} << 16}) {
    HintRing ring(capacity);
    const std::size_t max_text = capacity == 64 ? 32 : 300;
    constexpr std::uint64_t kNumRecords = 50'000;
    std::thread writer([&] {
      for (std::uint64_t i = 0; i < kNumRecords; ++i) {
        while (!push(ring, i, text_of(i, max_text))) std::this_thread::yield();
      }
    });
    HintRecord record;
    for (std::uint64_t i = 0; i < kNumRecords; ++i) {
      while (!ring.try_pop(record)) std::this_thread::yield();
      EXPECT_EQ(record.request_id, i);
      EXPECT_EQ(record.text(), text_of(i, max_text));
    }
    writer.join();
    EXPECT(!ring.try_pop(record));
    EXPECT_EQ(ring.torn(), 0);
  }
}

// The ring holds two records, so where push(i) succeeds, i - 2 is taken and the slot of i - 3 was
// read. TSan, blind to the order of the ring's own words because they are atomic, sees from the
// slots whether tail and head are handed over right.
TEST(both_cursors_order_memory_outside_the_ring) {
  HintRing ring(64);
  std::array<std::uint64_t, 4> slots{};
  constexpr std::uint64_t kNumRecords = 20'000;
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kNumRecords; ++i) {
      slots[i % 4] = i;
      while (!push(ring, i, "")) std::this_thread::yield();
    }
  });
  HintRecord record;
  for (std::uint64_t i = 0; i < kNumRecords; ++i) {
    while (!ring.try_pop(record)) std::this_thread::yield();
    EXPECT_EQ(slots[i % 4], i);
  }
  writer.join();
}

TEST(slow_reader_sees_a_subsequence_in_order) {
  HintRing ring(512);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < 100'000; ++i) push(ring, i, text_of(i, 100));
    done = true;
  });
  HintRecord record;
  std::uint64_t num_read = 0;
  std::uint64_t next = 0;
  for (bool last = false; !last;) {
    last = done;
    while (ring.try_pop(record)) {
      EXPECT(record.request_id >= next);
      EXPECT_EQ(record.sequence, record.request_id);
      EXPECT_EQ(record.text(), text_of(record.request_id, 100));
      next = record.request_id + 1;
      ++num_read;
    }
    std::this_thread::yield();
  }
  writer.join();
  EXPECT_EQ(num_read + ring.dropped(), 100'000);
  EXPECT_EQ(ring.torn(), 0);
}
