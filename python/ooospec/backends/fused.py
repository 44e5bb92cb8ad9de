# SPDX-License-Identifier: Apache-2.0
"""Runs the decoders that ooospec knows by its own kernels alone."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

import torch

from ooospec import ops
from ooospec.backends.decoder import Decoder, DecoderRows
from ooospec.backends.launch import Launch
from ooospec.backends.launched import CHUNK, LaunchBackend
from ooospec.backends.weights import DecoderWeights, take_weights
from ooospec.config import LAUNCH_ROWS
from ooospec.kv import LayerShape


class PackedBody:
    """A decoder over packed weights; see Body."""

    def __init__(self, weights: DecoderWeights, chunk: int) -> None:
        self.weights = weights
        shape = LayerShape(weights.num_kv_heads, weights.head_dim, weights.head_dim)
        self.layers = [shape] * len(weights.layers)
        self.num_heads = weights.num_heads
        self.num_logits = weights.head.shape[0]
        self._rounds = Decoder(weights, LAUNCH_ROWS)
        self._chunks = Decoder(weights, chunk)

    def step(self, launch: DecoderRows, plan: ops.TreePlan, logits: torch.Tensor) -> None:
        """See Body."""
        self._rounds.run(launch, plan)
        self._rounds.write_logits(logits)

    def chunk(self, launch: DecoderRows) -> None:
        """See Body."""
        self._chunks.run(launch)

    def ask(
        self,
        launch: DecoderRows,
        plans: Seq[ops.TreePlan],
        wanted: torch.Tensor,
        logits: torch.Tensor,
    ) -> None:
        """Runs trees in a launch of the size of a chunk. Mutates: its pool.

        plans: one for each 64 rows; rows of earlier ones count as committed. wanted: int32[64],
        rows whose logits are written, float32[64, V].
        """
        self._chunks.run(launch, *plans)
        torch.index_select(self._chunks.hidden, 0, wanted, out=self._rounds.hidden)
        self._rounds.write_logits(logits)

    def last(self, launch: Launch, logits: torch.Tensor) -> None:
        """See Body. Products run at the size of a round."""
        hidden = self._rounds.hidden
        torch.index_select(self._chunks.hidden, 0, launch.last_row, out=hidden[:1])
        self._rounds.write_logits(logits)


class FusedBackend(LaunchBackend):
    """A Backend over packed weights; the model that they came from stays usable."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        num_sequences: int = 8,
        chunk: int = CHUNK,
        max_smem: int = 0,
    ) -> None:
        """Takes the weights of `model`, which become views of packed ones.

        num_sequences, chunk: see LaunchBackend. max_smem: that products may take; see ops.linear.
        Raises UnsupportedModel for a decoder that this backend does not know, ValueError for bad
        counts.
        """
        limit = int(model.config.get_text_config().max_position_embeddings)
        weights = take_weights(model.eval(), limit + LAUNCH_ROWS)
        self.weights = replace(weights, max_smem=max_smem)
        self.packed = PackedBody(self.weights, chunk)
        super().__init__(model, tokenizer, self.packed, num_sequences=num_sequences, chunk=chunk)
        self.is_canonical = True
        self.description += ", fused"
