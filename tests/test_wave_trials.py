# SPDX-License-Identifier: Apache-2.0
"""Whether waves pay, and waiting for them, learnt from answers of known times."""

from __future__ import annotations

import random

import pytest

from ooospec.wave_trials import FIRST, WaveTrials, Way

PER_ROUND = 2e-3


def answer(trials: WaveTrials, rng: random.Random, rounds: dict[Way, float], prefill: float) -> Way:
    """Answers a request, in `rounds` times the rounds of an answer without a wave, by its way, and
    with one in `prefill` times the prefill. Returns the way.
    """
    way = trials.choose()
    num_prompt, num_tokens = rng.randint(300, 900), rng.randint(20, 90)
    first = num_prompt * 1e-5 * (1.0 if way == "never" else prefill)
    num_rounds = num_tokens / rng.uniform(5, 20) * rounds[way]
    trials.learn(
        way,
        num_prompt=num_prompt,
        num_tokens=num_tokens,
        first=first,
        total=first + num_rounds * PER_ROUND,
        per_round=PER_ROUND,
    )
    return way


@pytest.mark.parametrize(
    ("always", "wait", "prefill", "best"),
    [
        (0.6, 0.8, 1.05, "always"),  # a wave on a GPU of its own
        (1.0, 0.6, 1.05, "wait"),  # one that comes too late for who does not wait
        (0.95, 0.9, 1.4, "never"),  # one that takes more of the prefill than it saves in rounds
    ],
)
def test_the_fastest_way_is_taken(always: float, wait: float, prefill: float, best: Way) -> None:
    rounds: dict[Way, float] = {"always": always, "wait": wait, "never": 1.0}
    num_best = 0
    for seed in range(5):
        trials, rng = WaveTrials(seed), random.Random(seed)
        taken = [answer(trials, rng, rounds, prefill) for _ in range(1000)]
        assert taken[: 3 * FIRST] == ["always", "wait", "never"] * FIRST
        num_best += taken[200:].count(best)
    assert num_best > 0.75 * 5 * 800


def test_equal_ways_are_all_taken() -> None:
    rounds: dict[Way, float] = {"always": 1.0, "wait": 1.0, "never": 1.0}
    trials, rng = WaveTrials(), random.Random(1)
    taken = [answer(trials, rng, rounds, 1.0) for _ in range(1000)]
    assert min(taken.count(way) for way in rounds) > 100


def test_what_changes_is_learnt_again() -> None:
    trials, rng = WaveTrials(), random.Random(1)
    for _ in range(300):
        answer(trials, rng, {"always": 1.5, "wait": 1.5, "never": 1.0}, 1.5)
    taken = [
        answer(trials, rng, {"always": 1.5, "wait": 1.5, "never": 1.0}, 1.5) for _ in range(100)
    ]
    assert taken.count("never") > 80
    other = {"always": 0.7, "wait": 0.4, "never": 1.0}  # requests, say
    late = [answer(trials, rng, other, 1.0) for _ in range(1000)]
    assert late[-200:].count("wait") > 160


def test_it_says_what_it_knows() -> None:
    trials = WaveTrials()
    assert str(trials) == "time over plain decoding: none yet"
    how = {"num_prompt": 100, "num_tokens": 10, "first": 0.01, "per_round": 0.001}
    trials.learn("wait", total=0.02, **how)
    trials.learn("never", total=0.01, **how)
    assert str(trials) == "time over plain decoding: wait 1.00 (of 1), never 0.50 (of 1)"
