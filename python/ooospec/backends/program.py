# SPDX-License-Identifier: Apache-2.0
"""Work of fixed shape on fixed buffers: a CUDA graph on a GPU, a plain call on a CPU."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

logger = logging.getLogger("ooospec")

NUM_WARM_UPS = 2  # runs before a capture: kernels compile, libraries take their workspaces


class NotCaptured(RuntimeError):
    """Work that runs, but not under capture: it reads something back."""


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
            self._graph = self._capture()
        except NotCaptured as error:
            logger.warning("no CUDA graph, its launches go one by one: %s", error)
        self._is_ready = True
        return True

    def replay(self) -> None:
        """Runs once. Raises what `run` raises, on first use."""
        self.prepare()
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Captures on a stream of its own, whose workspaces no other graph shares."""
        torch.cuda.synchronize(self._device)
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            for _ in range(NUM_WARM_UPS):
                self._run()
        torch.cuda.synchronize(self._device)
        try:
            # A capture that fails leaves its stream the current one; the outer block mends that.
            with (
                torch.cuda.stream(torch.cuda.current_stream(self._device)),
                torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
            ):
                self._run()
        except RuntimeError as error:
            raise NotCaptured(str(error).strip().partition("\n")[0]) from error
        torch.cuda.synchronize(self._device)
        return graph
