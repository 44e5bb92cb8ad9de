# SPDX-License-Identifier: Apache-2.0
"""The thread that runs the engine: requests wait in a queue, then share its rounds."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence

from ooospec.engine import Delta, Engine, Generation, Run
from ooospec.errors import OutOfPages
from ooospec.run import HINT_PAUSE
from ooospec.serve.errors import ApiError
from ooospec.serve.limits import Limits
from ooospec.serve.metrics import Metrics

logger = logging.getLogger("ooospec.serve")


class TimeUp:
    """The answer took as long as it may; what is there of it counts."""


Item = Delta | Generation | TimeUp


class Job:
    """A request on its way through the engine, and where its answer arrives.

    arrived: seconds of time.monotonic. cancelled: nobody waits for it any more.
    """

    def __init__(self, run: Run) -> None:
        """To be made where the answer is awaited."""
        self.run = run
        self.arrived = time.monotonic()
        self.cancelled = False
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Item | Exception] = asyncio.Queue()

    def put(self, item: Item | Exception) -> None:
        """Hands over what a round gave; from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the server has closed
            self.cancelled = True

    async def items(self) -> AsyncIterator[Item]:
        """Yields a Delta a round, then the Generation or TimeUp. Raises what ended it else."""
        while True:
            item = await self._items.get()
            if isinstance(item, Exception):
                raise item
            yield item
            if not isinstance(item, Delta):
                return


class Queue:
    """Jobs that wait: those of a tenant in order, the tenants in turn."""

    def __init__(self) -> None:
        self._of: dict[str, deque[Job]] = {}  # tenants in the order of their turns
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Job]:
        return (job for jobs in self._of.values() for job in jobs)

    def append(self, job: Job) -> None:
        """Puts a job behind those of its tenant."""
        self._of.setdefault(job.run.request.tenant, deque()).append(job)
        self._count += 1

    def first(self) -> Job | None:
        """Returns the job whose turn it is."""
        return next((jobs[0] for jobs in self._of.values()), None)

    def remove(self, job: Job) -> None:
        """Takes a job out, wherever it stands; its tenant has had its turn. ValueError if it is
        not there.
        """
        tenant = job.run.request.tenant
        jobs = self._of.get(tenant, deque())
        jobs.remove(job)
        self._count -= 1
        del self._of[tenant]
        if jobs:
            self._of[tenant] = jobs


