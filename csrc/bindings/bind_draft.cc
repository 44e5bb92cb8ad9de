// SPDX-License-Identifier: Apache-2.0
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <utility>

#include "bindings/bindings.h"
#include "draft/byte_bpe.h"
#include "draft/drafter.h"
#include "draft/slot_branch.h"

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

// A tokenizer done here, and what is asked where it cannot help.
struct PlainBpe {
  std::shared_ptr<const ByteBpe> bpe;
  bool (ByteBpe::*how)(std::string_view, Tokens&) const;
  py::function otherwise;

  Encode encode() const {
    return [*this, otherwise = wrap_encode(otherwise)](std::string_view text) -> Tokens {
      Tokens tokens;
      return (*bpe.*how)(text, tokens) ? tokens : otherwise(text);
    };
  }
};

Encode encode_of(const py::object& encode) {
  if (encode.is_none()) return {};
  if (py::isinstance<PlainBpe>(encode)) return encode.cast<const PlainBpe&>().encode();
  return wrap_encode(encode.cast<py::function>());
}

using Rows = py::array_t<TokenId, py::array::c_style | py::array::forcecast>;

std::span<const TokenId> view(const Rows& rows) {
  return {rows.data(), static_cast<std::size_t>(rows.size())};
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

  py::class_<PlainBpe>(module, "ByteBpe")
      .def(py::init([](const std::shared_ptr<Vocab>& vocab, int most_digits, const Tokens& added,
                       py::function otherwise) {
             return PlainBpe{std::make_shared<ByteBpe>(vocab, most_digits, added), &ByteBpe::encode,
                             std::move(otherwise)};
           }),
           py::arg("vocab"), py::arg("most_digits"), py::arg("added"), py::arg("otherwise"))
      .def(
          "spelled",
          [](const PlainBpe& self, py::function otherwise) {
            return PlainBpe{self.bpe, &ByteBpe::spell, std::move(otherwise)};
          },
          py::arg("otherwise"))
      .def(
          "__call__",
          [](const PlainBpe& self, std::string_view text) { return self.encode()(text); },
          py::arg("text"));

  py::class_<DraftMemory, std::shared_ptr<DraftMemory>>(module, "DraftMemory")
      .def(py::init<int, std::size_t, std::vector<StyleGuess>>(), py::kw_only(),
           py::arg("vocab_size"), py::arg("max_bytes"), py::arg("styles"))
      .def(
          "learn_answer",
          [](DraftMemory& memory, const Tokens& tokens) { memory.learn_answer(tokens); },
          py::arg("tokens"))
      .def_property_readonly("styles", [](const DraftMemory& memory) { return memory.styles(); })
      .def_property_readonly("bytes", &DraftMemory::bytes);

  py::class_<SlotBranch> branch(module, "SlotBranch");
  py::enum_<SlotBranch::State>(branch, "State")
      .value("OPEN", SlotBranch::State::kOpen)
      .value("DONE", SlotBranch::State::kDone)
      .value("FAILED", SlotBranch::State::kFailed);
  branch.attr("MAX_TOKENS") = SlotBranch::kMaxTokens;
  branch.def_property_readonly("call", [](const SlotBranch& self) { return self.place().call; })
      .def_property_readonly("tool", [](const SlotBranch& self) { return self.place().tool; })
      .def_property_readonly("parameter",
                             [](const SlotBranch& self) { return self.place().parameter; })
      .def_property_readonly("num_tokens",
                             [](const SlotBranch& self) { return self.place().num_tokens; })
      .def_property_readonly(
          "fed",
          [](const SlotBranch& self) { return Tokens(self.fed().begin(), self.fed().end()); })
      .def_property_readonly("state", &SlotBranch::state)
      .def_property_readonly("value", [](const SlotBranch& self) { return self.value(); })
      .def("offer_hint", &SlotBranch::offer_hint, py::arg("json"))
      .def("propose", &SlotBranch::propose, py::arg("budget"),
           py::return_value_policy::reference_internal)
      .def(
          "commit", [](SlotBranch& self, const Tokens& tokens) { return self.commit(tokens); },
          py::arg("tokens"));

  py::class_<Drafter>(module, "Drafter")
      .def(py::init([](std::shared_ptr<Vocab> vocab, std::shared_ptr<ToolSet> tools,
                       std::shared_ptr<DraftMemory> memory, const py::object& encode,
                       const py::object& spell, bool schema, bool hint, bool span, bool lookup,
                       bool retrieval, bool recycler, bool recycler_tree, bool learn, bool branches,
                       bool thinking, TokenId end_token) {
             const DrafterOptions options{.schema = schema,
                                          .hint = hint,
                                          .span = span,
                                          .lookup = lookup,
                                          .retrieval = retrieval,
                                          .recycler = recycler,
                                          .recycler_tree = recycler_tree,
                                          .learn = learn,
                                          .branches = branches,
                                          .thinking = thinking,
                                          .end_token = end_token};
             return std::make_unique<Drafter>(std::move(vocab), std::move(tools), std::move(memory),
                                              Encoders{encode_of(encode), encode_of(spell)},
                                              options);
           }),
           py::arg("vocab"), py::arg("tools"), py::arg("memory"), py::arg("encode"), py::kw_only(),
           py::arg("spell") = py::none(), py::arg("schema") = true, py::arg("hint") = true,
           py::arg("span") = true, py::arg("lookup") = true, py::arg("retrieval") = true,
           py::arg("recycler") = true, py::arg("recycler_tree") = false, py::arg("learn") = true,
           py::arg("branches") = false, py::arg("thinking") = false, py::arg("end_token") = -1)
      .def(
          "begin",
          [](Drafter& drafter, const Tokens& prompt, std::size_t num_opening) {
            drafter.begin(prompt, num_opening);
          },
          py::arg("prompt"), py::arg("num_opening") = 0)
      .def("read_request", &Drafter::read_request, py::arg("text"))
      .def("offer_hint", &Drafter::offer_hint, py::arg("kind"), py::arg("call"), py::arg("tool"),
           py::arg("parameter"), py::arg("text"))
      .def(
          "add_path",
          [](Drafter& drafter, int number, const std::vector<std::int64_t>& ids,
             float probability) {
            Tokens tokens;  // up to an id that no vocabulary has
            for (const std::int64_t id : ids) {
              if (!std::in_range<TokenId>(id)) break;
              tokens.push_back(static_cast<TokenId>(id));
            }
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
          "commit",
          [](Drafter& drafter, const Tokens& tokens, const std::optional<Rows>& top8) {
            if (top8) drafter.observe_successors(view(*top8));
            drafter.commit(tokens);
          },
          py::arg("tokens"), py::arg("top8") = py::none())
      .def("prepare", &Drafter::prepare)
      .def("finish", &Drafter::finish)
      .def_property_readonly("head",
                             [](const Drafter& drafter) -> std::optional<std::pair<int, int>> {
                               const auto head = drafter.head();
                               if (!head) return std::nullopt;
                               return std::pair(head->call, head->tool);
                             })
      .def("take_value", &Drafter::take_value, py::arg("branch"))
      .def_property_readonly("open_parameters", &Drafter::open_parameters)
      .def(
          "awaits",
          [](const Drafter& drafter, const SlotBranch& branch) {
            const auto& place = branch.place();
            return drafter.awaits({place.call, place.tool}, place.parameter);
          },
          py::arg("branch"))
      .def("branch", &Drafter::branch, py::arg("parameter"))
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
