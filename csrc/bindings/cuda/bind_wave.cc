// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <vector>

#include "bindings/cuda/address.h"
#include "common/check.h"
#include "cuda/cuda_check.h"
#include "cuda/graph_launcher.h"
#include "cuda/mapped_memory.h"
#include "cuda/wave_end.h"

namespace ooospec {
namespace {

namespace py = pybind11;

// The report of a wave's launches, in mapped memory of its own. Whoever has one can capture them.
class BoundReport {
 public:
  BoundReport() : memory_(sizeof(WaveReport)) { cuda_check(load_wave_end(), "loading wave_end"); }
  WaveReport* host() const { return static_cast<WaveReport*>(memory_.host()); }
  WaveReport* device() const { return static_cast<WaveReport*>(memory_.device()); }

 private:
  MappedMemory memory_;
};

void wave_end(const BoundReport& report, Address round, std::optional<Address> choices,
              int num_rows, std::optional<Address> scores, int num_pairs, Address stream) {
  OOOSPEC_REQUIRE(num_rows >= 0 && num_rows <= kMaxWaveRows, "num_rows: expected 0 to ",
                  kMaxWaveRows, ", got ", num_rows);
  OOOSPEC_REQUIRE(num_pairs >= 0 && num_pairs <= kMaxWavePairs, "num_pairs: expected 0 to ",
                  kMaxWavePairs, ", got ", num_pairs);
  WaveEnd args{};
  if (choices) {
    args.choices = pointer<std::int32_t>("choices", *choices);
    args.num_rows = num_rows;
  }
  if (scores) {
    args.scores = pointer<float>("scores", *scores);
    args.num_pairs = num_pairs;
  }
  args.round = pointer<std::uint64_t>("round", round);
  args.report = report.device();
  cuda_check(launch_wave_end(args, stream_of(stream)), "wave_end");
}

void fork(Address source, Address targets, int num_targets, Address count, Address block,
          std::int64_t layer_bytes, std::int64_t slot_bytes, int num_layers, Address stream) {
  OOOSPEC_REQUIRE(num_targets >= 1, "num_targets: expected at least 1, got ", num_targets);
  OOOSPEC_REQUIRE(num_layers >= 1, "num_layers: expected at least 1, got ", num_layers);
  OOOSPEC_REQUIRE(block % 16 == 0 && layer_bytes % 16 == 0 && slot_bytes % 16 == 0,
                  "block: expected slots at multiples of 16 bytes, got address ", block,
                  ", layers of ", layer_bytes, " and slots of ", slot_bytes, " bytes");
  const Fork args{pointer<std::int64_t>("source", source),
                  pointer<std::int64_t>("targets", targets), pointer<std::int32_t>("count", count),
                  num_targets};
  const ForkBlock layers{pointer<std::uint8_t>("block", block), layer_bytes, slot_bytes,
                         num_layers};
  cuda_check(launch_fork(args, layers, stream_of(stream)), "fork");
}

std::unique_ptr<GraphLauncher> graph_launcher(const std::vector<Address>& graphs, Address stream,
                                              const BoundReport& report, std::uint64_t num_rounds,
                                              std::int64_t timeout_us) {
  std::vector<void*> handles;
  for (const Address graph : graphs) handles.push_back(reinterpret_cast<void*>(graph));
  return std::make_unique<GraphLauncher>(handles, stream_of(stream), &report.host()->round,
                                         num_rounds, timeout_us);
}

}  // namespace

void bind_wave(py::module_& module) {
  using namespace py::literals;
  module.attr("MAX_WAVE_ROWS") = kMaxWaveRows;
  module.attr("MAX_WAVE_PAIRS") = kMaxWavePairs;

  py::class_<BoundReport>(module, "WaveReport", "What `wave_end` publishes; see cuda/wave_end.h.")
      .def(py::init<>(), "Allocates mapped memory. Raises RuntimeError where CUDA gives none.")
      .def_property_readonly("choices",
                             [](py::object self) {
                               WaveReport* report = self.cast<BoundReport&>().host();
                               return py::array_t<std::int32_t>({kMaxWaveRows}, report->choices,
                                                                self);
                             })
      .def_property_readonly("scores", [](py::object self) {
        WaveReport* report = self.cast<BoundReport&>().host();
        return py::array_t<float>({kMaxWavePairs}, report->scores, self);
      });

  py::class_<GraphLauncher>(module, "GraphLauncher",
                            "Programs of a wave that are CUDA graphs; see cuda/graph_launcher.h.")
      .def(py::init(&graph_launcher), "graphs"_a, "stream"_a, "report"_a, "num_rounds"_a,
           "timeout_us"_a, py::keep_alive<1, 4>(),
           "Instantiates graphs, which may go after this. num_rounds: published so far.\n\n"
           "Raises RuntimeError if a graph cannot be instantiated.")
      .def_property_readonly(
          "address",
          [](const GraphLauncher& self) { return reinterpret_cast<Address>(self.launcher()); },
          "Of the Launcher, which lives as long as this.")
      .def(
          "run",
          [](GraphLauncher& self, int program) {
            const Launcher& launcher = *self.launcher();
            const char* why = nullptr;
            {
              const py::gil_scoped_release release;
              why = launcher.run(launcher.self, program);
            }
            if (why != nullptr) throw std::runtime_error(why);
          },
          "program"_a, "Runs a program to its end, without the GIL. Raises RuntimeError.");

  module.def("wave_end", &wave_end, py::kw_only(), "report"_a, "round"_a, "choices"_a, "num_rows"_a,
             "scores"_a, "num_pairs"_a, "stream"_a,
             "Publishes choices and scores, either of which may be None.\n\n"
             "round, choices, scores: addresses on the device.\n"
             "Raises ValueError for values out of range, RuntimeError if the launch fails.\n"
             "Cost: one launch, which a capturing stream records.");
  module.def("fork", &fork, py::kw_only(), "source"_a, "targets"_a, "num_targets"_a, "count"_a,
             "block"_a, "layer_bytes"_a, "slot_bytes"_a, "num_layers"_a, "stream"_a,
             "Copies consecutive slots of all layers to each target; see cuda/wave_end.h.\n\n"
             "source, targets, count, block: addresses on the device.\n"
             "Raises ValueError for values out of range, RuntimeError if the launch fails.\n"
             "Cost: one launch, which a capturing stream records.");
}

}  // namespace ooospec
