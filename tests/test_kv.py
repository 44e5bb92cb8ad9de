# SPDX-License-Identifier: Apache-2.0
"""Pages, sequences and shared prefixes against plain lists of tokens."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ooospec.errors import OutOfPages
from ooospec.kv import LayerShape, PagePool, PrefixCache, Sequence
from ooospec.reference import kv_compact_ref

LAYERS = [LayerShape(2, 4, 4), LayerShape(1, 8, 3), LayerShape(2, 4, 4)]
PAGE = 4


def make_pool(num_pages: int = 12) -> PagePool:
    pool = PagePool(LAYERS, num_pages, page_size=PAGE)
    for cached in (*pool.keys, *pool.values):
        cached.fill_(torch.nan)
    return pool


def write(sequence: Sequence, tokens: list[int]) -> None:
    """Stands in for a launch: row r of it stores tokens[r] in every number of every layer."""
    slots = sequence.slots(sequence.length, sequence.length + len(tokens))
    for layer_idx, (keys, values) in enumerate(
        zip(sequence.pool.keys, sequence.pool.values, strict=True)
    ):
        for slot, token in zip(slots, tokens, strict=True):
            keys[slot] = token + 1000 * layer_idx
            values[slot] = -token - 1000 * layer_idx
    sequence.num_rows = len(tokens)


def read(sequence: Sequence) -> list[list[int]]:
    """Returns what each layer's keys and values say the committed tokens are."""
    slots = sequence.slots(0, sequence.length)
    found = []
    for layer_idx, (keys, values) in enumerate(
        zip(sequence.pool.keys, sequence.pool.values, strict=True)
    ):
        for cached, sign in ((keys, 1), (values, -1)):
            numbers = sign * cached[slots].flatten(1) - 1000 * layer_idx
            assert not slots or bool((numbers == numbers[:, :1]).all())
            found.append(numbers[:, 0].tolist() if slots else [])
    return found