class Scheduler:
    """Runs jobs in one thread. A cycle admits what fits, then moves every job on by one launch: a
    chunk of prefill, or its part of the round that all share whose prefill is done, but for those
    that wait for their hints. (With one chunk
    a cycle for all, jobs end faster than they start, and rounds run half empty.) Pages are taken at
    admission and given back within a cycle of the end, or of a cancellation.
    """

    def __init__(self, engine: Engine, limits: Limits, metrics: Metrics) -> None:
        self._engine = engine
        self._limits = limits
        self._metrics = metrics
        self._max_running = min(limits.max_running, engine.config.max_nodes)
        self._waiting = Queue()
        self._starting: deque[Job] = deque()
        self._running: list[Job] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._main, name="ooospec-engine", daemon=True)
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._starting) + len(self._running)

    @property
    def is_alive(self) -> bool:
        """Whether requests are run."""
        return self._thread.is_alive()

    def submit(self, job: Job) -> None:
        """Puts a job into the queue. Raises ApiError where it is full or closed."""
        with self._changed:
            if self._closed:
                raise ApiError(503, "the server is shutting down", code="shutting_down")
            if len(self._waiting) >= self._limits.max_queue:
                message = f"queue: expected at most {self._limits.max_queue} requests, got one more"
                raise ApiError(429, message, code="queue_full")
            self._waiting.append(job)
            self._changed.notify()

    def cancel(self, job: Job) -> None:
        """Ends a job, whatever became of it; from any thread. Safe to call twice."""
        with self._changed:
            job.cancelled = True
            if job in self._waiting:
                self._waiting.remove(job)

    def close(self) -> None:
        """Ends the thread; jobs that have not ended get an error. Safe to call twice."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _main(self) -> None:
        while self._wait():
            try:
                self._cycle()
            except Exception as error:  # of the backend: whoever was in that round has no answer
                logger.exception("a round failed")
                for job in [*self._starting, *self._running]:
                    self._end(job, error)
        for job in [*self._starting, *self._running, *self._waiting]:
            self._end(job, ApiError(503, "the server is shutting down", code="shutting_down"))

    def _wait(self) -> bool:
        """Waits for something to do. Returns False when the scheduler is closed."""
        with self._changed:
            while not (self._closed or len(self._waiting) or self.num_running):
                self._changed.wait()
            return not self._closed

    def _cycle(self) -> None:
        self._drop_the_overdue()
        while self.num_running < self._max_running and self._admit():
            pass
        for job in list(self._starting):
            self._start_on(job)
        ready = [job for job in list(self._running) if self._is_ready(job)]
        if ready:
            self._round(ready)
        elif self._running and not self._starting:
            time.sleep(HINT_PAUSE)

    def _drop_the_overdue(self) -> None:
        now = time.monotonic()
        with self._changed:
            late = [job for job in self._waiting if now - job.arrived > self._limits.max_seconds]
            for job in late:
                self._waiting.remove(job)
        for job in late:
            message = f"no place became free within {self._limits.max_seconds:g} seconds"
            job.put(ApiError(429, message, code="timeout"))
        for job in [*self._starting, *self._running]:
            if job.cancelled:
                self._end(job, None)
            elif now - job.arrived > self._limits.max_seconds:
                self._end(job, TimeUp())

    def _admit(self) -> bool:
        """Takes the job whose turn it is into the engine, if its pages are free."""
        with self._changed:
            job = self._waiting.first()
            if job is None:
                return False
            try:
                with self._engine.lock:
                    job.run.admit()
            except OutOfPages as error:
                if self.num_running:
                    return False  # it keeps its turn
                self._waiting.remove(job)
                job.put(error)
                return True
            self._waiting.remove(job)
            self._starting.append(job)
        self._metrics.admitted(time.monotonic() - job.arrived)
        job.run.attempt(job.run.begin)
        self._hand_over(job)
        return True

    def _start_on(self, job: Job) -> None:
        """Does a chunk of a job's prefill."""
        with self._engine.lock:
            done = job.run.attempt(job.run.start_on)
        if done:
            self._starting.remove(job)
            self._running.append(job)
            self._metrics.first_token(time.monotonic() - job.arrived)
            self._hand_over(job, job.run.delta())
        else:
            self._hand_over(job)

    def _is_ready(self, job: Job) -> bool:
        """Returns whether a job goes into the next round; ends one that fails at that question."""
        with self._engine.lock:
            waits = job.run.attempt(job.run.awaits_hints)
        if job.run.error is not None:
            self._hand_over(job)
            return False
        return not waits

    def _round(self, jobs: Sequence[Job]) -> None:
        start = time.perf_counter()
        self._engine.step([job.run for job in jobs])
        self._metrics.round(len(jobs), time.perf_counter() - start)
        for job in jobs:
            self._hand_over(job, None if job.run.error else job.run.delta())

    def _hand_over(self, job: Job, delta: Delta | None = None) -> None:
        """Tells a job's reader what there is, and ends it where that was all."""
        if delta is not None:
            job.put(delta)
        if job.run.error is not None:
            self._end(job, job.run.error)
        elif delta is not None and job.run.is_over:
            self._end(job, job.run.generation())

    def _end(self, job: Job, item: Item | Exception | None) -> None:
        """Gives a job's pages back and tells its reader `item`."""
        if job in self._running:
            self._running.remove(job)
        if job in self._starting:
            self._starting.remove(job)
        if job.run.has_begun:
            self._metrics.ended(job.run)
        with self._engine.lock:
            job.run.attempt(job.run.close)
        if item is not None:
            job.put(item)
