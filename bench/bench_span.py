# SPDX-License-Identifier: Apache-2.0
"""What spans of the request are worth: tokens a round of the call with and without them, by replay
against the reference calls, without a model.

Every set of sources keeps a memory of its own, which learns each answer once it is written, and no
hint ever comes. The recycler stays empty: only a model knows what it ranks high.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from transformers import AutoTokenizer

from _harness import Report, parse_args
from _requests import FILES, answer_ids, call_styles, read_requests, spread
from ooospec import Vocab, usual_styles
from ooospec.draft import Drafter, TargetText, new_memory
from ooospec.methods import METHODS, Method
from ooospec.replay import replay
from ooospec.tokens import TokenTable

SETS = {
    "schema": Method("schema", schema=True),
    "span": METHODS["span"],
    "toolspec without span": replace(METHODS["toolspec"], span=False),
    "toolspec": METHODS["toolspec"],
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", required=True, help="model folder")
    parser.add_argument("--data", type=Path, required=True, help="folder of the request files")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of each file at most")
    parser.add_argument("--style", default="tags", choices=call_styles())
    args = parse_args(__doc__ or "", parser)
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    table = TokenTable(tokenizer)
    encode = lru_cache(1 << 16)(table.encode)
    text = TargetText(Vocab(table.pieces), encode, tokenizer.eos_token_id, usual_styles())
    style = call_styles()[args.style]
    report = Report("span", args)
    for file in FILES:
        rows = spread(read_requests(args.data, file), 2 if args.smoke else args.rows)
        random.Random(args.seed).shuffle(rows)
        for name, method in SETS.items():
            memory = new_memory(text)
            num_tokens = num_rounds = 0
            for row in rows:
                dialogue = "\n".join(message["content"] or "" for message in row["messages"])
                for call in row["calls"][:1]:
                    answer = answer_ids(text, call, style)
                    drafter = Drafter(
                        text,
                        row["tools"],
                        method,
                        encode(dialogue),
                        memory=memory,
                        messages=row["messages"],
                    )
                    num_rounds += len(replay(drafter, answer))
                    num_tokens += len(answer) - 1
                    drafter.finish()
            report.add(f"{name}, {file}", "rate", num_tokens / num_rounds, "tokens/round")
    report.finish()


if __name__ == "__main__":
    main()
