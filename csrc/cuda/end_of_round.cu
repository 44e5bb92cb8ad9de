// SPDX-License-Identifier: Apache-2.0
#include "cuda/end_of_round.h"

namespace ooospec {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = kMaxRows / 2 * kWarp;  // a warp for two rows, which may be roots
constexpr unsigned kAll = 0xFFFFFFFF;

// What a lane knows of rows `lane` and `lane + 32`.
struct Rows {
  std::int32_t choice[2], token[2], parent[2], sequence[2];
};

__device__ Rows load_rows(const EndOfRound& args, int lane) {
  Rows rows;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane + half * kWarp;
    const bool inside = row < args.num_rows;
    rows.choice[half] = inside ? args.choices[row] : -1;
    rows.token[half] = inside ? args.tokens[row] : -1;
    rows.parent[half] = inside ? args.parents[row] : -1;
    rows.sequence[half] = inside ? args.sequences[row] : -1;
  }
  return rows;
}

// Returns the value that the lane of `row` holds; `row` is the same in all lanes.
__device__ std::int32_t value_of(const std::int32_t (&values)[2], int row) {
  return __shfl_sync(kAll, row < kWarp ? values[0] : values[1], row % kWarp);
}

__device__ std::uint64_t children_of(const Rows& rows, int row, std::int32_t sequence,
                                     std::int32_t token) {
  std::uint64_t found = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool match =
        rows.parent[half] == row && rows.token[half] == token && rows.sequence[half] == sequence;
    found |= static_cast<std::uint64_t>(__ballot_sync(kAll, match)) << (half * kWarp);
  }
  return found & ~((std::uint64_t{2} << row) - 1);  // behind `row`: so the walk ends
}

__device__ std::int64_t committed_slot(const EndOfRound& args, int row) {
  const std::int64_t position = args.positions[row];
  const std::int64_t entry =
      std::int64_t{args.sequences[row]} * args.num_pages + position / args.page_size;
  return std::int64_t{args.page_table[entry]} * args.page_size + position % args.page_size;
}

__device__ void store_release(std::uint64_t* address, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

__global__ void __launch_bounds__(kThreads) end_of_round_kernel(const EndOfRound args) {
  __shared__ std::int32_t counts[kMaxRows], tokens[kMaxRows], path[kMaxRows];
  __shared__ unsigned long long accepted, moved;  // a bit a row
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  if (thread == 0) accepted = moved = 0;
  if (thread < kMaxRows) counts[thread] = tokens[thread] = path[thread] = 0;
  const Rows rows = load_rows(args, lane);
  __syncthreads();

  for (int root = thread / kWarp; root < args.num_rows; root += kThreads / kWarp) {
    const std::int32_t sequence = value_of(rows.sequence, root);
    const std::int32_t before = root == 0 ? -1 : value_of(rows.sequence, root - 1);
    if (sequence < 0 || sequence == before) continue;
    std::uint64_t taken = 0;
    int count = 0;
    for (int row = root; row >= 0;) {
      const std::int32_t choice = value_of(rows.choice, row);
      const std::uint64_t children = choice < 0 ? 0 : children_of(rows, row, sequence, choice);
      if (lane == 0) {
        tokens[root + count] = choice;
        path[root + count] = row;
      }
      taken |= std::uint64_t{1} << row;
      ++count;
      row = __ffsll(static_cast<long long>(children)) - 1;
    }
    if (lane == 0) {
      counts[root] = count;
      atomicOr(&accepted, static_cast<unsigned long long>(taken));
    }
  }
  __syncthreads();

  const unsigned long long bit = 1ULL << (thread % kMaxRows);
  std::int64_t source = 0, target = 0;
  if (thread < kMaxRows && (accepted & bit) != 0) {
    source = args.slots[thread];
    target = committed_slot(args, thread);
    if (source != target) atomicOr(&moved, bit);
  }
  RoundReport& report = *args.report;
  if (thread < kMaxRows) {
    report.counts[thread] = counts[thread];
    report.tokens[thread] = tokens[thread];
    report.rows[thread] = path[thread];
  }
  if (args.top8 != nullptr) {
    for (int i = thread; i < args.num_rows * kTop; i += kThreads) {
      report.top8[i / kTop][i % kTop] = args.top8[i];
    }
  }
  __threadfence_system();
  __syncthreads();

  if (thread < kMaxRows && (moved & bit) != 0) {
    const int place = __popcll(moved & (bit - 1));
    args.path_sources[place] = source;
    args.path_targets[place] = target;
  }
  if (thread == 0) {
    *args.path_count = __popcll(moved);
    const std::uint64_t number = ++*args.round;
    store_release(&report.round, number);
  }
}

}  // namespace

int load_end_of_round() {
  cudaFuncAttributes attributes;
  return static_cast<int>(cudaFuncGetAttributes(&attributes, end_of_round_kernel));
}

int launch_end_of_round(const EndOfRound& round, void* stream) {
  end_of_round_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(round);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace ooospec
