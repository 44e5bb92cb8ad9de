# SPDX-License-Identifier: Apache-2.0
"""Captures of CUDA graphs, and what may not happen beside them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
import torch

from ooospec.backends.program import NUM_WARM_UPS, capture, no_collection


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    yield
    gc.enable()


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_off_inside_and_as_before_behind(was_on: bool) -> None:
    (gc.enable if was_on else gc.disable)()

    def fail() -> None:
        with no_collection():
            assert not gc.isenabled()
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert gc.isenabled() is was_on


def test_a_second_thread_does_not_turn_it_on_beneath_the_first() -> None:
    first_inside, second_inside, first_left = (threading.Event() for _ in range(3))
    seen: list[bool] = []

    def first() -> None:
        with no_collection():
            first_inside.set()
            second_inside.wait(0.2)  # in vain: one at a time
        first_left.set()

    def second() -> None:
        with no_collection():
            second_inside.set()
            first_left.wait(10)
            seen.append(gc.isenabled())

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert first_inside.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join(20)
    assert seen == [False]
    assert gc.isenabled()


@pytest.mark.gpu
def test_a_graph_that_nobody_needs_is_not_freed_within_a_capture() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    number = torch.zeros(1, device=device)
    spare: list[list[object]] = []
    for _ in range(NUM_WARM_UPS + 1):  # for each run of the capture below
        spare.append([capture(lambda: number.add_(1), device)])
        spare[-1].append(spare[-1])

    def run() -> None:
        number.add_(1)
        spare.pop()
        if gc.isenabled():  # as it may at any allocation
            gc.collect()

    graph = capture(run, device)
    before = number.item()
    graph.replay()
    assert number.item() == before + 1
