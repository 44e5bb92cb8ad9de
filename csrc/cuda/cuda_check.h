// SPDX-License-Identifier: Apache-2.0
//
// Errors of CUDA as exceptions.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "common/check.h"

namespace ooospec {

// Throws std::runtime_error, naming the call, unless `status` is a success. The runtime forgets the
// error, unless it is one that it cannot forget.
inline void cuda_check(int status, const char* call) {
  if (status == cudaSuccess) return;
  const auto error = static_cast<cudaError_t>(status);
  static_cast<void>(cudaGetLastError());
  throw std::runtime_error(concat(call, ": expected success, got ", cudaGetErrorName(error), ": ",
                                  cudaGetErrorString(error)));
}

}  // namespace ooospec
