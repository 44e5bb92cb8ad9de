// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "bindings/bindings.h"
#include "common/check.h"
#include "wave/value_reader.h"
#include "wave/value_schema.h"
#include "wave/wave.h"

namespace py = pybind11;

namespace ooospec {
namespace {

using Arrays = std::map<std::string, py::array>;
using Address = std::uintptr_t;

// Returns the numbers of the array `name`, which must be of this type, dense and of `size` numbers.
template <typename T>
T* numbers(const Arrays& arrays, const char* name, py::ssize_t size) {
  const auto found = arrays.find(name);
  OOOSPEC_REQUIRE(found != arrays.end(), name, ": expected an array, got none");
  const py::array& array = found->second;
  OOOSPEC_REQUIRE(py::isinstance<py::array_t<T>>(array) && array.size() == size &&
                      (array.flags() & py::array::c_style) != 0 && array.writeable(),
                  name, ": expected ", size, " numbers of ", sizeof(T), " bytes, got ",
                  std::string(py::str(array.dtype())), " x ", array.size());
  return static_cast<T*>(array.request().ptr);
}

py::ssize_t size_of(const Arrays& arrays, const char* name) {
  const auto found = arrays.find(name);
  OOOSPEC_REQUIRE(found != arrays.end(), name, ": expected an array, got none");
  return found->second.size();
}

WaveRows rows_of(const Arrays& arrays, std::int64_t spare_slot, int page_size) {
  WaveRows rows;
  const py::ssize_t num_rows = size_of(arrays, "tokens");
  const py::ssize_t num_sequences = size_of(arrays, "lengths");
  rows.num_rows = static_cast<int>(num_rows);
  rows.num_sequences = static_cast<int>(num_sequences);
  rows.tokens = numbers<TokenId>(arrays, "tokens", num_rows);
  rows.positions = numbers<std::int32_t>(arrays, "positions", num_rows);
  rows.sequences = numbers<std::int32_t>(arrays, "sequences", num_rows);
  rows.mask = numbers<std::int64_t>(arrays, "mask", num_rows);
  rows.slots = numbers<std::int64_t>(arrays, "slots", num_rows);
  rows.lengths = numbers<std::int32_t>(arrays, "lengths", num_sequences);
  rows.spare_slot = spare_slot;
  rows.page_size = page_size;
  return rows;
}

// Runs programs by a Python function, for backends without graphs. An exception of it ends the
// wave and is raised there.
struct CallableLauncher {
  py::function run;
  std::optional<py::error_already_set> error;

  static const char* launch(void* self, int program) {
    const py::gil_scoped_acquire acquire;
    auto& launcher = *static_cast<CallableLauncher*>(self);
    try {
      launcher.run(program);
      return nullptr;
    } catch (py::error_already_set& error) {
      launcher.error.emplace(error);
      return "a Python function raised";
    }
  }
};

// A wave, and what it reads and writes.
class BoundWave {
 public:
  BoundWave(std::shared_ptr<Vocab> vocab, std::vector<TokenId> eos_ids, int max_value_tokens,
            int num_lanes, double likely_within, Arrays chunk, Arrays rows,
            std::vector<Arrays> asks, std::int64_t spare_slot, int page_size,
            std::variant<Address, py::function> launcher)
      : chunk_(std::move(chunk)), rows_(std::move(rows)), asks_(std::move(asks)) {
    OOOSPEC_REQUIRE(page_size >= 1, "page_size: expected at least 1, got ", page_size);
    OOOSPEC_REQUIRE(num_lanes >= 1, "num_lanes: expected at least 1, got ", num_lanes);
    WaveBuffers buffers;
    buffers.chunk = rows_of(chunk_, spare_slot, page_size);
    buffers.rows = rows_of(rows_, spare_slot, page_size);
    for (const Arrays& part : asks_) {
      buffers.asks.push_back(rows_of(part, spare_slot, page_size));
      const WaveRows& rows = buffers.asks.back();
      OOOSPEC_REQUIRE(rows.num_rows == buffers.rows.num_rows &&
                          rows.num_sequences == buffers.rows.num_sequences,
                      "asks: expected parts like rows, got ", rows.num_rows, " rows of ",
                      rows.num_sequences, " sequences");
    }
    buffers.wanted = numbers<std::int32_t>(rows_, "wanted", buffers.rows.num_rows);
    const py::ssize_t num_pairs = size_of(rows_, "pair_rows");
    buffers.num_pairs = static_cast<int>(num_pairs);
    buffers.pair_rows = numbers<std::int32_t>(rows_, "pair_rows", num_pairs);
    buffers.pair_tokens = numbers<std::int32_t>(rows_, "pair_tokens", num_pairs);
    buffers.fork_source = numbers<std::int64_t>(rows_, "fork_source", 1);
    buffers.fork_targets = numbers<std::int64_t>(rows_, "fork_targets", num_lanes);
    buffers.fork_count = numbers<std::int32_t>(rows_, "fork_count", 1);
    buffers.choices = numbers<TokenId>(rows_, "choices", buffers.rows.num_rows);
    buffers.scores = numbers<float>(rows_, "scores", num_pairs);
    Launcher calls{};
    if (const auto* address = std::get_if<Address>(&launcher)) {
      OOOSPEC_REQUIRE(*address != 0 && *address % alignof(Launcher) == 0,
                      "launcher: expected an address, got ", *address);
      calls = *reinterpret_cast<const Launcher*>(*address);
    } else {
      callable_.run = std::get<py::function>(launcher);
      calls = {&callable_, &CallableLauncher::launch};
    }
    wave_ = std::make_unique<Wave>(std::move(vocab), std::move(eos_ids), max_value_tokens,
                                   num_lanes, likely_within, buffers, calls);
  }

