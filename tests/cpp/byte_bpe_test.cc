// SPDX-License-Identifier: Apache-2.0
#include "draft/byte_bpe.h"

#include <string>
#include <vector>

#include "cpp/check.h"

namespace ooospec {
namespace {

using Tokens = std::vector<TokenId>;

// Bytes are tokens 0 to 255; behind them stand merges, by rank, and an added token.
constexpr TokenId kIn = 256, kName = 257, kSpaceIn = 258, kQuoteColon = 259, kAdded = 260;
const std::vector<std::string> kMerges = {"in", "name", " in", "\":", "<end>"};

ByteBpe bpe(int most_digits = 1) {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
  pieces.insert(pieces.end(), kMerges.begin(), kMerges.end());
  const Tokens added = {kAdded};
  return ByteBpe(std::make_shared<Vocab>(pieces), most_digits, added);
}

Tokens encode(const ByteBpe& bpe, std::string_view text) {
  Tokens tokens;
  EXPECT(bpe.encode(text, tokens));
  return tokens;
}

TEST(pairs_are_merged_by_rank) {
  const ByteBpe one = bpe();
  EXPECT(encode(one, "in") == Tokens{kIn});
  EXPECT(encode(one, "tin") == Tokens({'t', kIn}));
  EXPECT(encode(one, " in") == Tokens{kSpaceIn});
  EXPECT(encode(one, "").empty());
  for (int again = 0; again < 2; ++again) {  // remembered words give the same
    EXPECT(encode(one, "inin\":") == Tokens({kIn, kIn, kQuoteColon}));
  }
}

TEST(a_whole_word_needs_no_merges) { EXPECT(encode(bpe(), "name") == Tokens{kName}); }

TEST(nothing_is_merged_across_words) {
  EXPECT(encode(bpe(), "i n") == Tokens({'i', ' ', 'n'}));
  EXPECT(encode(bpe(), "  in") == Tokens({' ', kSpaceIn}));  // the last space goes with the word
  EXPECT(encode(bpe(), "x'sin") == Tokens({'x', '\'', 's', kIn}));
}

TEST(added_tokens_are_found_first) {
  EXPECT(encode(bpe(), "in<end>in") == Tokens({kIn, kAdded, kIn}));
  EXPECT(encode(bpe(), "<end") == Tokens({'<', 'e', 'n', 'd'}));
  EXPECT(encode(bpe(), "<<end>") == Tokens({'<', kAdded}));
}

TEST(spelled_text_has_no_added_tokens) {
  Tokens tokens;
  EXPECT(bpe().spell("in<end>", tokens));
  EXPECT(tokens == Tokens({kIn, '<', 'e', 'n', 'd', '>'}));
  EXPECT(!bpe().spell("in\xC3\xA9", tokens));
  EXPECT(!bpe().spell("in " + std::string(200, 'x'), tokens));
  EXPECT(tokens.size() == 6);
}

TEST(what_is_not_done_here_leaves_the_tokens_alone) {
  const ByteBpe one = bpe();
  Tokens tokens = {1, 2};
  EXPECT(!one.encode("in \xC3\xA9", tokens));
  EXPECT(!one.encode("in " + std::string(200, 'x'), tokens));
  EXPECT(tokens == Tokens({1, 2}));
}

TEST(bad_arguments_are_refused) {
  EXPECT_THROWS(bpe(0), std::invalid_argument, "most_digits: expected at least 1, got 0");
  const auto vocab = std::make_shared<Vocab>(std::vector<std::string>{"a"});
  EXPECT_THROWS(ByteBpe(vocab, 1, Tokens{1}), std::out_of_range, "got 1");
}

}  // namespace
}  // namespace ooospec
