# SPDX-License-Identifier: Apache-2.0
"""What a step of vLLM costs by its tokens, learnt from the steps themselves."""

from __future__ import annotations

import time

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
STEP = 0.2  # of a deviation is believed
MOST = 2.0  # a step that took longer by more counts as this: somebody else ran
NUM_PLAIN = 2  # steps without drafts before a batch of a new size gets some


class StepCosts:
    """Microseconds of a step of each of SIZES tokens, as far as seen."""

    def __init__(self) -> None:
        self._us: list[float | None] = [None] * len(SIZES)
        self._counts = [0] * len(SIZES)

    def observe(self, num_tokens: int, us: float) -> None:
        """Counts a step of `num_tokens` tokens."""
        size = _size_of(num_tokens)
        known = self._us[size]
        self._counts[size] += 1
        if known is None:
            self._us[size] = us
        else:
            self._us[size] = known + STEP * (min(us, MOST * known) - known)

    def knows(self, num_tokens: int) -> bool:
        """Returns whether steps of this size were seen often enough to compare others with."""
        return self._counts[_size_of(num_tokens)] >= NUM_PLAIN

    def curve(self, batch: int, max_tokens: int) -> list[float]:
        """Returns float[max_tokens]: the time of a step in which each of `batch` requests has 1, 2,
        ... tokens. A size that was never seen counts as the next smaller one: it is worth a try.
        """
        filled: list[float] = []
        least = next((us for us in self._us if us is not None), 1.0)
        for us in self._us:
            least = max(least, us) if us is not None else least
            filled.append(least)
        return [filled[_size_of(batch * count)] for count in range(1, max_tokens + 1)]


class StepClock:
    """Times the steps between two calls of a proposer in which every request decodes."""

    def __init__(self, costs: StepCosts) -> None:
        self.costs = costs
        self._start = 0.0
        self._num_tokens = 0  # of the step under way; 0: not to be timed

    def stop(self, decodes: bool) -> None:
        """A step is over. decodes: whether all its requests had come out of prefill before."""
        if decodes and self._num_tokens:
            self.costs.observe(self._num_tokens, (time.perf_counter() - self._start) * 1e6)
        self._num_tokens = 0

    def start(self, num_tokens: int) -> None:
        """A step begins, with so many tokens."""
        self._num_tokens = num_tokens
        self._start = time.perf_counter()


def _size_of(num_tokens: int) -> int:
    return next((i for i, size in enumerate(SIZES) if size >= num_tokens), len(SIZES) - 1)
