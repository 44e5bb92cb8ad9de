# SPDX-License-Identifier: Apache-2.0
"""Moves the accepted rows' keys and values of all layers to their places, in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _kv_compact_kernel(
    keys,
    values,
    sources,
    targets,
    count,
    stride_key_layer,
    stride_key_slot,
    stride_value_layer,
    stride_value_slot,
    KEY_SIZE: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    MOVES: tl.constexpr,
    MAX_MOVES: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """One program a chunk of a layer's keys or values: reads all rows that move, then writes."""
    layer = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    move = tl.arange(0, MOVES)
    moves = (move < tl.load(count)) & (move < MAX_MOVES)
    source = tl.load(sources + move, mask=moves, other=0)
    target = tl.load(targets + move, mask=moves, other=0)
    if tl.program_id(2) == 0:
        here = moves[:, None] & (place < KEY_SIZE)[None, :]
        row = keys + layer * stride_key_layer + place[None, :]
        moved = tl.load(row + source[:, None] * stride_key_slot, mask=here)
        tl.debug_barrier()  # a target may be the source of an earlier move
        tl.store(row + target[:, None] * stride_key_slot, moved, mask=here)
    else:
        here = moves[:, None] & (place < VALUE_SIZE)[None, :]
        row = values + layer * stride_value_layer + place[None, :]
        moved = tl.load(row + source[:, None] * stride_value_slot, mask=here)
        tl.debug_barrier()
        tl.store(row + target[:, None] * stride_value_slot, moved, mask=here)


def kv_compact(
    keys: torch.Tensor,
    values: torch.Tensor,
    sources: torch.Tensor,
    targets: torch.Tensor,
    count: torch.Tensor,
) -> None:
    """Copies slots sources[i] to targets[i], i < count, of all layers, as if at once.

    keys, values: dtype[layers, slots, G, D]; a slot's G * D numbers lie together.
    sources, targets: int64[M], M <= 64, targets distinct. count: int32[1].
    Cost: one launch, nothing allocated.
    """
    key_size = keys.shape[2] * keys.shape[3]
    value_size = values.shape[2] * values.shape[3]
    max_moves = sources.shape[0]
    chunk = 128
    _kv_compact_kernel[(triton.cdiv(max(key_size, value_size), chunk), keys.shape[0], 2)](
        keys,
        values,
        sources,
        targets,
        count,
        keys.stride(0),
        keys.stride(1),
        values.stride(0),
        values.stride(1),
        KEY_SIZE=key_size,
        VALUE_SIZE=value_size,
        MOVES=triton.next_power_of_2(max_moves),
        MAX_MOVES=max_moves,
        CHUNK=chunk,
        num_warps=4,
    )
