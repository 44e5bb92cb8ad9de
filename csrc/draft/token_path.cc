// SPDX-License-Identifier: Apache-2.0
#include "draft/token_path.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ooospec {

namespace {

constexpr std::size_t kContextTokens = 4;        // tokens before a text that it is encoded with
constexpr std::size_t kCacheBytes = 1U << 20;    // encoded text that is remembered
constexpr std::size_t kMaxTextBytes = 4U << 10;  // longer drafts are cut: no tree holds them

bool inside_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

// Cuts `text` to the drafted length without splitting a UTF-8 character.
std::string_view limit(std::string_view text) {
  if (text.size() <= kMaxTextBytes) return text;
  std::size_t length = kMaxTextBytes;
  while (length > 0 && inside_character(text[length])) --length;
  return text.substr(0, length);
}

// Drops the tokens that `path` begins with as `main` goes on behind its first `first`. Returns how
// many.
std::size_t drop_shared(const TokenPath& main, std::size_t first, TokenPath& path) {
  const auto begin = main.tokens.begin() + static_cast<std::ptrdiff_t>(first);
  const auto fork =
      std::mismatch(path.tokens.begin(), path.tokens.end(), begin, main.tokens.end()).first;
  const auto count = fork - path.tokens.begin();
  path.tokens.erase(path.tokens.begin(), fork);
  path.ends.erase(path.ends.begin(), path.ends.begin() + count);
  return static_cast<std::size_t>(count);
}

}  // namespace

void TokenPath::append(const TokenPath& other, std::size_t first, std::uint32_t offset) {
  const auto from = static_cast<std::ptrdiff_t>(first);
  tokens.insert(tokens.end(), other.tokens.begin() + from, other.tokens.end());
  ends.reserve(ends.size() + other.ends.size() - first);
  for (std::size_t i = first; i < other.ends.size(); ++i) ends.push_back(other.ends[i] + offset);
}

PathTokenizer::PathTokenizer(std::shared_ptr<const Vocab> vocab, Encoders encoders)
    : vocab_(std::move(vocab)), encoders_(std::move(encoders)) {}

void PathTokenizer::commit(TokenId token) {
  committed_ += vocab_->bytes(token);
  committed_ends_.push_back(static_cast<std::uint32_t>(committed_.size()));
}

PathTokenizer PathTokenizer::first(std::size_t num_tokens) const {
  PathTokenizer found(vocab_, encoders_);
  found.spells_ = spells_;
  found.committed_ends_.assign(committed_ends_.begin(),
                               committed_ends_.begin() + static_cast<std::ptrdiff_t>(num_tokens));
  if (num_tokens > 0) found.committed_ = committed_.substr(0, found.committed_ends_.back());
  return found;
}

PathTokenizer::Ahead::Ahead(PathTokenizer& tokenizer, std::span<const TokenId> tokens)
    : tokenizer_(tokenizer), num_tokens_(tokens.size()), spells_(tokenizer.spells_) {
  tokenizer.last_before_ = tokenizer.last_;
  for (const TokenId token : tokens) tokenizer.commit(token);
}

PathTokenizer::Ahead::~Ahead() {
  std::swap(tokenizer_.last_, tokenizer_.last_before_);
  tokenizer_.set_spells(spells_);
  std::vector<std::uint32_t>& ends = tokenizer_.committed_ends_;
  ends.resize(ends.size() - num_tokens_);
  tokenizer_.committed_.resize(ends.empty() ? 0 : ends.back());
  tokenizer_.num_expected_ = 0;  // of texts that an error kept from being encoded
}

std::vector<TokenId> PathTokenizer::ask(std::string_view text, bool spelled) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<TokenId> tokens = spelled ? encoders_.spelled(text) : encoders_.whole(text);
  encode_us_ +=
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  ++num_encodes_;
  return tokens;
}

const PathTokenizer::Encoded& PathTokenizer::keep(std::string_view text,
                                                  std::vector<TokenId> tokens) {
  if (cache_bytes_ + text.size() > kCacheBytes) {
    cache_.clear();
    cache_bytes_ = 0;
  }
  Encoded result{{std::move(tokens), {}}, true};
  std::size_t at = 0;
  result.path.ends.reserve(result.path.tokens.size());
  for (const TokenId token : result.path.tokens) {
    const std::string_view bytes =
        vocab_->contains(token) ? vocab_->bytes(token) : std::string_view();
    result.exact = !bytes.empty() && text.substr(at, bytes.size()) == bytes;
    if (!result.exact) break;
    at += bytes.size();
    result.path.ends.push_back(static_cast<std::uint32_t>(at));
  }
  result.exact = result.exact && at == text.size();
  cache_bytes_ += text.size();
  return cache_.emplace(std::string(text), std::move(result)).first->second;
}

const PathTokenizer::Encoded& PathTokenizer::encode(std::string_view text) {
  if (const auto found = cache_.find(text); found != cache_.end()) return found->second;
  return keep(text, ask(text, spells_));
}

bool PathTokenizer::reuse_last(std::string_view text, TokenPath& path) const {
  const std::size_t skip = committed_.size() - last_.start;
  if (skip > last_.text.size() || std::string_view(last_.text).substr(skip) != text) return false;
  std::size_t first = 0;
  if (skip > 0) {
    const auto border = std::lower_bound(last_.path.ends.begin(), last_.path.ends.end(), skip);
    if (border == last_.path.ends.end() || *border != skip) return false;
    first = static_cast<std::size_t>(border - last_.path.ends.begin()) + 1;
  }
  path.append(last_.path, first, -static_cast<std::uint32_t>(skip));
  return true;
}

