# SPDX-License-Identifier: Apache-2.0
"""Logits of a replay: hashed as they are, then bent to what was recorded."""

from __future__ import annotations

import torch

from ooospec import reference
from ooospec.ops.dispatch import has_kernel, require

HASH_PARTS = 8  # of a row: its hash is their sum
BENT = 1e30  # the logit of a recorded token: above all that a model gives, and finite


def bend(
    logits: torch.Tensor,
    positions: torch.Tensor,
    sequences: torch.Tensor,
    answer: torch.Tensor,
    hashes: torch.Tensor,
) -> None:
    """Hashes each row and raises the logit of the token that was recorded behind its position.

    logits: float32[N, V], dense. positions: int32[N], absolute. sequences: int32[N], of the launch.
    answer: int32[S, L], dense; answer[s, p] comes behind position p of sequence s; -1: not
    recorded, as positions from L and sequences from S on, and padding, whose sequence is -1: such
    rows stay as they are. hashes: int64[N, 8]; their sum along a row, mod 2^64, depends on the bits
    of all its raw logits.
    Mutates: logits, hashes. Raises ValueError for other dtypes, shapes or strides. Cost: one
    launch that reads the logits once.
    """
    num_rows, vocab = logits.shape
    require("logits", logits, torch.float32, num_rows, vocab)
    if logits.stride(0) != vocab and num_rows > 1:
        raise ValueError(f"logits: expected dense rows of {vocab}, got strides {logits.stride()}")
    require("positions", positions, torch.int32, num_rows)
    require("sequences", sequences, torch.int32, num_rows)
    require("answer", answer, torch.int32, len(answer), answer.shape[-1])
    if not answer.is_contiguous():
        raise ValueError(f"answer: expected dense rows, got strides {answer.stride()}")
    require("hashes", hashes, torch.int64, num_rows, HASH_PARTS)
    if has_kernel(logits):
        from ooospec.triton_kernels.bend import bend as launch

        launch(logits, positions, sequences, answer, hashes, BENT)
        return
    reference.bend_ref(logits, positions, sequences, answer, hashes, BENT)
