# SPDX-License-Identifier: Apache-2.0
"""Runs any Hugging Face causal LM in launches of fixed shape: its modules, our attention."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch

from ooospec import ops
from ooospec.backends.launch import Launch
from ooospec.backends.launched import LaunchBackend
from ooospec.backends.support import HEAD_DIMS, MAX_GROUP
from ooospec.backends.transformers import TransformersBackend
from ooospec.bits import check_bits
from ooospec.config import LAUNCH_ROWS
from ooospec.errors import UnsupportedModel

logger = logging.getLogger("ooospec")

PROBED_LENGTHS = (70,)  # tokens of the prompt behind which rows are probed


@dataclass(frozen=True)
class ModuleRows:
    """What the attention of every layer needs to know of a launch. plan: None: a prefill chunk."""

    launch: Launch
    plan: ops.TreePlan | None

    def attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        window: int | None,
        softcap: float | None,
        arguments: dict[str, Any],
    ) -> torch.Tensor:
        """Stores the rows' keys and values, then attends: query [H, N, D], the others [G, N, D].

        Returns [N, H, D], 0 for padding rows. Mutates: the pool of the launch.
        """
        layer_idx = int(module.layer_idx)  # type: ignore[arg-type]
        keys, values = self.launch.pool.keys[layer_idx], self.launch.pool.values[layer_idx]
        keys.index_copy_(0, self.launch.slots, key.transpose(0, 1))
        values.index_copy_(0, self.launch.slots, value.transpose(0, 1))
        rows = query.transpose(0, 1)
        out = torch.empty(rows.shape, dtype=rows.dtype, device=rows.device)
        if self.plan is not None:
            ops.tree_attention(rows, keys, values, self.plan, out, scaling, window, softcap)
        else:
            ops.prefill_attention(rows, keys, values, self.launch, out, scaling, window, softcap)
        return out


class ModuleBody:
    """The modules of a model whose attention is ours; see Body in launched.py."""

    def __init__(self, inner: TransformersBackend) -> None:
        self.layers = inner.layers
        (self.num_heads,) = inner.num_heads
        self.num_logits = inner.num_logits
        self._inner = inner
        self._last = torch.zeros(self.num_logits, device=inner.device)

    def step(self, launch: Launch, plan: ops.TreePlan, logits: torch.Tensor) -> None:
        """See Body."""
        ops.tail_slots(plan)
        logits.copy_(self._run(launch, plan, None))

    def chunk(self, launch: Launch) -> None:
        """See Body."""
        rows = launch.last_row.long().expand(LAUNCH_ROWS)  # the head runs at the size of a round
        self._last.copy_(self._run(launch, None, rows)[0])

    def last(self, launch: Launch, logits: torch.Tensor) -> None:
        """See Body."""
        logits[0].copy_(self._last)

    def _run(
        self, launch: Launch, plan: ops.TreePlan | None, wanted: torch.Tensor | None
    ) -> torch.Tensor:
        tokens, positions = launch.tokens.long(), launch.positions.long()
        return self._inner.run(tokens, positions, ModuleRows(launch, plan), wanted)


def unsuited(inner: TransformersBackend) -> str | None:
    """Returns why the attention kernels cannot run for a model, or None if they can."""
    first, num_heads = inner.layers[0], max(inner.num_heads)
    same = all(layer == first for layer in inner.layers) and len(inner.num_heads) == 1
    if not same or first.key_dim != first.value_dim:
        return "its layers differ in their heads, or its values from its keys"
    if first.key_dim not in HEAD_DIMS:
        return f"its head_dim is {first.key_dim}, no multiple of 8 from 16 to 256"
    if num_heads % first.num_heads or num_heads > MAX_GROUP * first.num_heads:
        return f"{num_heads} query heads share {first.num_heads} kv heads, not 1 to {MAX_GROUP} one"
    return None


class ModuleBackend(LaunchBackend):
    """The launches and rounds of the fused backend for any model that the transformers backend
    runs: by its own modules, in CUDA graphs where they can be captured.

    level: what a probe finds at load. Where a row's logits depend on its neighbours (products
    quantised by the launch, experts that share rows), no tree is run: every method decodes plainly.
    """

    def __init__(self, inner: TransformersBackend, *, num_sequences: int = 8) -> None:
        """Takes over what `inner` runs. Raises UnsupportedModel for what unsuited() names, and
        ValueError for bad counts.
        """
        reason = unsuited(inner)
        if reason is not None:
            raise UnsupportedModel(f"attention kernels: {reason}")
        counts = {"num_sequences": num_sequences, "chunk": inner.chunk}
        super().__init__(inner.model, inner.tokenizer, ModuleBody(inner), **counts)
        self.description += ", its own modules"
        self._inner = inner
        self.level = "self-checked"
        report = check_bits(self, PROBED_LENGTHS)
        if report.differences:
            worst = max(report.differences, key=lambda one: one.largest)
            self.level = (
                f"not row-independent: {len(report.differences)} of {report.num_cases} cases "
                f"differ, by up to {worst.largest:.2g} ({worst.case})"
            )
            self.max_tree_rows = 1
            logger.warning("%s: %s; it decodes without drafts", self.description, self.level)

    def close(self) -> None:
        """Gives the graphs and the model back. Safe to call twice."""
        super().close()
        self._inner.close()
