# SPDX-License-Identifier: Apache-2.0
"""Work of fixed shape on fixed buffers: a CUDA graph on a GPU, a plain call on a CPU."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch

logger = logging.getLogger("ooospec")

NUM_WARM_UPS = 2  # runs before a capture: kernels compile, libraries take their workspaces
HIGH_PRIORITY = -5  # of a stream; as high as the device has, where that is less


def on_device(device: torch.device | str | None) -> AbstractContextManager[Any]:
    """Makes a GPU the current one of this thread: graphs and raw launches go to the current one."""
    is_gpu = device is not None and torch.device(device).type == "cuda"
    if not is_gpu or torch.cuda.device_count() < 2:
        return nullcontext()
    return torch.cuda.device(device)


_one_at_a_time = threading.Lock()


@contextmanager
def no_collection() -> Iterator[None]:
    """Keeps the garbage collector off, for one thread at a time: a graph that it frees while this
    thread captures another ends the capture.
    """
    with _one_at_a_time:
        was_on = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_on:
                gc.enable()


class NotCaptured(RuntimeError):
    """Work that runs, but not under capture: it reads something back."""


def capture(
    run: Callable[[], None],
    device: torch.device,
    *,
    priority: int = HIGH_PRIORITY,
    keep: bool = False,
) -> torch.cuda.CUDAGraph:
    """Returns a graph of `run`, captured on a stream of its own, whose workspaces no other shares.

    priority: of the stream, and so of the graph's kernels wherever it is replayed; 0 is lowest.
    keep: raw_cuda_graph() gives the graph.
    Raises NotCaptured for work that runs, but not under capture.
    """
    torch.cuda.synchronize(device)
    stream = torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph(keep_graph=keep)
    with torch.cuda.stream(stream):
        for _ in range(NUM_WARM_UPS):
            run()
    torch.cuda.synchronize(device)
    try:
        # A capture that fails leaves its stream the current one; the outer block mends that.
        with (
            no_collection(),
            torch.cuda.stream(torch.cuda.current_stream(device)),
            torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
        ):
            run()
    except RuntimeError as error:
        _forget_capture(device)
        first = error.__context__ or error  # behind what the end of the capture says
        raise NotCaptured(str(first).strip().partition("\n")[0]) from error
    torch.cuda.synchronize(device)
    return graph


def _forget_capture(device: torch.device) -> None:
    """After a capture that failed, torch's generators refuse to work until another ends well."""
    torch.cuda.synchronize(device)
    nothing = torch.zeros(1, device=device)
    with (
        no_collection(),
        torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"),
    ):
        nothing.zero_()


@cache
def _say_once(reason: str) -> None:
    logger.warning("no CUDA graph, its launches go one by one: %s", reason)


class Program:
    """Captures `run` on first use; replay() then costs one launch on the current stream.

    run: launches work on the current stream; allocates nothing, reads nothing back. Its data come
    from buffers that the caller fills before replay(). One that cannot be captured is called
    instead, which the log says once.
    """

    def __init__(self, run: Callable[[], None], device: torch.device) -> None:
        self._run = torch.inference_mode()(run)  # a replay needs none, and saves its cost
        self._device = device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._is_ready = device.type != "cuda"

    def prepare(self) -> bool:
        """Captures the graph, unless that was done; returns whether `run` ran for it.

        Raises what `run` raises outside of a capture.
        """
        if self._is_ready:
            return False
        try:
            with on_device(self._device):
                self._graph = capture(self._run, self._device)
        except NotCaptured as error:
            _say_once(str(error))
        self._is_ready = True
        return True

    def replay(self) -> None:
        """Runs once. Raises what `run` raises, on first use."""
        self.prepare()
        if self._graph is None:
            with on_device(self._device):
                self._run()
        else:
            self._graph.replay()
