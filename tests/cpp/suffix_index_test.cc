// SPDX-License-Identifier: Apache-2.0
#include "index/suffix_index.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <random>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cpp/check.h"

namespace {

thread_local long num_allocations = 0;

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using ooospec::SuffixIndex;
using ooospec::TokenId;
using Tokens = std::vector<TokenId>;
using Found = std::vector<SuffixIndex::Continuation>;

SuffixIndex::Cursor cursor_of(const SuffixIndex& index, const Tokens& text) {
  SuffixIndex::Cursor cursor;
  for (const TokenId token : text) index.advance(cursor, token);
  return cursor;
}

Found find(const SuffixIndex& index, const SuffixIndex::Cursor& cursor, int min_match = 1,
           int max_tokens = SuffixIndex::kMaxTokens, float min_probability = 0.0f) {
  Found out(4);
  const int n = index.continuations(cursor, min_match, max_tokens, out, min_probability);
  out.resize(static_cast<std::size_t>(n));
  return out;
}

Found find(const SuffixIndex& index, const Tokens& text) {
  return find(index, cursor_of(index, text));
}

Tokens tokens_of(const SuffixIndex::Continuation& continuation) {
  return {continuation.tokens.begin(), continuation.tokens.begin() + continuation.num_tokens};
}

Tokens random_document(std::mt19937& random, std::size_t size, unsigned num_tokens) {
  Tokens document(size);
  for (TokenId& token : document) token = static_cast<TokenId>(random() % num_tokens);
  return document;
}

// Longest suffix of `text` that occurs in one of `documents`.
int longest_match(const std::vector<Tokens>& documents, const Tokens& text) {
  for (auto from = text.begin(); from != text.end(); ++from) {
    for (const Tokens& document : documents) {
      const auto at = std::search(document.begin(), document.end(), from, text.end());
      if (at != document.end()) return static_cast<int>(text.end() - from);
    }
  }
  return 0;
}

}  // namespace

TEST(an_empty_index_finds_nothing) {
  SuffixIndex index(SuffixIndex::kMinBytes);
  EXPECT_EQ(index.tail().match_length(), 0);
  EXPECT_EQ(find(index, index.tail()).size(), 0);
  EXPECT_EQ(find(index, Tokens{1, 2, 3}).size(), 0);
  index.append({});
  index.extend(1);
  EXPECT_EQ(find(index, index.tail()).size(), 0);
  index.check();
}

TEST(the_most_frequent_continuation_comes_first) {
  SuffixIndex index(SuffixIndex::kMinBytes);
  for (const TokenId value : {7, 8, 8, 8, 9, 9}) index.append(Tokens{1, 2, value, 5, value});
  const Found found = find(index, Tokens{4, 1, 2});
  EXPECT_EQ(found.size(), 3);
  EXPECT_EQ(tokens_of(found[0]), (Tokens{8, 5, 8}));
  EXPECT_EQ(tokens_of(found[1]), (Tokens{9, 5, 9}));
  EXPECT_EQ(tokens_of(found[2]), (Tokens{7, 5, 7}));
  EXPECT_EQ(found[0].match_length, 2);
  EXPECT_EQ(found[0].probabilities[0], 3.0f / 7.0f);
  EXPECT_EQ(found[0].probabilities[2], 1.0f);
}

TEST(shorter_matches_add_branches) {
  SuffixIndex index(SuffixIndex::kMinBytes);
  index.append(Tokens{1, 2, 3});
  index.append(Tokens{9, 2, 4});
  const Found found = find(index, Tokens{1, 2});
  EXPECT_EQ(found.size(), 2);
  EXPECT_EQ(tokens_of(found[0]), Tokens{3});
  EXPECT_EQ(found[0].probabilities[0], 0.5f);
  EXPECT_EQ(tokens_of(found[1]), Tokens{4});
  EXPECT_EQ(found[1].match_length, 1);
  EXPECT_EQ(found[1].probabilities[0], 0.5f / 3.0f);
  EXPECT_EQ(find(index, cursor_of(index, {1, 2}), 2).size(), 1);
}

