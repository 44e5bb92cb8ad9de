// SPDX-License-Identifier: Apache-2.0
#include "call/request_spans.h"

#include <algorithm>
#include <utility>

#include "call/json_text.h"

namespace ooospec {

namespace {

constexpr std::size_t kMaxQuotedBytes = 120, kMaxRunWords = 6, kMaxSpanBytes = 160;
constexpr float kNoSpanString = 15.9F, kNoSpanNumber = 2.1F;  // weight of "none of these"
constexpr float kTwice = 0.14F;                               // a span that comes again, again
constexpr float kLeastShare = 0.002F;                         // of a span that is worth ranking

// Words that name no value and part phrases.
constexpr std::array kStops = std::to_array<std::string_view>(
    {"a",      "about", "after", "all",  "also",  "am",    "an",    "and",  "any",  "are",
     "as",     "at",    "based", "be",   "been",  "but",   "by",    "call", "can",  "could",
     "did",    "do",    "does",  "find", "for",   "from",  "get",   "give", "had",  "has",
     "have",   "he",    "hello", "help", "her",   "hi",    "him",   "his",  "how",  "i",
     "i'd",    "i'll",  "i'm",   "i've", "if",    "in",    "into",  "is",   "it",   "it's",
     "its",    "just",  "know",  "let",  "like",  "make",  "me",    "my",   "need", "no",
     "not",    "of",    "ok",    "okay", "on",    "one",   "only",  "or",   "our",  "out",
     "please", "set",   "she",   "show", "so",    "some",  "sure",  "tell", "than", "thank",
     "thanks", "that",  "the",   "them", "then",  "there", "these", "they", "this", "to",
     "up",     "us",    "use",   "user", "using", "want",  "was",   "we",   "were", "what",
     "when",   "where", "which", "who",  "will",  "with",  "would", "yes",  "you",  "your"});

// Words that may stand between the capitalised words of a name.
constexpr std::array kWithinNames =
    std::to_array<std::string_view>({"and", "de", "for", "in", "of", "on", "the", "to", "with"});

constexpr std::array kMonths =
    std::to_array<std::string_view>({"january", "february", "march", "april", "may", "june", "july",
                                     "august", "september", "october", "november", "december"});

constexpr std::array kNumerals =
    std::to_array<std::string_view>({"zero", "one", "two", "three", "four", "five", "six", "seven",
                                     "eight", "nine", "ten", "eleven", "twelve"});

template <std::size_t N>
int index_of(const std::array<std::string_view, N>& words, std::string_view word) {
  const auto at = std::find(words.begin(), words.end(), word);
  return at == words.end() ? -1 : static_cast<int>(at - words.begin());
}

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_alpha(char c) {
  return is_upper(c) || (c >= 'a' && c <= 'z') || static_cast<unsigned char>(c) >= 0x80;
}
bool is_word(char c) { return is_alpha(c) || is_json_digit(c) || c == '_'; }
// A byte of a code point, but not its first one.
bool is_inside(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

// A mark outside ASCII, as ” or 。, parts words too.
bool is_wide_mark(std::string_view text, std::size_t i) {
  const std::string_view at = text.substr(i, 2);
  const auto second = static_cast<unsigned char>(at.size() > 1 ? at[1] : 0);
  return at == "\xE2\x80" || at == "\xE2\x81" || at == "\xE3\x80" || at == "\xEF\xBC" ||
         (at[0] == '\xC2' && second < 0xC0U);
}

// The end of the letters, digits and _ that stand at `i`.
std::size_t letters_end(std::string_view text, std::size_t i) {
  while (i < text.size() && is_word(text[i]) && !is_wide_mark(text, i)) {
    ++i;
    while (i < text.size() && is_inside(text[i])) ++i;
  }
  return i;
}

char lower(char c) { return is_upper(c) ? static_cast<char>(c | 0x20) : c; }

std::string lowered(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), lower);
  return out;
}

bool is_stop(std::string_view word) {
  return std::binary_search(kStops.begin(), kStops.end(), word);
}

// A number for a lower-case word, but for its plural and possessive; never 0.
std::uint32_t stem(std::string_view word) {
  if (word.ends_with("'s")) word.remove_suffix(2);
  if (word.size() > 3 && word.back() == 's') word.remove_suffix(1);
  return static_cast<std::uint32_t>(hash_bytes(word)) | 1U;
}

// Calls `take` with each word of a name, in lower case: "numGuests" and "num_guests" have two.
template <typename Take>
void for_each_part(std::string_view text, Take&& take) {
  std::string part;
  const auto end = [&] {
    if (!part.empty() && !is_stop(part)) take(std::string_view(part));
    part.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool hump = is_upper(text[i]) && i > 0 && !is_upper(text[i - 1]);
    if (hump || !is_alpha(text[i])) end();
    if (is_alpha(text[i])) part.push_back(lower(text[i]));
  }
  end();
}

bool joins(std::string_view text, std::size_t i) {
  if (i == 0 || letters_end(text, i + 1) == i + 1 || !is_word(text[i - 1])) return false;
  const bool digits = is_json_digit(text[i - 1]) && is_json_digit(text[i + 1]);
  if (text[i] == ',' || text[i] == ':') return digits;
  if (text[i] == '\'') return is_alpha(text[i - 1]) && is_alpha(text[i + 1]);
  return std::string_view("-./@+&=").find(text[i]) != std::string_view::npos;
}

// Text between white space and quotes, and behind which byte of it a link's or an address's mark
// stands for the last time (0: none). Looked for once: at each word it would take quadratic time.
struct Stretch {
  std::size_t end = 0, link = 0, at = 0, dot = 0;