  WaveResult run(const WaveRequest& request, HintRing& ring) {
    callable_.error.reset();
    try {
      const py::gil_scoped_release release;
      return wave_->run(request, ring);
    } catch (const std::runtime_error&) {
      if (!callable_.error) throw;
    }
    py::error_already_set error = *callable_.error;
    callable_.error.reset();
    throw error;
  }

  Wave& wave() { return *wave_; }

 private:
  Arrays chunk_, rows_;
  std::vector<Arrays> asks_;
  CallableLauncher callable_;
  std::unique_ptr<Wave> wave_;
};

}  // namespace

void bind_wave(py::module_& module) {
  using namespace py::literals;
  py::class_<ValueReader>(module, "ValueReader")
      .def(py::init<>())
      .def(
          "feed",
          [](ValueReader& self, const py::bytes& data) {
            return self.feed(std::string_view(data));
          },
          "data"_a)
      .def_property_readonly("answer",
                             [](const ValueReader& self) { return py::bytes(self.answer()); })
      .def_property_readonly("ended", &ValueReader::ended);

  py::class_<ValueSchema>(module, "ValueSchema")
      .def(py::init<std::string_view>(), "json"_a)
      .def(
          "to_hint",
          [](const ValueSchema& self, const py::bytes& answer) -> std::optional<std::string> {
            std::string hint;
            if (!self.to_hint(std::string_view(answer), hint)) return std::nullopt;
            return hint;
          },
          "answer"_a)
      .def_property_readonly("is_nullable", &ValueSchema::is_nullable);

  py::class_<WaveSlot>(module, "WaveSlot")
      .def(py::init([](std::uint16_t tool, std::uint16_t parameter, bool is_required,
                       std::vector<TokenId> question, const ValueSchema& schema,
                       std::vector<TokenId> recorded) {
             return WaveSlot{tool,   parameter,          is_required, std::move(question),
                             schema, std::move(recorded)};
           }),
           "tool"_a, "parameter"_a, "is_required"_a, "question"_a, "schema"_a,
           "recorded"_a = std::vector<TokenId>());

  py::class_<WaveRequest>(module, "WaveRequest")
      .def(py::init([](std::uint64_t request_id, std::vector<TokenId> prefix, int num_cached,
                       std::vector<TokenId> question,
                       std::vector<std::pair<std::uint16_t, std::vector<TokenId>>> options,
                       const std::vector<const WaveSlot*>& slots,
                       std::vector<std::int32_t> prefix_pages, std::vector<std::int32_t> lane_pages,
                       int pages_per_lane, std::optional<std::uint16_t> recorded) {
             WaveRequest request;
             request.request_id = request_id;
             request.prefix = std::move(prefix);
             request.num_cached = num_cached;
             request.question = std::move(question);
             for (auto& [tool, tokens] : options) {
               request.options.push_back({tool, std::move(tokens)});
             }
             for (const WaveSlot* slot : slots) request.slots.push_back(*slot);
             request.prefix_pages = std::move(prefix_pages);
             request.lane_pages = std::move(lane_pages);
             request.pages_per_lane = pages_per_lane;
             request.recorded = recorded;
             return request;
           }),
           py::kw_only(), "request_id"_a, "prefix"_a, "num_cached"_a, "question"_a, "options"_a,
           "slots"_a, "prefix_pages"_a, "lane_pages"_a, "pages_per_lane"_a,
           "recorded"_a = std::nullopt);

  py::class_<WaveResult>(module, "WaveResult")
      .def_readonly("cancelled", &WaveResult::cancelled)
      .def_readonly("num_sent", &WaveResult::num_sent)
      .def_readonly("num_unsaid", &WaveResult::num_unsaid)
      .def_readonly("num_invalid", &WaveResult::num_invalid)
      .def_property_readonly(
          "steps",
          [](const WaveResult& self) {
            py::list steps;
            for (const WaveStep& step : self.steps) {
              steps.append(py::make_tuple(step.start_ns, step.stop_ns, step.num_rows));
            }
            return steps;
          })
      .def_property_readonly("answers", [](const WaveResult& self) {
        py::list answers;
        for (const WaveAnswer& answer : self.answers) {
          answers.append(py::make_tuple(answer.time_ns, answer.kind, answer.tool, answer.parameter,
                                        answer.sent));
        }
        return answers;
      });

  py::class_<BoundWave> wave(module, "Wave");
  wave.def(py::init<std::shared_ptr<Vocab>, std::vector<TokenId>, int, int, double, Arrays, Arrays,
                    std::vector<Arrays>, std::int64_t, int, std::variant<Address, py::function>>(),
           py::kw_only(), "vocab"_a, "eos_ids"_a, "max_value_tokens"_a, "num_lanes"_a,
           "likely_within"_a, "chunk"_a, "rows"_a, "asks"_a, "spare_slot"_a, "page_size"_a,
           "launcher"_a)
      .def("run", &BoundWave::run, "request"_a, "ring"_a)
      .def("cancel", [](BoundWave& self) { self.wave().cancel(); })
      .def("reset", [](BoundWave& self) { self.wave().reset(); });
  wave.attr("MAX_SLOTS") = Wave::kMaxSlots;
}

}  // namespace ooospec