TEST(what_is_too_unlikely_is_left_out) {
  SuffixIndex index(SuffixIndex::kMinBytes);
  for (const TokenId value : {7, 8, 8, 8}) index.append(Tokens{1, 2, 5, value});
  const auto cursor = cursor_of(index, {1});
  EXPECT_EQ(tokens_of(find(index, cursor)[0]), (Tokens{2, 5, 8}));
  EXPECT_EQ(tokens_of(find(index, cursor, 1, 32, 0.7f)[0]), (Tokens{2, 5}));
  EXPECT_EQ(find(index, cursor, 1, 32, 0.9f).size(), 0);
}

TEST(nothing_crosses_from_one_document_to_the_next) {
  SuffixIndex index(SuffixIndex::kMinBytes);
  index.append(Tokens{1, 2, 3});
  index.append(Tokens{4, 5, 6});
  EXPECT_EQ(tokens_of(find(index, Tokens{2})[0]), Tokens{3});
  EXPECT_EQ(find(index, Tokens{3}).size(), 0);
  EXPECT_EQ(cursor_of(index, {3, 4}).match_length(), 1);
  EXPECT_EQ(index.tail().match_length(), 0);
}

TEST(the_open_document_matches_what_came_before_it_only) {
  SuffixIndex index(SuffixIndex::kMinBytes);
  index.append(Tokens{1, 2, 3});
  EXPECT_EQ(index.tail().match_length(), 0);
  index.extend(1);
  index.extend(2);
  EXPECT_EQ(index.tail().match_length(), 2);
  EXPECT_EQ(tokens_of(find(index, index.tail())[0]), (Tokens{3, 1, 2}));
  index.append(Tokens{1, 2, 3});  // as a document before it
  EXPECT_EQ(index.tail().match_length(), 3);
}

TEST(a_cursor_stays_good_while_documents_are_added) {
  SuffixIndex index(SuffixIndex::kMinBytes);
  index.append(Tokens{1, 2, 3});
  auto cursor = cursor_of(index, {2});
  for (int i = 0; i < 3; ++i) index.append(Tokens{9, 2, 4});  // splits the state of {1, 2}
  EXPECT_EQ(cursor.match_length(), 1);
  EXPECT_EQ(tokens_of(find(index, cursor)[0]), Tokens{4});
  index.advance(cursor, 4);
  EXPECT_EQ(cursor.match_length(), 2);
}

TEST(a_cursor_of_another_index_finds_less_but_harms_nothing) {
  std::mt19937 random(1);
  SuffixIndex large(SuffixIndex::kMinBytes), small(SuffixIndex::kMinBytes);
  const Tokens document = random_document(random, 500, 4);
  large.append(document);
  small.append(Tokens{1, 2});
  auto cursor = cursor_of(large, document);
  find(small, cursor);
  small.advance(cursor, 1);
  EXPECT(cursor.match_length() <= 2);
}

TEST(matches_are_the_longest) {
  std::mt19937 random(20240818);
  for (int round = 0; round < 100; ++round) {
    SuffixIndex index(SuffixIndex::kMinBytes);
    std::vector<Tokens> documents;
    const unsigned num_tokens = 1 + random() % 4;
    Tokens text;
    SuffixIndex::Cursor held;  // knows of no match with tokens from before the document was added
    for (int i = 0; i < 12; ++i) {
      documents.push_back(random_document(random, random() % 20, num_tokens));
      index.append(documents.back());
      index.check();
      auto cursor = cursor_of(index, text);
      for (const TokenId token : random_document(random, 8, num_tokens + 1)) {
        text.push_back(token);
        index.advance(cursor, token);
        index.advance(held, token);
        EXPECT_EQ(cursor.match_length(), longest_match(documents, text));
        EXPECT(held.match_length() <= cursor.match_length());
      }
      EXPECT_EQ(held.match_length() > 0, cursor.match_length() > 0);
    }
  }
}

TEST(memory_stays_under_the_cap_and_late_documents_stay) {
  std::mt19937 random(3);
  constexpr std::size_t kMaxBytes = 512 * 1024;
  SuffixIndex index(kMaxBytes);
  const Tokens first = random_document(random, 60, 1 << 16);
  Tokens late;
  index.append(first);
  auto cursor = cursor_of(index, first);
  const auto short_cursor = cursor_of(index, {first[0]});
  EXPECT_EQ(cursor.match_length(), 60);
  EXPECT_EQ(find(index, short_cursor).size(), 1);
  for (int i = 0; i < 5000; ++i) {
    Tokens document = random_document(random, 60, 1 << 16);
    index.append(document);
    EXPECT(index.num_bytes() <= kMaxBytes);
    if (i == 4980) late = document;
  }
  index.check();
  EXPECT_EQ(cursor_of(index, late).match_length(), 60);
  EXPECT(cursor_of(index, first).match_length() < 3);
  EXPECT_EQ(find(index, cursor).size(), 0);  // what they pointed at is gone
  EXPECT_EQ(find(index, short_cursor).size(), 0);
  for (const TokenId token : late) index.advance(cursor, token);
  EXPECT_EQ(cursor.match_length(), 60);
}

