# SPDX-License-Identifier: Apache-2.0
"""Whether a wave is worth its time, on curves of machines that were measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ooospec.loading import shared_compute
from ooospec.sidecar.policy import CostCurve, Target, WavePolicy, Work

# A 1.5B target and a 0.5B sidecar in float32 on two cores; Qwen3-8B and 0.6B shapes on an H200.
CPU_TARGET = CostCurve((1, 4, 8, 16, 32, 64), (391e3, 825e3, 786e3, 960e3, 1375e3, 2007e3))
CPU_SIDECAR = CostCurve((1, 8, 32), (130e3, 260e3, 450e3))
GPU_TARGET = CostCurve((1, 64), (5200.0, 5200.0))
GPU_SIDECAR = CostCurve((1, 64), (1100.0, 1100.0))
WORK = Work(num_new_tokens=600, num_prompt_tokens=600, num_slots=20, num_question_rows=300)


def decide(costs: CostCurve, target: CostCurve, shared: float, chunk: int) -> WavePolicy:
    policy = WavePolicy("auto", costs, chunk, 32)
    policy.target = Target(target, chunk, 32768, shared)
    policy.wants(WORK)
    return policy


@pytest.mark.parametrize(
    ("costs", "target", "shared", "chunk", "started"),
    [
        (GPU_SIDECAR, GPU_TARGET, 0.0, 64, True),  # each on its own GPU
        (GPU_SIDECAR, GPU_TARGET, 0.12, 64, True),  # two streams of one
        (CPU_SIDECAR, CPU_TARGET, 1.0, 256, False),  # the same two cores
        (CPU_SIDECAR, GPU_TARGET, 0.0, 256, False),  # ready long after the answer
        (GPU_SIDECAR, CPU_TARGET, 0.0, 64, True),
    ],
)
def test_a_wave_starts_where_it_saves_more_than_it_costs(
    costs: CostCurve, target: CostCurve, shared: float, chunk: int, started: bool
) -> None:
    policy = decide(costs, target, shared, chunk)
    assert policy.wants(WORK) is started
    assert policy.reason.startswith("a wave takes ")


def test_measured_waves_correct_the_estimate() -> None:
    policy = decide(GPU_SIDECAR, GPU_TARGET, 0.12, 64)
    assert policy.wants(WORK)
    for _ in range(20):
        policy.learn(WORK, 10e6)  # ten seconds: something else is on that GPU
    assert not policy.wants(WORK)
    for _ in range(40):
        policy.learn(WORK, 15e3)
    assert policy.wants(WORK)


def test_a_cached_prefix_makes_a_wave_cheaper() -> None:
    policy = decide(CPU_SIDECAR, CPU_TARGET, 1.0, 256)
    warm = Work(num_new_tokens=20, num_prompt_tokens=600, num_slots=20, num_question_rows=300)
    assert policy.wave_us(warm) < policy.wave_us(WORK) / 1.5


def test_always_and_never_need_no_costs() -> None:
    assert WavePolicy("always", None, 64, 32).wants(WORK)
    assert not WavePolicy("never", None, 64, 32).wants(WORK)
    assert not WavePolicy("auto", None, 64, 32).wants(WORK)


def test_a_cost_curve_is_straight_between_what_was_measured_and_beyond() -> None:
    curve = CostCurve((1, 8, 32), (100.0, 170.0, 410.0))
    assert [curve.cost_us(n) for n in (1, 2, 8, 20, 32, 64)] == [100, 110, 170, 290, 410, 730]
    assert curve.prefill_us(70, 32) == 2 * 410 + curve.cost_us(6)
    assert curve.prefill_us(0, 32) == 0
    assert CostCurve((4,), (7.0,)).cost_us(400) == 7
    assert CostCurve((1, 2), (9.0, 5.0)).cost_us(400) == 5  # a cliff is not taken to go on down


@pytest.mark.parametrize(
    ("rows", "costs"), [((), ()), ((1, 1), (1.0, 1.0)), ((1, 2), (1.0,)), ((1,), (0.0,))]
)
def test_curves_that_are_none(rows: tuple[int, ...], costs: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="cost curve: expected"):
        CostCurve(rows, costs)


@pytest.mark.parametrize(
    ("target", "sidecar", "expected"),
    [
        ("cpu", None, 1.0),
        ("cpu", "cpu", 1.0),
        ("cpu", "cuda:0", 0.0),
        ("cuda:0", "cpu", 0.0),
        ("cuda:0", None, 0.15),
        ("cuda:0", "cuda", 0.15),
        ("cuda:0", "cuda:1", 0.0),
    ],
)
def test_a_wave_costs_the_target_what_they_share(
    target: str, sidecar: str | None, expected: float
) -> None:
    running: Any = SimpleNamespace(config=SimpleNamespace(device=sidecar))
    backend: Any = SimpleNamespace(device=torch.device(target))
    assert shared_compute(running, backend) == expected
