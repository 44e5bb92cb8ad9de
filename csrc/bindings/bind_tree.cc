// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "bindings/bindings.h"
#include "common/check.h"
#include "tree/draft_tree.h"
#include "tree/launch_rows.h"

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

// Rows in the memory of numpy arrays, which it keeps.
class ArrayRows {
 public:
  ArrayRows(const py::dict& arrays, std::int64_t spare_slot, int page_size)
      : arrays_(arrays), rows_(buffers(arrays), spare_slot, page_size) {}
  LaunchRows& rows() { return rows_; }

 private:
  template <typename T>
  static std::span<T> column(const py::dict& arrays, const char* name) {
    const auto array = arrays[name].cast<py::array_t<T>>();
    const bool same = array.is(arrays[name]) && (array.flags() & py::array::c_style) != 0;
    OOOSPEC_REQUIRE(same && array.writeable(), name,
                    ": expected a contiguous array of its own type that can be written");
    return {static_cast<T*>(array.request().ptr), static_cast<std::size_t>(array.size())};
  }
  static LaunchBuffers buffers(const py::dict& arrays) {
    LaunchBuffers to;
    to.tokens = column<std::int32_t>(arrays, "tokens");
    to.positions = column<std::int32_t>(arrays, "positions");
    to.parents = column<std::int32_t>(arrays, "parents");
    to.sequences = column<std::int32_t>(arrays, "sequences");
    to.lengths = column<std::int32_t>(arrays, "lengths");
    to.masks = column<std::uint64_t>(arrays, "mask");
    to.slots = column<std::int64_t>(arrays, "slots");
    to.index = column<std::int32_t>(arrays, "index");
    to.no_eos = column<std::int32_t>(arrays, "no_eos");
    to.top_k = column<std::int32_t>(arrays, "top_k");
    to.temperature = column<double>(arrays, "temperature");
    to.top_p = column<double>(arrays, "top_p");
    to.key = column<std::uint64_t>(arrays, "key");
    return to;
  }

  py::dict arrays_;
  LaunchRows rows_;
};

template <typename T>
using Column = py::array_t<T, py::array::c_style | py::array::forcecast>;

template <typename T>
std::span<const T> view(const Column<T>& column) {
  return {column.data(), static_cast<std::size_t>(column.size())};
}

// A column of rows, without a copy: it keeps them and cannot be written.
template <typename T>
auto column_of(std::array<T, DraftRows::kMaxRows> DraftRows::* column) {
  return [column](const py::object& self) {
    const DraftRows& rows = self.cast<const DraftRows&>();
    py::array_t<T> array(rows.size, (rows.*column).data(), self);
    array.attr("setflags")(false);
    return array;
  };
}

DraftRows rows_of(const Column<TokenId>& tokens, const Column<std::int32_t>& parents,
                  const Column<std::int32_t>& depths, const Column<std::uint8_t>& sources,
                  const Column<std::uint64_t>& masks, const Column<std::int32_t>& nodes,
                  int num_nodes) {
  DraftRows rows;
  rows.size = static_cast<int>(tokens.size());
  rows.num_nodes = num_nodes;
  OOOSPEC_REQUIRE(rows.size >= 1 && tokens.size() <= static_cast<py::ssize_t>(DraftRows::kMaxRows),
                  "rows: expected 1 to ", DraftRows::kMaxRows, ", got ", tokens.size());
  const auto take = [&](const auto& column, auto& to) {
    OOOSPEC_REQUIRE(column.size() == tokens.size(), "rows: expected columns of ", tokens.size(),
                    ", got one of ", column.size());
    std::copy_n(column.data(), column.size(), to.begin());
  };
  take(tokens, rows.tokens);
  take(parents, rows.parents);
  take(depths, rows.depths);
  take(sources, rows.sources);
  take(masks, rows.masks);
  take(nodes, rows.nodes);
  return rows;
}

