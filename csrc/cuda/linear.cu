// SPDX-License-Identifier: Apache-2.0
//
// One warp copies: weights through a ring of stages, the first of them before the launches ahead
// have ended, x when they have. Four warps multiply.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "cuda/hopper.cuh"
#include "cuda/linear.h"

namespace ooospec {
namespace {

constexpr int kRows = kMaxLinearRows;
constexpr int kStep = 64;              // numbers of K in a line of shared memory
constexpr int kLineBytes = 2 * kStep;  // as wide as the swizzle
constexpr int kXBytes = kRows * kLineBytes;
constexpr int kAlignment = 1024;        // of swizzled tiles
constexpr int kSmemBytes = 227 * 1024;  // that a multiprocessor gives
constexpr int kReservedBytes = 1024;    // of a block, by the system
constexpr int kMultipliers = 128;       // threads
constexpr int kThreads = kMultipliers + 32;

struct Args {
  void* out;
  std::int64_t out_stride;
  int num_rows, num_outputs;
  int num_tiles, num_stages;
  int num_copies;  // of a stage, that all of K takes
  int parts;
  int up_row;  // where `up` begins in the weight; 0: there is none
  bool has_float_out;
};

template <typename T>
__device__ __forceinline__ std::uint32_t round_two(float first, float second) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 rounded = __floats2half2_rn(first, second);
    return reinterpret_cast<const std::uint32_t&>(rounded);
  } else {
    const __nv_bfloat162 rounded = __floats2bfloat162_rn(first, second);
    return reinterpret_cast<const std::uint32_t&>(rounded);
  }
}

__device__ __forceinline__ float swiglu(float gate, float up) {
  const float decay = __expf(-fabsf(gate));  // at most 1: nothing overflows
  return gate * (gate < 0 ? decay : 1.0F) / (1.0F + decay) * up;
}

// What this block does: tiles first, first + step ...; copies [begin, end) of K.
struct Share {
  int first, step, begin, end;
};

// The ring of stages in shared memory: steps of x, then steps of weight; and its barriers.
template <int kTile, int kDepth>
struct Ring {
  static constexpr int kWeightBytes = kTile * kLineBytes;
  static constexpr int kStageBytes = kDepth * (kXBytes + kWeightBytes);

  std::uint32_t base;
  int num_stages;

  __device__ std::uint32_t x(int stage, int step) const {
    return base + stage * kStageBytes + step * kXBytes;
  }
  __device__ std::uint32_t weight(int stage, int step) const {
    return base + stage * kStageBytes + kDepth * kXBytes + step * kWeightBytes;
  }
  __device__ std::uint32_t full(int stage) const {
    return base + num_stages * kStageBytes + 8 * stage;
  }
  __device__ std::uint32_t empty(int stage) const { return full(num_stages + stage); }
  __device__ std::uint32_t summed() const { return full(2 * num_stages); }
};

template <int kTile, int kDepth>
__device__ void copy(const Ring<kTile, kDepth>& ring, const Share& share, const CUtensorMap* x,
                     const CUtensorMap* weight, const Args& args) {
  const std::uint64_t once = read_once(), kept = keep();
  const int num_tiles = (args.num_tiles - share.first + share.step - 1) / share.step;
  const int total = num_tiles * (share.end - share.begin);
  const int ahead = min(total, ring.num_stages);
  const auto copy_weight = [&](int stage, int tile, int part) {
    arrive_expecting(ring.full(stage), ring.kStageBytes);
#pragma unroll
    for (int step = 0; step < kDepth; ++step) {
      const std::uint32_t to = ring.weight(stage, step);
      const int col = (part * kDepth + step) * kStep;
      if (args.up_row > 0) {
        const int row = tile * (kTile / 2);
        copy_box(to, weight, row, col, ring.full(stage), once);
        copy_box(to + ring.kWeightBytes / 2, weight, args.up_row + row, col, ring.full(stage),
                 once);
      } else {
        copy_box(to, weight, tile * kTile, col, ring.full(stage), once);
      }
    }
  };
  const auto copy_x = [&](int stage, int part) {
#pragma unroll
    for (int step = 0; step < kDepth; ++step) {
      const int col = (part * kDepth + step) * kStep;
      copy_box(ring.x(stage, step), x, 0, col, ring.full(stage), kept);
    }
  };
  int tile = share.first, part = share.begin;
  const auto advance = [&] {
    if (++part == share.end) {
      part = share.begin;
      tile += share.step;
    }
  };
  for (int i = 0; i < ahead; ++i, advance()) copy_weight(i, tile, part);
  wait_for_launches_ahead();
  for (int i = 0, of = share.begin; i < ahead; ++i) {
    copy_x(i, of);
    if (++of == share.end) of = share.begin;
  }
  int stage = 0, parity = 0;
  for (int i = ahead; i < total; ++i, advance()) {
    wait_phase(ring.empty(stage), parity);
    copy_weight(stage, tile, part);
    copy_x(stage, part);
    if (++stage == ring.num_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

// A thread's sums, of the two halves of a tile's columns; see Product. With swiglu the first half
// is gate, the second up.
template <int kTile>
struct Sums {
  static constexpr int kWidth = kTile / 2;
  float of[2][kWidth / 2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) of[half][i] = 0.0F;
    pin();
  }
  // Keeps the compiler from moving sums across.
  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) asm volatile("" : "+f"(of[half][i])::"memory");
  }
};

