// SPDX-License-Identifier: Apache-2.0
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "draft/drafter.h"

namespace py = pybind11;

namespace ooospec {

namespace {

using Tokens = std::vector<TokenId>;

// Wraps a Python `encode(str) -> sequence of ids`. Bytes that are not UTF-8 have no tokens.
Encode wrap_encode(py::function encode) {
  return [encode = std::move(encode)](std::string_view text) -> Tokens {
    PyObject* decoded =
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "strict");
    if (decoded == nullptr) {
      PyErr_Clear();
      return {};
    }
    return encode(py::reinterpret_steal<py::str>(decoded)).cast<Tokens>();
  };
}

// top8: int32[nodes of the last tree, 8]; a row that starts with -1 is left out.
void observe_successors(Drafter& drafter, const py::array_t<std::int32_t>& top8) {
  const auto rows = top8.unchecked<2>();
  const std::span<const TokenId> nodes = drafter.tree().tokens();
  OOOSPEC_REQUIRE(rows.shape(0) == static_cast<py::ssize_t>(nodes.size()),
                  "top8: expected a row for each of the ", nodes.size(), " nodes, got ",
                  rows.shape(0));
  Tokens successors;
  for (py::ssize_t row = 0; row < rows.shape(0); ++row) {
    successors.clear();
    for (py::ssize_t i = 0; i < rows.shape(1) && rows(row, i) >= 0; ++i) {
      successors.push_back(rows(row, i));
    }
    if (!successors.empty()) {
      drafter.observe_successors(nodes[static_cast<std::size_t>(row)], successors);
    }
  }
}

}  // namespace

void bind_draft(py::module_& module) {
  py::class_<Vocab, std::shared_ptr<Vocab>>(module, "Vocab")
      .def(py::init([](const std::vector<py::bytes>& pieces) {
             return std::make_shared<Vocab>(std::vector<std::string>(pieces.begin(), pieces.end()));
           }),
           py::arg("pieces"))
      .def("__len__", &Vocab::size)
      .def(
          "bytes", [](const Vocab& vocab, TokenId token) { return py::bytes(vocab.bytes(token)); },
          py::arg("token"));

  py::class_<DraftMemory, std::shared_ptr<DraftMemory>>(module, "DraftMemory")
      .def(py::init<int, std::size_t, std::vector<StyleGuess>>(), py::kw_only(),
           py::arg("vocab_size"), py::arg("max_bytes"), py::arg("styles"))
      .def(
          "learn_answer",
          [](DraftMemory& memory, const Tokens& tokens) { memory.learn_answer(tokens); },
          py::arg("tokens"))
      .def(
          "learn_successors",
          [](DraftMemory& memory, TokenId token, const Tokens& successors) {
            memory.learn_successors(token, successors);
          },
          py::arg("token"), py::arg("successors"))
      .def_property_readonly("styles", &DraftMemory::styles)
      .def_property_readonly("bytes", &DraftMemory::bytes);

  py::class_<Drafter>(module, "Drafter")
      .def(py::init([](std::shared_ptr<Vocab> vocab, std::shared_ptr<ToolSet> tools,
                       std::shared_ptr<DraftMemory> memory, py::function encode, bool schema,
                       bool hint, bool lookup, bool retrieval, bool recycler, bool thinking,
                       TokenId end_token) {
             return std::make_unique<Drafter>(
                 std::move(vocab), std::move(tools), std::move(memory),
                 wrap_encode(std::move(encode)),
                 DrafterOptions{schema, hint, lookup, retrieval, recycler, thinking, end_token});
           }),
           py::arg("vocab"), py::arg("tools"), py::arg("memory"), py::arg("encode"), py::kw_only(),
           py::arg("schema") = true, py::arg("hint") = true, py::arg("lookup") = true,
           py::arg("retrieval") = true, py::arg("recycler") = true, py::arg("thinking") = false,
           py::arg("end_token") = -1)
      .def(
          "begin", [](Drafter& drafter, const Tokens& prompt) { drafter.begin(prompt); },
          py::arg("prompt"))
      .def("offer_hint", &Drafter::offer_hint, py::arg("kind"), py::arg("call"), py::arg("tool"),
           py::arg("parameter"), py::arg("text"))
      .def(
          "add_path",
          [](Drafter& drafter, int number, const Tokens& tokens, float probability) {
            drafter.add_path(static_cast<Source>(static_cast<int>(Source::kExternal) + number),
                             tokens, probability);
          },
          py::arg("number"), py::arg("tokens"), py::arg("probability"))
      .def(
          "set_costs",
          [](Drafter& drafter, const std::vector<float>& cost_us) { drafter.set_costs(cost_us); },
          py::arg("cost_us"))
      .def("propose", &Drafter::propose, py::arg("budget"),
           py::return_value_policy::reference_internal)
      .def(
          "commit", [](Drafter& drafter, const Tokens& tokens) { drafter.commit(tokens); },
          py::arg("tokens"))
      .def("observe_successors", &observe_successors, py::arg("top8"))
      .def("finish", &Drafter::finish)
      .def_property_readonly("reader", &Drafter::reader,
                             py::return_value_policy::reference_internal)
      .def_property_readonly("main_path",
                             [](const Drafter& drafter) {
                               return Tokens(drafter.main_path().begin(),
                                             drafter.main_path().end());
                             })
      .def_property_readonly("num_encodes", &Drafter::num_encodes)
      .def_property_readonly("encode_us", &Drafter::encode_us);
}

}  // namespace ooospec
