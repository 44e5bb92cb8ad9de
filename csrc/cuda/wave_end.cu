// SPDX-License-Identifier: Apache-2.0
#include "cuda/wave_end.h"

namespace ooospec {
namespace {

constexpr int kThreads = 128;
constexpr int kForkThreads = 256;
static_assert(kThreads >= kMaxWaveRows && kThreads >= kMaxWavePairs);

__global__ void __launch_bounds__(kThreads) wave_end_kernel(const WaveEnd args) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < args.num_rows) args.report->choices[i] = args.choices[i];
  if (i < args.num_pairs) args.report->scores[i] = args.scores[i];
  __threadfence_system();
  __syncthreads();
  if (i == 0) {
    const std::uint64_t number = ++*args.round;
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(&args.report->round), "l"(number)
                 : "memory");
  }
}

// A block of threads copies the slots of one layer to one target; they are consecutive bytes.
__global__ void __launch_bounds__(kForkThreads)
    fork_kernel(const Fork args, const ForkBlock block) {
  const std::int64_t target = args.targets[blockIdx.x];
  if (target < 0) return;
  std::uint8_t* layer = block.data + blockIdx.y * block.layer_bytes;
  const auto* from = reinterpret_cast<const uint4*>(layer + *args.source * block.slot_bytes);
  auto* to = reinterpret_cast<uint4*>(layer + target * block.slot_bytes);
  const std::int64_t size = *args.count * block.slot_bytes / static_cast<int>(sizeof(uint4));
  for (std::int64_t i = threadIdx.x; i < size; i += kForkThreads) to[i] = from[i];
}

}  // namespace

int load_wave_end() {
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, wave_end_kernel);
  if (status != cudaSuccess) return static_cast<int>(status);
  return static_cast<int>(cudaFuncGetAttributes(&attributes, fork_kernel));
}

int launch_wave_end(const WaveEnd& end, void* stream) {
  wave_end_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(end);
  return static_cast<int>(cudaGetLastError());
}

int launch_fork(const Fork& fork, const ForkBlock& block, void* stream) {
  const dim3 grid(static_cast<unsigned>(fork.num_targets), static_cast<unsigned>(block.num_layers));
  fork_kernel<<<grid, kForkThreads, 0, static_cast<cudaStream_t>(stream)>>>(fork, block);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace ooospec
