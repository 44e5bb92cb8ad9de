// SPDX-License-Identifier: Apache-2.0
//
// How code that knows no CUDA runs what code that does has prepared.
#pragma once

namespace ooospec {

// A numbered set of programs over fixed buffers. Lives as long as who made it.
struct Launcher {
  void* self;

  // Runs a program once and waits for its end: its inputs may then be written, its outputs read.
  // Returns null, or why that failed, as text that lives until the next call. Throws nothing.
  const char* (*run)(void* self, int program);
};

}  // namespace ooospec