  // From `begin` on.
  Stretch(std::string_view text, std::size_t begin)
      : end(std::min(text.find_first_of(" \t\r\n\"'`<>|\\", begin), text.size())) {
    const auto last = [&](std::string_view mark) {
      const std::size_t found = text.substr(begin, end - begin).rfind(mark);
      return found == std::string_view::npos ? 0 : begin + found + 1;
    };
    link = last("://");
    at = last("@");
    dot = last(".");
  }
};

// The end of what stands at `i`, without the marks behind it, if it is a link or an address; else
// `i`.
std::size_t address_end(std::string_view text, std::size_t i, const Stretch& in) {
  const std::string_view token = text.substr(i, in.end - i);
  const bool found = in.link > i || token.starts_with("www.") || (in.at > i && in.dot > i);
  if (!found || !is_word(token[0])) return i;
  return i + token.find_last_not_of(".,;:!?)]}") + 1;
}

// Quotes that open a span, and what closes it.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kQuotes = {
    {{"\"", "\""}, {"'", "'"}, {"`", "`"}, {"“", "”"}, {"‘", "’"}, {"«", "»"}}};

}  // namespace

struct RequestSpans::Word {
  std::uint32_t begin, end;
  std::uint32_t stem;
  bool linked;  // one space, and nothing else, stands before it
  bool stop, capital, digits, letters, marks;
};

struct RequestSpans::Asked {
  bool number = false, integer = false;
  bool date = false, mail = false, link = false, name = false, code = false, phrase = false;
  std::vector<std::uint32_t> names, described;  // stems
};

RequestSpans::RequestSpans(std::shared_ptr<const ToolSet> tools, std::string_view request)
    : tools_(std::move(tools)) {
  if (request.size() > kMaxBytes) request.remove_prefix(request.size() - kMaxBytes);
  while (!request.empty() && is_inside(request[0])) request.remove_prefix(1);
  read(request);
}

void RequestSpans::read(std::string_view text) {
  std::vector<Word> words;
  std::size_t behind = 0;  // the end of the word before
  Stretch stretch(text, 0);
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = letters_end(text, i);
    if (end == i) {
      do ++i;
      while (i < text.size() && is_inside(text[i]));
      continue;
    }
    if (stretch.end <= i) stretch = Stretch(text, i);
    end = std::max(end, address_end(text, i, stretch));
    while (joins(text, end)) end = letters_end(text, end + 1);
    Word word{};
    word.begin = static_cast<std::uint32_t>(i);
    word.end = static_cast<std::uint32_t>(end);
    word.linked = i == behind + 1 && text[behind] == ' ' && !words.empty();
    const std::string_view own = text.substr(i, end - i);
    const std::string small = lowered(own);
    word.stem = stem(small);
    word.stop = is_stop(small);
    word.capital = is_upper(own[0]);
    word.digits = std::ranges::any_of(own, is_json_digit);
    word.letters = std::ranges::any_of(own, is_alpha);
    word.marks = !std::ranges::all_of(own, is_word);
    words.push_back(word);
    i = behind = end;
  }
  find_runs(text, words);
  find_dates(text, words);
  find_quoted(text, words);
  if (found_.size() > kMaxFound) {
    std::ranges::stable_sort(found_, {}, &Found::place);
    found_.erase(found_.begin(), found_.end() - kMaxFound);
  }
}

