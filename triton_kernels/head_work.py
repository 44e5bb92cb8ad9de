# SPDX-License-Identifier: Apache-2.0
"""Cuts the committed part that the rows of a round see into pieces of work; once a round.

The head of a row at position p is [0, p - 63): committed tokens only, so that rows of one sequence
share it. It is cut into at most MAX_SPLITS splits of equal size. The size is a function of p alone,
so that a row's result depends neither on its neighbours nor on the round.

A piece of work is one split for a tile of neighbouring rows. Rows of different sequences may share
a tile as far as their pages are the same (`leaders`): a wave's branches read their prefix once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _split_blocks(blocks, MAX_SPLITS: tl.constexpr):
    """Blocks of one split of a head of `blocks`: enough for MAX_SPLITS, in three leading bits."""
    size = tl.maximum(tl.cdiv(blocks, MAX_SPLITS), 1)
    step = tl.full(size.shape, 1, tl.int32)
    for doubling in tl.static_range(3, 16):
        step = tl.where(size > (1 << doubling), 1 << (doubling - 2), step)
    return tl.cdiv(size, step) * step


@triton.jit
def _head_work_kernel(
    positions,
    sequences,
    leaders,
    num_shared,
    split_blocks,
    work,
    num_work,
    NUM_ROWS: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    TAIL: tl.constexpr,
    SHARED: tl.constexpr,
):
    """One program. Rows i along axis 0, rows j along axis 1 of what is compared."""
    row = tl.arange(0, ROWS)
    inside = row < NUM_ROWS
    sequence = tl.load(sequences + row, mask=inside, other=-1)
    before = tl.load(sequences + row - 1, mask=inside & (row > 0), other=-1)
    real = sequence >= 0
    position = tl.load(positions + row, mask=real, other=0)
    blocks = tl.cdiv(tl.maximum(position - (TAIL - 1), 0), BLOCK)
    size = _split_blocks(blocks, MAX_SPLITS)
    splits = tl.cdiv(blocks, size)
    tl.store(split_blocks + row, size, mask=inside)

    family, family_before, shared = sequence, before, tl.zeros([ROWS], tl.int32)
    if SHARED:
        family = tl.load(leaders + sequence, mask=real, other=-1)
        family_before = tl.load(leaders + before, mask=before >= 0, other=-1)
        shared = tl.load(num_shared + sequence, mask=real, other=0) // BLOCK // size
        shared = tl.minimum(shared, splits)

    # Rows of one family in tiles of at most TILE rows, from the family's first row on.
    earlier = row[None, :] <= row[:, None]
    starts = tl.where((family != family_before) | (row == 0), row, 0)
    first = tl.max(tl.where(earlier, starts[None, :], 0), axis=1)
    tile = first + (row - first) // TILE * TILE
    starts = tl.where((sequence != before) | (row == tile), row, 0)
    own = tl.max(tl.where(earlier, starts[None, :], 0), axis=1)

    # Rows of a tile whose splits are of one size are done together; the first of them asks for it.
    alike = (size[:, None] == size[None, :]) & real[:, None] & real[None, :]
    in_tile = alike & (tile[:, None] == tile[None, :])
    in_own = alike & (own[:, None] == own[None, :])
    num_shared_splits = tl.min(tl.where(in_tile, shared[None, :], MAX_SPLITS), axis=1)
    num_splits = tl.max(tl.where(in_own, splits[None, :], 0), axis=1)
    asks_shared = real & (tl.min(tl.where(in_tile, row[None, :], ROWS), axis=1) == row)
    asks_own = real & (tl.min(tl.where(in_own, row[None, :], ROWS), axis=1) == row)
    shared_count = tl.where(asks_shared, num_shared_splits, 0)
    own_count = tl.where(asks_own, num_splits - num_shared_splits, 0)
    count = shared_count + own_count
    place = tl.cumsum(count, axis=0) - count
    tl.store(num_work, tl.sum(count, axis=0))

    tile_rows = tl.sum((tile[:, None] == tile[None, :]).to(tl.int32), axis=1)
    own_rows = tl.sum((own[:, None] == own[None, :]).to(tl.int32), axis=1)
    piece = tl.arange(0, MAX_SPLITS)[None, :]
    is_shared = piece < shared_count[:, None]
    base = tl.where(asks_shared, 0, num_shared_splits)  # split of a row's first piece
    out = work + (place[:, None] + piece) * 5
    wanted = piece < count[:, None]
    tl.store(out, tl.broadcast_to(sequence[:, None], wanted.shape), mask=wanted)
    tl.store(out + 1, tl.where(is_shared, tile[:, None], own[:, None]), mask=wanted)
    tl.store(out + 2, tl.where(is_shared, tile_rows[:, None], own_rows[:, None]), mask=wanted)
    tl.store(out + 3, tl.broadcast_to(size[:, None], wanted.shape), mask=wanted)
    tl.store(out + 4, base[:, None] + piece, mask=wanted)


def head_work(
    positions: torch.Tensor,
    sequences: torch.Tensor,
    split_blocks: torch.Tensor,
    work: torch.Tensor,
    num_work: torch.Tensor,
    *,
    tile_rows: int,
    max_splits: int,
    leaders: torch.Tensor | None = None,
    num_shared: torch.Tensor | None = None,
) -> None:
    """Writes the pieces of work of the rows' heads.

    positions, sequences: int32[N], N <= 64; rows of a sequence stand together; -1: padding.
    split_blocks: int32[N]; blocks of 64 positions in one split of the row.
    work: int32[N * max_splits, 5]; (sequence, first row, rows, blocks a split, split) of each
    piece. num_work: int32[1]; how many there are.
    tile_rows: most rows of a piece. max_splits: power of two.
    leaders, num_shared: int32[S]; the pages of a sequence's first num_shared tokens (all committed)
    are those of its leader; sequences of one leader share work when their rows stand together.
    Cost: one launch of one program, nothing allocated.
    """
    num_rows = positions.shape[0]
    shared = leaders is not None
    _head_work_kernel[(1,)](
        positions,
        sequences,
        leaders if shared else sequences,
        num_shared if shared else sequences,
        split_blocks,
        work,
        num_work,
        NUM_ROWS=num_rows,
        ROWS=triton.next_power_of_2(num_rows),
        TILE=tile_rows,
        MAX_SPLITS=max_splits,
        BLOCK=64,
        TAIL=64,
        SHARED=shared,
        num_warps=8,
    )
