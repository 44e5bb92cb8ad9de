# SPDX-License-Identifier: Apache-2.0
"""Slow, plain versions of the operations, which every fast one is tested against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from ooospec.sampling import gumbel, place_key, spread_ids


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


def seen_slots_ref(
    positions: torch.Tensor,
    mask: torch.Tensor,
    sequences: torch.Tensor,
    slots: torch.Tensor,
    lengths: torch.Tensor,
    page_table: torch.Tensor,
    page: int = 64,
) -> list[torch.Tensor]:
    """Flat slots of positions 0 to p as each row of a launch sees them; none for padding rows.

    Arguments as in `ops.LaunchRows`. A position is read from the sequence if it is committed, else
    from the row or ancestor that stands at it.
    """
    found = []
    for row, sequence in enumerate(sequences.tolist()):
        if sequence < 0:
            found.append(torch.empty(0, dtype=torch.int64))
            continue
        length = min(int(lengths[sequence]), int(positions[row]) + 1)
        committed = torch.arange(length)
        pages = page_table[sequence].cpu().long()[committed // page]
        drafted = {}
        for other, position in enumerate(positions.tolist()):
            if int(mask[row]) >> other & 1 and position >= length:
                drafted[position] = int(slots[other])
        behind = [drafted[position] for position in range(length, int(positions[row]) + 1)]
        found.append(torch.cat((pages * page + committed % page, torch.tensor(behind).long())))
    return found


def paged_attention_ref(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    seen: list[torch.Tensor],
    *,
    scaling: float,
    window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Attention of each row by itself over paged keys and values, in float64.

    query: [N, H, D]; keys, values: [slots, G, D]; seen: of each row, as of `seen_slots_ref`.
    Returns float64[N, H, D of values].
    """
    output = torch.zeros(*query.shape[:2], values.shape[2], dtype=torch.float64)
    for row, slots in enumerate(seen):
        if not len(slots):
            continue
        positions = torch.arange(len(slots))
        output[row : row + 1] = tree_attention_ref(
            query[row : row + 1],
            keys[slots],
            values[slots],
            positions[-1:],
            positions,
            torch.ones(1, len(slots), dtype=torch.bool),
            scaling=scaling,
            window=window,
            softcap=softcap,
        )
    return output


