# SPDX-License-Identifier: Apache-2.0
"""Checks a sequence against one rebuilt from its tokens by prefill (EngineConfig.shadow)."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch

from ooospec.backends.base import Backend
from ooospec.errors import ShadowMismatch
from ooospec.kv import Sequence


def check_shadow(backend: Backend, sequence: Sequence, tokens: Seq[int]) -> None:
    """Compares length and KV of `sequence` with those that a prefill of `tokens` gives.

    Raises ShadowMismatch, naming layer and position, if they differ by more than rounding:
    16 eps sqrt(layers) of the largest entry. Cost: a prefill of all tokens.
    """
    if sequence.length != len(tokens):
        raise ShadowMismatch(f"shadow: expected {len(tokens)} cached tokens, got {sequence.length}")
    rebuilt = Sequence(backend.new_pool(len(tokens)))
    rebuilt.reserve(len(tokens))
    backend.prefill(rebuilt, tokens)
    slots = torch.tensor(sequence.slots(0, len(tokens)), device=backend.device)
    expected_slots = torch.tensor(rebuilt.slots(0, len(tokens)), device=backend.device)
    pool, expected_pool = sequence.pool, rebuilt.pool
    scale = 16 * torch.finfo(backend.dtype).eps * pool.num_layers**0.5
    for side in ("keys", "values"):
        for layer_idx in range(pool.num_layers):
            got = getattr(pool, side)[layer_idx][slots].float()
            expected = getattr(expected_pool, side)[layer_idx][expected_slots].float()
            error = (got - expected).abs().amax(dim=(1, 2))
            bound = scale * float(expected.abs().max())
            if not float(error.max()) <= bound:
                raise ShadowMismatch(
                    f"shadow: {side} of layer {layer_idx} differ at position "
                    f"{int(error.argmax())}: expected within {bound:.3g}, "
                    f"got {float(error.max()):.3g}"
                )
