# SPDX-License-Identifier: Apache-2.0
"""From the fused q, k, v product to rotated queries and stored keys and values.

A program does HEADS heads of one row, whatever they are: lower and upper half of each head lie in a
tile of their own, so that a pair to be rotated is in one thread.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ooospec.triton_kernels.pdl import starts_early

HEADS = 4


@triton.jit
def _qkv_rope_store_kernel(
    qkv_ptr,
    bias_ptr,
    q_norm_ptr,
    k_norm_ptr,
    cos_sin_ptr,
    positions_ptr,
    slots_ptr,
    q_ptr,
    keys_ptr,
    values_ptr,
    qkv_stride,
    cos_sin_stride,
    q_stride,
    q_head_stride,
    keys_stride,
    keys_head_stride,
    values_stride,
    values_head_stride,
    eps,
    offset,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    row = tl.program_id(1).to(tl.int64)
    head = (tl.program_id(0) * HEADS + tl.arange(0, HEADS))[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    is_q = head < NUM_HEADS
    is_rotated = head < NUM_HEADS + NUM_KV_HEADS
    inside = (head < NUM_HEADS + 2 * NUM_KV_HEADS) & (col < HALF)
    position = tl.load(positions_ptr + row).to(tl.int64)
    slot = tl.load(slots_ptr + row).to(tl.int64)
    angle_ptr = cos_sin_ptr + position * cos_sin_stride + col
    cos = tl.load(angle_ptr, mask=col < HALF, other=1.0)
    sin = tl.load(angle_ptr + HALF, mask=col < HALF, other=0.0)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()

    place = head * (2 * HALF) + col
    low = tl.load(qkv_ptr + row * qkv_stride + place, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(qkv_ptr + row * qkv_stride + place + HALF, mask=inside, other=0.0)
    high = high.to(tl.float32)
    if HAS_BIAS:
        low += tl.load(bias_ptr + place, mask=inside, other=0.0).to(tl.float32)
        high += tl.load(bias_ptr + place + HALF, mask=inside, other=0.0).to(tl.float32)
    if HAS_NORM:
        in_norm = col < HALF
        q_low = tl.load(q_norm_ptr + col, mask=in_norm, other=0.0).to(tl.float32)
        q_high = tl.load(q_norm_ptr + col + HALF, mask=in_norm, other=0.0).to(tl.float32)
        k_low = tl.load(k_norm_ptr + col, mask=in_norm, other=0.0).to(tl.float32)
        k_high = tl.load(k_norm_ptr + col + HALF, mask=in_norm, other=0.0).to(tl.float32)
        squares = tl.sum(low * low + high * high, axis=1)[:, None]
        scale = 1.0 / tl.sqrt_rn(squares / (2 * HALF) + eps)
        scale = tl.where(is_rotated, scale, 1.0)
        low *= scale * tl.where(is_rotated, offset + tl.where(is_q, q_low, k_low), 1.0)
        high *= scale * tl.where(is_rotated, offset + tl.where(is_q, q_high, k_high), 1.0)

    rotated_low = low * cos - high * sin
    rotated_high = high * cos + low * sin

    kind = q_ptr.dtype.element_ty
    q_at = q_ptr + row * q_stride + head * q_head_stride + col
    tl.store(q_at, rotated_low.to(kind), mask=inside & is_q)
    tl.store(q_at + HALF, rotated_high.to(kind), mask=inside & is_q)
    is_key = is_rotated & (head >= NUM_HEADS)
    key_at = keys_ptr + slot * keys_stride + (head - NUM_HEADS) * keys_head_stride + col
    tl.store(key_at, rotated_low.to(kind), mask=inside & is_key)
    tl.store(key_at + HALF, rotated_high.to(kind), mask=inside & is_key)
    value_head = head - NUM_HEADS - NUM_KV_HEADS
    value_at = values_ptr + slot * values_stride + value_head * values_head_stride + col
    tl.store(value_at, low.to(kind), mask=inside & (value_head >= 0))
    tl.store(value_at + HALF, high.to(kind), mask=inside & (value_head >= 0))


def qkv_rope_store(
    qkv: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    q_out: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    bias: torch.Tensor | None,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    eps: float,
    offset: float,
) -> None:
    """See `ops.qkv_rope_store`."""
    num_rows, num_heads, dim = q_out.shape
    num_kv_heads = keys.shape[1]
    pdl = starts_early(qkv)
    grid = (triton.cdiv(num_heads + 2 * num_kv_heads, HEADS), num_rows)
    _qkv_rope_store_kernel[grid](
        qkv,
        bias,
        q_norm,
        k_norm,
        cos_sin,
        positions,
        slots,
        q_out,
        keys,
        values,
        qkv.stride(0),
        cos_sin.stride(0),
        q_out.stride(0),
        q_out.stride(1),
        keys.stride(0),
        keys.stride(1),
        values.stride(0),
        values.stride(1),
        eps,
        offset,
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HALF=dim // 2,
        HAS_BIAS=bias is not None,
        HAS_NORM=q_norm is not None,
        HEADS=HEADS,
        BLOCK=triton.next_power_of_2(dim // 2),
        PDL=pdl,
        num_warps=1,
        launch_pdl=pdl,
    )
