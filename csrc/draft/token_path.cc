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
std::string_view cut(std::string_view text) {
  if (text.size() <= kMaxTextBytes) return text;
  std::size_t length = kMaxTextBytes;
  while (length > 0 && inside_character(text[length])) --length;
  return text.substr(0, length);
}

}  // namespace

PathTokenizer::PathTokenizer(std::shared_ptr<const Vocab> vocab, Encode encode)
    : vocab_(std::move(vocab)), encode_(std::move(encode)) {}

void PathTokenizer::commit(TokenId token) {
  committed_ += vocab_->bytes(token);
  committed_ends_.push_back(static_cast<std::uint32_t>(committed_.size()));
}

const PathTokenizer::Encoded& PathTokenizer::encode(std::string_view text) {
  if (const auto found = cache_.find(text); found != cache_.end()) return found->second;
  if (cache_bytes_ + text.size() > kCacheBytes) {
    cache_.clear();
    cache_bytes_ = 0;
  }
  const auto start = std::chrono::steady_clock::now();
  Encoded result{encode_(text), true};
  encode_us_ +=
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  ++num_encodes_;
  std::size_t at = 0;
  for (const TokenId token : result.tokens) {
    const std::string_view bytes =
        vocab_->contains(token) ? vocab_->bytes(token) : std::string_view();
    result.exact = result.exact && !bytes.empty() && text.substr(at, bytes.size()) == bytes;
    at += bytes.size();
    if (!result.exact) break;
  }
  result.exact = result.exact && at == text.size();
  cache_bytes_ += text.size();
  return cache_.emplace(std::string(text), std::move(result)).first->second;
}

bool PathTokenizer::reuse_last(std::string_view text, TokenPath& path) const {
  const std::size_t skip = committed_.size() - last_start_;
  if (skip > last_text_.size() || std::string_view(last_text_).substr(skip) != text) return false;
  std::size_t first = 0;
  if (skip > 0) {
    const auto border = std::lower_bound(last_path_.ends.begin(), last_path_.ends.end(), skip);
    if (border == last_path_.ends.end() || *border != skip) return false;
    first = static_cast<std::size_t>(border - last_path_.ends.begin()) + 1;
  }
  for (std::size_t i = first; i < last_path_.tokens.size(); ++i) {
    path.tokens.push_back(last_path_.tokens[i]);
    path.ends.push_back(last_path_.ends[i] - static_cast<std::uint32_t>(skip));
  }
  return true;
}

// Encodes context + text and appends the tokens behind the context, their ends moved by `offset`.
// Returns false when no token border falls between the two, or the tokens do not spell the text.
bool PathTokenizer::append_after(std::string_view context, std::string_view text,
                                 std::uint32_t offset, TokenPath& path) {
  scratch_.assign(context);
  scratch_ += text;
  const Encoded& encoded = encode(scratch_);
  if (!encoded.exact) return false;
  std::size_t at = 0;
  std::size_t i = 0;
  while (at < context.size()) at += vocab_->bytes(encoded.tokens[i++]).size();
  if (at != context.size()) return false;
  for (; i < encoded.tokens.size(); ++i) {
    at += vocab_->bytes(encoded.tokens[i]).size();
    path.tokens.push_back(encoded.tokens[i]);
    path.ends.push_back(static_cast<std::uint32_t>(at - context.size()) + offset);
  }
  return true;
}

void PathTokenizer::tokenise_afresh(std::string_view text, TokenPath& path) {
  const std::size_t num_context = std::min(kContextTokens, committed_ends_.size());
  std::size_t start = committed_.size();
  if (num_context > 0) {
    const std::size_t before = committed_ends_.size() - num_context;
    start = before == 0 ? 0 : committed_ends_[before - 1];
    while (start > 0 && inside_character(committed_[start])) --start;
  }
  const std::string_view context = std::string_view(committed_).substr(start);
  path.clear();
  if (!append_after(context, text, 0, path)) append_after({}, text, 0, path);
}

void PathTokenizer::tokenise(std::string_view text, TokenPath& path) {
  path.clear();
  text = cut(text);
  if (text.empty() || reuse_last(text, path)) return;
  tokenise_afresh(text, path);
  last_text_.assign(text);
  last_start_ = committed_.size();
  last_path_ = path;
}

void PathTokenizer::tokenise_branch(std::string_view text, std::uint32_t shared,
                                    const TokenPath& main, TokenPath& path) {
  path.clear();
  text = cut(text);
  const auto border = std::upper_bound(main.ends.begin(), main.ends.end(), shared);
  const auto num_shared = static_cast<std::size_t>(border - main.ends.begin());
  if (num_shared > kContextTokens && shared <= text.size()) {
    // Keep all shared tokens but the last two, which other bytes behind them may change.
    const std::size_t keep = num_shared - 2;
    std::size_t before = keep - 2;
    while (before > 0 && inside_character(text[main.ends[before - 1]])) --before;
    const std::uint32_t start = before == 0 ? 0 : main.ends[before - 1];
    const std::uint32_t middle = main.ends[keep - 1];
    path.tokens.assign(main.tokens.begin(),
                       main.tokens.begin() + static_cast<std::ptrdiff_t>(keep));
    path.ends.assign(main.ends.begin(), main.ends.begin() + static_cast<std::ptrdiff_t>(keep));
    if (append_after(text.substr(start, middle - start), text.substr(middle), middle, path)) return;
  }
  tokenise_afresh(text, path);
}

}  // namespace ooospec
