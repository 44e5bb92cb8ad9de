// SPDX-License-Identifier: Apache-2.0
//
// A serving stack in miniature: hints come through a ring, a drafter makes them into trees, and a
// target verifies. The target here knows its answer by heart; put yours in its place.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/types.h"
#include "common/vocab.h"
#include "draft/drafter.h"
#include "ring/hint_ring.h"
#include "tree/draft_tree.h"

using namespace ooospec;

namespace {

// A vocabulary of the 256 bytes, a few longer tokens, and the end of an answer.
const std::vector<std::string> kLong = {"<tool_call>", "</tool_call>", "{\"name\": \"",
                                        "\", \"arguments\": {", "get_weather"};
constexpr TokenId kFirstLong = 256;
constexpr TokenId kEnd = kFirstLong + 5;
constexpr std::uint64_t kRequest = 1;

std::shared_ptr<const Vocab> make_vocab() {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
  pieces.insert(pieces.end(), kLong.begin(), kLong.end());
  pieces.emplace_back();  // the end has no text
  return std::make_shared<Vocab>(pieces);
}

// The target's tokenizer: text to ids. Here: the longest token that fits.
std::vector<TokenId> encode(std::string_view text) {
  std::vector<TokenId> tokens;
  while (!text.empty()) {
    std::size_t length = 1;
    TokenId token = static_cast<unsigned char>(text[0]);
    for (std::size_t i = 0; i < kLong.size(); ++i) {
      if (text.starts_with(kLong[i]) && kLong[i].size() > length) {
        length = kLong[i].size();
        token = kFirstLong + static_cast<TokenId>(i);
      }
    }
    tokens.push_back(token);
    text.remove_prefix(length);
  }
  return tokens;
}

constexpr std::string_view kTools = R"([{"type": "function", "function": {
    "name": "get_weather",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}}}}}])";
constexpr std::string_view kAnswer =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", \"days\": 3}}\n"
    "</tool_call>";

// What a sidecar says of the request, each slot as soon as it knows it. Parameters and tools are
// numbers in the list of tools; values are compact JSON.
void sidecar(HintRing& ring) {
  ring.try_push(kRequest, HintKind::kFunction, 0, 0, 0, "get_weather");
  ring.try_push(kRequest, HintKind::kValue, 0, 0, 1, "3");
  ring.try_push(kRequest, HintKind::kValue, 0, 0, 0, "\"Bern\"");
  ring.try_push(kRequest, HintKind::kEnd, 0, 0, 0, "");
}

// The target: what it writes after each node of a tree, whose ancestors it takes as written. A real
// one runs all nodes in one forward pass, masked by tree.masks().
std::vector<TokenId> verify(const DraftTree& tree, std::span<const TokenId> answer,
                            std::size_t num_committed) {
  std::vector<TokenId> choices;
  for (const std::int32_t depth : tree.depths()) {
    const std::size_t at = num_committed + static_cast<std::size_t>(depth);
    choices.push_back(at < answer.size() ? answer[at] : kEnd);
  }
  return choices;
}

}  // namespace

int main() {
  const auto vocab = make_vocab();
  const auto tools = ToolSet::parse(kTools);  // keep it for requests with the same tools
  const auto usual = usual_styles();
  const auto memory = std::make_shared<DraftMemory>(  // one a target and tenant
      vocab->size(), std::size_t{64} << 20, std::vector<StyleGuess>(usual.begin(), usual.end()));
  std::vector<TokenId> answer = encode(kAnswer);
  answer.push_back(kEnd);

  HintRing ring;  // or shared memory, for a sidecar in another process: HintRing(bytes, true)
  std::thread writer(sidecar, std::ref(ring));

  DrafterOptions options;
  options.end_token = kEnd;
  Drafter drafter(vocab, tools, memory, {encode}, options);
  drafter.begin(encode("user: Weather in Bern, three days?\nassistant: "));
  drafter.read_request("Weather in Bern, three days?");

  std::vector<TokenId> committed;
  int num_rounds = 0;
  HintRecord record;
  std::vector<std::int32_t> path(DraftTree::kMaxNodes);
  writer.join();  // so that every run prints the same: never wait for a hint in earnest
  while (committed.empty() || committed.back() != kEnd) {
    while (ring.try_pop(record)) {
      if (record.request_id != kRequest) continue;
      drafter.offer_hint(record.kind, record.call, record.tool, record.parameter, record.text());
    }
    const DraftTree& tree = drafter.propose(32);
    const std::vector<TokenId> choices = verify(tree, answer, committed.size());
    drafter.prepare();  // while the device works
    const int num_accepted = tree.accept(choices, path);
    std::vector<TokenId> tokens;
    for (int i = 0; i < num_accepted; ++i) {
      tokens.push_back(tree.tokens()[static_cast<std::size_t>(path[static_cast<std::size_t>(i)])]);
    }
    const int last = num_accepted == 0 ? 0 : path[static_cast<std::size_t>(num_accepted - 1)];
    tokens.push_back(choices[static_cast<std::size_t>(last)]);
    if (const auto end = std::find(tokens.begin(), tokens.end(), kEnd); end != tokens.end()) {
      tokens.erase(end + 1, tokens.end());
    }
    drafter.commit(tokens);
    committed.insert(committed.end(), tokens.begin(), tokens.end());
    ++num_rounds;
  }
  drafter.finish();

  std::string text;
  for (const TokenId token : committed) text += vocab->bytes(token);
  std::printf("%s\n%zu tokens in %d rounds\n", text.c_str(), committed.size(), num_rounds);
  return committed == answer ? 0 : 1;
}
