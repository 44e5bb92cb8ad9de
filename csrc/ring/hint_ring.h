// SPDX-License-Identifier: Apache-2.0
//
// The ring that carries hints from a sidecar to the decoding loop: one writer, one reader, records
// of any length.
//
// Layout of the mapping (little or big endian as the machine is; both ends run on it):
//
//   offset  bytes  field           written by
//        0      8  magic           creator
//        8      4  version         creator
//       12      4  header_bytes    creator
//       16      8  capacity_bytes  creator; a power of two
//      128      8  tail            writer; bytes ever published
//      256      8  head            reader; bytes ever taken, <= tail
//      384      8  dropped         writer; records that try_push refused
//      512      8  torn            reader; records that try_pop skipped
//      640      -  records         writer; a circle of capacity_bytes
//
// The byte at a cursor (tail, head) is at offset 640 + cursor % capacity_bytes. Layout of a record,
// a multiple of 8 bytes that may wrap around the end of the circle between any two words:
//
//   offset  bytes  field
//        0      8  checksum        of the words below and the cursor: earlier laps do not pass
//        8      8  request_id
//       16      4  sequence
//       20      4  length          bytes of text
//       24      2  call
//       26      2  tool
//       28      2  parameter
//       30      1  kind
//       31      1  zero
//       32      -  text            UTF-8, zeros up to the next multiple of 8
//
// Checksum: two states begin as a = cursor and b = magic; each word w makes (a, b) into
// (b, mix(a, w)); the checksum is mix(a, b). mix(a, w) is x ^ (x >> 32) of
// x = (a ^ w) * 0x9E3779B97F4A7C15.
//
// Ordering. The writer stores the words of a record (relaxed), then `tail` (release). The reader
// loads `tail` (acquire), so that it sees every word below it, loads the words (relaxed), then
// stores `head` (release). The writer loads `head` (acquire) before it writes over bytes below it,
// so that the reader is done with them. A writer that dies anywhere has published whole records
// only. Each end keeps its own cursor in private memory and reads the other's, never its own.
//
// Distrust. The reader takes `tail` only if it lies 0 to capacity_bytes ahead, copies each word
// exactly once, and looks at the copy alone: length, checksum and kind must be right. So whatever
// is written over the mapping, by whom and when, costs hints and nothing else. The memory is sealed
// against shrinking, which would turn a read into SIGBUS.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "common/types.h"

namespace ooospec {

// A hint, copied out of a ring into memory of the caller.
struct HintRecord {
  static constexpr std::size_t kMaxTextBytes = 4096;

  std::uint64_t request_id;
  std::uint32_t sequence;  // counts the try_push calls of the writer: a drop leaves a gap
  std::uint32_t length;    // bytes of `bytes` that are text
  std::uint16_t call;
  std::uint16_t tool;
  std::uint16_t parameter;
  HintKind kind;
  alignas(8) std::array<char, kMaxTextBytes> bytes;

  std::string_view text() const { return {bytes.data(), length}; }
};

// False for numbers that name no kind: a record from outside may hold any.
constexpr bool is_known(HintKind kind) {
  return kind >= HintKind::kFunction && kind <= HintKind::kError;
}

struct RingHeader;  // the first 640 bytes of the table above

// One thread or process pushes, one pops; they may be the same. Private memory serves threads of a
// process; shared memory is a memfd, which has no name that a killed process could leave behind:
// hand fd() to the other process, which attaches. A ring has one writer in its life: a restarted
// one gets a new ring.
class HintRing {
 public:
  static constexpr std::size_t kMinCapacityBytes = 64;
  static constexpr std::size_t kMaxCapacityBytes = std::size_t{1} << 30;
  static constexpr std::size_t kRecordBytes = 32;              // of a record without text
  static constexpr std::size_t kMaxRequestBytes = 256 * 1024;  // of all records of one request
  static constexpr std::size_t kMaxRequests = 64;  // counted at once; a 65th replaces the first

