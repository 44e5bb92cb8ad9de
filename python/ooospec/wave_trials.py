# SPDX-License-Identifier: Apache-2.0
"""Whether waves pay: learnt from how long answers took with one and without."""

from __future__ import annotations

import math
import random
import threading
import time
from dataclasses import dataclass

WINDOW = 64  # answers of a way that count; what is older fades
FADES = 256  # answers of the other way after which a third of them still counts
FIRST = 4  # answers of each way before the two are compared
DOUBT = 0.03  # at least, about the mean of a way


@dataclass
class Way:
    """Logarithms of the times of answers, over those of plain decoding: mean and variance.

    num: how many count.
    """

    num: float = 0.0
    mean: float = 0.0
    variance: float = 0.0

    def learn(self, value: float) -> None:
        """Counts one more."""
        self.num = min(self.num + 1, WINDOW)
        weight = 1 / self.num
        off = value - self.mean
        self.mean += weight * off
        self.variance = (1 - weight) * (self.variance + weight * off * off)

    def fade(self) -> None:
        """Hears that the other way was taken: requests and machines change."""
        self.num *= 1 - 1 / FADES

    @property
    def doubt(self) -> float:
        """The standard error of the mean."""
        return max(DOUBT, math.sqrt(self.variance / self.num))


class WaveTrials:
    """Says for each request whether it gets a wave: mostly the way by which answers were faster,
    the other one as often as there is doubt (Thompson sampling). Safe to share among threads.

    Times are over those that plain decoding would have taken: prefill at the mean speed of all
    answers, and a round of one row a token. What a wave saves in rounds counts thus, and so does
    what it takes from prefill and rounds beside it.
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self._with, self._without = Way(), Way()
        self._prefill = 0.0  # seconds a token of a prompt, running mean
        self._lock = threading.Lock()

    def wants(self) -> bool:
        """Returns whether the next request gets a wave."""
        with self._lock:
            ways = self._with, self._without
            if min(way.num for way in ways) < FIRST:
                return self._with.num <= self._without.num
            with_one, without = (self._rng.gauss(way.mean, way.doubt) for way in ways)
            return with_one <= without

    def learn(
        self,
        with_wave: bool,
        *,
        num_prompt: int,
        num_tokens: int,
        first: float,
        total: float,
        per_round: float,
    ) -> None:
        """Learns from an answer of `num_tokens` tokens to a prompt of `num_prompt`, both above 0.

        first, total: seconds from arrival to the first token and to the last. per_round: seconds of
        a round of one row, above 0.
        """
        with self._lock:
            speed = first / num_prompt
            num = min(self._with.num + self._without.num + 1, WINDOW)
            self._prefill += (speed - self._prefill) / num
            plain = self._prefill * num_prompt + per_round * num_tokens
            ways = self._with, self._without
            way, other = ways if with_wave else ways[::-1]
            way.learn(math.log(max(1e-9, total) / plain))
            other.fade()

    def __str__(self) -> str:
        with self._lock:
            num = self._with.num, self._without.num
            if not sum(num):
                return "no answer timed yet"
            times = [f"{math.exp(way.mean):.2f}" for way in (self._with, self._without)]
        return (
            f"time over plain decoding {times[0]} with a wave (of {num[0]:.0f}), {times[1]} "
            f"without ({num[1]:.0f})"
        )


class Trial:
    """One request, and whether it gets a wave; its time goes to the trials when it ends."""

    def __init__(self, trials: WaveTrials, num_prompt: int) -> None:
        """num_prompt: tokens of the prompt."""
        self.with_wave = trials.wants()
        self._trials = trials
        self._num_prompt = num_prompt
        self._began = time.perf_counter()
        self._first = 0.0
        self._num_tokens = 0

    def committed(self, num_tokens: int) -> None:
        """Hears of tokens of the answer."""
        if not self._num_tokens:
            self._first = time.perf_counter() - self._began
        self._num_tokens += num_tokens

    def finish(self, per_round: float) -> None:
        """Ends; per_round: seconds of a round of one row. Learns nothing of an empty answer."""
        if self._num_tokens:
            self._trials.learn(
                self.with_wave,
                num_prompt=self._num_prompt,
                num_tokens=self._num_tokens,
                first=self._first,
                total=time.perf_counter() - self._began,
                per_round=per_round,
            )
