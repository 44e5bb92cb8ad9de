# SPDX-License-Identifier: Apache-2.0
"""Attention of a prefill chunk: the rows of one sequence, whose keys and values are stored already.

A row at position p walks the blocks of 64 positions from the first that it sees up to its own, in
order. A chunk starts at an absolute multiple of its size, so a row's place in it follows from p,
and its bits depend neither on the prompt's length nor on the padding rows behind.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ooospec.triton_kernels.stages import stages

BLOCK = 64


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
def _walk(
    first,
    last,
    q,
    keys,
    values,
    pages,
    offset,
    stride_slot,
    maximum,
    total,
    acc,
    position,
    end,
    scale,
    MASKED: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Takes up blocks [first, last); masked: only what is seen from `position`."""
    column = tl.arange(0, BLOCK)
    dim = tl.arange(0, DIM_PADDED)
    unit = scale * 1.4426950408889634
    if SOFTCAP > 0:
        unit = 1.4426950408889634
    for block in tl.range(first, last, num_stages=NUM_STAGES):
        slot = tl.load(pages + block).to(tl.int64) * BLOCK + column
        place = slot[:, None] * stride_slot + offset + dim[None, :]
        key_position = block * BLOCK + column
        if DIM == DIM_PADDED:
            k = tl.load(keys + place)
        else:
            k = tl.load(keys + place, mask=dim[None, :] < DIM, other=0.0)
        scores = _scores(q, k, scale, SOFTCAP)
        if MASKED:
            seen = key_position[None, :] <= position[:, None]
            if WINDOW > 0:
                seen = seen & (key_position[None, :] > position[:, None] - WINDOW)
            scores = tl.where(seen, scores, float("-inf"))
            # What lies behind the last row may be anything, and 0 * NaN is not 0.
            known = (key_position < end)[:, None] & (dim[None, :] < DIM)
            v = tl.load(values + place, mask=known, other=0.0)
        elif DIM == DIM_PADDED:
            v = tl.load(values + place)
        else:
            v = tl.load(values + place, mask=dim[None, :] < DIM, other=0.0)
        new = tl.maximum(maximum, tl.max(scores, axis=1))
        base = tl.where(new == float("-inf"), 0.0, new)
        weights = tl.exp2(tl.fma(scores, unit, -(base * unit)[:, None]))
        decay = tl.exp2((maximum - base) * unit)
        total = tl.fma(total, decay, tl.sum(weights, axis=1))
        acc = tl.dot(weights.to(v.dtype), v, acc * decay[:, None], input_precision="ieee")
        maximum = new
    return maximum, total, acc