// Takes up `text`, which stands from word `first` to before word `last`.
void RequestSpans::add(Kind kind, std::string_view text, std::span<const Word> words,
                       std::size_t first, std::size_t last) {
  if (text.empty() || text.size() > kMaxSpanBytes) return;
  const auto [at, is_new] =
      group_of_.try_emplace(std::string(text), static_cast<std::uint32_t>(groups_.size()));
  if (is_new) {
    Group group{std::string(text), {}, is_plain_json(text)};
    for (const char c : text) {
      if (c != ',') group.number.push_back(c);
    }
    const int numeral = index_of(kNumerals, lowered(text));
    if (numeral >= 0) group.number = std::to_string(numeral);
    if (!is_json_number(group.number)) group.number.clear();
    groups_.push_back(std::move(group));
  }
  Found found{};
  found.group = at->second;
  found.place =
      static_cast<float>(first) / static_cast<float>(std::max<std::size_t>(words.size(), 1));
  found.kind = kind;
  found.own = last == first + 1 ? words[first].stem : 0;
  std::size_t n = 0;
  for (std::size_t k = first; k > 0 && n < kNumBefore && first - k < 2 * kNumBefore; --k) {
    if (!words[k - 1].stop) found.before[n++] = words[k - 1].stem;
  }
  n = 0;
  for (std::size_t k = last; k < words.size() && n < kNumAfter && k - last < 2 * kNumAfter; ++k) {
    if (!words[k].stop) found.after[n++] = words[k].stem;
  }
  found_.push_back(found);
}

// Single words, and runs of words that hang together: names and phrases.
void RequestSpans::find_runs(std::string_view text, std::span<const Word> words) {
  const auto cut = [&](std::size_t first, std::size_t last) {
    return text.substr(words[first].begin, words[last - 1].end - words[first].begin);
  };
  for (std::size_t k = 0; k < words.size(); ++k) {
    const Word& word = words[k];
    const std::string_view own = cut(k, k + 1);
    const bool numeral = index_of(kNumerals, lowered(own)) >= 0;
    if (word.stop && !numeral) continue;
    Kind kind = word.capital ? Kind::kName : Kind::kWord;
    if (own.find("://") != std::string_view::npos || own.starts_with("www.")) {
      kind = Kind::kLink;
    } else if (own.find('@') != std::string_view::npos) {
      kind = Kind::kMail;
    } else if (numeral || (word.digits && !word.letters && !word.marks) ||
               (word.digits && is_json_number(own))) {
      kind = Kind::kNumber;
    } else if (word.digits || own.find('_') != std::string_view::npos) {
      kind = Kind::kCode;
    }
    std::string_view taken = own;
    if (taken.ends_with("'s")) taken.remove_suffix(2);
    add(kind, taken, words, k, k + 1);
    if (k > 0 && words[k].linked && !words[k - 1].stop) continue;  // inside a run
    std::size_t last = k + 1;
    while (last < words.size() && words[last].linked && !words[last].stop &&
           last - k < kMaxRunWords)
      ++last;
    if (last > k + 1) add(Kind::kPhrase, cut(k, last), words, k, last);
  }
  for (std::size_t k = 0; k < words.size(); ++k) {
    if (!words[k].capital || words[k].stop) continue;
    std::size_t last = k + 1, next = last;
    while (next < words.size() && words[next].linked && next - k < 2 * kMaxRunWords) {
      const bool within = index_of(kWithinNames, cut(next, next + 1)) >= 0;
      if (!words[next].capital && !words[next].digits && !within) break;
      ++next;
      if (words[next - 1].capital || (words[next - 1].digits && last == next - 1)) last = next;
    }
    if (last > k + 1) add(Kind::kNames, cut(k, last), words, k, last);
    k = last - 1;
  }
}

