// SPDX-License-Identifier: Apache-2.0
#include "index/token_recycler.h"

#include <stdexcept>
#include <vector>

#include "cpp/check.h"

namespace {

using ooospec::TokenId;
using ooospec::TokenRecycler;
using Tokens = std::vector<TokenId>;

Tokens successors(const TokenRecycler& recycler, TokenId token) {
  const auto found = recycler.successors(token);
  return {found.begin(), found.end()};
}

}  // namespace

TEST(nothing_was_seen_at_first) { EXPECT_EQ(successors(TokenRecycler(1), 0), Tokens{}); }

TEST(the_latest_come_first_and_none_twice) {
  TokenRecycler recycler(100);
  recycler.update(5, Tokens{1, 2, 3});
  recycler.update(5, Tokens{9, 2});
  EXPECT_EQ(successors(recycler, 5), (Tokens{9, 2, 1, 3}));
  EXPECT_EQ(successors(recycler, 4), Tokens{});
  recycler.update(5, Tokens{7, 7, 0});
  EXPECT_EQ(successors(recycler, 5), (Tokens{7, 0, 9, 2, 1, 3}));
}

TEST(eight_are_kept) {
  TokenRecycler recycler(100);
  recycler.update(99, Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(successors(recycler, 99), (Tokens{1, 2, 3, 4, 5, 6, 7, 8}));
  recycler.update(99, Tokens{10, 3});
  EXPECT_EQ(successors(recycler, 99), (Tokens{10, 3, 1, 2, 4, 5, 6, 7}));
}

TEST(mistakes_of_the_caller_change_nothing) {
  EXPECT_THROWS(TokenRecycler(0), std::invalid_argument, "got 0");
  TokenRecycler recycler(10);
  recycler.update(3, Tokens{1});
  EXPECT_THROWS(recycler.update(10, Tokens{1}), std::out_of_range, "got 10");
  EXPECT_THROWS(recycler.update(-1, Tokens{1}), std::out_of_range, "got -1");
  EXPECT_THROWS(recycler.update(3, Tokens{2, 10}), std::out_of_range, "successors");
  EXPECT_THROWS(recycler.update(3, Tokens{2, -1}), std::out_of_range, "got -1");
  EXPECT_THROWS(recycler.successors(10), std::out_of_range, "[0, 10)");
  EXPECT_EQ(successors(recycler, 3), Tokens{1});
}
