# SPDX-License-Identifier: Apache-2.0
"""Attention over paged KV against attention of each row by itself."""

from __future__ import annotations

import random

import pytest
import torch

from ooospec.backends.attention import Launch, attend, attend_pieces
from ooospec.backends.base import Segment
from ooospec.kv import LayerShape, PagePool, Sequence
from ooospec.reference import tree_attention_ref

# (query heads, kv heads, head dim) of released models
SHAPES = {
    "Qwen2.5-0.5B": (14, 2, 64),
    "Qwen2.5-1.5B": (12, 2, 128),
    "Qwen2.5-7B": (28, 4, 128),
    "Qwen2.5-14B": (40, 8, 128),
    "Qwen3-0.6B": (16, 8, 128),
    "Llama-3.2-1B": (32, 8, 64),
    "Gemma-2-2B": (8, 4, 256),
    "Gemma-3-270M": (4, 1, 256),
    "Phi-3-mini": (32, 32, 96),
}


class Case:
    """Sequences with random KV, random trees of rows on them, and the keys each row may see."""

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype = torch.float32) -> None:
        self.random = random.Random(0)
        torch.manual_seed(0)
        self.num_heads, num_kv_heads, self.dim = shape
        self.pool = PagePool([LayerShape(num_kv_heads, self.dim, self.dim)], 400, dtype=dtype)
        for cached in (*self.pool.keys, *self.pool.values):
            cached.fill_(torch.nan)
        self.segments: list[Segment] = []

    def sequence(self, length: int, parent: Sequence | None = None, room: int = 80) -> Sequence:
        if parent is None:
            sequence = Sequence(self.pool)
            sequence.reserve(length + room)
        else:
            sequence = parent.fork(length + room)
        slots = sequence.slots(sequence.length, length)
        for cached in (self.pool.keys[0], self.pool.values[0]):
            cached[slots] = torch.randn(len(slots), *cached.shape[1:]).to(cached.dtype)
        sequence.length = length
        return sequence

    def add(self, sequence: Sequence, num_rows: int, *, chain: bool = False) -> None:
        parents = [i - 1 if chain else self.random.randrange(-1, i) for i in range(num_rows)]
        mask = torch.eye(num_rows, dtype=torch.bool)
        depths = []
        for row, parent in enumerate(parents):
            depths.append(0 if parent < 0 else depths[parent] + 1)
            if parent >= 0:
                mask[row] |= mask[parent]
        positions = [sequence.length + depth for depth in depths]
        self.segments.append(Segment(sequence, [0] * num_rows, positions, None if chain else mask))

    def check(
        self, *, padding: int = 0, window: int | None = None, softcap: float | None = None
    ) -> None:
        ordered = [self.segments[i] for i in Launch.order(self.segments)]
        num_rows = sum(len(segment.tokens) for segment in ordered)
        keys = self.pool.keys[0]
        dtype = keys.dtype
        query = torch.randn(self.num_heads, num_rows + padding, self.dim).to(dtype)
        key, value = torch.randn(2, keys.shape[1], num_rows + padding, self.dim).to(dtype)
        launch = Launch.plan(ordered, num_rows + padding)
        scaling = 0.3 if softcap is None else 8.0
        got = attend(query, key, value, launch, 0, scaling=scaling, window=window, softcap=softcap)
        assert got.shape == (num_rows + padding, self.num_heads, self.dim)
        assert bool((got[num_rows:] == 0).all())
        row = 0
        for segment in ordered:
            length, size = segment.sequence.length, len(segment.tokens)
            slots = segment.sequence.slots(0, length + size)
            mask = segment.mask
            if mask is None:
                mask = torch.ones(size, size, dtype=torch.bool).tril()
            visible = torch.cat((torch.ones(size, length, dtype=torch.bool), mask), dim=1)
            positions = torch.tensor(list(segment.positions))
            expected = tree_attention_ref(
                query[:, row : row + size].transpose(0, 1),
                self.pool.keys[0][slots],
                self.pool.values[0][slots],
                positions,
                torch.cat((torch.arange(length), positions)),
                visible,
                scaling=scaling,
                window=window,
                softcap=softcap,
            )
            # Stored as given: the rows' keys and values lie behind the committed ones.
            assert torch.equal(
                self.pool.keys[0][slots[length:]], key[:, row : row + size].transpose(0, 1)
            )
            assert torch.equal(
                self.pool.values[0][slots[length:]], value[:, row : row + size].transpose(0, 1)
            )
            tolerance = torch.finfo(dtype).eps * 64
            torch.testing.assert_close(
                got[row : row + size].double(), expected, atol=tolerance, rtol=tolerance
            )
            row += size


