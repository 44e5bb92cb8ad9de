# SPDX-License-Identifier: Apache-2.0
"""Hashes of raw logits, and logits bent to a recorded token.

A program owns some ids of one row: it reads them all before it writes the one that is bent, and no
other program reads that one.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 2048  # ids of one step
_GOLDEN: tl.constexpr = tl.constexpr(0x9E3779B97F4A7C15)
_MIX_1: tl.constexpr = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX_2: tl.constexpr = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def _weight(ids):
    """Returns the odd uint64 that the bits of a logit are multiplied by."""
    value = (ids.to(tl.uint64) + 1) * _GOLDEN
    value = (value ^ (value >> 30)) * _MIX_1
    value = (value ^ (value >> 27)) * _MIX_2
    return (value ^ (value >> 31)) | 1


@triton.jit
def _bend_kernel(
    logits_ptr, positions_ptr, sequences_ptr, answer_ptr, hashes_ptr, num_sequences, num_positions,
    bent,
    VOCAB: tl.constexpr, PARTS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    part, row = tl.program_id(0), tl.program_id(1)
    size: tl.constexpr = (VOCAB + PARTS - 1) // PARTS
    row_ptr = logits_ptr + row.to(tl.int64) * VOCAB
    first = part * size
    stop = tl.minimum(first + size, VOCAB)
    sums = tl.zeros((TILE,), tl.uint64)
    for start in range(0, size, TILE):
        ids = first + start + tl.arange(0, TILE)
        inside = ids < stop
        x = tl.load(row_ptr + ids, mask=inside, other=0.0)
        bits = x.to(tl.int32, bitcast=True).to(tl.int64).to(tl.uint64)
        sums += tl.where(inside, bits * _weight(ids), 0)
    total = tl.sum(sums)
    tl.store(hashes_ptr + row * PARTS + part, total.to(tl.int64, bitcast=True))
    tl.debug_barrier()
    position = tl.load(positions_ptr + row)
    sequence = tl.load(sequences_ptr + row)
    known = (position >= 0) & (position < num_positions)
    known &= (sequence >= 0) & (sequence < num_sequences)
    token = tl.load(answer_ptr + sequence * num_positions + position, mask=known, other=-1)
    tl.store(row_ptr + token, bent, mask=(token >= first) & (token < stop))


def bend(
    logits: torch.Tensor,
    positions: torch.Tensor,
    sequences: torch.Tensor,
    answer: torch.Tensor,
    hashes: torch.Tensor,
    bent: float,
) -> None:
    """See `ops.bend`."""
    num_rows, vocab = logits.shape
    parts = hashes.shape[1]
    _bend_kernel[(parts, num_rows)](
        logits,
        positions,
        sequences,
        answer,
        hashes,
        *answer.shape,
        bent,
        VOCAB=vocab,
        PARTS=parts,
        TILE=min(TILE, triton.next_power_of_2(vocab)),
        num_warps=4,
    )
