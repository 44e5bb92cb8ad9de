# SPDX-License-Identifier: Apache-2.0
"""What a flaw in a hint costs: rounds beyond those with a perfect hint at the same moment, by
replay, without a model.

Flaws: one of the values wrong; arguments written in another order than the schema's. A hint arrives
at a token border; a
byte inside a token is the border after it. Rounds that begin inside the wrong value itself are
counted apart: that value
is lost with any drafter that does not know it.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from _harness import Report, parse_args
from _requests import call_styles, evaluation_calls
from ooospec import Vocab, render_calls, usual_styles
from ooospec.draft import Drafter, TargetText
from ooospec.methods import METHODS
from ooospec.replay import replay, slot_records
from ooospec.tokens import TokenTable

MAX_EXTRA_ROUNDS = 2


@dataclass(frozen=True)
class Answer:
    """An answer as ids, with the byte offset at which each token ends."""

    ids: list[int]
    ends: list[int]

    def borders(self, begin: int, end: int) -> set[int]:
        """Returns the numbers of committed tokens that leave the target inside bytes (begin,
        end).
        """
        return {i + 1 for i, at in enumerate(self.ends) if begin < at < end}


def write_answer(text: TargetText, call: dict[str, Any], style: Any) -> Answer:
    arguments = json.dumps(call["arguments"], ensure_ascii=False)
    ids = list(text.encode(render_calls([(call["name"], arguments)], style)))
    ends, at = [], 0
    for token in ids:
        at += len(text.vocab.bytes(token))
        ends.append(at)
    return Answer([*ids, text.end_token], [*ends, at])


def rounds_after(
    text: TargetText,
    prompt: Sequence[int],
    tools: Sequence[dict[str, Any]],
    hint: dict[str, Any],
    answer: Answer,
    done: int,
) -> list[int]:
    """Returns the committed counts at which rounds begin, for a hint that arrives after `done`
    tokens.
    """
    drafter = Drafter(text, tools, METHODS["ooo"], prompt)
    drafter.commit(answer.ids[: done - 1])
    for record in slot_records(1, [hint], tools):
        drafter.offer_hint(record)
    return [done - 1 + one.start for one in replay(drafter, answer.ids[done - 1 :])]


def wrong_value(value: Any) -> Any:
    """Returns another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 17
    if isinstance(value, str):
        return "quite another " + value[::-1]
    if isinstance(value, list):
        return [*value, "one more"]
    return {"other": 1}


def orders(names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields other orders of the arguments by name."""
    if len(names) < 2:
        return
    yield "reversed", list(reversed(names))
    if len(names) > 2:
        yield "rotated", [*names[1:], names[0]]
        yield "two swapped", [*names[:-2], names[-1], names[-2]]


def value_bytes(text: TargetText, answer: Answer, tools: Any, name: str) -> tuple[int, int]:
    """Returns the byte range of an argument's value in the answer."""
    whole = b"".join(text.vocab.bytes(token) for token in answer.ids[:-1])
    key = json.dumps(name, ensure_ascii=False).encode()
    arguments = whole.index(b"{", whole.index(b"{") + 1)
    begin = whole.index(b":", whole.index(key, arguments) + len(key)) + 1
    decoder = json.JSONDecoder()
    rest = whole[begin:].decode()
    padding = len(rest) - len(rest.lstrip())
    _, end = decoder.raw_decode(rest, padding)
    return begin + padding, begin + len(rest[:end].encode())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", required=True, help="model folder")
    parser.add_argument("--data", type=Path, required=True, help="folder of the request files")
    parser.add_argument("--rows", type=int, default=100_000, help="calls of each file at most")
    parser.add_argument(
        "--arrivals", type=int, default=8, help="moments of arrival tried for each answer"
    )
    args = parse_args(__doc__ or "", parser)
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    table = TokenTable(tokenizer)
    vocab = Vocab(table.pieces)
    chance = random.Random(args.seed)
    report = Report("survival", args)
    counts: dict[str, Counter[int]] = {}
    inside: dict[str, Counter[int]] = {}
    calls = list(evaluation_calls(args.data, 3 if args.smoke else args.rows))
    for style_name, style in call_styles().items():
        text = TargetText(vocab, table.encode, tokenizer.eos_token_id, usual_styles())
        for row_id, dialogue, tools, call in calls:
            prompt = table.encode(dialogue)
            if not call["arguments"]:
                continue
            straight = write_answer(text, call, style)
            arrivals = chance.sample(
                range(1, len(straight.ids) - 1), min(args.arrivals, len(straight.ids) - 2)
            )
            for done in [1, *arrivals]:
                best = len(rounds_after(text, prompt, tools, call, straight, done))
                name = chance.choice(list(call["arguments"]))
                hint = call | {
                    "arguments": call["arguments"] | {name: wrong_value(call["arguments"][name])}
                }
                lost = straight.borders(*value_bytes(text, straight, tools, name))
                starts = rounds_after(text, prompt, tools, hint, straight, done)
                flaws = [
                    (
                        "one value wrong",
                        len([start for start in starts if start not in lost]) - best,
                        len([s for s in starts if s in lost]),
                    )
                ]
                for order_name, order in orders(list(call["arguments"])):
                    other = write_answer(
                        text,
                        call | {"arguments": {key: call["arguments"][key] for key in order}},
                        style,
                    )
                    if done < len(other.ids) - 1:
                        flaws.append(
                            (
                                order_name,
                                len(rounds_after(text, prompt, tools, call, other, done)) - best,
                                0,
                            )
                        )
                for flaw, extra, num_inside in flaws:
                    counts.setdefault(flaw, Counter())[extra] += 1
                    inside.setdefault(flaw, Counter())[num_inside] += 1
                    if extra > MAX_EXTRA_ROUNDS:
                        print(f"  {style_name}, {row_id}, {flaw}, after {done} tokens: +{extra}")
    for flaw, found in counts.items():
        total = sum(found.values())
        report.add(flaw, "cases", total, "replays")
        report.add(flaw, "most", max(found), "more rounds")
        report.add(flaw, "mean", sum(k * n for k, n in found.items()) / total, "more rounds")
        within = sum(n for k, n in found.items() if k <= MAX_EXTRA_ROUNDS)
        report.add(flaw, f"<= {MAX_EXTRA_ROUNDS}", within / total, "of the replays")
        report.add(
            flaw,
            "inside",
            sum(k * n for k, n in inside[flaw].items()) / total,
            "rounds in the lost value",
        )
    report.finish()


if __name__ == "__main__":
    main()
