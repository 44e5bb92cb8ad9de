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
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
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
    inside, leave = threading.Event(), threading.Event()
    seen: list[bool] = []

    def first() -> None:
        with no_collection():
            inside.set()
            leave.wait(10)
            seen.append(gc.isenabled())

    def second() -> None:
        with no_collection():
            seen.append(gc.isenabled())

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join(10)
    assert seen == [False, False]
    assert gc.isenabled()


@pytest.mark.gpu
def test_a_graph_that_nobody_needs_is_not_freed_within_a_capture() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    number = torch.zeros(1, device=device)
    spare: list[list[object]] = []
    for _ in range(NUM_WARM_UPS + 1):  # for each run of the capture below
        spare.append([capture(lambda: number.add_(1), device)])
        spare[-1].append(spare[-1])
    kept: list[list[object]] = []

    def run() -> None:
        number.add_(1)
        spare.pop()
        gc.set_threshold(1)
        kept.extend([] for _ in range(5000))  # what the collector counts

    graph = capture(run, device)
    gc.set_threshold(700)
    before = number.item()
    graph.replay()
    assert number.item() == before + 1
