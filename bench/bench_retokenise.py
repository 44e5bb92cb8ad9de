# SPDX-License-Identifier: Apache-2.0
"""A perfect hint at every token border of every call: are the drafts what the tokenizer makes of
the whole answer?

For each tokenizer, style and evaluation call the whole answer is encoded at once; then a fresh
drafter is given its first i tokens and a perfect hint, for every i, and its likeliest path is
compared with the tokens left. A call with an argument that its schema does not name has no perfect
hint, as no slot can say it: it is left out and counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from _harness import ROOT, Report, parse_args
from _requests import call_styles, evaluation_calls
from ooospec import StyleGuess, Vocab, render_calls
from ooospec.draft import Drafter, TargetText, new_memory
from ooospec.methods import Method
from ooospec.replay import slot_records
from ooospec.tokens import TokenTable

sys.path.insert(0, str(ROOT / "tests"))
from tokenizer_files import load_tokenizer

HINTS_ONLY = Method("hints only", schema=True, hint=True)
MAX_LISTED = 20


def has_all_slots(tools: list[dict[str, Any]], call: dict[str, Any]) -> bool:
    """Tells whether the schema names all arguments of the call."""
    function = next(t["function"] for t in tools if t["function"]["name"] == call["name"])
    return set(call["arguments"]) <= set((function.get("parameters") or {}).get("properties") or {})


def count_positions(
    text: TargetText, memory: Any, tools: list[dict[str, Any]], call: dict[str, Any], style: Any
) -> tuple[int, int, list[str]]:
    """Returns positions, those where the draft is the tokenizer's own, and the misses as text.

    memory: a drafter's; nothing is learnt, so that it serves all of them.
    """
    rendered = render_calls(
        [(call["name"], json.dumps(call["arguments"], ensure_ascii=False))], style
    )
    ids = list(text.encode(rendered))
    hints = slot_records(1, [call], tools)
    right, misses = 0, []
    for done in range(1, len(ids)):
        drafter = Drafter(text, tools, HINTS_ONLY, [0], memory=memory)
        drafter.commit(ids[:done])
        for hint in hints:
            drafter.offer_hint(hint)
        drafter.propose(64)
        drafted = [token for token in drafter.core.main_path if token != text.end_token]
        if drafted == ids[done:]:
            right += 1
        else:
            before = b"".join(text.vocab.bytes(token) for token in ids[:done])
            wrong = [text.vocab.bytes(token) for token in drafted[:8]]
            misses.append(f"after {before[-24:]!r}: {wrong}")
    return len(ids) - 1, right, misses


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--data", type=Path, required=True, help="folder of the request files")
    parser.add_argument("--rows", type=int, default=100_000, help="calls of each file at most")
    args = parse_args(__doc__ or "", parser)
    every = list(evaluation_calls(args.data, 2 if args.smoke else args.rows))
    calls = [row for row in every if has_all_slots(row[2], row[3])]
    report = Report("retokenise", args)
    report.add("all", "calls", len(calls), "calls")
    report.add("all", "left out", len(every) - len(calls), "calls")
    for named in args.tokenizer:
        name, _, path = named.partition("=")
        table = TokenTable(load_tokenizer(Path(path)))
        vocab, encode = Vocab(table.pieces), lru_cache(1 << 16)(table.encode)
        listed = 0
        for style_name, style in call_styles().items():
            text = TargetText(vocab, encode, -1, [StyleGuess(style, 1.0)])
            memory = new_memory(text)
            positions = right = 0
            for row_id, _, tools, call in calls:
                num, num_right, misses = count_positions(text, memory, tools, call, style)
                positions += num
                right += num_right
                for miss in misses[: max(0, MAX_LISTED - listed)]:
                    print(f"  {name}, {style_name}, {row_id}: {miss}")
                    listed += 1
            report.add(
                f"{name}, {style_name}",
                "equal",
                right / max(1, positions),
                f"of {positions} positions",
            )
    report.finish()


if __name__ == "__main__":
    main()
