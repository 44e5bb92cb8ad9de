// SPDX-License-Identifier: Apache-2.0
//
// Text that a source would write next, as the target's own tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/types.h"
#include "common/vocab.h"

namespace ooospec {

// The target's tokenizer: UTF-8 text to tokens, without special tokens around it. May throw; may be
// slow.
using Encode = std::function<std::vector<TokenId>(std::string_view)>;

// A target writes `<tool_call>` as the token that was added for it, or, whatever its tokenizer
// says, spells it: models that were tuned from a base that never learnt the token do.
struct Encoders {
  Encode whole;
  Encode spelled = {};  // as if no token had been added; empty: not known
};

// Some text as tokens; ends[i]: byte offset in the text at which token i ends.
struct TokenPath {
  std::vector<TokenId> tokens;
  std::vector<std::uint32_t> ends;

  void clear() {
    tokens.clear();
    ends.clear();
  }

  // Appends the tokens of `other` behind its first `first`, their ends moved by `offset`, which
  // wraps around.
  void append(const TokenPath& other, std::size_t first, std::uint32_t offset);
};

// Tokenises continuations of committed text. Remembers what it encoded, so that the tokenizer is
// asked only when the text did not go on as proposed. One object a request; not shared between
// threads.
class PathTokenizer {
 public:
  PathTokenizer(std::shared_ptr<const Vocab> vocab, Encoders encoders);

  // Appends `token`, an id of the vocabulary, to the committed text.
  void commit(TokenId token);

  // While it lives, `tokens` count as committed; only what was encoded in that time is kept. One at
  // a time.
  class Ahead {
   public:
    Ahead(PathTokenizer& tokenizer, std::span<const TokenId> tokens);
    ~Ahead();
    Ahead(const Ahead&) = delete;
    Ahead& operator=(const Ahead&) = delete;

   private:
    PathTokenizer& tokenizer_;
    std::size_t num_tokens_;
    bool spells_;
  };

  // Writes to `path` what the tokenizer gives for the committed text followed by `text`, from the
  // committed end on: spelled or not, as in what was committed. Where no token border falls on the
  // committed end, `text` is tokenised alone.
  // The path stays empty when the tokens do not spell `text` again: then nothing can be drafted.
  void tokenise(std::string_view text, TokenPath& path);

  // The same for a text whose first `shared` bytes `main` spells too: only what lies around and
  // behind them is encoded. Leaves out, and returns the number of, the tokens that begin `main`
  // too.
  std::size_t tokenise_branch(std::string_view text, std::uint32_t shared, const TokenPath& main,
                              TokenPath& path);

  // Asks the tokenizer now for what tokenise_branch() will encode, of many texts in one go: what
  // comes between two calls of a tokenizer finds the caches cold. expect_branch() for each, then
  // encode_expected().
  void expect_branch(std::string_view text, std::uint32_t shared, const TokenPath& main);
  void encode_expected();

  // Returns a tokenizer to which only the first `num_tokens` were committed.
  PathTokenizer first(std::size_t num_tokens) const;

  std::size_t num_tokens() const { return committed_ends_.size(); }
  std::string_view committed() const { return committed_; }
  std::uint64_t num_encodes() const { return num_encodes_; }  // calls of the tokenizer
  double encode_us() const { return encode_us_; }             // time spent in them

  // Whether a call takes so long that none should be made for what may not come.
  bool is_slow() const {
    constexpr double kSlowUs = 10;
    return encode_us_ > kSlowUs * static_cast<double>(num_encodes_);
  }

 private:
  struct Encoded {
    TokenPath path;
    bool exact = false;  // the tokens spell the text; else the path is of no use
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  // A text is encoded as `context` + `rest`; the tokens of `rest`, their ends moved by `offset`,
  // follow the first `keep` tokens of the main path.
  struct Cut {
    std::string_view context, rest;
    std::uint32_t offset = 0;
    std::size_t keep = 0;
  };

  Cut cut_afresh(std::string_view text) const;
  bool follows_other_encoder(const Cut& cut);
  void set_spells(bool spells);
  Cut cut_branch(std::string_view text, std::uint32_t shared, const TokenPath& main) const;
  std::vector<TokenId> ask(std::string_view text, bool spelled);
  const Encoded& keep(std::string_view text, std::vector<TokenId> tokens);
  const Encoded& encode(std::string_view text);
  void tokenise_afresh(const Cut& cut, std::string_view text, TokenPath& path);
  bool reuse_last(std::string_view text, TokenPath& path) const;
  bool append(const Cut& cut, TokenPath& path);

  std::shared_ptr<const Vocab> vocab_;
  Encoders encoders_;
  bool spells_ = false;  // encoders_.spelled is asked
  std::string committed_;
  std::vector<std::uint32_t> committed_ends_;
  std::unordered_map<std::string, Encoded, Hash, std::equal_to<>> cache_;
  std::size_t cache_bytes_ = 0;
  // The last whole path, cut short while the target goes along it: its text and where that starts
  // in committed_.
  struct Last {
    std::string text;
    std::size_t start = 0;
    TokenPath path;
  };
  Last last_;
  Last last_before_;  // what an Ahead puts back
  std::string scratch_;
  std::vector<std::string> expected_;  // the first num_expected_ are to be encoded
  std::vector<std::vector<TokenId>> answers_;
  std::size_t num_expected_ = 0;
  std::uint64_t num_encodes_ = 0;
  double encode_us_ = 0.0;
};

}  // namespace ooospec