template <typename T, int kTile, int kDepth>
__device__ __forceinline__ void multiply(Sums<kTile>& sums, const Ring<kTile, kDepth>& ring,
                                         const Share& share, int& stage, int& parity) {
  constexpr int kWidth = Sums<kTile>::kWidth;
  const bool speaks = threadIdx.x % 32 == 0;
  int before = -1;
  sums.clear();
#pragma unroll 1  // unrolled, some are compiled into products that wait for each other
  for (int part = share.begin; part < share.end; ++part) {
    wait_phase(ring.full(stage), parity);
    begin_products();
#pragma unroll
    for (int step = 0; step < kDepth; ++step) {
      const std::uint64_t x = operand(ring.x(stage, step));
      const std::uint32_t weight = ring.weight(stage, step);
#pragma unroll
      for (int i = 0; i < kStep / 16; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::uint32_t from = weight + half * kWidth * kLineBytes;
          Product<kWidth, T>::add(sums.of[half], x + 2 * i, operand(from) + 2 * i);
        }
      }
    }
    commit_products();
    wait_products<1>();
    if (before >= 0 && speaks) arrive(ring.empty(before));
    before = stage;
    if (++stage == ring.num_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  sums.pin();
  wait_products<0>();
  sums.pin();
  if (speaks) arrive(ring.empty(before));
}

template <typename T>
__device__ __forceinline__ void store_two(const Args& args, int row, int col, float first,
                                          float second) {
  if (row >= args.num_rows || col >= args.num_outputs) return;
  const std::int64_t at = row * args.out_stride + col;
  if (args.has_float_out) {
    __stcs(reinterpret_cast<float2*>(static_cast<float*>(args.out) + at),
           make_float2(first, second));
  } else {
    *reinterpret_cast<std::uint32_t*>(static_cast<T*>(args.out) + at) = round_two<T>(first, second);
  }
}

template <typename T, int kTile>
__device__ __forceinline__ void store(const Sums<kTile>& sums, int tile, const Args& args) {
  constexpr int kWidth = Sums<kTile>::kWidth;
  const int thread = threadIdx.x, lane = thread % 32;
  const int row = thread / 32 * 16 + lane / 4;
  const bool is_swiglu = args.up_row > 0;
  const int origin = tile * (is_swiglu ? kTile / 2 : kTile) + 2 * (lane % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (is_swiglu && half == 1) break;
    const int col = origin + half * kWidth;
#pragma unroll
    for (int i = 0; i < kWidth / 2; i += 2) {
      float first = sums.of[half][i], second = sums.of[half][i + 1];
      if (is_swiglu) {
        first = swiglu(first, sums.of[1][i]);
        second = swiglu(second, sums.of[1][i + 1]);
      }
      store_two<T>(args, row + i / 2 % 2 * 8, col + i / 4 * 8, first, second);
    }
  }
}

// Each block of the cluster gets the sums of some rows from all, adds them in order of K and
// stores.
template <typename T, int kTile, int kDepth>
__device__ __forceinline__ void reduce(const Sums<kTile>& sums, const Ring<kTile, kDepth>& ring,
                                       int tile, const Args& args) {
  constexpr int kWidth = Sums<kTile>::kWidth;
  constexpr int kPitch = 4 * (kTile + 8);  // bytes of a row
  const int thread = threadIdx.x, lane = thread % 32;
  const int rank = rank_in_cluster(), rows = kRows / args.parts;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = thread / 32 * 16 + lane / 4 + 8 * h;
    const int owner = row / rows;
    const std::uint32_t summed = address_at(ring.summed(), owner);
    const std::uint32_t to =
        address_at(ring.base + (rank * rows + row % rows) * kPitch + 8 * (lane % 4), owner);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t at = to + 4 * half * kWidth;
#pragma unroll
      for (int i = 2 * h; i < kWidth / 2; i += 4)
        send(at + 8 * (i - 2 * h), sums.of[half][i], sums.of[half][i + 1], summed);
    }
  }
  wait_phase(ring.summed(), 0);
  const bool is_swiglu = args.up_row > 0;
  const int cols = is_swiglu ? kTile / 2 : kTile;
  const auto sum_of = [&](std::uint32_t from) {
    float4 sum = load_shared(from);
    for (int part = 1; part < args.parts; ++part) {
      const float4 more = load_shared(from + part * rows * kPitch);
      sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
    }
    return sum;
  };
  for (int i = threadIdx.x; i < rows * cols / 4; i += kMultipliers) {
    const int row = i / (cols / 4), col = i % (cols / 4) * 4;
    const std::uint32_t from = ring.base + row * kPitch + 4 * col;
    float4 sum = sum_of(from);
    if (is_swiglu) {
      const float4 up = sum_of(from + 4 * cols);
      sum = make_float4(swiglu(sum.x, up.x), swiglu(sum.y, up.y), swiglu(sum.z, up.z),
                        swiglu(sum.w, up.w));
    }
    store_two<T>(args, rank * rows + row, tile * cols + col, sum.x, sum.y);
    store_two<T>(args, rank * rows + row, tile * cols + col + 2, sum.z, sum.w);
  }
}

