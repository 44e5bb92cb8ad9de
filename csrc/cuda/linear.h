// SPDX-License-Identifier: Apache-2.0
//
// Products of a few rows with a large weight, at the speed at which the weight can be read; Hopper.
#pragma once

#include <cstdint>

namespace ooospec {

inline constexpr int kMaxLinearRows = 64;

// out[N, M] = x[N, K] @ weight[M, K]^T, summed in float32; x and weight bfloat16 or float16.
// All pointers are the device's; strides are in numbers, between rows.
struct Linear {
  const void* x;  // 16-byte aligned, its stride a multiple of 8
  std::int64_t x_stride;
  const void* weight;  // likewise; read before the launches ahead have ended: it must not change
  std::int64_t weight_stride;
  void* out;  // 16-byte aligned, its stride a multiple of 8
  std::int64_t out_stride;
  int num_rows;     // N, in [1, kMaxLinearRows]
  int num_inputs;   // K, a multiple of 8
  int num_outputs;  // M, a multiple of 8
  bool is_bfloat16;
  bool has_float_out;  // out is float32; else it is of the type of x
  bool is_swiglu;      // weight is [2 M, K], gate first: out = silu(x @ gate^T) * (x @ up^T)
  // Bytes of a multiprocessor's shared memory that it may take, so that launches of another stream
  // find room beside it; it reads less far ahead. 0: all.
  int max_smem;
};

// How a product is cut. Depends on nothing but its sizes, and the shared memory where that is
// short.
struct LinearTiling {
  int tile;    // rows of the weight that a block (with its cluster) does at a time
  int depth;   // steps of 64 numbers of K that are copied at a time
  int parts;   // blocks of a cluster, each with a part of K; their sums are added in order
  int blocks;  // of one multiprocessor at a time
};
//   max_smem: as of Linear. What is cut otherwise, since it needs more, has other bits.
// Returns no tile where there is room for none.
LinearTiling linear_tiling(int num_outputs, int num_inputs, bool is_swiglu, int max_smem);

// A row of `out` depends on that row of x and on the weight alone. Launches nothing else and needs
// no scratch. May begin while the launches ahead still run (programmatic dependent launch).
//   stream: a cudaStream_t; may be capturing
// Returns a cudaError_t, 0 for success.
int launch_linear(const Linear& linear, const LinearTiling& tiling, void* stream);

}  // namespace ooospec
