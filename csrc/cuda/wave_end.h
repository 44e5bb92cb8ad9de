// SPDX-License-Identifier: Apache-2.0
//
// What a wave needs on the device beside a decoder: lanes that begin with the prefix's last page,
// and results for a host that spins.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ooospec {

inline constexpr int kMaxWaveRows = 64;
inline constexpr int kMaxWavePairs = 128;

// What the host reads after a program of a wave, in mapped pinned memory. The kernel stores
// everything else before `round`.
//
//   bytes     what
//      0      choices  int32[64]
//    256      scores   float[128]
//    768      round    uint64, in a cache line of its own
struct WaveReport {
  std::int32_t choices[kMaxWaveRows];
  float scores[kMaxWavePairs];
  alignas(128) std::uint64_t round;
};
static_assert(offsetof(WaveReport, choices) == 0);
static_assert(offsetof(WaveReport, scores) == 256);
static_assert(offsetof(WaveReport, round) == 768);
static_assert(sizeof(WaveReport) == 896);

// All pointers are the device's.
struct WaveEnd {
  const std::int32_t* choices;  // int32[num_rows], or null: none
  int num_rows;                 // in [0, kMaxWaveRows]
  const float* scores;          // float[num_pairs], or null: none
  int num_pairs;                // in [0, kMaxWavePairs]
  std::uint64_t* round;         // uint64[1]; counted up by one, then published
  WaveReport* report;           // mapped: the device's address
};

// One tensor of keys or values: [layers][slots][slot_bytes], slots dense.
struct ForkBlock {
  std::uint8_t* data;
  std::int64_t layer_bytes;  // from a layer to the next
  std::int64_t slot_bytes;   // a multiple of 16
  int num_layers;
};

// All pointers are the device's.
struct Fork {
  const std::int64_t* source;   // int64[1]; first slot to copy
  const std::int64_t* targets;  // int64[num_targets]; first slots of the copies, -1: none
  const std::int32_t* count;    // int32[1]; slots to copy
  int num_targets;
};

// Loads the kernels, which a capture must find loaded. Returns a cudaError_t, 0 for success.
int load_wave_end();

// Publishes with a release store that the whole system sees. Cost: one launch of one block.
// Returns a cudaError_t, 0 for success.
int launch_wave_end(const WaveEnd& end, void* stream);

// Copies the slots of all layers of a block to each target. Cost: one launch.
// Returns a cudaError_t, 0 for success.
int launch_fork(const Fork& fork, const ForkBlock& block, void* stream);

}  // namespace ooospec
