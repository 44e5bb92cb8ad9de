# SPDX-License-Identifier: Apache-2.0
"""The host's part of a round: propose + commit of the drafter, by replay, the tokenizer's time and
what is prepared while the target verifies beside it.

A prompt of 4k tokens, 16 tools, 10,000 earlier calls in the index, a hint that arrives at the third
round, all sources on and trees of 48 to 64 nodes. Answers are the reference calls of the evaluation
files, so rounds are those of a real decode.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from transformers import AutoTokenizer

from _harness import Report, parse_args, quantile
from _requests import (
    answer_ids,
    call_styles,
    earlier_answers,
    evaluation_calls,
    long_dialogue,
    with_others,
)
from ooospec import Vocab, usual_styles
from ooospec.draft import Drafter, TargetText, new_memory
from ooospec.methods import METHODS
from ooospec.replay import slot_records
from ooospec.tokens import TokenTable

NUM_PROMPT_TOKENS = 4096
NUM_TOOLS = 16
NUM_EARLIER_CALLS = 10_000
NUM_NODES = 64
MIN_NODES = 48
HINT_ROUND = 2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", required=True, help="model folder")
    parser.add_argument("--data", type=Path, required=True, help="folder of the request files")
    parser.add_argument("--rounds", type=int, default=12_000)
    args = parse_args(__doc__ or "", parser)
    num_rounds = 50 if args.smoke else args.rounds
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    table = TokenTable(tokenizer)
    style = call_styles()["fenced json, indented by 2"]
    vocab = Vocab(table.pieces)
    encode, spell = table.drafting_encoders(vocab)
    text = TargetText(vocab, encode, tokenizer.eos_token_id, usual_styles(), tokenizer, spell)
    memory = new_memory(text)
    num_earlier = 100 if args.smoke else NUM_EARLIER_CALLS
    answers = list(earlier_answers(args.data, text, style, num_earlier))
    start = time.perf_counter()
    for answer in answers:
        memory.learn_answer(answer)
    learn_seconds = time.perf_counter() - start
    prompt = list(table.encode(long_dialogue(args.data)))[:NUM_PROMPT_TOKENS]
    calls = list(evaluation_calls(args.data, 200))
    spare = [tool for _, _, tools, _ in calls for tool in tools]
    host_us, encode_us, encodes, nodes, prepare_us = [], [], [], [], []
    clock = time.perf_counter_ns
    for number in range(10**9):
        _, dialogue, tools, call = calls[number % len(calls)]
        said = [{"role": "user", "content": dialogue}]
        tools = with_others(tools, spare, NUM_TOOLS)
        ids = answer_ids(text, call, style)
        tree = core = None  # of the last request: they go now, not in a round
        drafter = Drafter(text, tools, METHODS["ooo"], prompt, memory=memory, messages=said)
        core, hints = drafter.core, slot_records(1, [call], tools)
        core.prepare()
        core.commit(ids[:1])
        done, round_idx = 1, 0
        while done < len(ids):
            before = core.encode_us, core.num_encodes
            offered = hints if round_idx == HINT_ROUND else ()
            begin = clock()
            for hint in offered:
                drafter.offer_hint(hint)
            tree = core.propose(NUM_NODES)
            middle = clock()
            num_nodes = len(tree)
            spent = core.encode_us - before[0]
            num_encodes = core.num_encodes - before[1]
            # Of what was accepted take a few tokens only, so that an answer has as many rounds as a
            # real one without luck.
            choices = [ids[min(done + depth, len(ids) - 1)] for depth in tree.depths.tolist()]
            tokens = ids[done : done + min(4, len(tree.accept(choices)) + 1)]
            verify = clock()
            core.prepare()
            resume = clock()
            core.commit(tokens)
            stop = clock()
            done += len(tokens)
            round_idx += 1
            if num_nodes >= MIN_NODES:
                host_us.append((middle - begin + stop - resume) / 1000 - spent)
                encode_us.append(spent)
                encodes.append(num_encodes)
                prepare_us.append((resume - verify) / 1000)
                nodes.append(num_nodes)
        if len(host_us) >= num_rounds:
            break
    report = Report("host", args)
    case = "propose + commit, without the tokenizer"
    report.add(case, "p50", quantile(host_us, 0.5), "us")
    report.add(case, "p99", quantile(host_us, 0.99), "us")
    report.add("tokenizer", "p50", quantile(encode_us, 0.5), "us")
    report.add("tokenizer", "p99", quantile(encode_us, 0.99), "us")
    report.add("tokenizer", "mean", sum(encodes) / len(encodes), "calls/round")
    report.add("prepare, while the target verifies", "p50", quantile(prepare_us, 0.5), "us")
    report.add("prepare, while the target verifies", "p99", quantile(prepare_us, 0.99), "us")
    report.add("rounds", "count", len(host_us), "rounds")
    report.add("nodes", "mean", sum(nodes) / len(nodes), "nodes")
    report.add("earlier calls", "learn", learn_seconds * 1e6 / num_earlier, "us a call")
    report.finish()


if __name__ == "__main__":
    main()