@triton.jit(do_not_specialize=["stride_page_row"])
def _prefill_attention_kernel(
    q,
    keys,
    values,
    positions,
    sequences,
    page_table,
    out,
    stride_q_row,
    stride_q_head,
    stride_slot,
    stride_kv_head,
    stride_page_row,
    stride_out_row,
    stride_out_head,
    scale,
    NUM_ROWS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PADDED: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    TILE: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """One program a tile of rows and kv head."""
    kv_head = tl.program_id(1)
    index = tl.arange(0, TILE * GROUP_PADDED)
    row = tl.program_id(0) * TILE + index // GROUP_PADDED
    head_in_group = index % GROUP_PADDED
    head = kv_head * GROUP + head_in_group
    dim = tl.arange(0, DIM_PADDED)
    present = (row < NUM_ROWS) & (head_in_group < GROUP)
    real = present & (tl.load(sequences + row, mask=present, other=-1) >= 0)
    position = tl.load(positions + row, mask=real, other=-1)
    sequence = tl.maximum(tl.load(sequences), 0).to(tl.int64)
    end = tl.max(position) + 1
    start = tl.min(tl.where(real, position, end))

    query = q + row.to(tl.int64) * stride_q_row + head * stride_q_head
    is_query = real[:, None] & (dim[None, :] < DIM)
    query = tl.load(query[:, None] + dim[None, :], mask=is_query, other=0.0)
    maximum = tl.full([TILE * GROUP_PADDED], float("-inf"), tl.float32)
    total = tl.zeros([TILE * GROUP_PADDED], tl.float32)
    acc = tl.zeros([TILE * GROUP_PADDED, DIM_PADDED], tl.float32)
    pages = page_table + sequence * stride_page_row
    offset = kv_head.to(tl.int64) * stride_kv_head
    first = 0
    if WINDOW > 0:
        first = tl.maximum(start - (WINDOW - 1), 0) // BLOCK
        begin = tl.cdiv(tl.maximum(start + TILE - WINDOW, 0), BLOCK)
        begin = tl.minimum(begin, start // BLOCK)
        maximum, total, acc = _walk(
            first, begin, query, keys, values, pages, offset, stride_slot,
            maximum, total, acc, position, end, scale,
            MASKED=True, WINDOW=WINDOW, SOFTCAP=SOFTCAP, DIM=DIM, DIM_PADDED=DIM_PADDED,
            BLOCK=BLOCK, NUM_STAGES=NUM_STAGES,
        )  # fmt: skip
        first = tl.maximum(begin, first)
    maximum, total, acc = _walk(
        first, start // BLOCK, query, keys, values, pages, offset, stride_slot,
        maximum, total, acc, position, end, scale,
        MASKED=False, WINDOW=WINDOW, SOFTCAP=SOFTCAP, DIM=DIM, DIM_PADDED=DIM_PADDED,
        BLOCK=BLOCK, NUM_STAGES=NUM_STAGES,
    )  # fmt: skip
    maximum, total, acc = _walk(
        tl.maximum(start // BLOCK, first), tl.cdiv(end, BLOCK), query, keys, values, pages, offset,
        stride_slot, maximum, total, acc, position, end, scale,
        MASKED=True, WINDOW=WINDOW, SOFTCAP=SOFTCAP, DIM=DIM, DIM_PADDED=DIM_PADDED,
        BLOCK=BLOCK, NUM_STAGES=1,
    )  # fmt: skip
    acc = tl.where(real[:, None], acc, 0.0)
    result = acc / tl.where(real, total, 1.0)[:, None]
    place = row.to(tl.int64) * stride_out_row + head * stride_out_head
    is_out = present[:, None] & (dim[None, :] < DIM)
    tl.store(out + place[:, None] + dim[None, :], result.to(out.dtype.element_ty), mask=is_out)


def prefill_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    positions: torch.Tensor,
    sequences: torch.Tensor,
    page_table: torch.Tensor,
    out: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> None:
    """Writes the causal attention of a chunk's rows; 0 to padding rows.

    q, out: dtype[N, H, D], rows and heads may be strided. keys, values: dtype[slots, G, D], of
    equal strides, rows of the chunk included. dtype: bfloat16, float16 or float32.
    positions: int32[N], consecutive. sequences: int32[N]; one sequence slot, then -1 for padding.
    page_table: int32[S, P]; pages of 64 slots.
    window: a row at p sees positions above p - window only. softcap: scores s become
    softcap * tanh(s / softcap).
    Cost: one launch, nothing allocated.
    """
    num_rows, num_heads, dim = q.shape
    num_kv_heads = keys.shape[1]
    group = num_heads // num_kv_heads
    group_padded = triton.next_power_of_2(group)
    tile = 64 // group_padded
    _prefill_attention_kernel[(triton.cdiv(num_rows, tile), num_kv_heads)](
        q,
        keys,
        values,
        positions,
        sequences,
        page_table,
        out,
        q.stride(0),
        q.stride(1),
        keys.stride(0),
        keys.stride(1),
        page_table.stride(0),
        out.stride(0),
        out.stride(1),
        scale,
        NUM_ROWS=num_rows,
        GROUP=group,
        GROUP_PADDED=group_padded,
        DIM=dim,
        DIM_PADDED=triton.next_power_of_2(dim),
        TILE=tile,
        WINDOW=window or 0,
        SOFTCAP=softcap or 0.0,
        BLOCK=BLOCK,
        NUM_STAGES=stages(3, keys),
        num_warps=4,
    )
