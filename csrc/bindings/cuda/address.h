// SPDX-License-Identifier: Apache-2.0
//
// Addresses and streams as integers, as torch gives them.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#include "common/check.h"

namespace ooospec {

using Address = std::uintptr_t;

template <typename T>
T* pointer(const char* name, Address address) {
  OOOSPEC_REQUIRE(address != 0 && address % alignof(T) == 0, name,
                  ": expected an address that is a multiple of ", alignof(T), ", got ", address);
  return reinterpret_cast<T*>(address);
}

inline void* stream_of(Address stream) { return reinterpret_cast<void*>(stream); }

void bind_wave(pybind11::module_& module);

}  // namespace ooospec
