// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <span>
#include <vector>

#include "bindings/bindings.h"
#include "common/check.h"
#include "tree/draft_tree.h"

namespace py = pybind11;

namespace ooospec {

namespace {

// The arrays are copies: the tree's own change with its next call.
template <typename T>
py::array_t<T> copy_of(std::span<const T> values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

py::array_t<std::uint8_t> sources_of(const DraftTree& tree) {
  const auto sources = tree.sources();
  return py::array_t<std::uint8_t>(static_cast<py::ssize_t>(sources.size()),
                                   reinterpret_cast<const std::uint8_t*>(sources.data()));
}

int insert(DraftTree& tree, int parent, const std::vector<TokenId>& path,
           const std::vector<float>& probabilities, int source) {
  OOOSPEC_REQUIRE(source >= 1 && source <= 255, "source: expected a number in [1, 255], got ",
                  source);
  return tree.insert(parent, path, probabilities, static_cast<Source>(source));
}

std::vector<std::int32_t> accept(const DraftTree& tree, const std::vector<TokenId>& choices) {
  std::vector<std::int32_t> path(static_cast<std::size_t>(tree.size()));
  path.resize(static_cast<std::size_t>(tree.accept(choices, path)));
  return path;
}

}  // namespace

void bind_tree(py::module_& module) {
  py::dict sources;
  sources["root"] = static_cast<int>(Source::kRoot);
  sources["schema"] = static_cast<int>(Source::kSchema);
  sources["hint"] = static_cast<int>(Source::kHint);
  sources["retrieval"] = static_cast<int>(Source::kRetrieval);
  sources["recycler"] = static_cast<int>(Source::kRecycler);
  sources["external"] = static_cast<int>(Source::kExternal);
  module.attr("SOURCES") = sources;

  py::class_<DraftTree> tree(module, "DraftTree");
  tree.def(py::init([](TokenId root) {
             DraftTree tree;
             tree.reset(root);
             return tree;
           }),
           py::arg("root"))
      .def("reset", &DraftTree::reset, py::arg("root"))
      .def("insert", &insert, py::arg("parent"), py::arg("path"), py::arg("probabilities"),
           py::arg("source"))
      .def(
          "best_size",
          [](const DraftTree& tree, int budget, const std::vector<float>& cost_us) {
            return tree.best_size(budget, cost_us);
          },
          py::arg("budget"), py::arg("cost_us") = std::vector<float>{})
      .def("prune", &DraftTree::prune, py::arg("num_nodes"))
      .def("accept", &accept, py::arg("choices"))
      .def("fits", &DraftTree::fits, py::arg("root"), py::arg("num_tokens"), py::arg("max_nodes"),
           py::arg("max_depth"))
      .def("check", &DraftTree::check)
      .def("__len__", &DraftTree::size)
      .def_property_readonly("tokens", [](const DraftTree& t) { return copy_of(t.tokens()); })
      .def_property_readonly("parents", [](const DraftTree& t) { return copy_of(t.parents()); })
      .def_property_readonly("depths", [](const DraftTree& t) { return copy_of(t.depths()); })
      .def_property_readonly("sources", &sources_of)
      .def_property_readonly("probabilities",
                             [](const DraftTree& t) { return copy_of(t.probabilities()); })
      .def_property_readonly("masks", [](const DraftTree& t) { return copy_of(t.masks()); });
  tree.attr("MAX_NODES") = DraftTree::kMaxNodes;
  tree.attr("MAX_CANDIDATES") = DraftTree::kMaxCandidates;
}

}  // namespace ooospec