def linear_ref(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x[N, K] @ weight[M, K]^T, in float64."""
    return x.double() @ weight.double().t()


def kv_compact_ref(cached: torch.Tensor, length: int, rows: list[int]) -> torch.Tensor:
    """Moves rows of the last launch behind the committed part.

    cached: [tokens, ...] of one sequence in order of position, rows of the launch from `length` on.
    Returns a copy with row rows[i] at length + i.
    """
    moved = cached.clone()
    for i, row in enumerate(rows):
        moved[length + i] = cached[length + row]
    return moved


def rms_norm_ref(
    x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0
) -> torch.Tensor:
    """Returns float64[..., C]: x / sqrt(mean of squares + eps) * (offset + weight)."""
    numbers = x.double()
    scale = torch.rsqrt(numbers.square().mean(dim=-1, keepdim=True) + eps)
    return numbers * scale * (offset + weight.double())


def qkv_rope_ref(
    qkv: torch.Tensor,
    cos_sin: torch.Tensor,
    num_heads: int,
    num_kv_heads: int,
    *,
    bias: torch.Tensor | None = None,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 1e-6,
    offset: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Splits rows into heads, adds the bias, norms each head of q and k, and rotates them.

    qkv: [N, (H + 2 G) * D]; cos_sin: float32[N, D], of each row's position: D/2 cosines, D/2 sines.
    Pairs are (i, i + D/2), as Hugging Face's rotate_half has them.
    Returns float64 q[N, H, D], k[N, G, D], v[N, G, D].
    """
    numbers = qkv.double() if bias is None else qkv.double() + bias.double()
    dim = cos_sin.shape[-1]
    heads = numbers.view(len(qkv), -1, dim)
    q = heads[:, :num_heads]
    k = heads[:, num_heads : num_heads + num_kv_heads]
    v = heads[:, num_heads + num_kv_heads :]
    if q_norm is not None:
        q = rms_norm_ref(q, q_norm, eps, offset)
    if k_norm is not None:
        k = rms_norm_ref(k, k_norm, eps, offset)
    cos, sin = cos_sin.double()[:, None].chunk(2, dim=-1)

    def rotate(x: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, dim=-1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)

    return rotate(q), rotate(k), v


def swiglu_ref(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    """Returns float64[..., I]: activation(first half of the row) * second half."""
    gate, up = gate_up.double().chunk(2, dim=-1)
    if activation == "silu":
        return torch.nn.functional.silu(gate) * up
    return torch.nn.functional.gelu(gate, approximate="tanh") * up


def sample_ref(
    logits: torch.Tensor,
    allowed: torch.Tensor,
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    key: int = 0,
    index: int = 0,
) -> tuple[int, list[int]]:
    """Chooses the token of one row as `sampling.Chooser` does, by definition: sort, filter, draw.

    logits: [V]; only finite ones count. allowed: bool[V].
    key: `sampling.request_key`; index: place in the answer.
    Returns the choice and the ids of the eight highest logits (ties: the lower id first); -1 for
    each that does not exist.
    """
    ids = (allowed & torch.isfinite(logits)).nonzero()[:, 0]
    numbers = logits[ids].double()
    order = torch.argsort(numbers, descending=True, stable=True)
    ids, numbers = ids[order], numbers[order]
    top8 = [*ids[:8].tolist(), *[-1] * 8][:8]
    if temperature == 0 or len(ids) == 0:
        return top8[0], top8
    tempered = (numbers - numbers[0]) / temperature
    num_kept = min(top_k, len(ids)) if top_k else len(ids)
    if top_p < 1:
        masses = tempered[:num_kept].exp()
        num_kept = min(num_kept, int((masses.cumsum(0) < top_p * masses.sum()).sum()) + 1)
    noisy = tempered[:num_kept] + gumbel(place_key(key, index), ids[:num_kept])
    return int(ids[:num_kept][noisy == noisy.max()].min()), top8


@dataclass(frozen=True)
class RoundEnd:
    """What a round ends with. committed: first row of each sequence -> (rows, tokens): token i was
    chosen after row i. moves: (from, to) slots of accepted rows that are not in place, by row.
    """

    committed: dict[int, tuple[list[int], list[int]]]
    moves: list[tuple[int, int]]


def end_of_round_ref(
    choices: list[int],
    tokens: list[int],
    parents: list[int],
    positions: list[int],
    sequences: list[int],
    slots: list[int],
    page_table: list[list[int]],
    page_size: int,
) -> RoundEnd:
    """Accepts from the first row of each sequence the lowest child whose token is the choice.

    Lists are by row of the launch: a parent before its children, -1 for none; sequences: row of the
    page table, -1 for padding; rows of a sequence are contiguous.
    """
    committed: dict[int, tuple[list[int], list[int]]] = {}
    moves = {}
    for first, sequence in enumerate(sequences):
        if sequence < 0 or (first > 0 and sequences[first - 1] == sequence):
            continue
        path = [first]
        while choices[path[-1]] >= 0:
            wanted = (path[-1], choices[path[-1]], sequence)
            nodes = enumerate(zip(parents, tokens, sequences, strict=True))
            children = [row for row, node in nodes if node == wanted and row > path[-1]]
            if not children:
                break
            path.append(children[0])
        committed[first] = (path, [choices[row] for row in path])
        for row in path:
            page, slot = divmod(positions[row], page_size)
            place = page_table[sequence][page] * page_size + slot
            if place != slots[row]:
                moves[row] = (slots[row], place)
    return RoundEnd(committed, [moves[row] for row in sorted(moves)])


def bend_ref(
    logits: torch.Tensor,
    positions: torch.Tensor,
    sequences: torch.Tensor,
    answer: torch.Tensor,
    hashes: torch.Tensor,
    bent: float,
) -> None:
    """See `ops.bend`: a row's hash is the sum of the bits of its logits, each times an odd number
    of its id.
    """
    vocab, num_parts = logits.shape[1], hashes.shape[1]
    size = -(-vocab // num_parts)
    bits = logits.view(torch.int32).long() * logit_weights(vocab).to(logits.device)
    for part in range(num_parts):
        hashes[:, part] = bits[:, part * size : (part + 1) * size].sum(dim=1)
    num_sequences, num_positions = answer.shape
    places = zip(sequences.tolist(), positions.tolist(), strict=True)
    for row, (sequence, position) in enumerate(places):
        if 0 <= sequence < num_sequences and 0 <= position < num_positions:
            token = int(answer[sequence, position])
            if token >= 0:
                logits[row, token] = bent


@lru_cache(maxsize=4)
def logit_weights(vocab: int) -> torch.Tensor:
    """Returns int64[V], odd: what the bits of a logit are multiplied by in the hash of its row."""
    return spread_ids(torch.arange(1, vocab + 1)) | 1
