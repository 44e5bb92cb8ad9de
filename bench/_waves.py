# SPDX-License-Identifier: Apache-2.0
"""Waves for benches: prompts of any size, answers of a fixed number of tokens.

Weights are random, so what is answered is nothing: no token ends a line, and every answer is cut
off after as many tokens as asked for. What is computed for it is what a real answer takes.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from ooospec import HintRing
from ooospec.backends.fused import FusedBackend
from ooospec.sidecar.graph_wave import GraphWaveRunner
from ooospec.sidecar.prompt import Slot, WavePrompt
from ooospec.sidecar.wave import WaveReport

QUESTION_TOKENS = 15  # of a slot, as `get_weather.city:` in a model's tokens, and more
NAME_TOKENS = 5  # of a function
PARAMETERS = 5  # of a function
STANDING = ", answers that stand in the prompt"


class Pieces:
    """Stands for the prompt builder where there is no text: a token is a letter."""

    def __init__(self, num_tokens: int) -> None:
        self.pieces = [b"x"] * num_tokens


def make_runner(model: Any, num_steps: int, max_smem: int = 0) -> GraphWaveRunner:
    """Returns a runner whose answers have `num_steps` tokens. max_smem: see ops.linear."""
    backend = FusedBackend(model, max_smem=max_smem)
    backend.eos_ids = frozenset()
    builder: Any = Pieces(backend.decodable)
    return GraphWaveRunner(backend, builder, max_value_tokens=num_steps, likely_within=math.inf)


def make_prompt(num_tokens: int, num_slots: int, vocab: int, rng: random.Random) -> WavePrompt:
    """Returns a prompt of random tokens that asks for the parameters of num_slots / 5 functions."""

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(vocab) for _ in range(count))

    num_tools = -(-num_slots // PARAMETERS)
    options: dict[int | None, tuple[int, ...]] = {i: tokens(NAME_TOKENS) for i in range(num_tools)}
    slots = [
        Slot(i // PARAMETERS, i % PARAMETERS, True, {"type": "string"}, tokens(QUESTION_TOKENS))
        for i in range(num_slots)
    ]
    return WavePrompt(tokens(num_tokens), tokens(3), options | {None: tokens(2)}, tuple(slots), 0)


def with_answers(prompt: WavePrompt, num_tokens: int, rng: random.Random) -> WavePrompt:
    """Returns a prompt each of whose slots is answered by tokens that stand in its prefix."""
    starts = [rng.randrange(len(prompt.prefix) - num_tokens) for _ in prompt.slots]
    slots = [
        replace(slot, recorded=tuple(prompt.prefix[start : start + num_tokens]))
        for slot, start in zip(prompt.slots, starts, strict=True)
    ]
    return replace(prompt, slots=tuple(slots))


def run_wave(runner: GraphWaveRunner, prompt: WavePrompt, ring: HintRing) -> WaveReport:
    """Runs a wave and empties the ring; raises RuntimeError unless all slots were answered."""
    report = WaveReport(1)
    runner.run(prompt, ring, report)
    while ring.try_pop() is not None:
        pass
    asked = min(len(prompt.slots), runner.max_slots)
    if report.outcome != "done" or len(report.answers) != 1 + asked:
        raise RuntimeError(
            f"wave: expected {asked} answers, got {len(report.answers) - 1}, {report.outcome}"
        )
    return report


def chosen_stop(report: WaveReport) -> float:
    """Returns when the last value of the chosen function came; of any, if that is no call."""
    chosen = report.answers[0].tool
    times = [a.time for a in report.answers[1:] if a.tool == chosen]
    return max(times or [a.time for a in report.answers[1 : 1 + PARAMETERS]])
