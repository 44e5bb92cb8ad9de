// SPDX-License-Identifier: Apache-2.0
#include "tree/launch_rows.h"

#include <vector>

#include "cpp/check.h"

namespace ooospec {
namespace {

constexpr std::size_t kRows = 70, kSequences = 2;

// Buffers, between guards.
struct Buffers {
  template <typename T>
  struct Column {
    std::vector<T> all;
    explicit Column(std::size_t size) : all(size + 2, T{77}) {}
    std::span<T> inner() { return std::span(all).subspan(1, all.size() - 2); }
    bool guarded() const { return all.front() == T{77} && all.back() == T{77}; }
  };
  Column<std::int32_t> tokens{kRows}, positions{kRows}, parents{kRows}, sequences{kRows},
      lengths{kSequences}, index{kRows}, no_eos{kRows}, top_k{kRows};
  Column<std::uint64_t> masks{kRows}, key{kRows};
  Column<std::int64_t> slots{kRows};
  Column<double> temperature{kRows}, top_p{kRows};

  LaunchBuffers spans() {
    return {tokens.inner(),  positions.inner(), parents.inner(),     sequences.inner(),
            lengths.inner(), masks.inner(),     slots.inner(),       index.inner(),
            no_eos.inner(),  top_k.inner(),     temperature.inner(), top_p.inner(),
            key.inner()};
  }
  bool guarded() const {
    return tokens.guarded() && positions.guarded() && parents.guarded() && sequences.guarded() &&
           lengths.guarded() && masks.guarded() && slots.guarded() && index.guarded() &&
           no_eos.guarded() && top_k.guarded() && temperature.guarded() && top_p.guarded() &&
           key.guarded();
  }
};

DraftRows chain(int size) {
  DraftTree tree;
  tree.reset(1);
  const std::vector<TokenId> path(static_cast<std::size_t>(size - 1), 5);
  tree.insert(0, path, std::vector<float>(path.size(), 0.5F), Source::kHint);
  DraftRows rows;
  rows.take(tree);
  return rows;
}

TEST(a_tree_is_copied_into_rows) {
  const DraftRows rows = chain(64);
  EXPECT_EQ(rows.size, 64);
  EXPECT_EQ(rows.num_nodes, 64);
  EXPECT_EQ(rows.parents[63], 62);
  EXPECT_EQ(rows.masks[63], ~std::uint64_t{0});
  EXPECT_EQ(rows.sources[63], static_cast<std::uint8_t>(Source::kHint));
  const DraftRows root = DraftRows::root(9);
  EXPECT_EQ(root.tokens[0], 9);
  EXPECT_EQ(root.num_nodes, 0);
}

TEST(rows_are_written_within_the_buffers) {
  Buffers buffers;
  LaunchRows launch(buffers.spans(), 640, 16);
  const std::vector<LaunchRows::Run> runs = {{100, 103}, {7, 8}};
  const RowChoice choice{12, 0.5, 3, 0.9, 11};
  EXPECT_EQ(launch.add_draft(DraftRows::root(4), std::vector<LaunchRows::Run>{{5, 6}}, 30, 2, {}),
            0);
  EXPECT_EQ(launch.add_draft(chain(4), runs, 40, 10, choice), 1);
  EXPECT(buffers.guarded());
  EXPECT_EQ(buffers.positions.inner()[4], 43);
  EXPECT_EQ(buffers.parents.inner()[1], -1);
  EXPECT_EQ(buffers.parents.inner()[4], 3);
  EXPECT_EQ(buffers.masks.inner()[4], 0b11110U);
  EXPECT_EQ(buffers.slots.inner()[3], 102);
  EXPECT_EQ(buffers.slots.inner()[4], 7);
  EXPECT_EQ(buffers.slots.inner()[5], 640 + 5);
  EXPECT_EQ(buffers.no_eos.inner()[2], 1);
  EXPECT_EQ(buffers.no_eos.inner()[3], 0);
  EXPECT_EQ(buffers.lengths.inner()[1], 40);
  EXPECT_EQ(launch.num_sequences(), 2);
}

TEST(too_many_rows_or_sequences_are_refused) {
  Buffers buffers;
  LaunchRows launch(buffers.spans(), 640, 16);
  launch.add_draft(chain(64), std::vector<LaunchRows::Run>{{0, 64}}, 0, 0, {});
  EXPECT_THROWS(launch.add_draft(chain(7), std::vector<LaunchRows::Run>{{0, 7}}, 0, 0, {}),
                std::invalid_argument, "got 71 rows");
  launch.add_draft(chain(6), std::vector<LaunchRows::Run>{{0, 6}}, 0, 0, {});
  EXPECT_EQ(buffers.masks.inner()[64], 0U);  // there is no bit for it
  EXPECT_THROWS(launch.add_draft(chain(1), std::vector<LaunchRows::Run>{{0, 1}}, 0, 0, {}),
                std::invalid_argument, "3 sequences");
  EXPECT(buffers.guarded());
}

}  // namespace
}  // namespace ooospec
