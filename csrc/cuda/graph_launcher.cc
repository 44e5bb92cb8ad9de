// SPDX-License-Identifier: Apache-2.0
#include "cuda/graph_launcher.h"

#include <exception>

#include "common/check.h"
#include "cuda/cuda_check.h"
#include "cuda/wait.h"

namespace ooospec {

GraphLauncher::GraphLauncher(const std::vector<void*>& graphs, void* stream,
                             const std::uint64_t* round, std::uint64_t num_rounds,
                             std::int64_t timeout_us)
    : launcher_{this, &GraphLauncher::launch},
      stream_(stream),
      round_(round),
      num_rounds_(num_rounds),
      timeout_us_(timeout_us) {
  try {
    for (void* graph : graphs) {
      OOOSPEC_REQUIRE(graph != nullptr, "graphs: expected a graph, got null");
      cudaGraphExec_t program = nullptr;
      // Without cudaGraphInstantiateFlagUseNodePriority: the stream's priority counts.
      cuda_check(cudaGraphInstantiate(&program, static_cast<cudaGraph_t>(graph), 0),
                 "cudaGraphInstantiate");
      programs_.push_back(program);
      cuda_check(cudaGraphUpload(program, static_cast<cudaStream_t>(stream)), "cudaGraphUpload");
    }
  } catch (...) {
    release();
    throw;
  }
}

GraphLauncher::~GraphLauncher() { release(); }

void GraphLauncher::release() {
  for (void* program : programs_) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(program));
  programs_.clear();
}

void GraphLauncher::run(int program) {
  OOOSPEC_REQUIRE(program >= 0 && program < static_cast<int>(programs_.size()),
                  "program: expected a number below ", programs_.size(), ", got ", program);
  auto* graph = static_cast<cudaGraphExec_t>(programs_[static_cast<std::size_t>(program)]);
  cuda_check(cudaGraphLaunch(graph, static_cast<cudaStream_t>(stream_)), "cudaGraphLaunch");
  ++num_rounds_;
  if (!wait(round_, num_rounds_, timeout_us_, stream_)) {
    throw std::runtime_error(
        concat("a wave's launch: expected an end within ", timeout_us_ / 1000, " ms, got none"));
  }
}

const char* GraphLauncher::launch(void* self, int program) {
  auto& launcher = *static_cast<GraphLauncher*>(self);
  try {
    launcher.run(program);
    return nullptr;
  } catch (const std::exception& error) {
    launcher.error_ = error.what();
    return launcher.error_.c_str();
  }
}

}  // namespace ooospec
