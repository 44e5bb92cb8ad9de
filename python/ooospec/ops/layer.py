# SPDX-License-Identifier: Apache-2.0
"""Norm, rotation and activation: the operations of a layer between its products."""

from __future__ import annotations

import torch

from ooospec import reference
from ooospec.ops.dispatch import has_kernel, require

ACTIVATIONS = ("silu", "gelu_tanh")


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor,
    residual: torch.Tensor | None = None,
    offset: float = 0.0,
) -> None:
    """Writes the RMS norm of each row times (offset + weight), computed in float32, to `out`.

    x: dtype[N, C]. weight: dtype[C]. out: dtype[N, C], may be x.
    residual: dtype[N, C]; x is added to it first, rounded to its dtype, and the sum is normed.
    Mutates out, residual. Raises ValueError for other dtypes, shapes or strides. Cost: one launch.
    """
    num_rows, dim = x.shape
    require("x", x, x.dtype, num_rows, dim)
    require("weight", weight, weight.dtype, dim)
    require("out", out, x.dtype, num_rows, dim)
    if residual is not None:
        require("residual", residual, residual.dtype, num_rows, dim)
    if has_kernel(x):
        from ooospec.triton_kernels.rms_norm import rms_norm as launch

        launch(x, weight, eps, out, residual, offset)
        return
    if residual is not None:
        residual.copy_(residual.float() + x.float())
        x = residual
    out.copy_(reference.rms_norm_ref(x, weight, eps, offset))


def qkv_rope_store(
    qkv: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    q_out: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    bias: torch.Tensor | None = None,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 1e-6,
    offset: float = 0.0,
) -> None:
    """Turns rows of the fused product into rotated queries, and stores their keys and values.

    Bias, norm of each head of q and k, rotation of pairs (i, i + D/2); in float32, rounded once.
    qkv: dtype[N, (H + 2 G) * D]. cos_sin: float32[positions, D]: D/2 cosines, then D/2 sines.
    positions: int32[N] in [0, positions). slots: int64[N], flat slots of the cache.
    q_out: dtype[N, H, D]. keys, values: dtype[slots, G, D].
    bias: dtype[(H + 2 G) * D]. q_norm, k_norm: dtype[D], both or neither, as in `rms_norm`.
    Mutates q_out, keys, values. Raises ValueError for other dtypes, shapes or strides; positions
    and slots are not looked at. Cost: one launch.
    """
    num_rows, num_heads, dim = q_out.shape
    num_kv_heads = keys.shape[1]
    width = (num_heads + 2 * num_kv_heads) * dim
    require("qkv", qkv, qkv.dtype, num_rows, width)
    require("cos_sin", cos_sin, torch.float32, cos_sin.shape[0], dim)
    require("positions", positions, torch.int32, num_rows)
    require("slots", slots, torch.int64, num_rows)
    require("q_out", q_out, qkv.dtype, num_rows, num_heads, dim)
    require("keys", keys, qkv.dtype, keys.shape[0], num_kv_heads, dim)
    require("values", values, qkv.dtype, keys.shape[0], num_kv_heads, dim)
    if bias is not None:
        require("bias", bias, bias.dtype, width)
    if (q_norm is None) != (k_norm is None):
        raise ValueError("q_norm, k_norm: expected both or neither, got one")
    for name, norm in (("q_norm", q_norm), ("k_norm", k_norm)):
        if norm is not None:
            require(name, norm, norm.dtype, dim)
    if has_kernel(qkv):
        from ooospec.triton_kernels.qkv_rope_store import qkv_rope_store as launch

        tensors = (qkv, cos_sin, positions, slots, q_out, keys, values)
        launch(*tensors, bias, q_norm, k_norm, eps, offset)
        return
    q, k, v = reference.qkv_rope_ref(
        qkv,
        cos_sin[positions.long()],
        num_heads,
        num_kv_heads,
        bias=bias,
        q_norm=q_norm,
        k_norm=k_norm,
        eps=eps,
        offset=offset,
    )
    q_out.copy_(q)
    keys[slots] = k.to(keys.dtype)
    values[slots] = v.to(values.dtype)


def swiglu(gate_up: torch.Tensor, out: torch.Tensor, activation: str = "silu") -> None:
    """Writes activation(gate) * up, computed in float32, to `out`.

    gate_up: dtype[N, 2 I], gate first. out: dtype[N, I]. activation: "silu" or "gelu_tanh".
    Mutates out. Raises ValueError for another activation, dtype, shape or stride. Cost: one launch.
    """
    num_rows, dim = out.shape
    require("gate_up", gate_up, out.dtype, num_rows, 2 * dim)
    require("out", out, out.dtype, num_rows, dim)
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation: expected one of {ACTIVATIONS}, got {activation!r}")
    if has_kernel(out):
        from ooospec.triton_kernels.swiglu import swiglu as launch

        launch(gate_up, out, activation)
        return
    out.copy_(reference.swiglu_ref(gate_up, activation))
