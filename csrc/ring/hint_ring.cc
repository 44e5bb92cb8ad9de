// SPDX-License-Identifier: Apache-2.0
#include "ring/hint_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

#include "common/check.h"

namespace ooospec {

constexpr std::size_t kLineBytes = 128;               // x86-64 fetches lines of 64 in pairs
constexpr std::uint64_t kMagic = 0x676E6972746E6968;  // "hintring"
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kWordBytes = sizeof(std::uint64_t);

struct RingHeader {
  struct Constants {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t header_bytes;
    std::uint64_t capacity_bytes;
  } constants;
  alignas(kLineBytes) std::atomic<std::uint64_t> tail;
  alignas(kLineBytes) std::atomic<std::uint64_t> head;
  alignas(kLineBytes) std::atomic<std::uint64_t> dropped;
  alignas(kLineBytes) std::atomic<std::uint64_t> torn;
};
using RingConstants = RingHeader::Constants;
static_assert(offsetof(RingHeader, constants) == 0 && offsetof(RingConstants, version) == 8);
static_assert(offsetof(RingConstants, header_bytes) == 12 &&
              offsetof(RingConstants, capacity_bytes) == 16);
static_assert(offsetof(RingHeader, tail) == 128 && offsetof(RingHeader, head) == 256);
static_assert(offsetof(RingHeader, dropped) == 384 && offsetof(RingHeader, torn) == 512);
static_assert(sizeof(RingHeader) == 640 && std::is_standard_layout_v<RingHeader>);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint64_t>) == 8);
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

namespace {

struct RecordHeader {
  std::uint64_t checksum;
  std::uint64_t request_id;
  std::uint32_t sequence;
  std::uint32_t length;
  std::uint16_t call;
  std::uint16_t tool;
  std::uint16_t parameter;
  std::uint8_t kind;
  std::uint8_t zero;
};
static_assert(offsetof(RecordHeader, request_id) == 8 && offsetof(RecordHeader, sequence) == 16);
static_assert(offsetof(RecordHeader, length) == 20 && offsetof(RecordHeader, call) == 24);
static_assert(offsetof(RecordHeader, tool) == 26 && offsetof(RecordHeader, parameter) == 28);
static_assert(offsetof(RecordHeader, kind) == 30 && sizeof(RecordHeader) == HintRing::kRecordBytes);

using HeaderWords = std::array<std::uint64_t, sizeof(RecordHeader) / kWordBytes>;
static_assert(HintRecord::kMaxTextBytes % kWordBytes == 0);

// Bijective in either argument.
std::uint64_t mix(std::uint64_t state, std::uint64_t word) {
  state = (state ^ word) * 0x9E3779B97F4A7C15;
  return state ^ (state >> 32);
}

// Of the words of a record but the first. One wrong word always changes it, and so does another
// cursor. Two states take turns, so that a multiplication need not wait for the one before.
class Checksum {
 public:
  Checksum(const HeaderWords& words, std::uint64_t cursor) : next_(cursor), last_(kMagic) {
    for (std::size_t i = 1; i < words.size(); ++i) add(words[i]);
  }
  void add(std::uint64_t word) { next_ = std::exchange(last_, mix(next_, word)); }
  std::uint64_t value() const { return mix(next_, last_); }

 private:
  std::uint64_t next_;
  std::uint64_t last_;
};

constexpr std::uint64_t round_up_to_words(std::uint64_t num_bytes) {
  return (num_bytes + kWordBytes - 1) / kWordBytes * kWordBytes;
}

[[noreturn]] void raise_system_error(const char* what) {
  throw std::system_error(errno, std::generic_category(), concat("HintRing: ", what));
}

class OwnedFd {
 public:
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

#ifdef __linux__
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

// Returns memory without a name, of a size that nobody can change.
int create_nameless_file(std::size_t num_bytes) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int raw = ::memfd_create("ooospec-hint-ring", kFlags | MFD_NOEXEC_SEAL);
  const bool is_old_kernel = raw < 0 && errno == EINVAL;  // before Linux 6.3
  if (is_old_kernel) raw = ::memfd_create("ooospec-hint-ring", kFlags);
  if (raw < 0) raise_system_error("memfd_create");
  OwnedFd fd(raw);
  if (::ftruncate(fd.get(), static_cast<off_t>(num_bytes)) != 0) raise_system_error("ftruncate");
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    raise_system_error("F_ADD_SEALS");
  }
  return fd.release();
}