class Sequences(RuleBasedStateMachine):
    """Sequences that grow, fork, are shared and go away, next to lists of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = make_pool()
        self.prefixes = PrefixCache(self.pool, 2 * PAGE)
        self.live: list[tuple[Sequence, list[int]]] = []

    @rule(tokens=st.lists(st.integers(0, 2), min_size=1, max_size=20))
    def start(self, tokens: list[int]) -> None:
        sequence = Sequence(self.pool)
        cached = self.prefixes.attach(sequence, tokens)
        assert cached % (2 * PAGE) == 0
        assert cached < len(tokens)
        assert read(sequence) == [tokens[:cached]] * 6
        free = self.pool.num_free
        try:
            sequence.reserve(len(tokens))
        except OutOfPages:
            assert self.pool.num_free == free
            sequence.release()
            return
        write(sequence, tokens[cached:])
        sequence.keep(range(len(tokens) - cached))
        self.prefixes.insert(sequence, tokens)
        self.live.append((sequence, tokens))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), num_rows=st.integers(1, 6))
    def decode(self, data: st.DataObject, num_rows: int) -> None:
        sequence, tokens = data.draw(st.sampled_from(self.live))
        try:
            sequence.reserve(len(tokens) + num_rows)
        except OutOfPages:
            return
        drafted = data.draw(st.lists(st.integers(3, 99), min_size=num_rows, max_size=num_rows))
        write(sequence, drafted)
        rows = data.draw(st.lists(st.sampled_from(range(num_rows)), unique=True).map(sorted))
        slots = sequence.slots(0, len(tokens) + num_rows)
        expected = kv_compact_ref(sequence.pool.keys[1][slots], len(tokens), rows)
        sequence.keep(rows)
        tokens += [drafted[row] for row in rows]
        assert torch.equal(sequence.pool.keys[1][slots][: len(tokens)], expected[: len(tokens)])

    @precondition(lambda self: self.live)
    @rule(data=st.data(), extra=st.integers(0, 8))
    def fork(self, data: st.DataObject, extra: int) -> None:
        sequence, tokens = data.draw(st.sampled_from(self.live))
        free = self.pool.num_free
        try:
            child = sequence.fork(len(tokens) + extra)
        except OutOfPages:
            assert self.pool.num_free == free
            return
        assert child.pages[: len(tokens) // PAGE] == sequence.pages[: len(tokens) // PAGE]
        assert child.capacity >= len(tokens) + extra
        self.live.append((child, list(tokens)))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        i = data.draw(st.integers(0, len(self.live) - 1))
        sequence, _ = self.live.pop(i)
        sequence.release()
        sequence.release()

    @rule(num_free=st.integers(0, 12))
    def evict(self, num_free: int) -> None:
        self.prefixes.evict(num_free)
        assert self.pool.num_free >= num_free or len(self.prefixes) == 0

    @invariant()
    def same_tokens(self) -> None:
        for sequence, tokens in self.live:
            assert sequence.length == len(tokens) <= sequence.capacity
            assert read(sequence) == [tokens] * 6

    @invariant()
    def pages_are_counted(self) -> None:
        held = [page for sequence, _ in self.live for page in sequence.pages]
        held += [page for pages in self.prefixes._entries.values() for page in pages]
        for page in range(self.pool.num_pages):
            assert self.pool.num_refs(page) == held.count(page)

    def teardown(self) -> None:
        for sequence, _ in self.live:
            sequence.release()
        self.prefixes.clear()
        assert self.pool.num_free == self.pool.num_pages


TestSequences = Sequences.TestCase
TestSequences.settings = settings(max_examples=30, stateful_step_count=20)


def test_pages_come_in_one_run_where_there_is_one() -> None:
    pool = make_pool(11)
    first, second, third = pool.allocate(3), pool.allocate(2), pool.allocate(3)
    pool.release(second)
    assert pool.allocate(2) == second  # the tightest run, not the longer one at the end
    pool.release(first)
    assert pool.allocate(2, after=third[-1]) == [8, 9]
    assert pool.allocate(4) == [0, 1, 2, 10]  # no run is long enough


def test_a_sequence_in_one_run_is_one_range_of_slots() -> None:
    pool = make_pool()
    sequence = Sequence(pool)
    sequence.reserve(5)
    sequence.reserve(20)
    assert len(sequence.runs(0, 20)) == 1
    assert sequence.slots(3, 9) == list(range(3, 9))


def test_out_of_pages_says_what_was_missing_and_takes_nothing() -> None:
    pool = make_pool(3)
    sequence = Sequence(pool)
    sequence.reserve(5)
    with pytest.raises(OutOfPages, match="expected 3 free pages, got 1 of 3"):
        sequence.reserve(18)
    assert sequence.capacity == 8
    assert pool.num_free == 1


@pytest.mark.parametrize("rows", [[0, 0], [1, 0], [3], [-1], [0, 1, 2, 3]])
def test_keep_refuses_rows_that_are_not_ascending_rows_of_the_launch(rows: list[int]) -> None:
    sequence = Sequence(make_pool())
    sequence.reserve(8)
    write(sequence, [1, 2, 3])
    with pytest.raises(IndexError, match=r"expected ascending rows in \[0, 3\)"):
        sequence.keep(rows)
    assert sequence.length == 0


def test_pool_and_prefixes_refuse_sizes_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="expected at least one layer"):
        PagePool([], 4)
    with pytest.raises(ValueError, match="got 3 layers, 0 pages"):
        PagePool(LAYERS, 0)
    with pytest.raises(ValueError, match="expected chunks of whole 4-slot pages, got 6"):
        PrefixCache(make_pool(), 6)


def test_prefixes_belong_to_tenants_and_leave_a_token_to_prefill() -> None:
    """I18: one tenant never sees what another left; D09: only whole equal chunks are taken over."""
    pool = make_pool(16)
    prefixes = PrefixCache(pool, PAGE)
    tokens = [random.Random(0).randrange(50) for _ in range(12)]
    sequence = Sequence(pool)
    sequence.reserve(12)
    write(sequence, tokens)
    sequence.keep(range(12))
    prefixes.insert(sequence, tokens, "a")
    for tenant, prompt, expected in [
        ("a", tokens, 8),  # all 12 are cached, but the last token has to run
        ("a", [*tokens, 1], 12),
        ("a", tokens[:9], 8),
        ("a", [*tokens[:4], 99, *tokens[5:]], 4),
        ("a", [99, *tokens[1:]], 0),
        ("a", tokens[:1], 0),
        ("b", tokens, 0),
        ("", tokens, 0),
    ]:
        warm = Sequence(pool)
        assert prefixes.attach(warm, prompt, tenant) == expected == warm.length
        warm.release()


def test_the_least_recent_prefix_goes_first_and_the_longest_part_of_it() -> None:
    pool = make_pool(6)
    prefixes = PrefixCache(pool, PAGE)
    for tokens in ([1] * 8, [2] * 8):
        sequence = Sequence(pool)
        sequence.reserve(8)
        write(sequence, tokens)
        sequence.keep(range(8))
        prefixes.insert(sequence, tokens)
        sequence.release()
    touched = Sequence(pool)
    assert prefixes.attach(touched, [1] * 9) == 8
    touched.release()
    prefixes.evict(3)
    lengths = []
    for token in (1, 2):
        sequence = Sequence(pool)
        lengths.append(prefixes.attach(sequence, [token] * 9))
        sequence.release()
    assert lengths == [8, 4]