// Dates that name the month, as they stand and as ISO 8601 has them.
void RequestSpans::find_dates(std::string_view text, std::span<const Word> words) {
  const auto number = [&](std::size_t k) {
    int value = 0;
    if (k >= words.size() || !words[k].digits) return -1;
    for (std::size_t i = words[k].begin; i < words[k].end && is_json_digit(text[i]); ++i) {
      value = std::min(10 * value + (text[i] - '0'), 100000);
    }
    return value;
  };
  for (std::size_t k = 0; k < words.size(); ++k) {
    const std::string small = lowered(text.substr(words[k].begin, words[k].end - words[k].begin));
    const auto named = [&](std::string_view month) {
      return small == month || (small.size() == 3 && month.starts_with(small));
    };
    const auto month = std::ranges::find_if(kMonths, named);
    if (month == kMonths.end() || !words[k].capital) continue;
    std::size_t first = k, last = k + 1;
    int day = number(last);
    if (day >= 1 && day <= 31) {
      ++last;
    } else {
      day = k > 0 ? number(k - 1) : -1;
      if (day < 1 || day > 31) continue;
      --first;
    }
    const int year = number(last);
    const bool has_year = year >= 1900 && year < 2200;
    if (has_year) ++last;
    add(Kind::kDate, text.substr(words[first].begin, words[last - 1].end - words[first].begin),
        words, first, last);
    if (!has_year) continue;
    std::string iso = std::to_string(year);
    for (const int part : {static_cast<int>(month - kMonths.begin()) + 1, day}) {
      iso.append(part < 10 ? "-0" : "-").append(std::to_string(part));
    }
    add(Kind::kDate, iso, words, first, last);
  }
}

void RequestSpans::find_quoted(std::string_view text, std::span<const Word> words) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const auto& [open, close] : kQuotes) {
      if (!text.substr(i).starts_with(open) || (i > 0 && is_word(text[i - 1]))) continue;
      const std::size_t begin = i + open.size();
      const std::string_view room = text.substr(0, begin + kMaxQuotedBytes + close.size());
      std::size_t end = begin;
      do {
        end = room.find(close, end + 1);
      } while (end != std::string_view::npos && end + close.size() < text.size() &&
               is_word(text[end + close.size()]));
      if (end == std::string_view::npos) continue;
      const std::string_view inside = text.substr(begin, end - begin);
      if (inside.find('\n') != std::string_view::npos) continue;
      const auto at = [&](std::size_t offset) {
        return static_cast<std::size_t>(std::ranges::lower_bound(words, offset, {}, &Word::begin) -
                                        words.begin());
      };
      add(Kind::kQuoted, inside, words, at(begin), at(end));
      break;
    }
  }
}

// --- ranking ---

RequestSpans::Asked RequestSpans::asked(std::int32_t node) const {
  Asked out;
  const int types = tools_->node(node).types;
  out.number = (types & kStringBit) == 0;
  out.integer = (types & kNumberBit) == 0;
  const auto is_any = [](std::string_view part, std::initializer_list<std::string_view> of) {
    return std::ranges::find(of, part) != of.end();
  };
  const auto take = [&](std::string_view part) {
    out.date |=
        is_any(part, {"date", "day", "time", "start", "end", "deadline", "yyyy", "datetime"});
    out.mail |= is_any(part, {"email", "mail", "recipient"});
    out.link |= is_any(part, {"url", "link", "website", "uri", "webpage"});
    out.name |=
        is_any(part, {"name", "city", "country", "location", "place", "person", "artist", "title",
                      "author", "state", "team", "company", "brand", "origin", "destination"});
    out.code |= is_any(part, {"id", "code", "token", "key", "password", "username", "account",
                              "phone", "number", "ip", "path", "file"});
    out.phrase |= is_any(part, {"keyword", "keywords", "query", "topic", "search", "content",
                                "description", "text", "subject", "symptom", "disease", "term"});
  };
  for_each_part(tools_->name_of(node), [&](std::string_view part) {
    take(part);
    out.names.push_back(stem(part));
  });
  for_each_part(tools_->description_of(node), [&](std::string_view part) {
    if (out.described.size() < 24) out.described.push_back(stem(part));
  });
  if (!(out.date || out.mail || out.link || out.name || out.code || out.phrase)) {
    for_each_part(tools_->description_of(node), take);
  }
  return out;
}

