# SPDX-License-Identifier: Apache-2.0
"""How a token is chosen from logits, greedy or by keyed noise: drafts cannot change the choice.

Sampling is an argmax too. To the tempered, filtered logits comes Gumbel noise from a counter-based
generator keyed by (seed, choice, position, token id); the largest sum wins. The winner is
distributed as the softmax of those logits, and depends on nothing but the logits and the key: not
on the method, nor on which rows shared the launch.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from numbers import Integral, Real

import torch

from ooospec._core import _C
from ooospec.errors import InvalidRequest

_MASK64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_NUM_BITS = 40
_MOST = (1 << 31) - 1  # that the core can hold
# -log(-log u) over u = (h + 0.5) / 2^40, h in [0, 2^40): the noise lies between these.
_NOISE_MAX = -math.log(-math.log1p(-0.5 * 2.0**-_NUM_BITS))
_NOISE_MIN = -math.log(-math.log(0.5 * 2.0**-_NUM_BITS))


@dataclass(frozen=True)
class SamplingParams:
    """How a request chooses and when it ends.

    temperature: 0 is greedy. top_k: keep the k likeliest, 0 keeps all. top_p: then keep the
    likeliest that reach this probability together, 1 keeps all. seed, choice: key of the noise;
    None: a seed of the request's own. min_tokens: no end of sequence or stop string before so many
    tokens, not above max_tokens. max_tokens: most tokens of the answer; None: 1024, or fewer where
    context and cache leave less. stop: strings that end the answer, not part of it. ignore_eos: go
    on after an end of sequence.

    Raises InvalidRequest, naming the field, for values out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    choice: int = 0
    min_tokens: int = 0
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        if isinstance(self.stop, Iterable):
            object.__setattr__(self, "stop", tuple(self.stop))
        strings = isinstance(self.stop, tuple) and all(
            isinstance(text, str) and text for text in self.stop
        )
        _require("stop", self.stop, strings, "strings that are not empty")
        warm = isinstance(self.temperature, Real) and 0 <= self.temperature < math.inf
        _require("temperature", self.temperature, warm, "a number from 0 on")
        _require("top_k", self.top_k, _is_count(self.top_k, highest=_MOST), "0 (off) to 2147483647")
        share = isinstance(self.top_p, Real) and 0 < self.top_p <= 1
        _require("top_p", self.top_p, share, "a number above 0 and up to 1")
        _require("choice", self.choice, _is_count(self.choice), "an integer from 0 on")
        _require(
            "min_tokens",
            self.min_tokens,
            _is_count(self.min_tokens, highest=_MOST),
            "0 to 2147483647",
        )
        enough = self.max_tokens is None or _is_count(self.max_tokens, 1)
        _require("max_tokens", self.max_tokens, enough, "an integer from 1 on")
        room = self.max_tokens is None or self.min_tokens <= self.max_tokens
        _require("min_tokens", self.min_tokens, room, f"at most max_tokens ({self.max_tokens})")
        seeded = self.seed is None or _is_count(self.seed, -math.inf)
        _require("seed", self.seed, seeded, "an integer")

    def seeded(self) -> SamplingParams:
        """Returns these parameters with a seed: their own, or one drawn from the system."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(63))


def _is_count(value: object, lowest: float = 0, highest: float = math.inf) -> bool:
    """Returns whether `value` is an integer, no truth value, from `lowest` to `highest`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        return False
    return lowest <= int(value) <= highest


def _require(name: str, value: object, valid: bool, expected: str) -> None:
    if not valid:
        raise InvalidRequest(f"{name}: expected {expected}, got {value!r}")


