# SPDX-License-Identifier: Apache-2.0
"""Times answers side by side, step by step, so that whatever else the machine does hits all alike.

A lane is one answer under way. Its steps are the first token, then one round each; the lane that
has had least time so far goes next. Steps never run at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer


@dataclass
class Lane:
    """steps: an iterator of which each step does some work; its last item is the answer.

    wall, cpu: seconds of each step; cpu counts all threads of this process.
    """

    steps: Iterator[Any]
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    answer: Any = None

    def step(self) -> bool:
        """Takes one step; returns False when there was none left."""
        cpu, wall = time.process_time(), time.perf_counter()
        item = next(self.steps, None)
        if item is None:
            return False
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)
        self.answer = item
        return True

    @property
    def time(self) -> float:
        """Seconds so far."""
        return sum(self.wall)

    def prefill(self, clock: str = "wall") -> float:
        """Seconds of the target's prefill in the first step of an engine's answer."""
        return float(getattr(self, clock)[0] - self.start_up())

    def start_up(self) -> float:
        """Seconds of the first step that were not prefill: rendering, a drafter, asking a
        sidecar.
        """
        return float(self.wall[0] - self.answer.metrics.prefill_seconds)

    def decode(self, clock: str = "wall") -> float:
        """Seconds behind the first token."""
        return sum(getattr(self, clock)[1:])


def run_lanes(lanes: Mapping[str, Iterator[Any]]) -> dict[str, Lane]:
    """Runs all lanes to their ends and returns them by name."""
    found = {name: Lane(steps) for name, steps in lanes.items()}
    under_way = list(found.values())
    while under_way:
        lane = min(under_way, key=lambda lane: lane.time)
        if not lane.step():
            under_way.remove(lane)
    return found


class _Turns(BaseStreamer):
    """Holds `generate` in its thread after each token until its turn comes."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.done = threading.Semaphore(0)
        self.tokens: list[int] = []
        self._seen_prompt = False

    def put(self, value: torch.Tensor) -> None:
        if not self._seen_prompt:
            self._seen_prompt = True
            return
        self.tokens.append(int(value))
        self.done.release()
        self.go.acquire()

    def end(self) -> None:
        pass


def hugging_face_steps(
    model: Any, prompt_ids: list[int], max_tokens: int, eos_ids: frozenset[int]
) -> Iterator[list[int]]:
    """Yields the tokens so far after each token of Hugging Face `generate`, greedy, stock cache."""
    ids = torch.tensor([prompt_ids])
    turns = _Turns()

    def run() -> None:
        turns.go.acquire()
        try:
            model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=max_tokens,
                do_sample=False,
                repetition_penalty=1.0,
                eos_token_id=sorted(eos_ids),
                pad_token_id=0,
                streamer=turns,
            )
        finally:
            turns.done.release()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while True:
        before = len(turns.tokens)
        turns.go.release()
        turns.done.acquire()
        if len(turns.tokens) == before:
            thread.join()
            return
        yield turns.tokens
