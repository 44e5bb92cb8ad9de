# SPDX-License-Identifier: Apache-2.0
"""What a flaw in a hint costs: rounds beyond those with a perfect hint at the same moment, by
replay, without a model.

Flaws: one of the values wrong; arguments written in another order than the schema's (the perfect
case is then the same answer under a schema of that order). A hint arrives at every token border; a
byte inside a token is the border after it. Rounds that begin inside the wrong value itself are
counted apart: that value is lost with any drafter that does not know it.
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
from ooospec.draft import Drafter, TargetText, new_memory
from ooospec.methods import METHODS
from ooospec.replay import replay, slot_records
from ooospec.tokens import TokenTable

MAX_EXTRA_ROUNDS = 2
MAX_LISTED = 50
WITH_ITS_OWN = "one value wrong, its own rounds too"


@dataclass(frozen=True)
class Target:
    """A tokenizer's text side, and a memory that learns nothing, so that it serves all drafters."""

    text: TargetText
    memory: Any

    def write(self, call: dict[str, Any], style: Any) -> list[int]:
        """Returns the answer that consists of one call, as ids with the end token."""
        arguments = json.dumps(call["arguments"], ensure_ascii=False)
        text = render_calls([(call["name"], arguments)], style)
        return [*self.text.encode(text), self.text.end_token]

    def rounds(
        self,
        dialogue: str,
        tools: Sequence[dict[str, Any]],
        hint: Sequence[Any],
        answer: Sequence[int],
        done: int,
    ) -> list[int]:
        """Returns the committed counts at which rounds begin, for a hint that arrives after `done`
        tokens.

        hint: its records.
        """
        drafter = Drafter(
            self.text,
            tools,
            METHODS["ooo"],
            self.text.encode(dialogue),
            memory=self.memory,
            messages=[{"role": "user", "content": dialogue}],
        )
        drafter.commit(answer[: done - 1])
        for record in hint:
            drafter.offer_hint(record)
        return [done - 1 + one.start for one in replay(drafter, answer[done - 1 :])]

    def inside(self, answer: Sequence[int], name: str) -> set[int]:
        """Returns the numbers of committed tokens that leave the target inside an argument's
        value.
        """
        pieces = [self.text.vocab.bytes(token) for token in answer[:-1]]
        whole = b"".join(pieces)
        key = json.dumps(name, ensure_ascii=False).encode()
        arguments = whole.index(b"{", whole.index(b"{") + 1)
        begin = whole.index(b":", whole.index(key, arguments) + len(key)) + 1
        rest = whole[begin:].decode()
        padding = len(rest) - len(rest.lstrip())
        _, end = json.JSONDecoder().raw_decode(rest, padding)
        first, last = begin + padding, begin + len(rest[:end].encode())
        numbers, at = set(), 0
        for number, piece in enumerate(pieces, 1):
            at += len(piece)
            if first < at < last:
                numbers.add(number)
        return numbers


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


def in_order(
    tools: Sequence[dict[str, Any]], name: str, order: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns `tools` with the parameters of tool `name` in `order`, those not in it last."""
    result = []
    for tool in tools:
        function = tool["function"]
        properties = (function.get("parameters") or {}).get("properties")
        if function["name"] == name and properties:
            ranked = sorted(properties, key=lambda k: order.index(k) if k in order else len(order))
            parameters = function["parameters"] | {"properties": {k: properties[k] for k in ranked}}
            tool = tool | {"function": function | {"parameters": parameters}}
        result.append(tool)
    return result


class Flaws:
    """Counts of more rounds, by flaw."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[int]] = {}

    def add(self, flaw: str, extra: int) -> bool:
        """Counts a replay; returns whether it took too many rounds."""
        self.counts.setdefault(flaw, Counter())[extra] += 1
        return extra > MAX_EXTRA_ROUNDS

    def report(self, report: Report, style: str) -> None:
        for flaw, found in self.counts.items():
            case = f"{style}, {flaw}"
            total = sum(found.values())
            within = sum(n for extra, n in found.items() if extra <= MAX_EXTRA_ROUNDS)
            report.add(case, "cases", total, "replays")
            report.add(case, "most", max(found), "more rounds")
            report.add(case, "mean", sum(k * n for k, n in found.items()) / total, "more rounds")
            report.add(case, f"<= {MAX_EXTRA_ROUNDS}", within / total, "of the replays")


def try_call(
    target: Target,
    chance: random.Random,
    dialogue: str,
    tools: Sequence[dict[str, Any]],
    call: dict[str, Any],
    style: Any,
) -> Iterator[tuple[str, int, int]]:
    """Yields (flaw, committed tokens at which the hint arrives, more rounds) of one call."""
    values = call["arguments"]
    if not values:
        return
    straight = target.write(call, style)
    hint = slot_records(1, [call], tools)
    wrong_hints = {}
    for name, value in values.items():
        wrong = call | {"arguments": values | {name: wrong_value(value)}}
        wrong_hints[name] = (slot_records(1, [wrong], tools), target.inside(straight, name))
    others = []
    for flaw, order in orders(list(values)):
        answer = target.write(call | {"arguments": {k: values[k] for k in order}}, style)
        ordered = in_order(tools, call["name"], order)
        others.append((flaw, answer, ordered, slot_records(1, [call], ordered)))
    for done in range(1, len(straight) - 1):
        best = len(target.rounds(dialogue, tools, hint, straight, done))
        wrong_hint, lost = wrong_hints[chance.choice(list(values))]
        starts = target.rounds(dialogue, tools, wrong_hint, straight, done)
        yield "one value wrong", done, sum(start not in lost for start in starts) - best
        yield WITH_ITS_OWN, done, len(starts) - best
        for flaw, answer, ordered, ordered_hint in others:
            if done < len(answer) - 1:
                best = len(target.rounds(dialogue, ordered, ordered_hint, answer, done))
                yield flaw, done, len(target.rounds(dialogue, tools, hint, answer, done)) - best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", required=True, help="model folder")
    parser.add_argument("--data", type=Path, required=True, help="folder of the request files")
    parser.add_argument("--rows", type=int, default=100_000, help="calls of each file at most")
    parser.add_argument("--style", action="append", help="styles to try; all by default")
    args = parse_args(__doc__ or "", parser)
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    table = TokenTable(tokenizer)
    vocab = Vocab(table.pieces)
    encode, spell = table.drafting_encoders(vocab)
    text = TargetText(vocab, encode, tokenizer.eos_token_id, usual_styles(), tokenizer, spell)
    target = Target(text, new_memory(text))
    chance = random.Random(args.seed)
    report = Report("survival", args)
    calls = list(evaluation_calls(args.data, 2 if args.smoke else args.rows))
    for style_name, style in call_styles().items():
        if args.style and style_name not in args.style:
            continue
        flaws, listed = Flaws(), 0
        for row_id, dialogue, tools, call in calls:
            for flaw, done, more in try_call(target, chance, dialogue, tools, call, style):
                if flaws.add(flaw, more) and flaw != WITH_ITS_OWN and listed < MAX_LISTED:
                    listed += 1
                    print(f"  {style_name}, {row_id}, {flaw}, after {done} tokens: +{more}")
        flaws.report(report, style_name)
    report.finish()


if __name__ == "__main__":
    main()
