// SPDX-License-Identifier: Apache-2.0
//
// Programs that are CUDA graphs, for code that knows no CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/launcher.h"

namespace ooospec {

// Replays graphs on one stream, whose priority all their kernels have. Each ends by publishing the
// next number; run() spins until it has come. For one thread at a time.
class GraphLauncher {
 public:
  // graphs: cudaGraph_t of each program, which may go after this; none may be null.
  // stream: a cudaStream_t that lives longer.
  // round: uint64, host memory that the graphs publish to; num_rounds: published so far.
  // Raises std::runtime_error if a graph cannot be instantiated.
  GraphLauncher(const std::vector<void*>& graphs, void* stream, const std::uint64_t* round,
                std::uint64_t num_rounds, std::int64_t timeout_us);
  ~GraphLauncher();
  GraphLauncher(const GraphLauncher&) = delete;
  GraphLauncher& operator=(const GraphLauncher&) = delete;

  const Launcher* launcher() const { return &launcher_; }

 private:
  void release();
  void run(int program);
  static const char* launch(void* self, int program);

  Launcher launcher_;
  std::vector<void*> programs_;  // cudaGraphExec_t
  void* stream_;
  const std::uint64_t* round_;
  std::uint64_t num_rounds_;
  std::int64_t timeout_us_;
  std::string error_;
};

}  // namespace ooospec