void bind_draft_rows(py::module_& module) {
  using namespace py::literals;
  py::class_<DraftRows>(module, "DraftRows")
      .def(py::init(&rows_of), "tokens"_a, "parents"_a, "depths"_a, "sources"_a, "masks"_a,
           "nodes"_a, "num_nodes"_a)
      .def_static("root", &DraftRows::root, "token"_a)
      .def_static(
          "of_tree",
          [](const DraftTree& tree, TokenId root, TokenId num_tokens, int max_nodes,
             int max_depth) -> std::unique_ptr<DraftRows> {
            if (!tree.fits(root, num_tokens, max_nodes, max_depth)) return nullptr;
            auto rows = std::make_unique<DraftRows>();
            rows->take(tree);
            return rows;
          },
          "tree"_a, "root"_a, "num_tokens"_a, "max_nodes"_a, "max_depth"_a)
      .def_static(
          "behind",
          [](const std::vector<TokenId>& given, const DraftTree& tree) {
            OOOSPEC_REQUIRE(
                given.size() + static_cast<std::size_t>(tree.size()) <= DraftRows::kMaxRows,
                "rows: expected at most ", DraftRows::kMaxRows, ", got ", given.size(),
                " and a tree of ", tree.size());
            auto rows = std::make_unique<DraftRows>();
            rows->take_behind(given, tree);
            return rows;
          },
          "given"_a, "tree"_a)
      .def("__len__", [](const DraftRows& rows) { return rows.size; })
      .def(
          "sources_of",
          [](const DraftRows& rows, const std::vector<int>& path) {
            std::vector<int> sources;
            for (const int row : path) {
              OOOSPEC_REQUIRE_INDEX(row >= 0 && row < rows.size, "path: expected rows in [0, ",
                                    rows.size, "), got ", row);
              sources.push_back(rows.sources[static_cast<std::size_t>(row)]);
            }
            return sources;
          },
          "path"_a)
      .def_readonly("num_nodes", &DraftRows::num_nodes)
      .def_property_readonly("tokens", column_of(&DraftRows::tokens))
      .def_property_readonly("parents", column_of(&DraftRows::parents))
      .def_property_readonly("depths", column_of(&DraftRows::depths))
      .def_property_readonly("nodes", column_of(&DraftRows::nodes))
      .def_property_readonly("sources", column_of(&DraftRows::sources))
      .def_property_readonly("masks", column_of(&DraftRows::masks));
}

void bind_launch_rows(py::module_& module) {
  using namespace py::literals;
  py::class_<RowChoice>(module, "RowChoice")
      .def(py::init(
               [](int min_tokens, double temperature, int top_k, double top_p, std::uint64_t key) {
                 return RowChoice{min_tokens, temperature, top_k, top_p, key};
               }),
           py::kw_only(), "min_tokens"_a, "temperature"_a, "top_k"_a, "top_p"_a, "key"_a);
  py::class_<ArrayRows>(module, "LaunchRows")
      .def(py::init<const py::dict&, std::int64_t, int>(), "arrays"_a, py::kw_only(),
           "spare_slot"_a, "page_size"_a)
      .def("begin", [](ArrayRows& self) { self.rows().begin(); })
      .def(
          "add",
          [](ArrayRows& self, const Column<TokenId>& tokens, const Column<std::int32_t>& positions,
             const Column<std::int32_t>& parents, const Column<std::uint64_t>& masks,
             const std::vector<LaunchRows::Run>& runs, int length) {
            return self.rows().add(view(tokens), view(positions), 0, view(parents), view(masks),
                                   runs, length);
          },
          "tokens"_a, "positions"_a, "parents"_a, "masks"_a, "runs"_a, "length"_a)
      .def(
          "add_draft",
          [](ArrayRows& self, const DraftRows& rows, const std::vector<LaunchRows::Run>& runs,
             int length, int index, const RowChoice& choice, bool anew) {
            if (anew) self.rows().begin();
            return self.rows().add_draft(rows, runs, length, index, choice);
          },
          "rows"_a, "runs"_a, "length"_a, "index"_a, "choice"_a, "anew"_a = false)
      .def_property_readonly("num_sequences",
                             [](ArrayRows& self) { return self.rows().num_sequences(); });
}

}  // namespace

void bind_tree(py::module_& module) {
  py::dict sources;
  sources["root"] = static_cast<int>(Source::kRoot);
  sources["schema"] = static_cast<int>(Source::kSchema);
  sources["hint"] = static_cast<int>(Source::kHint);
  sources["retrieval"] = static_cast<int>(Source::kRetrieval);
  sources["recycler"] = static_cast<int>(Source::kRecycler);
  sources["span"] = static_cast<int>(Source::kSpan);
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
  bind_draft_rows(module);
  bind_launch_rows(module);
}

}  // namespace ooospec
