// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include <array>
#include <stdexcept>

#include "bindings/bindings.h"
#include "call/answer_reader.h"
#include "call/call_reader.h"
#include "call/call_style.h"
#include "call/call_writer.h"
#include "call/tool_schema.h"
#include "common/check.h"

namespace py = pybind11;

namespace ooospec {

namespace {

// Text of an answer may end inside a character.
py::str text(std::string_view bytes) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<py::ssize_t>(bytes.size()), "replace"));
}

std::string_view spot_name(Spot spot) {
  constexpr std::array<std::string_view, 15> kNames = {
      "prose", "thinking",   "opened",    "between", "first_key", "next_key", "key",        "colon",
      "value", "first_item", "next_item", "string",  "number",    "literal",  "after_value"};
  return kNames[static_cast<std::size_t>(spot)];
}

std::string_view kind_name(PieceKind kind) {
  constexpr std::array<std::string_view, 6> kNames = {"wrapper", "function", "key",
                                                      "value",   "close",    "end"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view part_name(Part part) {
  constexpr std::array<std::string_view, 6> kNames = {"content",   "thinking", "call",
                                                      "arguments", "call_end", "call_cut"};
  return kNames[static_cast<std::size_t>(part)];
}

Wrapper wrapper_of(std::string_view name) {
  for (int k = 0; k < kNumWrappers; ++k) {
    if (form(static_cast<Wrapper>(k)).name == name) return static_cast<Wrapper>(k);
  }
  throw std::invalid_argument(ooospec::concat(
      "wrapper: expected bare, tags, fenced_json, fenced or python_tag, got '", name, "'"));
}

void bind_style(py::module_& module) {
  py::class_<CallStyle> style(module, "CallStyle");
  style
      .def(py::init([](std::string_view wrapper, std::string_view indent) {
             return CallStyle::usual(wrapper_of(wrapper), indent);
           }),
           py::arg("wrapper") = "tags", py::arg("indent") = "")
      .def_static("from_text", &CallStyle::from_text, py::arg("text"), py::arg("tools"))
      .def_property(
          "wrapper", [](const CallStyle& s) { return form(s.wrapper).name; },
          [](CallStyle& s, std::string_view name) { s.wrapper = wrapper_of(name); })
      .def_readwrite("as_list", &CallStyle::list)
      .def_readwrite("rewrap", &CallStyle::rewrap)
      .def_readwrite("type_key", &CallStyle::type_key)
      .def_readwrite("lines", &CallStyle::lines)
      .def_property(
          "ascii", [](const CallStyle& s) { return s.spelling.ascii; },
          [](CallStyle& s, bool ascii) { s.spelling.ascii = ascii; })
      .def_property(
          "escape_slash", [](const CallStyle& s) { return s.spelling.slash; },
          [](CallStyle& s, bool slash) { s.spelling.slash = slash; })
      .def_readwrite("open_gap", &CallStyle::open_gap)
      .def_readwrite("close_gap", &CallStyle::close_gap)
      .def_readwrite("between", &CallStyle::between)
      .def_readwrite("arguments_key", &CallStyle::arguments_key)
      .def_readwrite("indent", &CallStyle::indent)
      .def_readwrite("pad", &CallStyle::pad)
      .def_readwrite("array_pad", &CallStyle::array_pad)
      .def_readwrite("before_comma", &CallStyle::before_comma)
      .def_readwrite("after_comma", &CallStyle::after_comma)
      .def_readwrite("before_colon", &CallStyle::before_colon)
      .def_readwrite("after_colon", &CallStyle::after_colon)
      .def_readonly("seen", &CallStyle::seen)
      .def("agrees_with", &CallStyle::agrees_with, py::arg("other"))
      .def("filled_from", &CallStyle::filled_from, py::arg("guess"))
      .def("copy", [](const CallStyle& s) { return s; })
      .def("__eq__", [](const CallStyle& a, const CallStyle& b) { return a == b; });

  py::class_<StyleGuess>(module, "StyleGuess")
      .def(py::init<CallStyle, float>(), py::arg("style"), py::arg("probability"))
      .def_readonly("style", &StyleGuess::style)
      .def_readonly("probability", &StyleGuess::probability);

  module.def("usual_styles", [] {
    const auto styles = usual_styles();
    return std::vector<StyleGuess>(styles.begin(), styles.end());
  });
}

void bind_reader(py::module_& module) {
  py::class_<Call>(module, "Call")
      .def_property_readonly("name", [](const Call& c) { return text(c.name); })
      .def_property_readonly("arguments", [](const Call& c) { return text(c.arguments); })
      .def_readonly("tool", &Call::tool)
      .def_readonly("begin", &Call::begin)
      .def_readonly("end", &Call::end)
      .def("__eq__", [](const Call& a, const Call& b) { return a == b; });

  py::class_<ToolSet, std::shared_ptr<ToolSet>>(module, "ToolSet")
      .def(py::init([](std::string_view json) {
             return std::const_pointer_cast<ToolSet>(ToolSet::parse(json));
           }),
           py::arg("json"))
      .def("__len__", &ToolSet::size)
      .def("find", &ToolSet::find, py::arg("name"))
      .def(
          "name",
          [](const ToolSet& tools, int idx) {
            OOOSPEC_REQUIRE_INDEX(idx >= 0 && idx < tools.size(), "tool: expected an index in [0, ",
                                  tools.size(), "), got ", idx);
            return tools.tool(idx).name;
          },
          py::arg("tool"))
      .def(
          "parameters",
          [](const ToolSet& tools, int idx) {
            OOOSPEC_REQUIRE_INDEX(idx >= 0 && idx < tools.size(), "tool: expected an index in [0, ",
                                  tools.size(), "), got ", idx);
            std::vector<std::string> names;
            for (const SchemaProperty& parameter : tools.parameters(idx))
              names.push_back(parameter.name);
            return names;
          },
          py::arg("tool"))
      .def_property_readonly("hash", &ToolSet::hash);

  py::class_<CallReader>(module, "CallReader")
      .def(py::init([](std::shared_ptr<ToolSet> tools, bool thinking) {
             return CallReader(std::move(tools), thinking);
           }),
           py::arg("tools"), py::arg("thinking") = false)
      .def(
          "feed",
          [](CallReader& reader, const py::bytes& bytes) { reader.feed(std::string_view(bytes)); },
          py::arg("data"))
      .def_property_readonly("spot", [](const CallReader& r) { return spot_name(r.spot()); })
      .def_property_readonly("in_call", &CallReader::in_call)
      .def_property_readonly("num_bytes", &CallReader::num_bytes)
      .def_property_readonly("calls", [](const CallReader& r) { return r.calls(); })
      .def_property_readonly("spans",
                             [](const CallReader& r) {
                               std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
                               for (const CallSpan& span : r.spans())
                                 spans.emplace_back(span.begin, span.end);
                               return spans;
                             })
      .def_property_readonly("style", [](const CallReader& r) { return r.style(); })
      .def_property_readonly("tool", &CallReader::tool)
      .def("copy", [](const CallReader& r) { return r; })
      .def("__eq__", [](const CallReader& a, const CallReader& b) { return a == b; });

  module.def(
      "parse_calls",
      [](std::string_view bytes, std::shared_ptr<ToolSet> tools) {
        return parse_calls(bytes, std::move(tools));
      },
      py::arg("text"), py::arg("tools"));
}

void bind_answer(py::module_& module) {
  py::class_<AnswerPart>(module, "AnswerPart")
      .def_property_readonly("part", [](const AnswerPart& p) { return part_name(p.part); })
      .def_property_readonly("text", [](const AnswerPart& p) { return text(p.text); })
      .def_readonly("end", &AnswerPart::end);

  py::class_<AnswerReader>(module, "AnswerReader")
      .def(py::init([](std::shared_ptr<ToolSet> tools, bool thinking) {
             return AnswerReader(std::move(tools), thinking);
           }),
           py::arg("tools"), py::arg("thinking") = false)
      .def(
          "feed",
          [](AnswerReader& reader, std::string_view utf8) {
            reader.feed(utf8);
            return reader.take_parts();
          },
          py::arg("text"))
      .def("finish",
           [](AnswerReader& reader) {
             reader.finish();
             return reader.take_parts();
           })
      .def_property_readonly("num_bytes", &AnswerReader::num_bytes);
}

void bind_writer(py::module_& module) {
  py::class_<Slots>(module, "Slots")
      .def(py::init<>())
      .def_readwrite("tool", &Slots::tool)
      .def_readwrite("ended", &Slots::ended)
      .def("set", &Slots::set, py::arg("tool"), py::arg("parameter"), py::arg("json"));

  py::class_<Piece>(module, "Piece")
      .def_readonly("end", &Piece::end)
      .def_property_readonly("source",
                             [](const Piece& p) {
                               return p.source == Source::kHint   ? "hint"
                                      : p.source == Source::kSpan ? "span"
                                                                  : "schema";
                             })
      .def_property_readonly("kind", [](const Piece& p) { return kind_name(p.kind); })
      .def_readonly("probability", &Piece::probability);

  py::class_<TextPath>(module, "TextPath")
      .def_property_readonly("text", [](const TextPath& p) { return py::bytes(p.text); })
      .def_readonly("pieces", &TextPath::pieces)
      .def_readonly("shared", &TextPath::shared)
      .def_readonly("probability", &TextPath::probability)
      .def_readonly("ends_answer", &TextPath::ends_answer);

  py::class_<CallWriter>(module, "CallWriter")
      .def(py::init<>())
      .def(
          "write_on",
          [](CallWriter& writer, const CallReader& reader, const std::vector<StyleGuess>& styles,
             const std::vector<Slots>& slots, int max_paths, std::size_t max_bytes) {
            std::vector<TextPath> paths;
            writer.write_on(reader, styles, slots, max_paths, paths, max_bytes);
            return paths;
          },
          py::arg("reader"), py::arg("styles"), py::arg("slots"), py::arg("max_paths") = 8,
          py::arg("max_bytes") = 4096);

  using Spans = RequestSpans;
  py::class_<Spans>(module, "RequestSpans")
      .def(py::init([](std::shared_ptr<ToolSet> tools, std::string_view request) {
             return std::make_unique<Spans>(std::move(tools), request);
           }),
           py::arg("tools"), py::arg("request"))
      .def(
          "of",
          [](Spans& spans, const ToolSet& tools, int tool, int parameter) {
            OOOSPEC_REQUIRE_INDEX(tool >= 0 && tool < tools.size(),
                                  "tool: expected an index in [0, ", tools.size(), "), got ", tool);
            const auto parameters = tools.parameters(tool);
            OOOSPEC_REQUIRE_INDEX(parameter >= 0 && parameter < static_cast<int>(parameters.size()),
                                  "parameter: expected an index in [0, ", parameters.size(),
                                  "), got ", parameter);
            std::vector<std::pair<std::string, float>> out;
            for (const Spans::Span& span :
                 spans.of(parameters[static_cast<std::size_t>(parameter)].node)) {
              out.emplace_back(span.text, span.probability);
            }
            return out;
          },
          py::arg("tools"), py::arg("tool"), py::arg("parameter"));

  module.def(
      "render_calls",
      [](const std::vector<std::pair<std::string, std::string>>& calls, const CallStyle& style) {
        std::vector<RenderedCall> views;
        for (const auto& [name, arguments] : calls) views.push_back({name, arguments});
        return text(render_calls(views, style));
      },
      py::arg("calls"), py::arg("style"));
}

}  // namespace

void bind_call(py::module_& module) {
  bind_style(module);
  bind_reader(module);
  bind_answer(module);
  bind_writer(module);
}

}  // namespace ooospec
