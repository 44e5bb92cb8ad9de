// SPDX-License-Identifier: Apache-2.0
//
// Pinned memory of the host that the device reads and writes in place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ooospec {

// Owns its bytes, which are 0 at first. Its kernels must have ended before it does.
class MappedMemory {
 public:
  // Raises std::invalid_argument for no bytes, std::runtime_error where CUDA gives none.
  explicit MappedMemory(std::size_t num_bytes);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  void* host() const { return host_; }
  void* device() const { return device_; }  // the same bytes, as kernels address them
  std::size_t num_bytes() const { return num_bytes_; }

 private:
  std::size_t num_bytes_;
  void* host_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace ooospec
