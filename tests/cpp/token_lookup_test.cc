// SPDX-License-Identifier: Apache-2.0
#include "wave/token_lookup.h"

#include <vector>

#include "cpp/check.h"

namespace {

using ooospec::TokenId;
using Tokens = std::vector<TokenId>;

}  // namespace

TEST(a_lookup_goes_on_from_the_place_that_matches_best) {
  const Tokens text = {1, 2, 3, 9, 2, 3, 4, 1, 3, 5};
  const ooospec::TokenLookup lookup(text);
  const auto behind = [&](Tokens answer, int count) {
    const auto found = lookup.behind(answer, count);
    return Tokens(found.begin(), found.end());
  };
  EXPECT(behind({1, 2, 3}, 2) == (Tokens{9, 2}));
  EXPECT(behind({7, 2, 3}, 2) == (Tokens{4, 1}));  // the last of two
  EXPECT(behind({3}, 4) == (Tokens{5}));           // to the end of the text
  EXPECT(behind({5}, 4).empty());
  EXPECT(behind({8}, 4).empty());
  EXPECT(behind({}, 4).empty());
  EXPECT(behind({1}, 0).empty());
  EXPECT(behind({1}, -3).empty());
}
