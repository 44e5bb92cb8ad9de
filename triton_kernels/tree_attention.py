# SPDX-License-Identifier: Apache-2.0
"""Attention of the packed rows of a round over paged keys and values, in canonical order.

A row at position p takes its keys in order of position, whatever is committed and wherever it lies:
- its head, [0, p - 63), committed always: blocks of 64 positions (a page each), shared by the rows
  of a tile, cut into splits by `head_work`; each split leaves a running maximum, sum and output.
- its tail, [p - 63, p]: 64 keys gathered for the row alone, by `tail_slots`.
The states of the splits are merged in ascending order, then the tail is taken up.

The same arithmetic in the same order gives the same bits. So a row's result does not depend on the
number of rows, its place among them, the committed length, or slots and pages. Blocks behind a
row's head, or before its window, leave its state as it is: their weights are exact zeros.

Maxima are kept as raw scores; weights are powers of two, 2 ** ((score - maximum) * scale * log2 e).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from ooospec.triton_kernels.stages import stages

BLOCK = 64
TAIL = 64
MERGED = 4096  # most numbers of states that a program of the tail merges at a time
SMS = 132  # of an H100 or H200; elsewhere only speed depends on it


@triton.jit
def _take(q, k, v, maximum, total, acc, seen, scale, MASKED: tl.constexpr, SOFTCAP: tl.constexpr):
    """Takes up a block of keys. A row that sees none of it keeps its state to the bit."""
    unit = scale * 1.4426950408889634
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if SOFTCAP > 0:
        scores = _capped(scores, scale, SOFTCAP)
        unit = 1.4426950408889634
    if MASKED:
        scores = tl.where(seen, scores, float("-inf"))
    new = tl.maximum(maximum, tl.max(scores, axis=1))
    base = new
    if MASKED:
        base = tl.where(new == float("-inf"), 0.0, new)
    weights = tl.exp2(tl.fma(scores, unit, -(base * unit)[:, None]))
    decay = tl.exp2((maximum - base) * unit)  # exactly 1 where nothing new is seen
    total = tl.fma(total, decay, tl.sum(weights, axis=1))
    acc = tl.dot(weights.to(v.dtype), v, acc * decay[:, None], input_precision="ieee")
    return new, total, acc


@triton.jit
def _capped(scores, scale, SOFTCAP: tl.constexpr):
    """The soft cap of scaled scores; tanh(x) = 1 - 2 / (e^2x + 1)."""
    doubled = scores * (scale * (2 * 1.4426950408889634 / SOFTCAP))
    return SOFTCAP - (2 * SOFTCAP) / (tl.exp2(doubled) + 1)


@triton.jit
def _sight(
    positions, row, present, block, BLOCK: tl.constexpr, TAIL: tl.constexpr, WINDOW: tl.constexpr
):
    """Which positions of `block` the head of each row has."""
    own = tl.load(positions + row, mask=present, other=0)[:, None]
    position = (block * BLOCK + tl.arange(0, BLOCK))[None, :]
    seen = position <= own - TAIL
    if WINDOW > 0:
        seen = seen & (position > own - WINDOW)
    return seen


@triton.jit(do_not_specialize=["stride_page_row"])
def _head_kernel(
    q,
    keys,
    values,
    key_tiles,
    value_tiles,
    positions,
    split_blocks,
    page_table,
    work,
    states,
    maxima,
    totals,
    stride_q_row,
    stride_q_head,
    stride_slot,
    stride_kv_head,
    stride_page_row,
    scale,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PADDED: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    TILE: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    BLOCK: tl.constexpr,
    TAIL: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Programs take pieces of work in turn, each for one kv head.

    key_tiles, value_tiles: keys and values as tensors of [BLOCK, 1, DIM_PADDED] tiles.
    Leaves states[row, head, split] and its maximum and sum for the rows whose head has the split.
    """
    index = tl.arange(0, TILE * GROUP_PADDED)
    head_in_group = index % GROUP_PADDED
    dim = tl.arange(0, DIM_PADDED)
    turn = tl.program_id(0)
    piece = work + turn // NUM_KV_HEADS * 8
    size = tl.load(piece)
    while size > 0:  # 0 ends the work
        kv_head = turn % NUM_KV_HEADS
        sequence = tl.load(piece + 1).to(tl.int64)
        first_row = tl.load(piece + 2)
        num_rows = tl.load(piece + 3)
        split = tl.load(piece + 4)
        least = tl.load(piece + 5)  # heads of the rows
        most = tl.load(piece + 6)
        start = split * size
        pages = page_table + sequence * stride_page_row
        page = tl.load(pages + start)

        if PDL:
            # Queries come from the kernel ahead; the work, and keys and values of heads, are older.
            gdc_wait()
            gdc_launch_dependents()
        row = first_row + index // GROUP_PADDED
        present = (index // GROUP_PADDED < num_rows) & (head_in_group < GROUP)
        head = kv_head * GROUP + head_in_group
        query = row.to(tl.int64) * stride_q_row + head * stride_q_head
        is_query = present[:, None] & (dim < DIM)[None, :]
        query = tl.load(q + query[:, None] + dim[None, :], mask=is_query, other=0.0)

        position = tl.load(positions + row, mask=present, other=0)
        wanted = present & (tl.load(split_blocks + row, mask=present, other=0) == size)
        wanted = wanted & (position - (TAIL - 1) > start * BLOCK)
        wanted = wanted & (page >= 0)  # always so; asked, the page is here before the loop wants it
        if WINDOW > 0:
            wanted = wanted & (position - (WINDOW - 1) < (start + size) * BLOCK)

        end = tl.minimum(most, (start + size) * BLOCK)
        first = start
        begin = start  # blocks [begin, whole) are seen as a whole by each of the rows
        last = tl.cdiv(end, BLOCK)
        whole = tl.maximum(tl.minimum(least // BLOCK, last), start)
        if WINDOW > 0:
            first = tl.maximum(start, (least + (TAIL - WINDOW)) // BLOCK)
            begin = tl.maximum(start, tl.cdiv(most + (TAIL - WINDOW), BLOCK))
            begin = tl.minimum(begin, last)
            whole = tl.maximum(whole, begin)
        maximum = tl.full([TILE * GROUP_PADDED], float("-inf"), tl.float32)
        total = tl.zeros([TILE * GROUP_PADDED], tl.float32)
        acc = tl.zeros([TILE * GROUP_PADDED, DIM_PADDED], tl.float32)
        if last - start == 1:
            # Nothing to stream: one block, fetched along with the queries.
            position = start * BLOCK + tl.arange(0, BLOCK)
            slot = page.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
            place = slot * stride_slot + kv_head.to(tl.int64) * stride_kv_head
            place = place[:, None] + dim[None, :]
            # What lies behind `end` may be anything, and 0 * NaN is not 0.
            known = (position < end)[:, None] & (dim < DIM)[None, :]
            k = tl.load(keys + place, mask=known, other=0.0)
            v = tl.load(values + place, mask=known, other=0.0)
            seen = _sight(positions, row, present, start, BLOCK, TAIL, WINDOW)
            maximum, total, acc = _take(
                query, k, v, maximum, total, acc, seen, scale, MASKED=True, SOFTCAP=SOFTCAP
            )
        else:
            if WINDOW > 0:
                for block in tl.range(first, begin, num_stages=1):
                    slot = tl.load(pages + block) * BLOCK
                    k = key_tiles.load([slot, kv_head, 0]).reshape(BLOCK, DIM_PADDED)
                    v = value_tiles.load([slot, kv_head, 0]).reshape(BLOCK, DIM_PADDED)
                    position = block * BLOCK + tl.arange(0, BLOCK)
                    v = tl.where((position < end)[:, None], v, 0.0)
                    seen = _sight(positions, row, present, block, BLOCK, TAIL, WINDOW)
                    maximum, total, acc = _take(
                        query, k, v, maximum, total, acc, seen, scale, MASKED=True, SOFTCAP=SOFTCAP
                    )
            for block in tl.range(begin, whole, num_stages=NUM_STAGES):
                slot = tl.load(pages + block) * BLOCK
                k = key_tiles.load([slot, kv_head, 0]).reshape(BLOCK, DIM_PADDED)
                v = value_tiles.load([slot, kv_head, 0]).reshape(BLOCK, DIM_PADDED)
                maximum, total, acc = _take(
                    query, k, v, maximum, total, acc, None, scale, MASKED=False, SOFTCAP=SOFTCAP
                )
            for block in tl.range(whole, last, num_stages=1):
                slot = tl.load(pages + block) * BLOCK
                k = key_tiles.load([slot, kv_head, 0]).reshape(BLOCK, DIM_PADDED)
                v = value_tiles.load([slot, kv_head, 0]).reshape(BLOCK, DIM_PADDED)
                position = block * BLOCK + tl.arange(0, BLOCK)
                v = tl.where((position < end)[:, None], v, 0.0)
                seen = _sight(positions, row, present, block, BLOCK, TAIL, WINDOW)
                maximum, total, acc = _take(
                    query, k, v, maximum, total, acc, seen, scale, MASKED=True, SOFTCAP=SOFTCAP
                )

        state = (row * (NUM_KV_HEADS * GROUP) + head) * MAX_SPLITS + split
        tl.store(maxima + state, maximum, mask=wanted)
        tl.store(totals + state, total, mask=wanted)
        out = states + state.to(tl.int64)[:, None] * DIM + dim[None, :]
        tl.store(out, acc, mask=wanted[:, None] & (dim < DIM)[None, :])

        turn += tl.num_programs(0)
        piece = work + turn // NUM_KV_HEADS * 8
        size = tl.load(piece)
    if PDL:
        gdc_wait()  # also where there was no work: the tail must find the kernel ahead ended


@triton.jit
def _merge(
    top,
    weight,
    result,
    maxima,
    totals,
    states,
    is_split,
    is_dim,
    unit,
    DIM: tl.constexpr,
    MERGED: tl.constexpr,
):
    """Takes up MERGED splits at once, as far as there are so many.

    maxima, totals: pointers [heads, splits]; states: pointers [heads, dims] of the first split.
    """
    place = states[:, None, :] + (tl.arange(0, MERGED) * DIM)[None, :, None]
    parts = tl.load(place, mask=is_split[:, :, None] & is_dim[:, None, :], other=0.0)
    tops = tl.load(maxima, mask=is_split, other=float("-inf"))
    new = tl.maximum(top, tl.max(tops, axis=1))
    base = tl.where(new == float("-inf"), 0.0, new)
    decay = tl.exp2((top - base) * unit)
    share = tl.exp2((tops - base[:, None]) * unit)
    added = tl.sum(tl.load(totals, mask=is_split, other=0.0) * share, axis=1)
    weight = tl.fma(weight, decay, added)
    added = tl.sum(parts * share[:, :, None], axis=1)
    result = tl.fma(result, tl.broadcast_to(decay[:, None], result.shape), added)
    return new, weight, result


@triton.jit
def _tail_kernel(
    q,
    keys,
    values,
    positions,
    split_blocks,
    tails,
    states,
    maxima,
    totals,
    out,
    stride_q_row,
    stride_q_head,
    stride_slot,
    stride_kv_head,
    stride_out_row,
    stride_out_head,
    scale,
    NUM_ROWS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PADDED: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    BLOCK: tl.constexpr,
    TAIL: tl.constexpr,
    ROUND: tl.constexpr,
    MERGED: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program a row and kv head: the tail, then the splits of the head, then the output."""
    # Programs ROUND apart mostly share an SM, and its cache: give them rows of one kv head.
    ROWS: tl.constexpr = ROUND // NUM_KV_HEADS
    place = tl.program_id(0) % ROUND
    kv_head = place % NUM_KV_HEADS
    row = tl.program_id(0) // ROUND * ROWS + place // NUM_KV_HEADS
    if place >= ROWS * NUM_KV_HEADS or row >= NUM_ROWS:
        return
    head_in_group = tl.arange(0, GROUP_PADDED)
    head = kv_head * GROUP + head_in_group
    is_head = head_in_group < GROUP
    dim = tl.arange(0, DIM_PADDED)
    is_dim = dim[None, :] < DIM
    column = tl.arange(0, TAIL)
    unit = scale * 1.4426950408889634
    if SOFTCAP > 0:
        unit = 1.4426950408889634

    slot = tl.load(tails + row * TAIL + column).to(tl.int64)
    is_padding = tl.load(tails + row * TAIL + TAIL - 1) < 0  # else a row sees itself there
    position = tl.where(is_padding, 0, tl.load(positions + row))
    size = tl.load(split_blocks + row) * BLOCK
    query = row.to(tl.int64) * stride_q_row + head * stride_q_head
    query = tl.load(q + query[:, None] + dim[None, :], mask=is_head[:, None] & is_dim, other=0.0)
    seen = slot >= 0
    if WINDOW > 0:
        seen = seen & (column > TAIL - 1 - WINDOW)
    place = slot * stride_slot + kv_head.to(tl.int64) * stride_kv_head
    is_key = seen[:, None] & is_dim
    # Values first: what is fetched before the keys is under way when they are used.
    v = tl.load(values + place[:, None] + dim[None, :], mask=is_key, other=0.0)
    k = tl.load(keys + place[:, None] + dim[None, :], mask=is_key, other=0.0)
    scores = tl.dot(query, tl.trans(k), input_precision="ieee")
    if SOFTCAP > 0:
        scores = _capped(scores, scale, SOFTCAP)
    scores = tl.where(seen[None, :], scores, float("-inf"))
    maximum = tl.max(scores, axis=1)
    base = tl.where(maximum == float("-inf"), 0.0, maximum)
    weights = tl.exp2(tl.fma(scores, unit, -(base * unit)[:, None]))
    total = tl.sum(weights, axis=1)
    acc = tl.dot(weights.to(v.dtype), v, input_precision="ieee")

    # The splits of the head, in ascending order.
    head_size = position - (TAIL - 1)
    state = (row * (NUM_KV_HEADS * GROUP) + head) * MAX_SPLITS
    part = states + state.to(tl.int64)[:, None] * DIM + dim[None, :]
    is_out = is_head[:, None] & is_dim
    start = tl.full([], 0, tl.int32)
    first = start
    if WINDOW > 0:
        first = tl.maximum(position - (WINDOW - 1), 0) // size
        start = first // MERGED * MERGED
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    top = tl.full([GROUP_PADDED], float("-inf"), tl.float32)
    weight = tl.zeros([GROUP_PADDED], tl.float32)
    result = tl.zeros([GROUP_PADDED, DIM_PADDED], tl.float32)
    while start * size < head_size:
        split = start + tl.arange(0, MERGED)[None, :]
        is_split = is_head[:, None] & (split >= first) & (split * size < head_size)
        top, weight, result = _merge(
            top,
            weight,
            result,
            maxima + state[:, None] + split,
            totals + state[:, None] + split,
            part + start * DIM,
            is_split,
            is_out,
            unit,
            DIM=DIM,
            MERGED=MERGED,
        )
        start += MERGED
    whole = tl.maximum(top, maximum)
    base = tl.where(whole == float("-inf"), 0.0, whole)
    decay = tl.exp2((top - base) * unit)
    share = tl.exp2((maximum - base) * unit)
    total = tl.fma(total, share, weight * decay)
    result = result * decay[:, None]
    result = tl.fma(acc, tl.broadcast_to(share[:, None], acc.shape), result)
    result = result / tl.where(total == 0.0, 1.0, total)[:, None]  # padding rows see nothing: 0
    place = row.to(tl.int64) * stride_out_row + head * stride_out_head
    tl.store(out + place[:, None] + dim[None, :], result.to(out.dtype.element_ty), mask=is_out)


@dataclass(frozen=True)
class Tiling:
    """How the work of one shape is cut. A row's bits depend on it: one tiling per engine.

    tile_rows: most rows of a piece of work. max_splits: most splits of a head, a power of two.
    few_splits: of a head whose splits have at most enough_blocks blocks then.
    num_programs: of the head, which share its pieces.
    pdl: programs start before the kernel ahead has ended; see `pdl`.
    """

    tile_rows: int
    max_splits: int
    few_splits: int = 4
    enough_blocks: int = 4
    head_warps: int = 4
    head_stages: int = 2
    tail_warps: int = 4
    num_programs: int = 2 * SMS
    pdl: bool = False


def tiling(num_heads: int, num_kv_heads: int, dim: int) -> Tiling:
    """Returns the tiling of a shape: tiles of 64 queries, splits that give each program a piece."""
    tile_rows = 64 // triton.next_power_of_2(num_heads // num_kv_heads)
    tiles = 64 // tile_rows * num_kv_heads
    max_splits = 1 << (2 * SMS // tiles).bit_length() - 1
    return Tiling(tile_rows, max_splits=min(max(max_splits, 2), 16))


def tree_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    positions: torch.Tensor,
    page_table: torch.Tensor,
    tails: torch.Tensor,
    split_blocks: torch.Tensor,
    work: torch.Tensor,
    states: torch.Tensor,
    maxima: torch.Tensor,
    totals: torch.Tensor,
    out: torch.Tensor,
    tiling: Tiling,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> None:
    """Writes the attention of each row over what it sees; 0 to padding rows.

    q, out: dtype[N, H, D], N <= 64, rows and heads may be strided. keys, values:
    dtype[slots, G, D], of equal strides. dtype: bfloat16, float16 or float32; sums are float32.
    positions: int32[N]. page_table: int32[S, P]; pages of 64 slots.
    tails: what `tail_slots` wrote. split_blocks, work: what `head_work` wrote for this tiling.
    states: float32[N, H, M, D], maxima, totals: float32[N, H, M]; room for the states of
    M = max_splits splits.
    window: a row at p sees positions above p - window only. softcap: scores s become
    softcap * tanh(s / softcap).
    Cost: two launches, nothing allocated.
    """
    num_rows, num_heads, dim = q.shape
    num_kv_heads = keys.shape[1]
    group = num_heads // num_kv_heads
    dim_padded = triton.next_power_of_2(dim)
    shape = {
        "NUM_KV_HEADS": num_kv_heads,
        "GROUP": group,
        "GROUP_PADDED": triton.next_power_of_2(group),
        "DIM": dim,
        "DIM_PADDED": dim_padded,
        "MAX_SPLITS": tiling.max_splits,
        "WINDOW": window or 0,
        "SOFTCAP": softcap or 0.0,
        "BLOCK": BLOCK,
        "TAIL": TAIL,
        "PDL": tiling.pdl,
    }
    _head_kernel[(tiling.num_programs,)](
        q,
        keys,
        values,
        TensorDescriptor.from_tensor(keys, [BLOCK, 1, dim_padded]),
        TensorDescriptor.from_tensor(values, [BLOCK, 1, dim_padded]),
        positions,
        split_blocks,
        page_table,
        work,
        states,
        maxima,
        totals,
        q.stride(0),
        q.stride(1),
        keys.stride(0),
        keys.stride(1),
        page_table.stride(0),
        scale,
        TILE=tiling.tile_rows,
        NUM_STAGES=stages(tiling.head_stages, keys),
        num_warps=tiling.head_warps,
        launch_pdl=tiling.pdl,
        **shape,
    )
    rows_per_round = SMS // num_kv_heads
    _tail_kernel[(triton.cdiv(num_rows, rows_per_round) * SMS,)](
        q,
        keys,
        values,
        positions,
        split_blocks,
        tails,
        states,
        maxima,
        totals,
        out,
        q.stride(0),
        q.stride(1),
        keys.stride(0),
        keys.stride(1),
        out.stride(0),
        out.stride(1),
        scale,
        NUM_ROWS=num_rows,
        ROUND=SMS,
        MERGED=max(1, min(tiling.max_splits, MERGED // (shape["GROUP_PADDED"] * dim_padded))),
        num_warps=tiling.tail_warps,
        launch_pdl=tiling.pdl,
        **shape,
    )