bool is_sealed(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}
#else
// macOS has neither memfd nor seals: a name that is gone at once.
int create_nameless_file(std::size_t num_bytes) {
  static std::atomic<int> num_made = 0;
  const std::string name = concat("/ooospec-", ::getpid(), "-", num_made++);
  OwnedFd fd(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  if (fd.get() < 0) raise_system_error("shm_open");
  ::shm_unlink(name.c_str());
  if (::ftruncate(fd.get(), static_cast<off_t>(num_bytes)) != 0) raise_system_error("ftruncate");
  return fd.release();
}

bool is_sealed(int) { return true; }
#endif

std::byte* map(std::size_t num_bytes, int fd) {
  int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
#ifdef MAP_POPULATE
  flags |= MAP_POPULATE;  // no page faults in the first lap
#endif
  void* address = ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (address == MAP_FAILED) raise_system_error("mmap");
  return static_cast<std::byte*>(address);
}

// Says what is wrong with a ring that somebody else made.
void check(const RingConstants& constants, std::uint64_t num_bytes) {
  const auto [magic, version, header_bytes, capacity_bytes] = constants;
  OOOSPEC_REQUIRE(magic == kMagic, "HintRing.attach: expected magic ", kMagic, ", got ", magic);
  OOOSPEC_REQUIRE(version == kVersion, "HintRing.attach: expected version ", kVersion, ", got ",
                  version);
  OOOSPEC_REQUIRE(header_bytes == sizeof(RingHeader), "HintRing.attach: expected header_bytes ",
                  sizeof(RingHeader), ", got ", header_bytes);
  OOOSPEC_REQUIRE(
      std::has_single_bit(capacity_bytes) && capacity_bytes >= HintRing::kMinCapacityBytes &&
          capacity_bytes <= HintRing::kMaxCapacityBytes,
      "HintRing.attach: expected a capacity that is a power of two in [",
      HintRing::kMinCapacityBytes, ", ", HintRing::kMaxCapacityBytes, "], got ", capacity_bytes);
  OOOSPEC_REQUIRE(num_bytes == header_bytes + capacity_bytes, "HintRing.attach: expected ",
                  header_bytes + capacity_bytes, " bytes of memory, got ", num_bytes);
}

}  // namespace

HintRing::Mapping HintRing::create(std::size_t capacity_bytes, bool shared) {
  OOOSPEC_REQUIRE(capacity_bytes >= kMinCapacityBytes && capacity_bytes <= kMaxCapacityBytes,
                  "HintRing: expected capacity_bytes in [", kMinCapacityBytes, ", ",
                  kMaxCapacityBytes, "], got ", capacity_bytes);
  capacity_bytes = std::bit_ceil(capacity_bytes);
  const std::size_t num_bytes = sizeof(RingHeader) + capacity_bytes;
  OwnedFd fd(shared ? create_nameless_file(num_bytes) : -1);
  std::byte* address = map(num_bytes, fd.get());
  auto* header = new (address) RingHeader{};
  header->constants = {kMagic, kVersion, sizeof(RingHeader), capacity_bytes};
  return {address, num_bytes, fd.release()};
}

HintRing::HintRing(std::size_t capacity_bytes, bool shared)
    : HintRing(create(capacity_bytes, shared)) {}

