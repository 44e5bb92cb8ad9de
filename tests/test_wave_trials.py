# SPDX-License-Identifier: Apache-2.0
"""Whether waves pay, learnt from answers of known times."""

from __future__ import annotations

import random

import pytest

from ooospec.wave_trials import FIRST, WaveTrials

PER_ROUND = 2e-3


def answer(trials: WaveTrials, rng: random.Random, rounds: float, prefill: float) -> bool:
    """Answers a request; with a wave in `rounds` times the rounds and `prefill` times the prefill
    of an answer without. Returns whether it got one.
    """
    with_wave = trials.wants()
    num_prompt, num_tokens = rng.randint(300, 900), rng.randint(20, 90)
    first = num_prompt * 1e-5 * (prefill if with_wave else 1.0)
    num_rounds = num_tokens / rng.uniform(5, 20) * (rounds if with_wave else 1.0)
    trials.learn(
        with_wave,
        num_prompt=num_prompt,
        num_tokens=num_tokens,
        first=first,
        total=first + num_rounds * PER_ROUND,
        per_round=PER_ROUND,
    )
    return with_wave


@pytest.mark.parametrize(
    ("rounds", "prefill", "low", "high"),
    [
        (0.6, 1.05, 0.85, 1.0),  # a wave on a GPU of its own
        (0.95, 1.4, 0.0, 0.3),  # one that takes more of the prefill than it saves in rounds
        (1.0, 1.0, 0.1, 0.9),  # one that does nothing
    ],
)
def test_the_faster_way_is_taken(rounds: float, prefill: float, low: float, high: float) -> None:
    shares = []
    for seed in range(5):
        trials, rng = WaveTrials(seed), random.Random(seed)
        taken = [answer(trials, rng, rounds, prefill) for _ in range(1000)]
        assert taken[: 2 * FIRST : 2] == [True] * FIRST
        assert taken[1 : 2 * FIRST : 2] == [False] * FIRST
        shares.append(sum(taken[200:]) / 800)
    assert low <= sum(shares) / 5 <= high


def test_what_changes_is_learnt_again() -> None:
    trials, rng = WaveTrials(), random.Random(1)
    for _ in range(300):
        answer(trials, rng, 1.5, 1.5)
    assert sum(answer(trials, rng, 1.5, 1.5) for _ in range(100)) < 10
    late = [answer(trials, rng, 0.4, 1.0) for _ in range(1000)]  # other requests, say
    assert sum(late[-200:]) > 160


def test_it_says_what_it_knows() -> None:
    trials = WaveTrials()
    assert str(trials) == "no answer timed yet"
    how = {"num_prompt": 100, "num_tokens": 10, "first": 0.01, "per_round": 0.001}
    trials.learn(True, total=0.02, **how)
    trials.learn(False, total=0.01, **how)
    said = "time over plain decoding 1.00 with a wave (of 1), 0.50 without (1)"
    assert str(trials) == said
