// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>

#include <algorithm>
#include <string_view>
#include <system_error>

#include "bindings/bindings.h"
#include "common/check.h"
#include "ring/hint_ring.h"

namespace ooospec {
namespace {

namespace py = pybind11;

std::uint16_t checked_index(const char* name, std::int64_t value) {
  OOOSPEC_REQUIRE(value >= 0 && value <= 0xFFFF, name, ": expected an integer in [0, 65535], got ",
                  value);
  return static_cast<std::uint16_t>(value);
}

HintRecord make_record(std::uint64_t request_id, HintKind kind, std::int64_t call,
                       std::int64_t tool, std::int64_t parameter, std::string_view text) {
  OOOSPEC_REQUIRE(text.size() <= HintRecord::kMaxTextBytes, "text: expected at most ",
                  HintRecord::kMaxTextBytes, " bytes, got ", text.size());
  OOOSPEC_REQUIRE(is_known(kind), "kind: expected a HintKind, got ", static_cast<int>(kind));
  HintRecord record{};
  record.request_id = request_id;
  record.kind = kind;
  record.call = checked_index("call", call);
  record.tool = checked_index("tool", tool);
  record.parameter = checked_index("parameter", parameter);
  record.length = static_cast<std::uint32_t>(text.size());
  std::copy(text.begin(), text.end(), record.bytes.begin());
  return record;
}

// Bytes that are not UTF-8 can only come from a writer that is not ours; they must not stop the
// reader.
py::str text_of(const HintRecord& record) {
  const std::string_view text = record.text();
  PyObject* decoded =
      PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "replace");
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

py::str repr_of(const HintRecord& record) {
  return py::str("HintRecord(request_id={}, kind={}, call={}, tool={}, parameter={}, text={!r})")
      .format(record.request_id, py::cast(record.kind).attr("name"), record.call, record.tool,
              record.parameter, text_of(record));
}

py::object try_pop(HintRing& ring) {
  static thread_local HintRecord record;
  return ring.try_pop(record) ? py::cast(record) : py::none();
}

int shared_fd(const HintRing& ring) {
  OOOSPEC_REQUIRE(ring.fd() >= 0,
                  "HintRing.fd: expected a ring with shared=True, got a private one");
  return ring.fd();
}

void raise_os_error(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const std::system_error& error) {
    PyErr_SetObject(PyExc_OSError, py::make_tuple(error.code().value(), error.what()).ptr());
  }
}

}  // namespace

void bind_ring(py::module_& module) {
  using namespace py::literals;
  py::register_local_exception_translator(raise_os_error);

  py::enum_<HintKind>(module, "HintKind", "What a record says.")
      .value("FUNCTION", HintKind::kFunction, "The function choice: `tool`, or NO_TOOL.")
      .value("VALUE", HintKind::kValue, "Compact JSON value of (`tool`, `parameter`).")
      .value("END", HintKind::kEnd, "Every slot of `call` has been said.")
      .value("ERROR", HintKind::kError, "The sidecar gave up; the text says why.");

  py::class_<HintRecord> record(module, "HintRecord", "A hint. Immutable.");
  record
      .def(py::init(&make_record), "request_id"_a, "kind"_a, "call"_a, "tool"_a, "parameter"_a,
           "text"_a = "",
           "Makes a record without a ring. Raises ValueError for indices outside 16 bits or a text "
           "above MAX_TEXT_BYTES.")
      .def_readonly("request_id", &HintRecord::request_id)
      .def_readonly("sequence", &HintRecord::sequence)
      .def_readonly("kind", &HintRecord::kind)
      .def_readonly("call", &HintRecord::call)
      .def_readonly("tool", &HintRecord::tool)
      .def_readonly("parameter", &HintRecord::parameter)
      .def_property_readonly("text", &text_of)
      .def("__repr__", &repr_of);
  record.attr("NO_TOOL") = kNoTool;
  record.attr("MAX_TEXT_BYTES") = HintRecord::kMaxTextBytes;

  py::class_<HintRing> ring(module, "HintRing",
                            "Carries hints from one writer to one reader: threads, or processes "
                            "that share the memory behind `fd`.");
  ring.def(py::init<std::size_t, bool>(), "capacity_bytes"_a = std::size_t{1} << 20,
           "shared"_a = false,
           "Makes an empty ring.\n\n"
           "capacity_bytes: rounded up to a power of two\n"
           "shared: in memory without a name that another process can attach to by `fd`")
      .def_static(
          "attach", &HintRing::attach, "fd"_a,
          "Maps the ring behind a descriptor, which stays the caller's. Raises ValueError if "
          "it is no ring, OSError if it is no descriptor.")
      .def(
          "try_push",
          [](HintRing& self, std::uint64_t request_id, HintKind kind, std::int64_t call,
             std::int64_t tool, std::int64_t parameter, std::string_view text) {
            return self.try_push(request_id, kind, checked_index("call", call),
                                 checked_index("tool", tool), checked_index("parameter", parameter),
                                 text);
          },
          "request_id"_a, "kind"_a, "call"_a, "tool"_a, "parameter"_a, "text"_a = "",
          "Publishes a record, or counts it in `dropped` and returns False: ring full, text above "
          "MAX_TEXT_BYTES, request above MAX_REQUEST_BYTES. Never blocks.")
      .def("wake_by", &HintRing::wake_by, "fd"_a,
           "Writer: lets each record be followed by a write to a descriptor that does not block, "
           "for a reader that sleeps; -1: no more.")
      .def(
          "try_pop", &try_pop,
          "Takes the oldest intact record, or None. Never blocks; what is not intact is counted in "
          "`torn`.")
      .def_property_readonly("fd", &shared_fd,
                             "Descriptor to hand to the other process, closed on exec and with the "
                             "ring. Raises ValueError for a private ring.")
      .def_property_readonly("capacity_bytes", &HintRing::capacity_bytes)
      .def_property_readonly("dropped", &HintRing::dropped, "Records that try_push refused.")
      .def_property_readonly("torn", &HintRing::torn, "Records that try_pop skipped.");
  ring.attr("RECORD_BYTES") = HintRing::kRecordBytes;
  ring.attr("MAX_REQUEST_BYTES") = HintRing::kMaxRequestBytes;
}

}  // namespace ooospec
