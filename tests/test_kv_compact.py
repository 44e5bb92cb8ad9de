# SPDX-License-Identifier: Apache-2.0
"""Accepted rows move to their places, in all layers at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ooospec import ops
from ooospec.reference import kv_compact_ref
from tree_cases import DEVICE, DTYPE, ON_GPU, far

NUM_LAYERS = 36 if ON_GPU else 2


def pool(num_slots: int, num_heads: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns [layers, slots, G, D] of random numbers, some of them NaN, inside a larger tensor."""
    whole = torch.randn(NUM_LAYERS, num_slots + 2, num_heads, dim)
    whole[torch.rand(whole.shape) < 0.01] = torch.nan
    return whole.to(DEVICE, dtype)[:, 1:-1]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view({2: torch.int16, 4: torch.int32}[tensor.element_size()])


def compact(keys: torch.Tensor, values: torch.Tensor, moves: list[tuple[int, int]]) -> None:
    room = torch.full((2, 64), 1 << 40)  # what lies behind the count is not looked at
    for i, (source, target) in enumerate(moves):
        room[0, i], room[1, i] = source, target
    count = torch.tensor([len(moves)], dtype=torch.int32, device=DEVICE)
    ops.kv_compact(keys, values, *room.to(DEVICE), count)


@pytest.mark.parametrize("dtype", [DTYPE, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(8, 128), (2, 64), (1, 80), (3, 96)])
@pytest.mark.parametrize("num_rows", [0, 1, 2, 16, 63, 64])
def test_a_path_moves_behind_the_committed_part(
    num_rows: int, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    """Over shuffled pages; a target may be the source of an earlier move."""
    random = np.random.default_rng(num_rows)
    torch.manual_seed(num_rows)
    keys, values = pool(5 * 64, *shape, dtype), pool(5 * 64, *shape, dtype)
    pages = random.permutation(5)
    order = [int(pages[i // 64]) * 64 + i % 64 for i in range(3 * 64)]
    rows = sorted(random.choice(64, num_rows, replace=False).tolist())
    expected = []
    for cached in (keys, values):
        after = cached.clone()
        after[:, order] = torch.stack([kv_compact_ref(part[order], 70, rows) for part in cached])
        expected.append(bits(after))
    compact(keys, values, [(order[70 + row], order[70 + i]) for i, row in enumerate(rows)])
    assert torch.equal(bits(keys), expected[0])
    assert torch.equal(bits(values), expected[1])
    with ops.using("reference"):
        compact(keys, values, [(order[0], order[1])])
    assert torch.equal(bits(keys[:, order[1]]), bits(keys[:, order[0]]))


@pytest.mark.parametrize("dim", [0, 1], ids=["layers", "slots"])
def test_rows_may_lie_farther_away_than_int32_reaches(dim: int) -> None:
    moves = [(190, 3), (70, 191), (189, 0)]
    near = [torch.randn(4, 192, 1, 32).to(DEVICE, torch.float16) for _ in range(2)]
    apart = [far(part, dim) for part in near]
    compact(*near, moves)
    compact(*apart, moves)
    for part, expected in zip(apart, near, strict=True):
        assert torch.equal(bits(part), bits(expected))


def test_zones_around_a_pool_stay_as_they_are() -> None:
    keys, values = pool(70, 2, 64, DTYPE), pool(70, 2, 64, DTYPE)
    before = [bits(part._base).clone() for part in (keys, values) if part._base is not None]
    compact(keys, values, [(i, i) for i in range(64)])
    after = [bits(part._base) for part in (keys, values) if part._base is not None]
    assert len(after) == 2
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_wrong_tensors_are_named() -> None:
    keys, values = pool(64, 2, 16, DTYPE), pool(64, 2, 16, DTYPE)
    moves = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    count = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    with pytest.raises(ValueError, match="values: expected"):
        ops.kv_compact(keys, values[:1], moves, moves, count)
    with pytest.raises(ValueError, match="keys: expected dense slots"):
        ops.kv_compact(keys[..., :8], values, moves, moves, count)
    with pytest.raises(ValueError, match=r"targets: expected torch\.int64"):
        ops.kv_compact(keys, values, moves, moves[:2], count)
    with pytest.raises(ValueError, match=r"count: expected torch\.int32"):
        ops.kv_compact(keys, values, moves, moves, count.long())
    with pytest.raises(ValueError, match="sources: expected at most 64, got 65"):
        ops.kv_compact(keys, values, moves.new_zeros(65), moves.new_zeros(65), count)
