# SPDX-License-Identifier: Apache-2.0
"""Attention of the packed rows of a round over paged keys and values, in canonical order.

A row at position p takes its keys in order of position, whatever is committed and wherever it lies:
- its head, [0, p - 63), committed always: blocks of 64 positions (a page each), shared by the rows
  of a tile, cut into splits by `head_work`; each split leaves a running maximum, sum and output.
- its tail, [p - 63, p]: 64 keys gathered for the row alone, by `tail_slots`.
The states of the splits are merged in one step, then the tail is taken up.

The same arithmetic in the same order gives the same bits. So a row's result does not depend on the
number of rows, its place among them, the committed length, or slots and pages. Blocks behind a
row's head, or before its window, leave its state as it is: their weights are exact zeros.

Maxima are kept as raw scores; weights are powers of two, 2 ** ((score - maximum) * scale * log2 e).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

BLOCK = 64
TAIL = 64


@triton.jit
def _scores(q, k, scale, SOFTCAP: tl.constexpr):
    """Raw scores; with a soft cap they are scaled and capped already."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if SOFTCAP > 0:
        # tanh(x) = 1 - 2 / (e^2x + 1)
        doubled = scores * (scale * (2 * 1.4426950408889634 / SOFTCAP))
        scores = SOFTCAP - (2 * SOFTCAP) / (tl.exp2(doubled) + 1)
    return scores