HintRing::HintRing(const Mapping& mapping)
    : mapping_(mapping), capacity_bytes_(mapping.num_bytes - sizeof(RingHeader)) {
  writer_.tail = header().tail.load(std::memory_order_acquire);
  writer_.seen_head = header().head.load(std::memory_order_acquire);
  reader_.head = reader_.seen_tail = writer_.seen_head;  // the first poll judges `tail`
  writer_.dropped = header().dropped.load(std::memory_order_relaxed);
  reader_.torn = header().torn.load(std::memory_order_relaxed);
}

HintRing::~HintRing() {
  ::munmap(mapping_.address, mapping_.num_bytes);
  if (mapping_.fd >= 0) ::close(mapping_.fd);
}

std::unique_ptr<HintRing> HintRing::attach(int fd) {
  OwnedFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (own.get() < 0) raise_system_error("attach: cannot duplicate the descriptor");
  struct stat status{};
  if (::fstat(own.get(), &status) != 0) raise_system_error("attach: fstat");
  const auto num_bytes = static_cast<std::uint64_t>(status.st_size);
  OOOSPEC_REQUIRE(is_sealed(own.get()) && num_bytes >= sizeof(RingHeader),
                  "HintRing.attach: expected the fd of a shared ring (memory sealed against "
                  "shrinking), got another file, of ",
                  num_bytes, " bytes");
  RingConstants constants{};
  if (::pread(own.get(), &constants, sizeof constants, 0) != sizeof constants) {
    raise_system_error("attach: pread");
  }
  check(constants, num_bytes);
  std::byte* address = map(num_bytes, own.get());
  return std::unique_ptr<HintRing>(new HintRing({address, num_bytes, own.release()}));
}

RingHeader& HintRing::header() const {
  return *std::launder(reinterpret_cast<RingHeader*>(mapping_.address));
}

// The word at a cursor; inside the mapping whatever the cursor is.
std::atomic_ref<std::uint64_t> HintRing::word(std::uint64_t cursor) const {
  std::byte* records = mapping_.address + sizeof(RingHeader);
  return std::atomic_ref(
      *reinterpret_cast<std::uint64_t*>(records + (cursor & (capacity_bytes_ - kWordBytes))));
}

bool HintRing::has_room(std::uint64_t num_bytes) {
  const std::uint64_t new_tail = writer_.tail + num_bytes;
  if (new_tail - writer_.seen_head > capacity_bytes_) {
    writer_.seen_head = header().head.load(std::memory_order_acquire);
  }
  return new_tail - writer_.seen_head <= capacity_bytes_;
}

// Adds to what a request has used, unless that passes its cap.
bool HintRing::charge(std::uint64_t request_id, std::uint64_t num_bytes) {
  auto& requests = writer_.requests;
  const std::size_t num_known = std::min(writer_.num_requests, kMaxRequests);
  std::size_t idx = writer_.last_request;
  if (idx >= num_known || requests[idx].request_id != request_id) {
    for (idx = 0; idx < num_known && requests[idx].request_id != request_id;) ++idx;
    if (idx == num_known) {
      idx = writer_.num_requests++ % kMaxRequests;
      requests[idx] = {request_id, 0};
    }
    writer_.last_request = idx;
  }
  if (requests[idx].num_bytes + num_bytes > kMaxRequestBytes) return false;
  requests[idx].num_bytes += num_bytes;
  return true;
}