  // Makes an empty ring.
  //   capacity_bytes: rounded up to a power of two; in [kMinCapacityBytes, kMaxCapacityBytes]
  //   shared: in a memfd, closed on exec, rather than in private memory
  // Raises std::invalid_argument for another capacity, std::system_error if the system has no
  // memory or descriptor left.
  explicit HintRing(std::size_t capacity_bytes = std::size_t{1} << 20, bool shared = false);

  // Maps the shared ring behind `fd`, which stays the caller's (the ring keeps a duplicate).
  // Raises std::invalid_argument, with what was expected and what was got, if that is no sealed
  // ring of this version, std::system_error for a bad descriptor.
  static std::unique_ptr<HintRing> attach(int fd);

  ~HintRing();
  HintRing(const HintRing&) = delete;
  HintRing& operator=(const HintRing&) = delete;

  // Writer: publishes one record.
  //   text: UTF-8; value, tool name or reason, by `kind`
  // Returns false, and counts the record as dropped, if the text is longer than
  // HintRecord::kMaxTextBytes, the request has used up kMaxRequestBytes, or the ring is full.
  // Raises std::invalid_argument for an unknown kind. Cost: O(text), tens of ns; never blocks,
  // allocates or enters the kernel, but for wake_by().
  bool try_push(std::uint64_t request_id, HintKind kind, std::uint16_t call, std::uint16_t tool,
                std::uint16_t parameter, std::string_view text);

  // Writer: from now on every published record is followed by a write of eight bytes to `fd`, which
  // must not block (a pipe, an eventfd) and stays the caller's: so a reader that has nothing else
  // to do may sleep. What the write returns is ignored. -1: none any more. Cost: 1 us a record.
  void wake_by(int fd) { writer_.wake_fd = fd; }

  // Reader: takes the oldest record. Records that are not intact are skipped and counted as torn.
  // Returns false if there is none. Mutates: `record`, also where the result is false.
  // Cost: O(text), tens of ns, and one load where the ring is empty; never blocks, allocates or
  // enters the kernel. Looks at no more than what was published when it was called.
  bool try_pop(HintRecord& record);

  // Of a shared ring, else -1.
  int fd() const { return mapping_.fd; }
  std::size_t capacity_bytes() const { return capacity_bytes_; }

  // From either end, at any time; as of a moment ago.
  std::uint64_t dropped() const;
  std::uint64_t torn() const;

 private:
  struct Mapping {
    std::byte* address;
    std::size_t num_bytes;
    int fd;
  };
  struct RequestBytes {
    std::uint64_t request_id;
    std::uint64_t num_bytes;
  };

  explicit HintRing(const Mapping& mapping);
  static Mapping create(std::size_t capacity_bytes, bool shared);
  RingHeader& header() const;
  std::atomic_ref<std::uint64_t> word(std::uint64_t cursor) const;
  bool has_room(std::uint64_t num_bytes);
  bool charge(std::uint64_t request_id, std::uint64_t num_bytes);
  bool poll();
  std::uint64_t copy(HintRecord& record, bool& intact) const;
  void count_torn();

  const Mapping mapping_;
  const std::size_t capacity_bytes_;

  // What only the writer touches, and what only the reader touches, a line apart.
  struct alignas(128) {
    std::uint64_t tail = 0;
    std::uint64_t seen_head = 0;  // <= head: bytes below it are free
    std::uint64_t dropped = 0;
    std::uint32_t sequence = 0;
    int wake_fd = -1;
    std::size_t num_requests = 0;  // ever entered; entry i % kMaxRequests is the i-th
    std::size_t last_request = 0;
    std::array<RequestBytes, kMaxRequests> requests;
  } writer_;
  struct alignas(128) {
    std::uint64_t head = 0;
    std::uint64_t seen_tail = 0;  // <= tail: head..seen_tail is published
    std::uint64_t torn = 0;
    bool astray = false;  // the last tail seen was impossible (counted once)
  } reader_;
};

}  // namespace ooospec