template <typename T, int kTile, int kDepth>
__global__ void __launch_bounds__(kThreads)
    linear_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap weight,
                  const Args args) {
  extern __shared__ std::uint8_t memory[];
  launch_dependents();
  const std::uint32_t base = (shared_address(memory) + kAlignment - 1) / kAlignment * kAlignment;
  const Ring<kTile, kDepth> ring{base, args.num_stages};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < ring.num_stages; ++stage) {
      init_barrier(ring.full(stage), 1);
      init_barrier(ring.empty(stage), kMultipliers / 32);
    }
    init_barrier(ring.summed(), 1);
    publish_barriers();
  }
  __syncthreads();
  const int rank = rank_in_cluster();
  const Share share{static_cast<int>(blockIdx.x) / args.parts,
                    static_cast<int>(gridDim.x) / args.parts, args.num_copies * rank / args.parts,
                    args.num_copies * (rank + 1) / args.parts};
  if (threadIdx.x >= kMultipliers) {
    if (threadIdx.x % 32 == 0) copy(ring, share, &x, &weight, args);
    __syncwarp();
    if (args.parts > 1) meet_cluster();
  } else {
    Sums<kTile> sums;
    int stage = 0, parity = 0;
    for (int tile = share.first; tile < args.num_tiles; tile += share.step) {
      multiply<T>(sums, ring, share, stage, parity);
      if (args.parts == 1) {
        store<T>(sums, tile, args);
      } else {
        if (threadIdx.x == 0) arrive_expecting(ring.summed(), 4 * kRows * kTile);
        meet_cluster();  // nobody reads a stage any more: sums may take its place
        reduce<T>(sums, ring, tile, args);
      }
    }
  }
}

// --- launch
// ---------------------------------------------------------------------------------------

using Encode = decltype(&cuTensorMapEncodeTiled);

// Returns the driver's function, so that nothing links against the driver; null without one.
Encode tensor_map_encoder() {
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                     &result);
    return result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(found) : nullptr;
  }();
  return encode;
}

// Describes a matrix that is copied in boxes of `box_rows` rows and kStep columns.
bool describe(CUtensorMap& map, const void* data, bool is_bfloat16, std::int64_t rows,
              std::int64_t cols, std::int64_t stride, int box_rows) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[] = {kStep, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t every[] = {1, 1};
  const auto type =
      is_bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return tensor_map_encoder()(&map, type, 2, const_cast<void*>(data), sizes, strides, box, every,
                              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

int stage_bytes(const LinearTiling& tiling) {
  return tiling.depth * (kXBytes + tiling.tile * kLineBytes);
}

// Stages that a block needs: two to take turns, and what the sums of a cluster take in their place.
int least_stages(const LinearTiling& tiling) {
  if (tiling.parts == 1) return 2;
  const int stage = stage_bytes(tiling);
  return std::max(2, (4 * kRows * (tiling.tile + 8) + stage - 1) / stage);
}

// Stages that a block has room for.
int most_stages(const LinearTiling& tiling, int max_smem) {
  const int smem = max_smem > 0 ? std::min(max_smem, kSmemBytes) : kSmemBytes;
  return (smem / tiling.blocks - kReservedBytes - kAlignment - 256) / stage_bytes(tiling);
}

template <typename T, int kTile, int kDepth>
cudaError_t launch(const Linear& linear, const LinearTiling& tiling, cudaStream_t stream) {
  using Stages = Ring<kTile, kDepth>;
  const int cols = linear.is_swiglu ? kTile / 2 : kTile;
  CUtensorMap x, weight;
  if (tensor_map_encoder() == nullptr) return cudaErrorNotSupported;
  if (linear.num_inputs <= kStep * kDepth * (tiling.parts - 1)) return cudaErrorInvalidValue;
  if (!describe(x, linear.x, linear.is_bfloat16, linear.num_rows, linear.num_inputs,
                linear.x_stride, kRows) ||
      !describe(weight, linear.weight, linear.is_bfloat16,
                std::int64_t{linear.num_outputs} * (linear.is_swiglu ? 2 : 1), linear.num_inputs,
                linear.weight_stride, cols))
    return cudaErrorInvalidValue;
  Args args{};
  args.out = linear.out;
  args.out_stride = linear.out_stride;
  args.num_rows = linear.num_rows;
  args.num_outputs = linear.num_outputs;
  args.num_tiles = (linear.num_outputs + cols - 1) / cols;
  args.num_copies = (linear.num_inputs + kStep * kDepth - 1) / (kStep * kDepth);
  args.parts = tiling.parts;
  args.up_row = linear.is_swiglu ? linear.num_outputs : 0;
  args.has_float_out = linear.has_float_out;
  const int needed = tiling.parts > 1 ? (args.num_copies + tiling.parts - 1) / tiling.parts : 99;
  const int least = least_stages(tiling);
  args.num_stages = std::min(most_stages(tiling, linear.max_smem), std::max(least, needed));
  if (args.num_stages < least) return cudaErrorInvalidValue;
  const int smem = args.num_stages * (Stages::kStageBytes + 16) + 8 + kAlignment;
  const auto kernel = linear_kernel<T, kTile, kDepth>;
  cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
  int device = 0, num_sms = 0;
  if (status == cudaSuccess) status = cudaGetDevice(&device);
  if (status == cudaSuccess)
    status = cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  const int clusters =
      tiling.parts > 1 ? args.num_tiles : std::min(args.num_tiles, num_sms * tiling.blocks);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned>(tiling.parts), 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * tiling.parts));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(smem);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernel, x, weight, args);
}

