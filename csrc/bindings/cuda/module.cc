// SPDX-License-Identifier: Apache-2.0
//
// ooospec._C_cuda: addresses and streams are integers, as torch gives them.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>

#include "bindings/cuda/address.h"
#include "common/check.h"
#include "cuda/cuda_check.h"
#include "cuda/end_of_round.h"
#include "cuda/linear.h"
#include "cuda/mapped_memory.h"
#include "cuda/wait.h"

namespace ooospec {
namespace {

namespace py = pybind11;
bool wait_for(const std::uint64_t* address, std::uint64_t value, std::int64_t timeout_us,
              std::optional<Address> stream) {
  OOOSPEC_REQUIRE(timeout_us >= 0, "timeout_us: expected an integer from 0 on, got ", timeout_us);
  std::optional<void*> asked;
  if (stream) asked = stream_of(*stream);
  const py::gil_scoped_release release;
  return wait(address, value, timeout_us, asked);
}

// The report of rounds, in mapped memory of its own. Whoever has one can capture a round.
class Report {
 public:
  Report() : memory_(sizeof(RoundReport)) {
    cuda_check(load_end_of_round(), "loading end_of_round");
  }
  RoundReport* host() const { return static_cast<RoundReport*>(memory_.host()); }
  const MappedMemory& memory() const { return memory_; }

 private:
  MappedMemory memory_;
};

// Returns a view that keeps its owner alive and cannot be written.
py::array view(py::handle owner, const std::int32_t* data, std::vector<py::ssize_t> shape) {
  py::array array(py::dtype::of<std::int32_t>(), std::move(shape), data, owner);
  array.attr("flags").attr("writeable") = false;
  return array;
}

void end_of_round(const Report& report, Address round, int num_rows, Address choices,
                  std::optional<Address> top8, Address tokens, Address parents, Address positions,
                  Address sequences, Address slots, Address page_table, int num_pages,
                  int page_size, Address path_sources, Address path_targets, Address path_count,
                  Address stream) {
  OOOSPEC_REQUIRE(num_rows >= 1 && num_rows <= kMaxRows, "num_rows: expected an integer in [1, ",
                  kMaxRows, "], got ", num_rows);
  OOOSPEC_REQUIRE(num_pages >= 1, "num_pages: expected at least 1, got ", num_pages);
  OOOSPEC_REQUIRE(page_size >= 1, "page_size: expected at least 1, got ", page_size);
  EndOfRound args{};
  args.num_rows = num_rows;
  args.page_size = page_size;
  args.num_pages = num_pages;
  args.choices = pointer<std::int32_t>("choices", choices);
  args.top8 = top8 ? pointer<std::int32_t>("top8", *top8) : nullptr;
  args.tokens = pointer<std::int32_t>("tokens", tokens);
  args.parents = pointer<std::int32_t>("parents", parents);
  args.positions = pointer<std::int32_t>("positions", positions);
  args.sequences = pointer<std::int32_t>("sequences", sequences);
  args.slots = pointer<std::int64_t>("slots", slots);
  args.page_table = pointer<std::int32_t>("page_table", page_table);
  args.path_sources = pointer<std::int64_t>("path_sources", path_sources);
  args.path_targets = pointer<std::int64_t>("path_targets", path_targets);
  args.path_count = pointer<std::int32_t>("path_count", path_count);
  args.round = pointer<std::uint64_t>("round", round);
  args.report = static_cast<RoundReport*>(report.memory().device());
  cuda_check(launch_end_of_round(args, stream_of(stream)), "end_of_round");
}

void linear(Address x, std::int64_t x_stride, Address weight, std::int64_t weight_stride,
            Address out, std::int64_t out_stride, int num_rows, int num_inputs, int num_outputs,
            bool is_bfloat16, bool has_float_out, bool is_swiglu, int max_smem, Address stream) {
  OOOSPEC_REQUIRE(num_rows >= 1 && num_rows <= kMaxLinearRows,
                  "num_rows: expected an integer in [1, ", kMaxLinearRows, "], got ", num_rows);
  OOOSPEC_REQUIRE(num_inputs >= 8 && num_inputs % 8 == 0,
                  "num_inputs: expected a multiple of 8, got ", num_inputs);
  OOOSPEC_REQUIRE(num_outputs >= 8 && num_outputs % 8 == 0,
                  "num_outputs: expected a multiple of 8, got ", num_outputs);
  const auto aligned = [](const char* name, Address address, std::int64_t stride) {
    OOOSPEC_REQUIRE(address != 0 && address % 16 == 0 && stride % 8 == 0, name,
                    ": expected rows that begin at multiples of 16 bytes, got address ", address,
                    " and stride ", stride);
    return reinterpret_cast<void*>(address);
  };
  const Linear args{aligned("x", x, x_stride),
                    x_stride,
                    aligned("weight", weight, weight_stride),
                    weight_stride,
                    aligned("out", out, out_stride),
                    out_stride,
                    num_rows,
                    num_inputs,
                    num_outputs,
                    is_bfloat16,
                    has_float_out,
                    is_swiglu,
                    max_smem};
  const LinearTiling tiling = linear_tiling(num_outputs, num_inputs, is_swiglu, max_smem);
  OOOSPEC_REQUIRE(tiling.tile > 0, "max_smem: expected room for two stages, 0 for all, got ",
                  max_smem, " bytes");
  cuda_check(launch_linear(args, tiling, stream_of(stream)), "linear");
}

void bind_memory(py::module_& module) {
  using namespace py::literals;
  py::class_<MappedMemory>(module, "MappedMemory", py::buffer_protocol(),
                           "Pinned memory of the host that the device sees; a buffer of bytes.")
      .def(py::init<std::size_t>(), "num_bytes"_a,
           "Allocates bytes, 0 at first. Raises ValueError for none, RuntimeError where CUDA gives "
           "none.")
      .def_buffer([](MappedMemory& self) {
        return py::buffer_info(static_cast<std::uint8_t*>(self.host()),
                               static_cast<py::ssize_t>(self.num_bytes()));
      })
      .def_property_readonly("address",
                             [](const MappedMemory& self) { return Address(self.host()); })
      .def_property_readonly(
          "device_address", [](const MappedMemory& self) { return Address(self.device()); },
          "The same bytes, as kernels address them.")
      .def("__len__", &MappedMemory::num_bytes);
}

void bind_report(py::module_& module) {
  using namespace py::literals;
  py::class_<Report>(
      module, "RoundReport",
      "What `end_of_round` publishes. Of a sequence whose rows begin at f: counts[f] "
      "tokens are committed, tokens[f] ..., chosen after rows[f] ...; counts of all "
      "other rows are 0.")
      .def(py::init<>(), "Allocates mapped memory. Raises RuntimeError where CUDA gives none.")
      .def_property_readonly("counts",
                             [](py::object self) {
                               return view(self, self.cast<Report&>().host()->counts, {kMaxRows});
                             })
      .def_property_readonly("tokens",
                             [](py::object self) {
                               return view(self, self.cast<Report&>().host()->tokens, {kMaxRows});
                             })
      .def_property_readonly(
          "rows",
          [](py::object self) { return view(self, self.cast<Report&>().host()->rows, {kMaxRows}); })
      .def_property_readonly("top8",
                             [](py::object self) {
                               const Report& report = self.cast<Report&>();
                               return view(self, &report.host()->top8[0][0], {kMaxRows, kTop});
                             })
      .def(
          "wait",
          [](const Report& self, std::uint64_t round, std::int64_t timeout_us,
             std::optional<Address> stream) {
            return wait_for(&self.host()->round, round, timeout_us, stream);
          },
          "round"_a, "timeout_us"_a, "stream"_a = py::none(),
          "Spins, without the GIL, until `round` is published; see `wait`.");
}

}  // namespace
}  // namespace ooospec

