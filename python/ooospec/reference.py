# SPDX-License-Identifier: Apache-2.0
"""Slow, plain versions of the operations, which every fast one is tested against."""

from __future__ import annotations

import torch


def tree_attention_ref(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    query_positions: torch.Tensor,
    key_positions: torch.Tensor,
    visible: torch.Tensor,
    *,
    scaling: float,
    window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Attention of each row by itself, in float64.

    query: [N, H, D]; keys, values: [K, G, D]; positions: int64[N], int64[K].
    visible: bool[N, K]; key k is committed, or an ancestor of row n. A row that sees nothing gets
    0.
    window: row n sees positions above query_positions[n] - window only.
    Returns float64[N, H, D of values].
    """
    num_rows, num_heads, _ = query.shape
    group = num_heads // keys.shape[1]
    output = torch.zeros(num_rows, num_heads, values.shape[2], dtype=torch.float64)
    for row in range(num_rows):
        seen = visible[row].clone()
        if window is not None:
            seen &= key_positions > query_positions[row] - window
        if not seen.any():
            continue
        for head in range(num_heads):
            scores = keys[seen, head // group].double() @ query[row, head].double() * scaling
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            weights = torch.softmax(scores, dim=0)
            output[row, head] = weights @ values[seen, head // group].double()
    return output


def kv_compact_ref(cached: torch.Tensor, length: int, rows: list[int]) -> torch.Tensor:
    """Moves rows of the last launch behind the committed part.

    cached: [tokens, ...] of one sequence in order of position, rows of the launch from `length` on.
    Returns a copy with row rows[i] at length + i.
    """
    moved = cached.clone()
    for i, row in enumerate(rows):
        moved[length + i] = cached[length + row]
    return moved