// Fitted to the likelihood of the values of training requests (tests and figures are of others).
float RequestSpans::weigh(const Found& found, const Asked& asked) {
  struct Weight {
    float other, asked;  // the parameter asks for something else, or for such a value
  };
  constexpr std::array<Weight, 10> kOfString = {{
      {4.1F, 5.6F},    // kQuoted
      {0.36F, 6.8F},   // kNumber
      {0.63F, 6.7F},   // kCode
      {0.2F, 12.3F},   // kDate
      {0.4F, 10.0F},   // kMail
      {7.0F, 100.0F},  // kLink
      {0.57F, 2.0F},   // kName
      {0.46F, 7.4F},   // kNames
      {0.23F, 0.59F},  // kPhrase
      {0.11F, 0.13F},  // kWord
  }};
  constexpr std::array<float, kNumBefore> kNamed = {38.9F, 9.3F, 1.0F, 1.0F};
  constexpr std::array<float, kNumBefore> kDescribed = {6.5F, 3.6F, 2.8F, 1.0F};
  constexpr std::array<float, kNumAfter> kNamedAfter = {12.5F, 1.5F},
                                         kDescribedAfter = {2.0F, 1.0F};
  constexpr float kIsName = 0.01F;  // a word of the parameter's name is not its value
  constexpr float kLater = 0.2F;    // what was said last counts so much more
  const auto fits = [&] {
    switch (found.kind) {
      case Kind::kDate:
        return asked.date;
      case Kind::kMail:
        return asked.mail;
      case Kind::kLink:
        return asked.link;
      case Kind::kName:
      case Kind::kNames:
        return asked.name;
      case Kind::kNumber:
        return asked.code;
      case Kind::kCode:
        return asked.code || asked.date;
      default:
        return asked.phrase;
    }
  };
  const Weight& of_kind = kOfString[static_cast<std::size_t>(found.kind)];
  float weight = asked.number ? 1.0F : fits() ? of_kind.asked : of_kind.other;
  const auto in = [](const std::vector<std::uint32_t>& stems, std::uint32_t stem) {
    return stem != 0 && std::ranges::find(stems, stem) != stems.end();
  };
  float cue = 1.0F;
  for (std::size_t k = 0; k < kNumBefore; ++k) {
    if (in(asked.names, found.before[k])) cue = std::max(cue, kNamed[k]);
    if (in(asked.described, found.before[k])) cue = std::max(cue, kDescribed[k]);
  }
  for (std::size_t k = 0; k < kNumAfter; ++k) {
    if (in(asked.names, found.after[k])) cue = std::max(cue, kNamedAfter[k]);
    if (in(asked.described, found.after[k])) cue = std::max(cue, kDescribedAfter[k]);
  }
  if (in(asked.names, found.own)) weight *= kIsName;
  return weight * cue * (1.0F + kLater * found.place);
}

void RequestSpans::rank(std::int32_t node, std::vector<Span>& out) {
  const Asked wanted = asked(node);
  weights_.assign(groups_.size(), 0.0F);
  for (const Found& found : found_) {
    const Group& group = groups_[found.group];
    if (wanted.number) {
      if (group.number.empty()) continue;
      if (wanted.integer && group.number.find_first_of(".eE") != std::string::npos) continue;
    }
    const float weight = weigh(found, wanted);
    float& sum = weights_[found.group];
    sum = std::max(sum, weight) + kTwice * std::min(sum, weight);
  }
  float sum = wanted.number ? kNoSpanNumber : kNoSpanString;
  for (const float weight : weights_) sum += weight;
  std::vector<std::uint32_t> order;
  for (std::uint32_t k = 0; k < groups_.size(); ++k) {
    if (weights_[k] > kLeastShare * sum) order.push_back(k);
  }
  const std::size_t num = std::min(order.size(), kMaxRanked);
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(num),
                            [&](std::uint32_t a, std::uint32_t b) {
                              return weights_[a] > weights_[b] ||
                                     (weights_[a] == weights_[b] && a < b);
                            });
  order.resize(num);
  for (const std::uint32_t k : order) {
    const Group& group = groups_[k];
    out.push_back({wanted.number ? group.number : group.text, weights_[k] / sum,
                   wanted.number || group.plain});
  }
}

std::span<const RequestSpans::Span> RequestSpans::of(std::int32_t node) {
  constexpr std::uint8_t kTaken = kStringBit | kIntegerBit | kNumberBit;
  if (node < 0 || found_.empty() || (tools_->node(node).types & kTaken) == 0) return {};
  const auto [at, is_new] = ranked_.try_emplace(node);
  if (is_new) rank(node, at->second);
  return at->second;
}

}  // namespace ooospec
