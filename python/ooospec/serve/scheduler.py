# SPDX-License-Identifier: Apache-2.0
"""The thread that runs the engine: takes requests from a queue, a round each in turn."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator

from ooospec.engine import Delta, Generation
from ooospec.serve.errors import ApiError
from ooospec.serve.limits import Limits

logger = logging.getLogger("ooospec.serve")
Item = Delta | Generation


class Job:
    """A request on its way through the engine, and where its answer arrives.

    cancelled: nobody waits for it any more.
    """

    def __init__(self, rounds: Iterator[Item]) -> None:
        """rounds: of Engine.stream. To be made where the answer is awaited."""
        self.rounds = rounds
        self.cancelled = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Item | Exception] = asyncio.Queue()

    def put(self, item: Item | Exception) -> None:
        """Hands over what a round gave; from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the server has closed
            self.cancelled.set()

    async def items(self) -> AsyncIterator[Item]:
        """Yields a Delta a round, then the Generation. Raises what the engine raised."""
        while True:
            item = await self._items.get()
            if isinstance(item, Exception):
                raise item
            yield item
            if isinstance(item, Generation):
                return


class Scheduler:
    """Runs jobs, up to `max_running` at once, each one round in turn; the others wait in order."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: deque[Job] = deque()
        self._running: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ooospec-engine", daemon=True)
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def is_alive(self) -> bool:
        """Whether requests are run."""
        return self._thread.is_alive()

    def submit(self, job: Job) -> None:
        """Puts a job into the queue. Raises ApiError where it is full."""
        with self._changed:
            if len(self._waiting) >= self._limits.max_queue:
                raise ApiError(
                    429,
                    f"queue: expected at most {self._limits.max_queue} waiting requests, got one "
                    "more",
                    code="queue_full",
                )
            self._waiting.append(job)
            self._changed.notify()

    def close(self) -> None:
        """Ends the thread; jobs that have not ended get an error. Safe to call twice."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._closed or self._waiting or self._running):
                    self._changed.wait()
                if self._closed:
                    break
                while self._waiting and len(self._running) < self._limits.max_running:
                    self._running.append(self._waiting.popleft())
            for _ in range(len(self._running)):
                job = self._running.popleft()
                if self._step(job):
                    self._running.append(job)
        for job in (*self._running, *self._waiting):
            job.put(ApiError(503, "the server is shutting down", code="shutting_down"))

    def _step(self, job: Job) -> bool:
        """Runs a round of a job. Returns whether it goes on."""
        if job.cancelled.is_set():
            job.rounds.close()  # type: ignore[attr-defined]  # a generator: gives its pages back
            return False
        try:
            item = next(job.rounds)
        except Exception as error:
            logger.debug("a request failed", exc_info=error)
            job.put(error)
            return False
        job.put(item)
        return not isinstance(item, Generation)