@pytest.mark.parametrize("num_rows", [1, 2, 3, 5, 8, 17, 64])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_tree_behind_a_sequence(shape: tuple[int, int, int], num_rows: int) -> None:
    """D13: head shapes of released models, odd groups included, at every number of rows."""
    case = Case(shape)
    case.add(case.sequence(37), num_rows)
    case.check()


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 63, 130])
@pytest.mark.parametrize("window", [None, 1, 16, 17, 1000])
def test_windows_are_of_positions(length: int, window: int | None) -> None:
    """D04, D05, D06, D08: a window counts positions, also for siblings that share one."""
    case = Case((6, 2, 32))
    case.add(case.sequence(length), 13)
    case.check(window=window)


@pytest.mark.parametrize("window", [None, 24])
@pytest.mark.parametrize("num_forks", [1, 2, 9])
def test_forks_of_one_prefix_and_strangers_in_one_launch(
    num_forks: int, window: int | None
) -> None:
    """I01: rows see their own sequence only, however many share pages and in whatever order."""
    case = Case((4, 2, 32))
    prefix = case.sequence(150)
    stranger, other = case.sequence(20), case.sequence(300)
    forks = [case.sequence(150 + 7 * i, prefix) for i in range(num_forks)]
    grandchild = case.sequence(190, forks[-1])
    case.add(forks[0], 3)
    case.add(stranger, 5)
    for fork in forks[1:]:
        case.add(fork, 2)
    case.add(grandchild, 4, chain=True)
    case.add(other, 1)
    case.check(window=window, padding=3)


def test_a_sequence_in_pieces_reads_like_one_in_a_run() -> None:
    """Pages that are scattered are gathered, long runs are viewed; both give the same."""
    case = Case((4, 2, 32))
    holes = [case.sequence(16, room=0) for _ in range(60)]
    case.sequence(320 * 16, room=0)
    for hole in holes[::2]:
        hole.release()
    mixed = case.sequence(240)  # takes the 20 pages at the end, then grows into holes
    mixed.reserve(400)
    mixed.length = 310
    for cached in (case.pool.keys[0], case.pool.values[0]):
        cached[mixed.slots(240, 310)] = torch.randn(70, 2, 32)
    scattered = case.sequence(200)
    assert [stop - start for start, stop in mixed.runs(0, 400)] == [320, 16, 16, 16, 16, 16]
    assert len(scattered.runs(0, 280)) == 18
    case.add(mixed, 20)
    case.add(scattered, 9)
    case.check()
    case.check(window=150)


def test_soft_cap() -> None:
    """D10: scores over 100 under a cap of 50."""
    case = Case((4, 2, 64))
    case.add(case.sequence(40), 11)
    case.check(softcap=50.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    case = Case((4, 2, 64), dtype)
    case.add(case.sequence(40), 11)
    case.check()


def test_strided_inputs_and_a_row_that_sees_nothing_else() -> None:
    """D19: views of one buffer in any layout; D20: the first token of all attends to itself."""
    buffer = torch.randn(7, 12, 8).transpose(0, 1)
    query, key, value = buffer[:8], buffer[8:10], buffer[10:]
    hidden = torch.ones(7, 7, dtype=torch.bool).triu(1)
    got = attend_pieces(query, [key], [value], hidden, scaling=0.5)
    positions = torch.arange(7)
    rows = [part.transpose(0, 1) for part in (query, key, value)]
    expected = tree_attention_ref(*rows, positions, positions, ~hidden, scaling=0.5)
    torch.testing.assert_close(got.double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got[0], value[:, 0].repeat_interleave(4, dim=0))


def test_more_rows_than_reserved_are_refused() -> None:
    """C01: rows never run past the pages of their sequence."""
    case = Case((4, 2, 32))
    case.add(case.sequence(10, room=6), 7)
    with pytest.raises(ValueError, match="expected 1 to 6 rows behind 10 committed tokens, got 7"):
        Launch.plan(case.segments, 7)