class Chooser:
    """Chooses the tokens of one request, each by its own logits and its own place in the answer.

    params: with a seed. key: of the request's noise. core: the same for the rows of a launch.
    """

    def __init__(self, params: SamplingParams, decodable: int, eos_ids: Collection[int]) -> None:
        """decodable: ids from here on are never chosen. eos_ids: none before params.min_tokens."""
        params = params.seeded()
        assert params.seed is not None
        self.params = params
        self._decodable = decodable
        self._eos_ids = sorted(eos_ids)
        self.key = request_key(int(params.seed), int(params.choice))
        self.core = _C.RowChoice(
            min_tokens=params.min_tokens,
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            key=self.key,
        )

    def choose(self, logits: torch.Tensor, index: int) -> int:
        """Returns the token for place `index` (0: first) of the answer.

        logits: float32[V], any device. Raises RuntimeError if the model gave no finite maximum.
        """
        row = logits[: self._decodable]
        if index < self.params.min_tokens and self._eos_ids:
            row = row.clone()
            row[self._eos_ids] = -torch.inf
        best = int(row.argmax())
        highest = float(row[best])
        if not math.isfinite(highest):
            raise RuntimeError(
                f"the model gave no usable logits: expected a finite maximum, got {highest}"
            )
        if self.params.temperature == 0:
            return best
        ids, tempered = self._filter(row, highest)
        return self._draw(ids, tempered, index)

    def _filter(self, row: torch.Tensor, highest: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the ids that may be drawn and their tempered logits (float64, highest 0)."""
        params = self.params
        tempered = (row.double() - highest) / params.temperature
        floor = -math.inf
        if 0 < params.top_k < len(row):
            floor = float(torch.topk(tempered, params.top_k).values[-1])
        elif params.top_p == 1:
            floor = _NOISE_MIN - _NOISE_MAX  # ids further down cannot win, whatever their noise
        ids = (tempered >= floor).nonzero()[:, 0]
        if params.top_k or params.top_p < 1:
            if not params.top_k:
                return self._nucleus(tempered)
            order = torch.argsort(tempered[ids], descending=True, stable=True)[: params.top_k]
            ids = ids[order]
        chosen = tempered[ids]
        if params.top_p < 1:
            num_kept = _num_in_nucleus(chosen, chosen.exp().sum(), params.top_p)
            ids, chosen = ids[:num_kept], chosen[:num_kept]
        return ids, chosen

    def _nucleus(self, tempered: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Top-p over all ids; sorts only as many as it needs."""
        total = tempered.exp().sum()
        count = min(1024, len(tempered))
        while True:
            floor = float(torch.topk(tempered, count).values[-1])
            ids = (tempered >= floor).nonzero()[:, 0]
            ids = ids[torch.argsort(tempered[ids], descending=True, stable=True)]
            chosen = tempered[ids]
            num_kept = _num_in_nucleus(chosen, total, self.params.top_p)
            if num_kept < len(ids) or len(ids) == len(tempered):
                return ids[:num_kept], chosen[:num_kept]
            count = min(count * 8, len(tempered))

    def _draw(self, ids: torch.Tensor, tempered: torch.Tensor, index: int) -> int:
        """Returns the id with the highest sum of logit and noise; the lowest id on a tie."""
        noisy = tempered + gumbel(place_key(self.key, index), ids)
        return int(ids[noisy == noisy.max()].min())


def _num_in_nucleus(tempered: torch.Tensor, total: torch.Tensor, top_p: float) -> int:
    """Returns how many of the sorted ids it takes to reach `top_p`; all of them if they do not."""
    mass = torch.cumsum(tempered.exp(), dim=0) / total
    return min(len(tempered), int((mass < top_p).sum()) + 1)


def top_ids(logits: torch.Tensor, count: int) -> torch.Tensor:
    """Returns int64[rows, count]: ids of the highest of `logits` [rows, V], highest first.

    Looks for the blocks of 128 ids with the highest maxima first: a fourth of the time of topk.
    """
    block = 128
    num_blocks = logits.shape[1] // block
    if num_blocks < count:
        return logits.topk(count, dim=-1).indices
    highest = logits[:, : num_blocks * block].view(-1, num_blocks, block).amax(dim=-1)
    starts = highest.topk(count, dim=-1).indices * block
    ids = (starts[..., None] + torch.arange(block, device=logits.device)).flatten(1)
    rest = torch.arange(num_blocks * block, logits.shape[1], device=logits.device)
    ids = torch.cat((ids, rest.expand(len(logits), -1)), dim=1)
    return ids.gather(1, logits.gather(1, ids).topk(count, dim=-1).indices)


def request_key(seed: int, choice: int) -> int:
    """Returns the 64-bit key of the noise of one answer."""
    return _mix((seed & _MASK64) ^ _mix(choice + 1))


def place_key(key: int, index: int) -> int:
    """Returns the 64-bit key of the noise at place `index` (0: first) of an answer."""
    return _mix(key ^ _mix(index + 1))


def gumbel(key: int, ids: torch.Tensor) -> torch.Tensor:
    """Returns float64 Gumbel noise for each id under a 64-bit `key`; bounded.

    ids: int64[n]. Numeric notes: 40-bit uniforms, so the noise lies in [-3.4, 28.5].
    """
    mixed = _mix_tensor(ids * _signed(_GOLDEN) + _signed(key))
    uniform = (_shift(mixed, 64 - _NUM_BITS).double() + 0.5) * 2.0**-_NUM_BITS
    return -torch.log(-torch.log(uniform))


def spread_ids(ids: torch.Tensor) -> torch.Tensor:
    """Returns int64 numbers of 64 bits that look random, one for each of int64 `ids`."""
    return _mix_tensor(ids * _signed(_GOLDEN))


def _mix(value: int) -> int:
    """The finaliser of splitmix64."""
    value = (value + _GOLDEN) & _MASK64
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK64
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK64
    return value ^ (value >> 31)


def _mix_tensor(value: torch.Tensor) -> torch.Tensor:
    """The finaliser of splitmix64 on int64, which wraps as 64-bit words do."""
    value = (value ^ _shift(value, 30)) * _signed(_MIX_1)
    value = (value ^ _shift(value, 27)) * _signed(_MIX_2)
    return value ^ _shift(value, 31)


def _shift(value: torch.Tensor, bits: int) -> torch.Tensor:
    """Shifts int64 right as if it had no sign."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
