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

ENDS = 512  # pieces of no blocks behind the last one: more than programs that look for one


@triton.jit
def _split_blocks(blocks, MAX_SPLITS: tl.constexpr, FEW: tl.constexpr, ENOUGH: tl.constexpr):
    """Blocks of one split of a head of `blocks`, in three leading bits.

    FEW splits while that makes them smaller than ENOUGH blocks: the state of a split costs as much
    as some blocks. Then more splits, up to MAX_SPLITS; then larger ones.
    """
    size = tl.minimum(tl.cdiv(blocks, FEW), ENOUGH)
    size = tl.maximum(tl.maximum(tl.cdiv(blocks, MAX_SPLITS), size), 1)
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
    NUM_ROWS: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    FEW: tl.constexpr,
    ENOUGH: tl.constexpr,
    ENDS: tl.constexpr,
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
    size = _split_blocks(blocks, MAX_SPLITS, FEW, ENOUGH)
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
    num_work = tl.sum(count, axis=0)
    tl.store(work + (num_work + tl.arange(0, ENDS)) * 8, tl.zeros([ENDS], tl.int32))

    tile_rows = tl.sum((tile[:, None] == tile[None, :]).to(tl.int32), axis=1)
    own_rows = tl.sum((own[:, None] == own[None, :]).to(tl.int32), axis=1)
    head = tl.maximum(position - (TAIL - 1), 0)[None, :]
    tile_least = tl.min(tl.where(in_tile, head, 1 << 30), axis=1)
    own_least = tl.min(tl.where(in_own, head, 1 << 30), axis=1)
    tile_most = tl.max(tl.where(in_tile, head, 0), axis=1)
    own_most = tl.max(tl.where(in_own, head, 0), axis=1)
    base = tl.where(asks_shared, 0, num_shared_splits)  # split of a row's first piece
    for piece in tl.static_range(MAX_SPLITS):
        wanted = piece < count
        split = base + piece
        is_shared = piece < shared_count
        out = work + (place + piece) * 8
        tl.store(out, size, mask=wanted)
        tl.store(out + 1, sequence, mask=wanted)
        tl.store(out + 2, tl.where(is_shared, tile, own), mask=wanted)
        tl.store(out + 3, tl.where(is_shared, tile_rows, own_rows), mask=wanted)
        tl.store(out + 4, split, mask=wanted)
        tl.store(out + 5, tl.where(is_shared, tile_least, own_least), mask=wanted)
        tl.store(out + 6, tl.where(is_shared, tile_most, own_most), mask=wanted)


def head_work(
    positions: torch.Tensor,
    sequences: torch.Tensor,
    split_blocks: torch.Tensor,
    work: torch.Tensor,
    *,
    tile_rows: int,
    max_splits: int,
    few_splits: int,
    enough_blocks: int,
    leaders: torch.Tensor | None = None,
    num_shared: torch.Tensor | None = None,
) -> None:
    """Writes the pieces of work of the rows' heads.

    positions, sequences: int32[N], N <= 64; rows of a sequence stand together; -1: padding.
    split_blocks: int32[N]; blocks of 64 positions in one split of the row.
    work: int32[N * max_splits + 512, 8]; of each piece (blocks a split, sequence, first row, rows,
    split, shortest and longest head of its rows, unused). 512 of 0 blocks stand behind the last.
    tile_rows, max_splits, few_splits, enough_blocks: as in `tree_attention.Tiling`.
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
        NUM_ROWS=num_rows,
        ROWS=triton.next_power_of_2(num_rows),
        TILE=tile_rows,
        MAX_SPLITS=max_splits,
        FEW=few_splits,
        ENOUGH=enough_blocks,
        ENDS=ENDS,
        BLOCK=64,
        TAIL=64,
        SHARED=shared,
        num_warps=8,
    )