template <typename T>
cudaError_t launch_of(const Linear& linear, const LinearTiling& tiling, cudaStream_t stream) {
  const auto is = [&](int tile, int depth) { return tiling.tile == tile && tiling.depth == depth; };
  if (is(96, 1)) return launch<T, 96, 1>(linear, tiling, stream);
  if (is(128, 2)) return launch<T, 128, 2>(linear, tiling, stream);
  if (is(96, 2)) return launch<T, 96, 2>(linear, tiling, stream);
  if (is(64, 2)) return launch<T, 64, 2>(linear, tiling, stream);
  return cudaErrorInvalidValue;
}

// Returns the nanoseconds that a product is thought to take on an H200: of its slowest
// multiprocessor, or of the memory, whichever is more. Fitted to products of eight models.
double expected_ns(const LinearTiling& tiling, int num_rows, int num_inputs) {
  constexpr double kBytesPerNs = 4000, kBytesPerNsOfOne = 52;
  constexpr int kXCost = 8;  // what rows of x cost beside rows of weight
  const auto ceil = [](int a, int b) { return (a + b - 1) / b; };
  const int slots = tiling.parts == 1 ? 132 * tiling.blocks : tiling.parts == 2 ? 66 : 30;
  const int waves = ceil(ceil(num_rows, tiling.tile), slots);
  const int depth = kStep * tiling.depth;
  const int inputs = ceil(ceil(num_inputs, depth), tiling.parts) * depth;
  const double one = 2.0 * waves * (tiling.tile + kXCost) * inputs * tiling.blocks;
  const double all = 2.0 * num_rows * num_inputs;
  const double sums = tiling.parts == 1 ? 0 : tiling.parts == 2 ? 2000 : 3000;
  return std::max(all / kBytesPerNs, one / kBytesPerNsOfOne) + 0.05 * one / kBytesPerNsOfOne + sums;
}

}  // namespace

LinearTiling linear_tiling(int num_outputs, int num_inputs, bool is_swiglu, int max_smem) {
  constexpr LinearTiling kTilings[] = {{96, 1, 1, 2}, {128, 2, 1, 1}, {96, 2, 1, 1}, {96, 2, 2, 1},
                                       {96, 2, 4, 1}, {64, 2, 1, 1},  {64, 2, 2, 1}, {64, 2, 4, 1}};
  const int num_rows = num_outputs * (is_swiglu ? 2 : 1);
  LinearTiling best{};
  double least = std::numeric_limits<double>::infinity();
  for (const LinearTiling& tiling : kTilings) {
    const double ns = expected_ns(tiling, num_rows, num_inputs);
    if (ns >= least || most_stages(tiling, max_smem) < least_stages(tiling)) continue;
    best = tiling;
    least = ns;
  }
  return best;
}

int launch_linear(const Linear& linear, const LinearTiling& tiling, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  return linear.is_bfloat16 ? launch_of<__nv_bfloat16>(linear, tiling, on)
                            : launch_of<__half>(linear, tiling, on);
}

}  // namespace ooospec
