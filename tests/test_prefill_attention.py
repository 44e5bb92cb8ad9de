# SPDX-License-Identifier: Apache-2.0
"""Attention of prefill chunks: against float64, and against itself to the bit."""

from __future__ import annotations

import pytest
import torch

from ooospec import ops
from tree_cases import DEVICE, ON_GPU, PAGE, Case, Shape, Tree, far

CHUNK = 256 if ON_GPU else 64
SHAPES = {
    "Qwen3-8B": Shape(32, 8, 128) if ON_GPU else Shape(4, 1, 128),
    "Qwen2.5-0.5B": Shape(14, 2, 64) if ON_GPU else Shape(7, 1, 64),
    "window": Shape(4, 1, 64, window=100),
    "window within a block": Shape(4, 1, 64, window=3),
    "soft cap, dim 80": Shape(4, 1, 80, softcap=2.0),
    "dim 256": Shape(4, 1, 256),
}


class Prefill(Case):
    """The chunk at `start` of a prompt of `length` tokens; what lies behind the prompt is NaN."""

    def __init__(
        self, shape: Shape, start: int, length: int, seed: int = 0, **options: int
    ) -> None:
        count = min(CHUNK, length - start)
        super().__init__(shape, [Tree(length - 1, [-1], seed=5)], num_rows=CHUNK, seed=seed)
        self.count = count
        numbers = torch.randn(
            (4096, *self.q.shape[1:]), generator=torch.Generator().manual_seed(start)
        )
        self.q.fill_(torch.nan)
        self.q[:count] = numbers[:count].to(DEVICE, self.q.dtype)
        positions = torch.arange(start, start + CHUNK, dtype=torch.int32)
        positions[count:] = 7
        self.rows.positions = positions.to(DEVICE)
        self.rows.sequences = torch.where(torch.arange(CHUNK) < count, 0, -1).int().to(DEVICE)

    def run(self, plan: object = None) -> torch.Tensor:
        self.out.fill_(torch.nan)
        ops.prefill_attention(
            self.q,
            self.keys,
            self.values,
            self.rows,
            self.out,
            self.shape.dim**-0.5,
            window=self.shape.window,
            softcap=self.shape.softcap,
        )
        assert bool((self.out[self.count :] == 0).all())
        return self.out[: self.count].clone()


@pytest.mark.parametrize("length", [1, 64, 65, 200] if ON_GPU else [1, 64, 200])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_chunks_agree_with_float64(shape: Shape, length: int) -> None:
    start = (length - 1) // CHUNK * CHUNK
    case = Prefill(shape, start, length)
    got, expected = case.run().double().cpu(), case.run_reference().double().cpu()
    limit = {torch.float32: 1e-5, torch.bfloat16: 1e-2}[case.q.dtype]
    assert float((got - expected).norm() / expected.norm()) < limit


@pytest.mark.gpu
@pytest.mark.parametrize("start", [256, 2048])
def test_later_chunks_agree_with_float64(start: int) -> None:
    test_chunks_agree_with_float64(SHAPES["Qwen3-8B"], start + 256)


def test_slots_may_lie_farther_away_than_int32_reaches() -> None:
    case = Prefill(Shape(2, 1, 32), 0, 130, seed=1)
    assert 2 in case.trees[0].pages[:2]  # of four: in the upper half
    expected = case.run()
    case.keys, case.values = far(case.keys), far(case.values)
    assert torch.equal(case.run(), expected)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_row_knows_nothing_of_the_rows_behind_it(shape: Shape) -> None:
    """The same bits in a full chunk, in one padded right behind the row, and over other pages."""
    start = 2 * CHUNK
    whole = Prefill(shape, start, start + CHUNK)
    expected = whole.run()
    for count in (1, 17, CHUNK // 2 + 1):
        cut = Prefill(shape, start, start + count, seed=count)
        size = start + count
        slots = whole.slots(whole.trees[0], range(size))
        targets = cut.slots(cut.trees[0], range(size))
        cut.keys[targets], cut.values[targets] = whole.keys[slots], whole.values[slots]
        assert torch.equal(cut.run(), expected[:count])


def test_pages_are_of_64_slots() -> None:
    assert PAGE == ops.BLOCK
