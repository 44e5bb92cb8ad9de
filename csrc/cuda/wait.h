// SPDX-License-Identifier: Apache-2.0
//
// Spinning until the device has published a number.
#pragma once

#include <cstdint>
#include <optional>

namespace ooospec {

// Returns whether the number at `address` reached `value` (is it, or above) within `timeout_us`.
// What the device stored before it is then visible.
//   address: uint64, host memory that the device writes
//   stream: the cudaStream_t whose work publishes; asked every few milliseconds, so that a wait for
//     work that failed raises std::runtime_error. None: not asked.
// Cost: one core, busy.
bool wait(const std::uint64_t* address, std::uint64_t value, std::int64_t timeout_us,
          std::optional<void*> stream);

}  // namespace ooospec
