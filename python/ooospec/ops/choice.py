# SPDX-License-Identifier: Apache-2.0
"""What the target chooses after each row, and which ids it finds likeliest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ooospec import reference
from ooospec.ops.dispatch import has_kernel, require

TOP = 8  # ids that `sample` ranks

_MASK64 = (1 << 64) - 1


@dataclass(frozen=True)
class RowSampling:
    """How each row of a launch chooses. All of it is data: one graph serves every setting.

    temperature: float64[N]; 0 is greedy. top_k: int32[N]; 0 keeps all. top_p: float64[N]; 1 keeps
    all. key: int64[N], bits of `sampling.request_key`. index: int32[N], place in the answer.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    key: torch.Tensor
    index: torch.Tensor


@dataclass(frozen=True)
class RowLimits:
    """Ids that a row must not choose.

    bitmask: int32[N, ceil(V / 32)]; id v is allowed where bit v % 32 of word v // 32 is set.
    eos_ids: int32[E], forbidden in rows where no_eos, int32[N], is not 0. Give both or neither.
    """

    bitmask: torch.Tensor | None = None
    eos_ids: torch.Tensor | None = None
    no_eos: torch.Tensor | None = None


def sample(
    logits: torch.Tensor,
    decodable: int,
    choices: torch.Tensor,
    top8: torch.Tensor,
    sampling: RowSampling | None = None,
    limits: RowLimits | None = None,
    scratch: torch.Tensor | None = None,
) -> None:
    """Chooses a token for each row and ranks the eight likeliest.

    logits: dtype[N, V]. Only finite ones count, of ids below `decodable` that `limits` allows.
    choices: int32[N]; greedy the highest logit, lowest id on a tie; else as `sampling.Chooser`
    chooses. -1: no logit counts.
    top8: int32[N, 8]; ids by logit, highest first, lower ids first on a tie; -1 where there are
    fewer. Not touched by temperature and noise.
    scratch: from `sample_scratch`, not to be used by two launches at a time; None allocates it.
    Mutates choices, top8, scratch. Raises ValueError for other dtypes, shapes or strides.
    Cost: two launches; four with `sampling`.
    """
    num_rows, vocab = logits.shape
    require("logits", logits, logits.dtype, num_rows, vocab)
    require("choices", choices, torch.int32, num_rows)
    require("top8", top8, torch.int32, num_rows, TOP)
    if not 1 <= decodable <= vocab:
        raise ValueError(f"decodable: expected an integer in [1, {vocab}], got {decodable}")
    _check_rows(num_rows, vocab, sampling, limits or RowLimits())
    if has_kernel(logits):
        from ooospec.triton_kernels.sample import sample as launch

        scratch = sample_scratch(logits) if scratch is None else scratch
        limits = limits or RowLimits()
        rows = None
        if sampling is not None:
            s = sampling
            rows = (s.temperature, s.top_k, s.top_p, s.key, s.index)
        bans = (limits.bitmask, limits.eos_ids, limits.no_eos)
        launch(logits, decodable, choices, top8, scratch, rows, *bans)
        return
    for row in range(num_rows):
        allowed = _allowed(row, logits, decodable, limits or RowLimits())
        choices[row], ids = reference.sample_ref(logits[row], allowed, **_of_row(row, sampling))
        top8[row] = torch.tensor(ids)


def sample_scratch(logits: torch.Tensor) -> torch.Tensor:
    """Returns uint8 memory for `sample` on logits of this shape and device."""
    if not has_kernel(logits):
        return torch.empty(0, dtype=torch.uint8)
    from ooospec.triton_kernels.sample import scratch_bytes

    num_bytes = scratch_bytes(*logits.shape)
    return torch.empty(num_bytes, dtype=torch.uint8, device=logits.device)


def _check_rows(num_rows: int, vocab: int, sampling: RowSampling | None, limits: RowLimits) -> None:
    if sampling is not None:
        require("temperature", sampling.temperature, torch.float64, num_rows)
        require("top_k", sampling.top_k, torch.int32, num_rows)
        require("top_p", sampling.top_p, torch.float64, num_rows)
        require("key", sampling.key, torch.int64, num_rows)
        require("index", sampling.index, torch.int32, num_rows)
    if limits.bitmask is not None:
        require("bitmask", limits.bitmask, torch.int32, num_rows, -(-vocab // 32))
    if (limits.eos_ids is None) != (limits.no_eos is None):
        raise ValueError("eos_ids, no_eos: expected both or neither, got one")
    if limits.eos_ids is not None and limits.no_eos is not None:
        require("eos_ids", limits.eos_ids, torch.int32, len(limits.eos_ids))
        require("no_eos", limits.no_eos, torch.int32, num_rows)


def _allowed(row: int, logits: torch.Tensor, decodable: int, limits: RowLimits) -> torch.Tensor:
    """Returns bool[V]: the ids that `row` may choose."""
    ids = torch.arange(logits.shape[1], device=logits.device)
    allowed = ids < decodable
    if limits.bitmask is not None:
        allowed &= (limits.bitmask[row, ids // 32] >> (ids % 32)) & 1 == 1
    if limits.eos_ids is not None and limits.no_eos is not None and limits.no_eos[row]:
        allowed &= ~torch.isin(ids, limits.eos_ids)
    return allowed


def _of_row(row: int, sampling: RowSampling | None) -> dict[str, Any]:
    """Returns the arguments of `sample_ref` for `row`."""
    if sampling is None:
        return {}
    return {
        "temperature": float(sampling.temperature[row]),
        "top_k": int(sampling.top_k[row]),
        "top_p": float(sampling.top_p[row]),
        "key": int(sampling.key[row]) & _MASK64,
        "index": int(sampling.index[row]),
    }
