# SPDX-License-Identifier: Apache-2.0
"""Whether a wave is worth its time, by the measured costs of sidecar and target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Mode = Literal["auto", "always", "wait", "never"]

# What a call takes without hints, and how much of that hints save. Measured figures replace them.
EXPECTED_ROUNDS = 12
SAVED_SHARE = 0.4


@dataclass(frozen=True)
class CostCurve:
    """Microseconds of a launch by its rows; straight lines between what was measured, and beyond.

    Raises ValueError unless row counts rise and every cost is above zero.
    """

    row_counts: tuple[int, ...]
    costs_us: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.row_counts, self.row_counts[1:], strict=False))
        if not self.row_counts or len(self.row_counts) != len(self.costs_us) or not rising:
            raise ValueError(
                f"cost curve: expected rising row counts and a cost for each, got "
                f"{self.row_counts} and {self.costs_us}"
            )
        if min(self.costs_us) <= 0:
            raise ValueError(f"cost curve: expected costs above 0 us, got {min(self.costs_us)}")

    def cost_us(self, num_rows: int) -> float:
        """Returns the microseconds of a launch of `num_rows` rows."""
        last = self.row_counts[-1]
        if num_rows <= last or len(self.row_counts) == 1:
            return float(np.interp(num_rows, self.row_counts, self.costs_us))
        rise = (self.costs_us[-1] - self.costs_us[-2]) / (last - self.row_counts[-2])
        return self.costs_us[-1] + max(0.0, rise) * (num_rows - last)

    def prefill_us(self, num_tokens: int, chunk: int) -> float:
        """Returns the microseconds of a prefill of `num_tokens` tokens in chunks."""
        full, rest = divmod(max(0, num_tokens), chunk)
        return full * self.cost_us(chunk) + (self.cost_us(rest) if rest else 0.0)


@dataclass(frozen=True)
class Target:
    """What a wave has to know of the model that it helps.

    costs: of its rounds. chunk: rows of its prefill. context_limit: most tokens it takes.
    shared: target time lost per microsecond of wave: 0 on a device or cores of the sidecar's own,
    about 0.1 on two streams of one GPU, 1 where both compute on the same cores.
    """

    costs: CostCurve
    chunk: int
    context_limit: int
    shared: float
    expected_rounds: float = EXPECTED_ROUNDS
    saved_share: float = SAVED_SHARE


@dataclass(frozen=True)
class Work:
    """What a wave has to do: prompt tokens, those not cached, slots, and rows of the questions."""

    num_new_tokens: int
    num_prompt_tokens: int
    num_slots: int
    num_question_rows: int


class WavePolicy:
    """Decides for each request whether a wave starts. reason: why the last one did, or did not."""

    def __init__(self, mode: Mode, costs: CostCurve | None, chunk: int, num_rows: int) -> None:
        """mode: "auto" decides by cost. costs: of the sidecar; None: not measured: "auto" says no.

        chunk: rows of its prefill. num_rows: branches that advance together.
        """
        self.mode = mode
        self.reason = "no request yet"
        self.target: Target | None = None
        self._costs = costs
        self._chunk = chunk
        self._num_rows = num_rows
        self._correction = 1.0  # measured over estimated time of a wave, running mean

    def wave_us(self, work: Work, answer_tokens: int = 8) -> float:
        """Returns the microseconds that a wave is expected to take, by itself."""
        assert self._costs is not None
        prefill = self._costs.prefill_us(work.num_new_tokens, self._chunk)
        questions = self._costs.prefill_us(work.num_question_rows, self._chunk)
        full, rest = divmod(work.num_slots, self._num_rows)
        steps = full * self._costs.cost_us(self._num_rows)
        steps += self._costs.cost_us(rest) if rest else 0
        return self._correction * (prefill + questions + answer_tokens * steps)

    def wants(self, work: Work) -> bool:
        """Returns whether a wave over `work` starts now. Mutates: reason."""
        if self.mode != "auto":
            self.reason = f"wave={self.mode}"
            return self.mode != "never"
        if self.target is None or self._costs is None:
            self.reason = "costs of the target are not known"
            return False
        wave = self.wave_us(work)
        saved = self._saved_us(work, wave, self.target)
        lost = wave * self.target.shared
        self.reason = (
            f"a wave takes {_ms(wave)}, slows the target by {_ms(lost)} and saves {_ms(saved)}"
        )
        return saved > lost

    def learn(self, work: Work, measured_us: float) -> None:
        """Corrects later estimates by the time a wave really took. Mutates: the estimate."""
        if self._costs is not None:
            ratio = measured_us / max(1e-9, self.wave_us(work) / self._correction)
            self._correction += 0.25 * (ratio - self._correction)

    def _saved_us(self, work: Work, wave: float, target: Target) -> float:
        """Hints shorten the rounds that are left when the wave ends."""
        round_us = target.costs.cost_us(1)
        first_token = target.costs.prefill_us(work.num_prompt_tokens, target.chunk)
        begun = max(0.0, wave * (1 + target.shared) - first_token) / round_us
        return max(0.0, target.expected_rounds - begun) * target.saved_share * round_us


def _ms(microseconds: float) -> str:
    return f"{microseconds / 1000:.1f} ms"
