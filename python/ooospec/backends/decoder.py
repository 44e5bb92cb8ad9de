# SPDX-License-Identifier: Apache-2.0
"""One decoder over the rows of a launch: nine operations a layer, all into fixed buffers.

Two more where products are normed before they are added (Gemma 3).
"""

from __future__ import annotations

from typing import Protocol

import torch

from ooospec import ops
from ooospec.backends.weights import DecoderWeights, LayerWeights
from ooospec.config import LAUNCH_ROWS
from ooospec.kv import PagePool


class DecoderRows(ops.LaunchRows, Protocol):
    """Rows of a launch over one pool. tokens: int32[N]."""

    @property
    def tokens(self) -> torch.Tensor: ...
    @property
    def pool(self) -> PagePool: ...


class Decoder:
    """Runs `weights` over launches of `num_rows` rows. Allocates its buffers once.

    hidden: dtype[N, C], the rows behind the last norm after run().
    """

    def __init__(self, weights: DecoderWeights, num_rows: int) -> None:
        self.weights = weights
        self.num_rows = num_rows
        first = weights.layers[0]
        like = weights.embed
        num_queries = weights.num_heads * weights.head_dim

        def buffer(*shape: int) -> torch.Tensor:
            return torch.zeros((num_rows, *shape), dtype=like.dtype, device=like.device)

        self._residual = buffer(like.shape[1])
        self._normed = buffer(like.shape[1])
        self._product = buffer(like.shape[1])
        self._qkv = buffer(first.qkv.shape[0])
        self._query = buffer(weights.num_heads, weights.head_dim)
        self._attended = buffer(weights.num_heads, weights.head_dim)
        self._attended_flat = self._attended.view(num_rows, num_queries)
        self._gate_up = buffer(first.gate_up.shape[0])
        self._activated = buffer(first.down.shape[1])
        self.hidden = buffer(like.shape[1])

    def run(self, launch: DecoderRows, *plans: ops.TreePlan) -> None:
        """Runs all layers. Mutates: hidden, the pool of the launch.

        plans: of this launch, whose rows are trees, one for each 64 of them; none: the rows are a
        prefill chunk of one sequence.
        """
        weights = self.weights
        torch.index_select(weights.embed, 0, launch.tokens, out=self._residual)
        if weights.embed_scale is not None:
            self._residual.mul_(weights.embed_scale)
        for plan in plans:
            ops.tail_slots(plan)
        x, residual = self._residual, None
        for layer_idx, layer in enumerate(weights.layers):
            self._norm(x, layer.input_norm, self._normed, residual)
            self._attend(launch, plans, layer_idx, layer)
            x, residual = self._product, self._residual
            if layer.out_norm is not None:
                self._norm(x, layer.out_norm, x)
            self._norm(x, layer.post_norm, self._normed, residual)
            ops.linear_swiglu(
                self._normed,
                layer.gate_up,
                self._activated,
                self._gate_up,
                weights.activation,
                max_smem=weights.max_smem,
            )
            self._linear(self._activated, layer.down, self._product)
            if layer.down_norm is not None:
                self._norm(x, layer.down_norm, x)
        self._norm(x, weights.norm, self.hidden, residual)

    def write_logits(self, logits: torch.Tensor) -> None:
        """Writes the logits of `hidden` to `logits`, float32[N, V]."""
        self._linear(self.hidden, self.weights.head, logits)
        cap = self.weights.final_softcap
        if cap is not None:
            logits.div_(cap).tanh_().mul_(cap)

    def _linear(self, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
        ops.linear(x, weight, out, max_smem=self.weights.max_smem)

    def _norm(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        out: torch.Tensor,
        residual: torch.Tensor | None = None,
    ) -> None:
        """The norm of x into `out`; with `residual`, x is added to that first."""
        weights = self.weights
        ops.rms_norm(x, weight, weights.eps, out, residual=residual, offset=weights.norm_offset)

    def _attend(
        self,
        launch: DecoderRows,
        plans: tuple[ops.TreePlan, ...],
        layer_idx: int,
        layer: LayerWeights,
    ) -> None:
        """The attention of a layer and the product behind it, from _normed into _product."""
        weights, pool = self.weights, launch.pool
        keys, values = pool.keys[layer_idx], pool.values[layer_idx]
        self._linear(self._normed, layer.qkv, self._qkv)
        ops.qkv_rope_store(
            self._qkv,
            layer.cos_sin,
            launch.positions,
            launch.slots,
            self._query,
            keys,
            values,
            bias=layer.qkv_bias,
            q_norm=layer.q_norm,
            k_norm=layer.k_norm,
            eps=weights.eps,
            offset=weights.norm_offset,
        )
        query, out = self._query, self._attended
        how = weights.scale, layer.window, weights.softcap
        for first, plan in zip(range(0, self.num_rows, LAUNCH_ROWS), plans, strict=False):
            rows = slice(first, first + LAUNCH_ROWS)
            ops.tree_attention(query[rows], keys, values, plan, out[rows], *how)
        if not plans:
            ops.prefill_attention(query, keys, values, launch, out, *how)
        self._linear(self._attended_flat, layer.out, self._product)