bool HintRing::try_push(std::uint64_t request_id, HintKind kind, std::uint16_t call,
                        std::uint16_t tool, std::uint16_t parameter, std::string_view text) {
  OOOSPEC_REQUIRE(is_known(kind), "HintRing.try_push: expected a HintKind, got ",
                  static_cast<int>(kind));
  const std::uint32_t sequence = writer_.sequence++;
  const std::uint64_t num_bytes = kRecordBytes + round_up_to_words(text.size());
  if (text.size() > HintRecord::kMaxTextBytes || !has_room(num_bytes) ||
      !charge(request_id, num_bytes)) {
    header().dropped.store(++writer_.dropped, std::memory_order_relaxed);
    return false;
  }
  auto words = std::bit_cast<HeaderWords>(
      RecordHeader{0, request_id, sequence, static_cast<std::uint32_t>(text.size()), call, tool,
                   parameter, static_cast<std::uint8_t>(kind), 0});
  Checksum checksum(words, writer_.tail);
  const auto put = [&](std::size_t offset, std::size_t num_text_bytes) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + offset, num_text_bytes);
    checksum.add(bytes);
    word(writer_.tail + kRecordBytes + offset).store(bytes, std::memory_order_relaxed);
  };
  std::size_t offset = 0;
  for (; offset + kWordBytes <= text.size(); offset += kWordBytes) put(offset, kWordBytes);
  if (offset < text.size()) put(offset, text.size() - offset);
  words[0] = checksum.value();
  for (std::size_t i = 0; i < words.size(); ++i) {
    word(writer_.tail + i * kWordBytes).store(words[i], std::memory_order_relaxed);
  }
  writer_.tail += num_bytes;
  header().tail.store(writer_.tail, std::memory_order_release);
  if (writer_.wake_fd >= 0) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto ignored = ::write(writer_.wake_fd, &one, sizeof one);
  }
  return true;
}

// Looks for records; false if there is none, or if `tail` cannot be what an honest writer wrote.
bool HintRing::poll() {
  if (reader_.head != reader_.seen_tail) return true;
  const std::uint64_t tail = header().tail.load(std::memory_order_acquire);
  const std::uint64_t published = tail - reader_.head;
  const bool possible = published <= capacity_bytes_ && published % kWordBytes == 0;
  if (!possible && !reader_.astray) count_torn();
  reader_.astray = !possible;
  if (possible) reader_.seen_tail = tail;
  return possible && published != 0;
}

// Copies the record at `head`, then judges the copy. Returns the bytes to step over: the record's,
// or all that is published where its length makes no sense.
std::uint64_t HintRing::copy(HintRecord& record, bool& intact) const {
  intact = false;
  const std::uint64_t cursor = reader_.head;
  const std::uint64_t published = reader_.seen_tail - cursor;
  if (published < kRecordBytes) return published;
  HeaderWords words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = word(cursor + i * kWordBytes).load(std::memory_order_relaxed);
  }
  const auto header = std::bit_cast<RecordHeader>(words);
  const std::uint64_t num_bytes = kRecordBytes + round_up_to_words(header.length);
  if (header.length > HintRecord::kMaxTextBytes || num_bytes > published) return published;
  Checksum checksum(words, cursor);
  for (std::uint64_t offset = 0; kRecordBytes + offset < num_bytes; offset += kWordBytes) {
    const auto bytes = word(cursor + kRecordBytes + offset).load(std::memory_order_relaxed);
    checksum.add(bytes);
    std::memcpy(record.bytes.data() + offset, &bytes, kWordBytes);
  }
  record.request_id = header.request_id;
  record.sequence = header.sequence;
  record.length = header.length;
  record.call = header.call;
  record.tool = header.tool;
  record.parameter = header.parameter;
  record.kind = static_cast<HintKind>(header.kind);
  intact = checksum.value() == header.checksum && is_known(record.kind);
  return num_bytes;
}

bool HintRing::try_pop(HintRecord& record) {
  if (!poll()) return false;
  bool intact = false;
  while (!intact && reader_.head != reader_.seen_tail) {
    reader_.head += copy(record, intact);
    header().head.store(reader_.head, std::memory_order_release);
    if (!intact) count_torn();
  }
  return intact;
}

void HintRing::count_torn() { header().torn.store(++reader_.torn, std::memory_order_relaxed); }

std::uint64_t HintRing::dropped() const { return header().dropped.load(std::memory_order_relaxed); }

std::uint64_t HintRing::torn() const { return header().torn.load(std::memory_order_relaxed); }

}  // namespace ooospec
