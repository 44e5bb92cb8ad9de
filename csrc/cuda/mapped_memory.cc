// SPDX-License-Identifier: Apache-2.0
#include "cuda/mapped_memory.h"

#include <cstring>

#include "common/check.h"
#include "cuda/cuda_check.h"

namespace ooospec {

MappedMemory::MappedMemory(std::size_t num_bytes) : num_bytes_(num_bytes) {
  OOOSPEC_REQUIRE(num_bytes > 0, "num_bytes: expected at least 1, got 0");
  constexpr unsigned kFlags = cudaHostAllocMapped | cudaHostAllocPortable;
  cuda_check(cudaHostAlloc(&host_, num_bytes, kFlags), "cudaHostAlloc");
  std::memset(host_, 0, num_bytes);
  const cudaError_t status = cudaHostGetDevicePointer(&device_, host_, 0);
  if (status != cudaSuccess) cudaFreeHost(host_);
  cuda_check(status, "cudaHostGetDevicePointer");
}

MappedMemory::~MappedMemory() { cudaFreeHost(host_); }

}  // namespace ooospec
