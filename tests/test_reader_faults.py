# SPDX-License-Identifier: Apache-2.0
"""Errors planted in what the reader is told: they never change a token of the answer, but the
counts of the equality check fall below their bar, and a reader that reads the committed tokens anew
finds them in their round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from equality import CHUNK, Counts
from ooospec import _C
from ooospec.backends.load import load_backend
from ooospec.draft import Drafter, TargetText
from ooospec.engine import Engine
from ooospec.errors import ShadowMismatch
from ooospec.formats import tool_set
from ooospec.methods import METHODS
from ooospec.replay import slot_records
from tiny_caller import CALL, PROMPT, TOOLS, answer_ids, caller, caller_text

NUM_ACCEPTED = len(answer_ids()) * 7 // 8


class Skips(Drafter):
    """Never hears of every fifth token."""

    def commit(self, tokens: Sequence[int], top8: Any = None) -> None:
        known = len(self.answer)
        self.core.commit([token for i, token in enumerate(tokens, known) if i % 5 != 4])
        self.answer.extend(tokens)


class HearsTwice(Drafter):
    """Hears of the first token of each round twice."""

    def commit(self, tokens: Sequence[int], top8: Any = None) -> None:
        self.core.commit([tokens[0], *tokens])
        self.answer.extend(tokens)


class Shadowed:
    """Compares a drafter's reader, after each commit, with one that reads all of it anew."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.propose, self.prepare = drafter.propose, drafter.prepare
        self.finish = drafter.finish
        self.wants_top8 = drafter.wants_top8

    def commit(self, tokens: Sequence[int], top8: Any = None) -> None:
        self.drafter.commit(tokens, top8)
        text, answer = caller_text(), self.drafter.answer
        rebuilt = _C.CallReader(tool_set(TOOLS))
        rebuilt.feed(b"".join(text.vocab.bytes(t) for t in answer if t != text.end_token))
        if self.drafter.core.reader != rebuilt:
            raise ShadowMismatch(f"shadow: the reader differs after {len(answer)} tokens")


def drafter(kind: type[Drafter] = Drafter, text: TargetText | None = None) -> Drafter:
    """Returns a drafter that knows the call by hints."""
    made = kind(text or caller_text(), TOOLS, METHODS["ooo"], PROMPT)
    for record in slot_records(1, [CALL], TOOLS):
        made.offer_hint(record)
    return made


def misread(wrong: Callable[[bytes], bytes]) -> Drafter:
    """Returns a drafter that takes other bytes for the target's tokens."""
    text = caller_text()
    pieces = [wrong(text.vocab.bytes(token)) for token in range(len(text.vocab))]
    other = TargetText(_C.Vocab(pieces), text.encode, text.end_token, text.styles)
    return drafter(text=other)


PLANTS: dict[str, Callable[[], Drafter]] = {
    "quotes are apostrophes": lambda: misread(lambda piece: piece.replace(b'"', b"'")),
    "braces are brackets": lambda: misread(lambda piece: piece.replace(b"{", b"[")),
    "the last byte is lost": lambda: misread(lambda piece: piece[: len(piece) - 1]),
    "tokens are skipped": lambda: drafter(Skips),
    "tokens come twice": lambda: drafter(HearsTwice),
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    made = Engine(load_backend(caller(), chunk=CHUNK))
    assert made.generate_ids(PROMPT, max_tokens=200).token_ids == answer_ids()
    return made


def run(engine: Engine, made: Any) -> Counts:
    """Runs the request; whatever is planted, the answer is the plain one."""
    got = engine.generate_ids(PROMPT, method=lambda request: made, max_tokens=200)
    assert got.token_ids == answer_ids()
    counts = Counts()
    counts.add(got)
    return counts


def check(counts: Counts) -> None:
    counts.check(tokens=len(answer_ids()), accepted=NUM_ACCEPTED, rejected=10)


def test_an_honest_reader_passes_both_checks(engine: Engine) -> None:
    """F04: its state is a function of the committed text, after every round."""
    check(run(engine, drafter()))
    check(run(engine, Shadowed(drafter())))


@pytest.mark.parametrize("plant", PLANTS)
def test_the_counts_find_a_planted_reader_error(plant: str, engine: Engine) -> None:
    counts = run(engine, PLANTS[plant]())
    assert counts.accepted < NUM_ACCEPTED
    with pytest.raises(AssertionError):
        check(counts)


@pytest.mark.parametrize("plant", PLANTS)
def test_the_shadow_finds_a_planted_reader_error(plant: str, engine: Engine) -> None:
    with pytest.raises(ShadowMismatch, match="the reader differs"):
        run(engine, Shadowed(PLANTS[plant]()))