@triton.jit
def _take(q, k, v, maximum, total, acc, seen, scale, MASKED: tl.constexpr, SOFTCAP: tl.constexpr):
    """Takes up a block of keys. A row that sees none of it keeps its state to the bit."""
    unit = scale * 1.4426950408889634
    if SOFTCAP > 0:
        unit = 1.4426950408889634
    scores = _scores(q, k, scale, SOFTCAP)
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
def _walk(
    first,
    last,
    q,
    keys,
    values,
    pages,
    kv_head,
    maximum,
    total,
    acc,
    low,
    high,
    end,
    scale,
    MASKED: tl.constexpr,
    SOFTCAP: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Takes up blocks [first, last). Masked: row i sees positions [low[i], high[i]) only."""
    for block in tl.range(first, last, num_stages=NUM_STAGES):
        slot = tl.load(pages + block) * BLOCK
        k = keys.load([slot, kv_head, 0]).reshape(BLOCK, DIM_PADDED)
        v = values.load([slot, kv_head, 0]).reshape(BLOCK, DIM_PADDED)
        position = block * BLOCK + tl.arange(0, BLOCK)
        seen = (position[None, :] >= low[:, None]) & (position[None, :] < high[:, None])
        if MASKED:
            # What lies behind `end` may be anything, and 0 * NaN is not 0.
            v = tl.where((position < end)[:, None], v, 0.0)
        maximum, total, acc = _take(
            q, k, v, maximum, total, acc, seen, scale, MASKED=MASKED, SOFTCAP=SOFTCAP
        )
    return maximum, total, acc


@triton.jit(do_not_specialize=["stride_page_row"])
def _head_kernel(
    q,
    keys,
    values,
    positions,
    split_blocks,
    page_table,
    work,
    num_work,
    states,
    maxima,
    totals,
    stride_q_row,
    stride_q_head,
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

    Leaves states[row, head, split] and its maximum and sum for the rows whose head has the split.
    """
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    index = tl.arange(0, TILE * GROUP_PADDED)
    lane = index // GROUP_PADDED
    head_in_group = index % GROUP_PADDED
    dim = tl.arange(0, DIM_PADDED)
    num_pieces = tl.load(num_work) * NUM_KV_HEADS
    for turn in range(tl.program_id(0), num_pieces, tl.num_programs(0)):
        kv_head = turn % NUM_KV_HEADS
        piece = work + turn // NUM_KV_HEADS * 5
        sequence = tl.load(piece).to(tl.int64)
        first_row = tl.load(piece + 1)
        num_rows = tl.load(piece + 2)
        size = tl.load(piece + 3)
        split = tl.load(piece + 4)

        row = first_row + lane
        present = (lane < num_rows) & (head_in_group < GROUP)
        position = tl.load(positions + row, mask=present, other=0)
        row_size = tl.load(split_blocks + row, mask=present, other=0)
        high = tl.maximum(position - (TAIL - 1), 0)
        low = tl.zeros_like(position)
        if WINDOW > 0:
            low = tl.maximum(position - (WINDOW - 1), 0)
        start = split * size * BLOCK
        stop = start + size * BLOCK
        wanted = present & (row_size == size) & (high > start) & (low < stop)
        end = tl.minimum(tl.max(tl.where(wanted, high, 0)), stop)
        if end > start:
            head = kv_head * GROUP + head_in_group
            query = q + row.to(tl.int64) * stride_q_row + head * stride_q_head
            is_query = present[:, None] & (dim[None, :] < DIM)
            query = tl.load(query[:, None] + dim[None, :], mask=is_query, other=0.0)
            maximum = tl.full([TILE * GROUP_PADDED], float("-inf"), tl.float32)
            total = tl.zeros([TILE * GROUP_PADDED], tl.float32)
            acc = tl.zeros([TILE * GROUP_PADDED, DIM_PADDED], tl.float32)
            pages = page_table + sequence * stride_page_row

            # Blocks that each of the rows sees as a whole need no mask.
            first = start // BLOCK
            last = tl.cdiv(end, BLOCK)
            whole = tl.minimum(tl.min(tl.where(wanted, high, stop)), stop) // BLOCK
            if WINDOW > 0:
                first = tl.maximum(tl.min(tl.where(wanted, low, stop)) // BLOCK, first)
                begin = tl.cdiv(tl.maximum(tl.max(tl.where(wanted, low, 0)), start), BLOCK)
                begin = tl.minimum(begin, last)
                maximum, total, acc = _walk(
                    first, begin, query, keys, values, pages, kv_head,
                    maximum, total, acc, low, high, end, scale,
                    MASKED=True, SOFTCAP=SOFTCAP, DIM_PADDED=DIM_PADDED, BLOCK=BLOCK,
                    NUM_STAGES=1,
                )  # fmt: skip
                first = begin
                whole = tl.maximum(whole, first)
            maximum, total, acc = _walk(
                first, whole, query, keys, values, pages, kv_head,
                maximum, total, acc, low, high, end, scale,
                MASKED=False, SOFTCAP=SOFTCAP, DIM_PADDED=DIM_PADDED, BLOCK=BLOCK,
                NUM_STAGES=NUM_STAGES,
            )  # fmt: skip
            maximum, total, acc = _walk(
                whole, last, query, keys, values, pages, kv_head,
                maximum, total, acc, low, high, end, scale,
                MASKED=True, SOFTCAP=SOFTCAP, DIM_PADDED=DIM_PADDED, BLOCK=BLOCK,
                NUM_STAGES=1,
            )  # fmt: skip

            state = (row * (NUM_KV_HEADS * GROUP) + head) * MAX_SPLITS + split
            tl.store(maxima + state, maximum, mask=wanted)
            tl.store(totals + state, total, mask=wanted)
            out = states + state.to(tl.int64)[:, None] * DIM + dim[None, :]
            tl.store(out, acc, mask=wanted[:, None] & (dim[None, :] < DIM))


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
    PDL: tl.constexpr,
):
    """One program a row and kv head: the tail, then the splits of the head, then the output."""
    row = tl.program_id(0)
    kv_head = tl.program_id(1)
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
    seen = slot >= 0
    if WINDOW > 0:
        seen = seen & (column > TAIL - 1 - WINDOW)
    place = slot[:, None] * stride_slot + kv_head.to(tl.int64) * stride_kv_head + dim[None, :]
    k = tl.load(keys + place, mask=seen[:, None] & is_dim, other=0.0)
    v = tl.load(values + place, mask=seen[:, None] & is_dim, other=0.0)
    query = q + row.to(tl.int64) * stride_q_row + head * stride_q_head
    query = tl.load(query[:, None] + dim[None, :], mask=is_head[:, None] & is_dim, other=0.0)
    scores = tl.where(seen[None, :], _scores(query, k, scale, SOFTCAP), float("-inf"))
    maximum = tl.max(scores, axis=1)
    base = tl.where(maximum == float("-inf"), 0.0, maximum)
    weights = tl.exp2(tl.fma(scores, unit, -(base * unit)[:, None]))
    total = tl.sum(weights, axis=1)
    acc = tl.dot(weights.to(v.dtype), v, input_precision="ieee")

    if PDL:
        gdc_wait()
    position = tl.load(positions + row)
    size = tl.load(split_blocks + row) * BLOCK
    split = tl.arange(0, MAX_SPLITS)
    done = split * size < position - (TAIL - 1)
    if WINDOW > 0:
        done = done & ((split + 1) * size > position - (WINDOW - 1))
    done = done[:, None] & is_head[None, :]
    state = (row * (NUM_KV_HEADS * GROUP) + head)[None, :] * MAX_SPLITS + split[:, None]
    split_maximum = tl.load(maxima + state, mask=done, other=float("-inf"))
    split_total = tl.load(totals + state, mask=done, other=0.0)
    part = states + state.to(tl.int64)[:, :, None] * DIM + dim[None, None, :]
    part = tl.load(part, mask=done[:, :, None] & (dim[None, None, :] < DIM), other=0.0)

    new = tl.maximum(maximum, tl.max(split_maximum, axis=0))
    base = tl.where(new == float("-inf"), 0.0, new)
    share = tl.exp2((split_maximum - base[None, :]) * unit)
    decay = tl.exp2((maximum - base) * unit)
    total = tl.fma(total, decay, tl.sum(share * split_total, axis=0))
    result = tl.sum(share[:, :, None] * part, axis=0)
    result = tl.fma(acc, decay[:, None], result)
    result = result / tl.where(total == 0.0, 1.0, total)[:, None]  # padding rows see nothing: 0
    place = row.to(tl.int64) * stride_out_row + head[:, None] * stride_out_head + dim[None, :]
    tl.store(out + place, result.to(out.dtype.element_ty), mask=is_head[:, None] & is_dim)


def rows_per_tile(num_heads: int, num_kv_heads: int, dim: int) -> int:
    """Returns how many rows a program of the head takes at once."""
    group = triton.next_power_of_2(num_heads // num_kv_heads)
    return min(64, (128 if dim <= 128 else 64) // group)


def tree_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    positions: torch.Tensor,
    page_table: torch.Tensor,
    tails: torch.Tensor,
    split_blocks: torch.Tensor,
    work: torch.Tensor,
    num_work: torch.Tensor,
    states: torch.Tensor,
    maxima: torch.Tensor,
    totals: torch.Tensor,
    out: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    num_programs: int = 264,
    pdl: bool = False,
) -> None:
    """Writes the attention of each row over what it sees; 0 to padding rows.

    q, out: dtype[N, H, D], N <= 64, rows and heads may be strided. keys, values:
    dtype[slots, G, D], of equal strides. dtype: bfloat16, float16 or float32; sums are float32.
    positions: int32[N]. page_table: int32[S, P]; pages of 64 slots.
    tails: what `tail_slots` wrote. split_blocks, work, num_work: what `head_work` wrote for
    `rows_per_tile` rows.
    states: float32[N, H, M, D], maxima, totals: float32[N, H, M]; room for the states of M splits.
    window: a row at p sees positions above p - window only. softcap: scores s become
    softcap * tanh(s / softcap).
    pdl: launch programs before the kernel ahead has ended (CUDA, compute capability 9.0).
    Cost: two launches, nothing allocated.
    """
    num_rows, num_heads, dim = q.shape
    num_kv_heads = keys.shape[1]
    max_splits = states.shape[2]
    group = num_heads // num_kv_heads
    shape = {
        "NUM_KV_HEADS": num_kv_heads,
        "GROUP": group,
        "GROUP_PADDED": triton.next_power_of_2(group),
        "DIM": dim,
        "DIM_PADDED": triton.next_power_of_2(dim),
        "MAX_SPLITS": max_splits,
        "WINDOW": window or 0,
        "SOFTCAP": softcap or 0.0,
        "BLOCK": BLOCK,
        "TAIL": TAIL,
        "PDL": pdl,
    }
    block = [BLOCK, 1, triton.next_power_of_2(dim)]
    _head_kernel[(num_programs,)](
        q,
        TensorDescriptor.from_tensor(keys, block),
        TensorDescriptor.from_tensor(values, block),
        positions,
        split_blocks,
        page_table,
        work,
        num_work,
        states,
        maxima,
        totals,
        q.stride(0),
        q.stride(1),
        page_table.stride(0),
        scale,
        TILE=rows_per_tile(num_heads, num_kv_heads, dim),
        NUM_STAGES=2,
        num_warps=8,
        launch_pdl=pdl,
        **shape,
    )
    _tail_kernel[(num_rows, num_kv_heads)](
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
        num_warps=4,
        launch_pdl=pdl,
        **shape,
    )
