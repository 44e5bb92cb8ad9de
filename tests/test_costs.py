# SPDX-License-Identifier: Apache-2.0
"""Costs of rounds: measured beside other work, corrected by the rounds themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import ooospec
from ooospec.backends.load import load_backend
from ooospec.costs import COST_ROWS, RoundClock, RoundCosts, measure_costs
from ooospec.draft import Drafter
from ooospec.drafting import RequestDrafter
from ooospec.methods import METHODS
from test_drafter import byte_text
from tiny_models import tiny_model, tiny_tokenizer

TRUE_US = [300.0, 500.0, 570.0, 660.0, 860.0, 1100.0, 1600.0]


def measured_with(noise: dict[tuple[int, int], float]) -> list[float]:
    """Returns what is measured where the k-th time of n rows is longer by noise[n, k]."""
    taken = dict.fromkeys(COST_ROWS, 0)

    def measure(counts: list[int]) -> list[float]:
        (count,) = counts
        taken[count] += 1
        return [TRUE_US[COST_ROWS.index(count)] * noise.get((count, taken[count]), 1.0)]

    return measure_costs(SimpleNamespace(measure_costs=measure)).measured()


@pytest.mark.parametrize(
    "noise",
    [
        {},
        {(1, 1): 1.6},  # passes for a small gain of speculation, were it not taken again
        {(1, 1): 9.0, (1, 2): 9.0},
        {(8, 1): 3.0},
        {(4, 1): 2.0, (4, 2): 2.0, (32, 1): 4.0},
    ],
)
def test_what_else_runs_does_not_bend_the_curve(noise: dict[tuple[int, int], float]) -> None:
    assert measured_with(noise) == TRUE_US


def test_a_curve_never_falls() -> None:
    """Fewer rows can be padded: the cliff of a library at some size is not for us."""
    costs = RoundCosts([391.0, 600.0, 825.0, 786.0, 960.0, 1375.0, 2007.0])
    curve = costs.curve()
    assert len(curve) == 64
    assert [curve[n - 1] for n in (1, 2, 3, 4, 5, 8, 9, 33, 64)] == [
        391, 600, 786, 786, 786, 786, 960, 2007, 2007,
    ]  # fmt: skip


def test_rounds_correct_what_was_measured() -> None:
    costs = RoundCosts(TRUE_US)
    for _ in range(40):  # one row took twice the time when it was measured, say
        costs.observe(1, 150.0)
        costs.observe(16, 860.0)
    now = costs.measured()
    assert now[4] / now[0] == pytest.approx(860 / 150, rel=0.1)


def test_a_single_row_that_was_measured_wrong_is_soon_judged_right() -> None:
    """All others are judged by it: what else used the memory while it was measured slowed it alone,
    and rounds of more rows are few where drafts fail.
    """
    costs = RoundCosts([1.3 * TRUE_US[0], *TRUE_US[1:]])
    for size in (0, 0, 0, 0, 0, 3, 0, 0, 0, 3):
        costs.observe(COST_ROWS[size], TRUE_US[size])
    now = costs.measured()
    assert now[3] / now[0] == pytest.approx(TRUE_US[3] / TRUE_US[0], rel=0.08)


def test_a_drafter_under_way_hears_of_new_costs() -> None:
    engine = ooospec.load(
        load_backend(tiny_model("qwen2"), tokenizer=tiny_tokenizer()),
        cost_model=RoundCosts(TRUE_US),
    )
    run = engine.run(engine.request([{"role": "user", "content": "Hi"}], max_tokens=8), "toolspec")
    run.admit()
    run.begin()
    run.start()
    drafter: Any = run._drafter
    before = list(drafter.drafter.costs_us)
    while not run.is_over:
        engine.step([run])
    assert drafter.drafter.costs_us != before
    run.close()
    engine.close()


def test_all_drafters_of_shared_rounds_hear_of_new_costs() -> None:
    costs = RoundCosts(TRUE_US)
    clock = RoundClock(costs)
    drafters = [
        RequestDrafter(Drafter(byte_text(), [], METHODS["toolspec"], [1]), number, None, clock)
        for number in (1, 2)
    ]
    for drafter in drafters:
        drafter.propose(8)
    for drafter in drafters:
        drafter.commit([2])
    for drafter in drafters:
        drafter.prepare()
    assert [drafter.drafter.costs_us for drafter in drafters] == [costs.curve()] * 2


def test_a_slow_spell_leaves_the_ratios_alone() -> None:
    """Longer contexts and busy machines slow all sizes down, of which only some are seen."""
    costs = RoundCosts(TRUE_US)
    for _ in range(60):
        costs.observe(1, 3 * 300.0)
    now = costs.measured()
    assert now[0] == pytest.approx(900, rel=0.05)
    assert now[4] / now[0] == pytest.approx(860 / 300, rel=0.25)
    costs.observe(16, 1e9)  # the machine slept
    slept = costs.measured()
    assert slept[4] / now[4] < 1.2
    assert slept[4] / slept[0] < 1.2 * now[4] / now[0]


@pytest.mark.parametrize("us", [[1.0], [1.0] * 6 + [0.0]])
def test_costs_that_are_none(us: list[float]) -> None:
    with pytest.raises(ValueError, match="costs: expected 7 times above 0"):
        RoundCosts(us)


def test_an_engine_clocks_its_rounds() -> None:
    costs = RoundCosts([1e9] * 7)  # no model is as slow
    backend = load_backend(tiny_model("qwen2"), tokenizer=tiny_tokenizer())
    engine = ooospec.load(backend, cost_model=costs)
    engine.generate([{"role": "user", "content": "hi"}], method="toolspec", max_tokens=20)
    assert max(costs.measured()) < 1e9
