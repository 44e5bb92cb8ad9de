# SPDX-License-Identifier: Apache-2.0
"""Retrieval against counting in a list of documents; memory, tenants, and what is refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import oracles
from ooospec._core import _C

token = st.integers(0, 2)
MAX_LENGTH = 14  # of a document: counts are exact for the 32 longest suffixes of a place


def make_index(*documents: list[int], max_bytes: int = 1 << 20) -> _C.SuffixIndex:
    index = _C.SuffixIndex(max_bytes)
    for document in documents:
        index.append(document)
    return index


def cursor_of(index: _C.SuffixIndex, text: list[int]) -> _C.SuffixIndex.Cursor:
    cursor = _C.SuffixIndex.Cursor()
    for token in text:
        index.advance(cursor, token)
    return cursor


class IndexAgainstCounting(RuleBasedStateMachine):
    """Documents are added and grown; a cursor follows a text of its own; all is asked each step."""

    def __init__(self) -> None:
        super().__init__()
        self.index = make_index()
        self.naive = oracles.NaiveIndex()
        self.text: list[int] = []
        self.cursor = _C.SuffixIndex.Cursor()

    @rule(document=st.lists(token, max_size=MAX_LENGTH))
    def append(self, document: list[int]) -> None:
        self.index.append(document)
        self.naive.documents.append(document.copy())
        self.cursor = cursor_of(self.index, self.text)

    @precondition(lambda self: len(self.naive.documents[-1]) < MAX_LENGTH)
    @rule(token=token)
    def extend(self, token: int) -> None:
        self.index.extend(token)
        self.naive.documents[-1].append(token)

    @rule(tokens=st.lists(st.integers(0, 3), max_size=4))
    def advance(self, tokens: list[int]) -> None:
        for token in tokens:
            self.index.advance(self.cursor, token)
        self.text = [*self.text, *tokens][-MAX_LENGTH:]

    @rule(max_tokens=st.integers(1, 6), max_branches=st.integers(0, 3))
    def ask(self, max_tokens: int, max_branches: int) -> None:
        self.compare(self.cursor, self.text, max_tokens, max_branches)

    @invariant()
    def tail_matches_what_came_before(self) -> None:
        self.index.check()
        tail = self.index.tail()
        assert tail.match_length == self.naive.tail()
        self.compare(tail, self.naive.documents[-1], 6, 3)

    def compare(
        self, cursor: _C.SuffixIndex.Cursor, text: list[int], max_tokens: int, max_branches: int
    ) -> None:
        longest = cursor.match_length
        assert longest <= self.naive.longest(text)
        found = self.index.continuations(cursor, max_tokens=max_tokens, max_branches=max_branches)
        expected = self.naive.branches(text, longest)[:max_branches]
        assert len(found) == len({c.tokens[0] for c in found}) == len(expected)
        for continuation, (length, count, probability) in zip(found, expected, strict=True):
            assert continuation.match_length == length
            context = text[-length:]
            assert self.naive.followers(context)[continuation.tokens[0]] == count
            assert continuation.probabilities[0] == pytest.approx(probability)
            self.compare_rest(context, continuation, max_tokens)

    def compare_rest(
        self, context: list[int], continuation: _C.SuffixIndex.Continuation, max_tokens: int
    ) -> None:
        context = [*context, continuation.tokens[0]]
        rest = zip(continuation.tokens[1:], continuation.probabilities[1:], strict=True)
        for token, probability in rest:
            counts = self.naive.followers(context)
            assert counts[token] == max(counts.values())
            assert probability == pytest.approx(counts[token] / sum(counts.values()))
            context.append(token)
        if len(continuation.tokens) < max_tokens:
            assert not self.naive.followers(context)


IndexAgainstCounting.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestIndexAgainstCounting = IndexAgainstCounting.TestCase


@pytest.mark.parametrize("length", range(4))
def test_short_prompts_propose_what_they_can(length: int) -> None:
    index = make_index(list(range(length)))
    assert index.continuations(index.tail(), min_match=3) == []


def test_min_match_and_max_branches_limit_what_is_found() -> None:
    index = make_index([1, 2, 3], [9, 2, 4])
    cursor = cursor_of(index, [1, 2])
    assert [c.tokens for c in index.continuations(cursor)] == [[3], [4]]
    assert [c.tokens for c in index.continuations(cursor, min_match=2)] == [[3]]
    assert [c.tokens for c in index.continuations(cursor, max_branches=1)] == [[3]]
    assert index.continuations(cursor, max_branches=0) == []


def test_continuations_are_at_most_32_tokens() -> None:
    index = make_index(list(range(100)))
    (found,) = index.continuations(cursor_of(index, [3]))
    assert found.tokens == list(range(4, 36))
    assert len(found.tokens) == _C.SuffixIndex.MAX_TOKENS


def test_a_tenant_never_drafts_from_another() -> None:
    answers = {"a": [1, 2, 3, 4], "b": [1, 2, 8, 9]}
    stores = {tenant: make_index(answer) for tenant, answer in answers.items()}
    for tenant, answer in answers.items():
        store = stores[tenant]
        (found,) = store.continuations(cursor_of(store, [1, 2]))
        assert found.tokens == answer[2:]


def test_memory_of_a_hundred_thousand_calls_stays_under_the_cap() -> None:
    def resident_bytes() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    max_bytes = 4 << 20
    generator = random.Random(7)
    values = [generator.randrange(150_000) for _ in range(1 << 16)]
    index = _C.SuffixIndex(max_bytes)
    before = resident_bytes()
    highest = before
    for call in range(100_000):
        at = generator.randrange(len(values) - 12)
        index.append([1, 2, 3, call % 16 + 4, *values[at : at + 12], 30, 31])
        if call % 1000 == 0:
            highest = max(highest, resident_bytes())
            assert index.num_bytes <= max_bytes
    assert index.num_bytes > max_bytes // 3
    assert highest - before <= max_bytes + (2 << 20)  # what Python itself takes meanwhile
    last = [1, 2, 3, call % 16 + 4, *values[at : at + 12], 30, 31]
    assert cursor_of(index, last).match_length == len(last)


def test_recycler_keeps_the_latest_successors() -> None:
    recycler = _C.TokenRecycler(vocab_size=50)
    recycler.update(4, range(10, 20))
    recycler.update(4, [49, 12])
    assert recycler.successors(4) == [49, 12, 10, 11, 13, 14, 15, 16]
    assert recycler.successors(0) == []
    assert recycler.vocab_size == 50


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda i: _C.SuffixIndex(1000), ValueError, "got 1000"),
        (lambda i: _C.SuffixIndex(-1), TypeError, "max_bytes"),
        (lambda i: i.append([1, -1]), ValueError, "got -1"),
        (lambda i: i.append([1, 2**31]), TypeError, "append"),
        (lambda i: i.append(["a"]), TypeError, "append"),
        (lambda i: i.extend(-2), ValueError, "got -2"),
        (lambda i: i.continuations(i.tail(), min_match=0), ValueError, "min_match"),
        (lambda i: i.continuations(i.tail(), max_tokens=0), ValueError, "max_tokens"),
        (lambda i: i.continuations(i.tail(), max_tokens=33), ValueError, "got 33"),
        (lambda i: i.continuations(i.tail(), max_branches=-1), ValueError, "max_branches"),
        (lambda i: i.continuations(None), TypeError, "continuations"),
        (lambda i: _C.TokenRecycler(0), ValueError, "got 0"),
        (lambda i: _C.TokenRecycler(5).update(5, [1]), IndexError, "got 5"),
        (lambda i: _C.TokenRecycler(5).update(1, [5]), IndexError, "got 5"),
        (lambda i: _C.TokenRecycler(5).successors(-1), IndexError, "got -1"),
    ],
)
def test_mistakes_raise_and_change_nothing(call, error: type, message: str) -> None:
    index = make_index([5, 6, 5])
    with pytest.raises(error, match=message):
        call(index)
    index.check()
    assert index.tail().match_length == 1
