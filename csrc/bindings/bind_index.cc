// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <vector>

#include "bindings/bindings.h"
#include "common/check.h"
#include "index/suffix_index.h"
#include "index/token_recycler.h"

namespace py = pybind11;

namespace ooospec {

namespace {

using Continuation = SuffixIndex::Continuation;

std::vector<Continuation> continuations(const SuffixIndex& index, const SuffixIndex::Cursor& cursor,
                                        int min_match, int max_tokens, int max_branches,
                                        float min_probability) {
  OOOSPEC_REQUIRE(max_branches >= 0, "max_branches: expected at least 0, got ", max_branches);
  std::vector<Continuation> out(static_cast<std::size_t>(max_branches));
  out.resize(static_cast<std::size_t>(
      index.continuations(cursor, min_match, max_tokens, out, min_probability)));
  return out;
}

void bind_suffix_index(py::module_& module) {
  py::class_<SuffixIndex> index(module, "SuffixIndex");
  py::class_<SuffixIndex::Cursor>(index, "Cursor")
      .def(py::init<>())
      .def_property_readonly("match_length", &SuffixIndex::Cursor::match_length);
  py::class_<Continuation>(index, "Continuation")
      .def_property_readonly("tokens",
                             [](const Continuation& c) {
                               return std::vector<TokenId>(c.tokens.begin(),
                                                           c.tokens.begin() + c.num_tokens);
                             })
      .def_property_readonly("probabilities",
                             [](const Continuation& c) {
                               return std::vector<float>(c.probabilities.begin(),
                                                         c.probabilities.begin() + c.num_tokens);
                             })
      .def_readonly("match_length", &Continuation::match_length);
  index.def(py::init<std::size_t>(), py::arg("max_bytes"))
      .def(
          "append",
          [](SuffixIndex& self, const std::vector<TokenId>& document) { self.append(document); },
          py::arg("document"))
      .def("extend", &SuffixIndex::extend, py::arg("token"))
      .def("advance", &SuffixIndex::advance, py::arg("cursor"), py::arg("token"))
      .def("tail", &SuffixIndex::tail)
      .def("continuations", &continuations, py::arg("cursor"), py::arg("min_match") = 1,
           py::arg("max_tokens") = SuffixIndex::kMaxTokens, py::arg("max_branches") = 4,
           py::arg("min_probability") = 0.0f)
      .def("check", &SuffixIndex::check)
      .def_property_readonly("num_bytes", &SuffixIndex::num_bytes);
  index.attr("MAX_TOKENS") = SuffixIndex::kMaxTokens;
  index.attr("MIN_BYTES") = SuffixIndex::kMinBytes;
}

}  // namespace

void bind_index(py::module_& module) {
  bind_suffix_index(module);
  py::class_<TokenRecycler> recycler(module, "TokenRecycler");
  recycler.def(py::init<int>(), py::arg("vocab_size"))
      .def(
          "update",
          [](TokenRecycler& self, TokenId token, const std::vector<TokenId>& successors) {
            self.update(token, successors);
          },
          py::arg("token"), py::arg("successors"))
      .def(
          "successors",
          [](const TokenRecycler& self, TokenId token) {
            const auto found = self.successors(token);
            return std::vector<TokenId>(found.begin(), found.end());
          },
          py::arg("token"))
      .def_property_readonly("vocab_size", &TokenRecycler::vocab_size);
  recycler.attr("MAX_SUCCESSORS") = TokenRecycler::kMaxSuccessors;
}

}  // namespace ooospec
