# SPDX-License-Identifier: Apache-2.0
"""A perfect hint at every token border of every call: are the drafts what the tokenizer makes of
the whole answer?

For each tokenizer, style and evaluation call the whole answer is encoded at once; then a fresh
drafter is given its first
i tokens and a perfect hint, for every i, and its likeliest path is compared with the tokens left.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from _harness import ROOT, Report, parse_args
from _requests import call_styles, evaluation_calls
from ooospec import StyleGuess, Vocab, render_calls
from ooospec.draft import Drafter, TargetText
from ooospec.methods import Method
from ooospec.replay import slot_records
from ooospec.tokens import TokenTable

sys.path.insert(0, str(ROOT / "tests"))
from tokenizer_files import load_tokenizer

HINTS_ONLY = Method("hints only", schema=True, hint=True)
MAX_LISTED = 20


def count_positions(
    text: TargetText, tools: list[dict[str, Any]], call: dict[str, Any], style: Any
) -> tuple[int, int, list[str]]:
    """Returns positions, those where the draft is the tokenizer's own, and the misses as text."""
    rendered = render_calls(
        [(call["name"], json.dumps(call["arguments"], ensure_ascii=False))], style
    )
    ids = list(text.encode(rendered))
    hints = slot_records(1, [call], tools)
    right, misses = 0, []
    for done in range(1, len(ids)):
        drafter = Drafter(text, tools, HINTS_ONLY, [0])
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
    calls = list(evaluation_calls(args.data, 2 if args.smoke else args.rows))
    report = Report("retokenise", args)
    for named in args.tokenizer:
        name, _, path = named.partition("=")
        table = TokenTable(load_tokenizer(Path(path)))
        vocab = Vocab(table.pieces)
        listed = 0
        for style_name, style in call_styles().items():
            text = TargetText(vocab, table.encode, -1, [StyleGuess(style, 1.0)])
            positions = right = 0
            for row_id, _, tools, call in calls:
                num, num_right, misses = count_positions(text, tools, call, style)
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
