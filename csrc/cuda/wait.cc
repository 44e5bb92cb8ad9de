// SPDX-License-Identifier: Apache-2.0
#include "cuda/wait.h"

#include <atomic>
#include <chrono>
#include <optional>

#include "cuda/cuda_check.h"

namespace ooospec {
namespace {

constexpr int kLooks = 64;  // between two looks at the clock
constexpr std::chrono::milliseconds kBetweenChecks{5};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

void check(void* stream) {
  const cudaError_t status = cudaStreamQuery(static_cast<cudaStream_t>(stream));
  if (status != cudaErrorNotReady) cuda_check(status, "a round on the device");
}

}  // namespace

bool wait(const std::uint64_t* address, std::uint64_t value, std::int64_t timeout_us,
          std::optional<void*> stream) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const Clock::time_point end = start + std::chrono::microseconds(timeout_us);
  Clock::time_point next_check = start + kBetweenChecks;
  std::atomic_ref<std::uint64_t> number(*const_cast<std::uint64_t*>(address));
  while (true) {
    for (int look = 0; look < kLooks; ++look) {
      if (number.load(std::memory_order_acquire) >= value) return true;
      pause();
    }
    const Clock::time_point now = Clock::now();
    if (now >= end) return false;
    if (stream && now >= next_check) {
      check(*stream);
      next_check = now + kBetweenChecks;
    }
  }
}

}  // namespace ooospec