PYBIND11_MODULE(_C_cuda, module) {
  using namespace ooospec;
  using namespace py::literals;
  module.doc() = "What the round on a GPU needs beside Triton. Imports without a GPU or a driver.";
  module.attr("MAX_ROWS") = kMaxRows;
  module.attr("TOP") = kTop;
  module.attr("RUNTIME_VERSION") = CUDART_VERSION;
  module.attr("ARCHS") = OOOSPEC_CUDA_ARCHS;
  bind_memory(module);
  bind_report(module);
  module.def(
      "wait",
      [](Address address, std::uint64_t value, std::int64_t timeout_us,
         std::optional<Address> stream) {
        return wait_for(pointer<std::uint64_t>("address", address), value, timeout_us, stream);
      },
      "address"_a, "value"_a, "timeout_us"_a, "stream"_a = py::none(),
      "Spins, without the GIL, until the uint64 at `address` is `value` or above; returns whether "
      "it was within `timeout_us`.\n\n"
      "stream: the stream whose work publishes it, asked for errors every few milliseconds; None: "
      "not asked\n"
      "Raises RuntimeError if that work failed, ValueError for a null or odd address or a negative "
      "timeout.");
  module.def("end_of_round", &end_of_round, py::kw_only(), "report"_a, "round"_a, "num_rows"_a,
             "choices"_a, "top8"_a, "tokens"_a, "parents"_a, "positions"_a, "sequences"_a,
             "slots"_a, "page_table"_a, "num_pages"_a, "page_size"_a, "path_sources"_a,
             "path_targets"_a, "path_count"_a, "stream"_a,
             "Accepts, writes what compaction moves, and publishes; see cuda/end_of_round.h.\n\n"
             "All but report, num_rows, num_pages and page_size are addresses on the device; top8 "
             "may be None.\n"
             "Raises ValueError for values out of range, RuntimeError if the launch fails.\n"
             "Cost: one launch, which a capturing stream records.");
  bind_wave(module);
  module.attr("MAX_LINEAR_ROWS") = kMaxLinearRows;
  module.def("linear", &linear, py::kw_only(), "x"_a, "x_stride"_a, "weight"_a, "weight_stride"_a,
             "out"_a, "out_stride"_a, "num_rows"_a, "num_inputs"_a, "num_outputs"_a,
             "is_bfloat16"_a, "has_float_out"_a, "is_swiglu"_a, "max_smem"_a, "stream"_a,
             "out = x @ weight^T of at most 64 rows, on Hopper; see cuda/linear.h.\n\n"
             "x, weight, out: addresses on the device; strides are in numbers.\n"
             "Raises ValueError for values out of range, RuntimeError if the launch fails.\n"
             "Cost: one launch, which a capturing stream records.");
}