TEST(an_open_document_outlives_its_generation) {
  std::mt19937 random(4);
  SuffixIndex index(SuffixIndex::kMinBytes);
  const Tokens phrase = random_document(random, 20, 1 << 16);
  for (int i = 0; i < 20000; ++i) {
    index.extend(static_cast<TokenId>(random() % (1 << 16)));
    if (i % 500 != 0) continue;
    for (const TokenId token : phrase) index.extend(token);
    const int matched = index.tail().match_length();
    EXPECT(i == 0 || matched >= 19);  // a cut may part it
    EXPECT(index.num_bytes() <= SuffixIndex::kMinBytes);
  }
  index.check();
}

// Each of these makes one token touch as many states, or copy as many edges, as there are.
TEST(hostile_documents_keep_to_the_cap) {
  SuffixIndex index(SuffixIndex::kMinBytes);
  for (int round = 0; round < 3; ++round) {
    index.append(Tokens(30000, 1));
    index.extend(2);
    index.check();
    for (TokenId i = 0; i < 5000; ++i) index.append(Tokens{3, 4, 10 + i});
    index.append(Tokens{5, 4, 1});
    EXPECT(index.num_bytes() <= SuffixIndex::kMinBytes);
    index.check();
  }
}

TEST(queries_allocate_nothing) {
  std::mt19937 random(5);
  SuffixIndex index(1 << 20);
  for (int i = 0; i < 200; ++i) index.append(random_document(random, 60, 20));
  const Tokens text = random_document(random, 1000, 20);
  std::array<SuffixIndex::Continuation, 4> out;
  SuffixIndex::Cursor cursor;
  int num_found = 0;
  const long before = num_allocations;
  for (const TokenId token : text) {
    index.advance(cursor, token);
    num_found += index.continuations(cursor, 1, SuffixIndex::kMaxTokens, out);
  }
  EXPECT_EQ(num_allocations, before);
  EXPECT(num_found > 2000);
}

TEST(readers_run_beside_a_guarded_writer) {
  std::mt19937 random(6);
  SuffixIndex index(SuffixIndex::kMinBytes);
  std::shared_mutex guard;
  std::vector<std::thread> readers;
  for (unsigned seed = 0; seed < 3; ++seed) {
    readers.emplace_back([&, seed] {
      std::mt19937 own(seed);
      SuffixIndex::Cursor cursor;
      for (int i = 0; i < 3000; ++i) {
        const std::shared_lock lock(guard);
        index.advance(cursor, static_cast<TokenId>(own() % 8));
        find(index, cursor);
      }
    });
  }
  for (int i = 0; i < 300; ++i) {
    const Tokens document = random_document(random, 60, 8);
    const std::unique_lock lock(guard);
    index.append(document);
  }
  for (std::thread& reader : readers) reader.join();
  index.check();
}

TEST(mistakes_of_the_caller_change_nothing) {
  EXPECT_THROWS(SuffixIndex(1000), std::invalid_argument, "got 1000");
  SuffixIndex index(SuffixIndex::kMinBytes);
  index.append(Tokens{1, 2, 1});
  EXPECT_THROWS(index.append(Tokens{1, -5}), std::invalid_argument, "got -5");
  EXPECT_THROWS(index.extend(-1), std::invalid_argument, "got -1");
  EXPECT_THROWS(find(index, index.tail(), 0), std::invalid_argument, "got 0");
  EXPECT_THROWS(find(index, index.tail(), 1, 0), std::invalid_argument, "got 0");
  EXPECT_THROWS(find(index, index.tail(), 1, 33), std::invalid_argument, "got 33");
  EXPECT_EQ(cursor_of(index, {1, -7}).match_length(), 0);
  EXPECT_EQ(index.tail().match_length(), 1);
  EXPECT_EQ(index.continuations(index.tail(), 1, 32, {}), 0);
  index.check();
}