// Appends the tokens of cut.rest. Returns false when no token border falls between it and its
// context, or the tokens do not spell the text.
bool PathTokenizer::append(const Cut& cut, TokenPath& path) {
  scratch_.assign(cut.context);
  scratch_ += cut.rest;
  const auto& [encoded, exact] = encode(scratch_);
  if (!exact) return false;
  std::size_t first = 0;
  if (!cut.context.empty()) {
    const auto border =
        std::lower_bound(encoded.ends.begin(), encoded.ends.end(), cut.context.size());
    if (border == encoded.ends.end() || *border != cut.context.size()) return false;
    first = static_cast<std::size_t>(border - encoded.ends.begin()) + 1;
  }
  path.append(encoded, first, cut.offset - static_cast<std::uint32_t>(cut.context.size()));
  return true;
}

// Behind the last few committed tokens.
PathTokenizer::Cut PathTokenizer::cut_afresh(std::string_view text) const {
  const std::size_t num_context = std::min(kContextTokens, committed_ends_.size());
  std::size_t start = committed_.size();
  if (num_context > 0) {
    const std::size_t before = committed_ends_.size() - num_context;
    start = before == 0 ? 0 : committed_ends_[before - 1];
    while (start > 0 && inside_character(committed_[start])) --start;
  }
  return {std::string_view(committed_).substr(start), text};
}

// Behind all tokens that the main path shares but the last two, which other bytes behind them may
// change.
PathTokenizer::Cut PathTokenizer::cut_branch(std::string_view text, std::uint32_t shared,
                                             const TokenPath& main) const {
  const auto border = std::upper_bound(main.ends.begin(), main.ends.end(), shared);
  const auto num_shared = static_cast<std::size_t>(border - main.ends.begin());
  if (num_shared <= kContextTokens || shared > text.size()) return cut_afresh(text);
  const std::size_t keep = num_shared - 2;
  std::size_t before = keep - 2;
  while (before > 0 && inside_character(text[main.ends[before - 1]])) --before;
  const std::uint32_t start = before == 0 ? 0 : main.ends[before - 1];
  const std::uint32_t middle = main.ends[keep - 1];
  return {text.substr(start, middle - start), text.substr(middle), middle, keep};
}

void PathTokenizer::expect_branch(std::string_view text, std::uint32_t shared,
                                  const TokenPath& main) {
  const Cut cut = cut_branch(limit(text), shared, main);
  if (num_expected_ == expected_.size()) expected_.emplace_back();
  std::string& expected = expected_[num_expected_];
  expected.assign(cut.context);
  expected += cut.rest;
  if (!cache_.contains(std::string_view(expected))) ++num_expected_;
}

void PathTokenizer::encode_expected() {
  const std::size_t num_texts = std::exchange(num_expected_, 0);
  answers_.resize(num_texts);
  for (std::size_t i = 0; i < num_texts; ++i) answers_[i] = ask(expected_[i], spells_);
  for (std::size_t i = 0; i < num_texts; ++i) keep(expected_[i], std::move(answers_[i]));
}

// Whether the other encoder, and not the one that is asked now, puts token borders where the target
// did.
bool PathTokenizer::follows_other_encoder(const Cut& cut) {
  if (!encoders_.spelled || cut.context.empty()) return false;
  const std::string text = std::string(cut.context).append(cut.rest);
  const std::vector<TokenId> tokens = ask(text, !spells_);
  const auto start = static_cast<std::uint32_t>(committed_.size() - cut.context.size());
  auto border = std::ranges::upper_bound(committed_ends_, start);
  std::uint32_t end = start;
  for (const TokenId token : tokens) {
    if (border == committed_ends_.end()) return true;
    if (vocab_->contains(token)) end += static_cast<std::uint32_t>(vocab_->bytes(token).size());
    if (end != *border++) return false;
  }
  return border == committed_ends_.end();
}

void PathTokenizer::set_spells(bool spells) {
  if (spells == spells_) return;
  spells_ = spells;
  cache_.clear();
  cache_bytes_ = 0;
}

void PathTokenizer::tokenise_afresh(const Cut& cut, std::string_view text, TokenPath& path) {
  path.clear();
  if (!append(cut, path)) append({{}, text}, path);
}

void PathTokenizer::tokenise(std::string_view text, TokenPath& path) {
  path.clear();
  text = limit(text);
  if (text.empty() || reuse_last(text, path)) return;
  const Cut cut = cut_afresh(text);
  if (!append(cut, path)) {
    if (follows_other_encoder(cut)) set_spells(!spells_);
    tokenise_afresh(cut, text, path);
  }
  last_.text.assign(text);
  last_.start = committed_.size();
  last_.path = path;
}

std::size_t PathTokenizer::tokenise_branch(std::string_view text, std::uint32_t shared,
                                           const TokenPath& main, TokenPath& path) {
  path.clear();
  text = limit(text);
  const Cut cut = cut_branch(text, shared, main);
  if (append(cut, path)) return cut.keep + drop_shared(main, cut.keep, path);
  tokenise_afresh(cut_afresh(text), text, path);
  return drop_shared(main, 0, path);
}

}  // namespace ooospec
