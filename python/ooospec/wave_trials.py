# SPDX-License-Identifier: Apache-2.0
"""Whether waves pay, and waiting for them: learnt from how long answers took each way."""

from __future__ import annotations

import math
import random
import threading
import time
from dataclasses import dataclass
from typing import Literal, get_args

WINDOW = 64  # answers of a way that count; what is older fades
FADES = 256  # answers of other ways after which a third of them still counts
FIRST = 4  # answers of each way before they are compared
DOUBT = 0.03  # at least, about the mean of a way

Way = Literal["always", "wait", "never"]  # see SidecarConfig.wave


@dataclass
class Times:
    """Running mean and variance of log(time / time of plain decoding) over the answers of one way.

    num: answers that count.
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
        """Hears that another way was taken: requests and machines change."""
        self.num *= 1 - 1 / FADES

    @property
    def doubt(self) -> float:
        """The standard error of the mean."""
        return max(DOUBT, math.sqrt(self.variance / self.num))


class WaveTrials:
    """Says for each request whether it gets a wave, and waits for it: mostly the way by which
    answers were fastest, the others as often as there is doubt (Thompson sampling). Safe to share
    among threads.

    Times are over those that plain decoding would have taken: prefill at the mean speed of all
    answers, and a round of one row a token. What a wave saves in rounds counts thus, and so does
    what it takes from prefill and rounds beside it.
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self._times: dict[Way, Times] = {way: Times() for way in get_args(Way)}
        self._prefill = 0.0  # seconds a token of a prompt, running mean
        self._lock = threading.Lock()

    def choose(self) -> Way:
        """Returns the way of the next request."""
        with self._lock:
            times = self._times
            rarest = min(times, key=lambda way: times[way].num)
            if times[rarest].num < FIRST:
                return rarest
            return min(times, key=lambda way: self._rng.gauss(times[way].mean, times[way].doubt))

    def learn(
        self,
        way: Way,
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
            num = min(sum(one.num for one in self._times.values()) + 1, WINDOW)
            self._prefill += (speed - self._prefill) / num
            plain = self._prefill * num_prompt + per_round * num_tokens
            for one, times in self._times.items():
                if one == way:
                    times.learn(math.log(max(1e-9, total) / plain))
                else:
                    times.fade()

    def __str__(self) -> str:
        with self._lock:
            said = [
                f"{way} {math.exp(times.mean):.2f} (of {times.num:.0f})"
                for way, times in self._times.items()
                if times.num
            ]
        return f"time over plain decoding: {', '.join(said) or 'none yet'}"


class Trial:
    """One request and its way; its time goes to the trials when it ends."""

    def __init__(self, trials: WaveTrials, num_prompt: int) -> None:
        """num_prompt: tokens of the prompt."""
        self.way = trials.choose()
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
                self.way,
                num_prompt=self._num_prompt,
                num_tokens=self._num_tokens,
                first=self._first,
                total=time.perf_counter() - self._began,
                per_round=per_round,
            )
