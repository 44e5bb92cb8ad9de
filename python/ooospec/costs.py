# SPDX-License-Identifier: Apache-2.0
"""What a round costs by its rows: measured before the first request, corrected by every round."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from rich.progress import track

from ooospec.backends.base import Backend
from ooospec.config import MAX_NODES

COST_ROWS = (1, 2, 4, 8, 16, 32, 64)  # sizes of a round whose time is measured
MAX_REPEATS = 3
SCALE_STEP = 0.2  # of a round's deviation goes to all sizes: the machine is busy, the context long
OWN_STEP = 0.05  # and this to its own
# Of a round right behind one of the other kind, a single row or more of them, this goes to how the
# two compare: what else uses the memory slows single rows alone, and ends soon.
RATIO_STEP = 0.5
RATIO_MOST = 1.25  # and it counts as off by no more: somebody else ran
MOST = 2.0  # a round that took longer by more counts as this: somebody else ran


class RoundCosts:
    """Microseconds of a round of each of COST_ROWS rows. Safe to share among threads.

    Trees depend on the ratios between sizes alone. version: rises with every round that counts.
    """

    def __init__(self, measured_us: Sequence[float]) -> None:
        """measured_us: float[len(COST_ROWS)], above 0."""
        if len(measured_us) != len(COST_ROWS) or min(measured_us) <= 0:
            raise ValueError(
                f"costs: expected {len(COST_ROWS)} times above 0, got {list(measured_us)}"
            )
        self._us = list(measured_us)
        self._was_single: bool | None = None  # the last round that was counted
        self.version = 0
        self._lock = threading.Lock()

    def observe(self, num_rows: int, us: float) -> None:
        """Counts a round of `num_rows` rows in [1, 64] that took `us` > 0 microseconds."""
        with self._lock:
            own = _size_of(num_rows)
            off = min(MOST, max(1 / MOST, us / self._us[own]))
            for size in range(len(self._us)):
                self._us[size] *= off ** (SCALE_STEP + (OWN_STEP if size == own else 0.0))
            is_single = own == 0
            if self._was_single is not None and is_single != self._was_single:
                ratio = min(RATIO_MOST, max(1 / RATIO_MOST, off))
                self._us[0] *= ratio ** (RATIO_STEP if is_single else -RATIO_STEP)
            self._was_single = is_single
            self.version += 1

    def measured(self) -> list[float]:
        """Returns float[len(COST_ROWS)], the present estimates."""
        with self._lock:
            return list(self._us)

    def curve(self) -> list[float]:
        """Returns float[64]: the time of a round of 1..64 rows, each taken as that of the next
        larger size; never falling, since fewer rows can be padded.
        """
        least = self.measured()
        for size in range(len(least) - 2, -1, -1):
            least[size] = min(least[size], least[size + 1])
        return [least[size] for size in SIZE_OF_ROWS]


class RoundClock:
    """Times the rounds of an engine for its costs; a round that requests share counts once, with
    the rows of all. Not thread-safe: rounds of an engine come one after the other.
    """

    def __init__(self, costs: RoundCosts) -> None:
        self.costs = costs
        self._num_rows: dict[int, int] = {}  # of the round under way, by request
        self._start = 0.0
        self._timed: list[tuple[int, float]] = []  # rounds that the costs have not heard of

    def proposed(self, request_id: int, num_rows: int) -> None:
        """Hears of a request's rows in the next round."""
        if request_id in self._num_rows:  # the round before came to nothing
            self._num_rows.clear()
        if not self._num_rows:
            self._start = time.perf_counter()
        self._num_rows[request_id] = num_rows

    def committed(self) -> None:
        """Hears that the round is over. Requests that share it each say so: the first counts."""
        if self._num_rows:
            us = (time.perf_counter() - self._start) * 1e6
            self._timed.append((sum(self._num_rows.values()), us))
            self._num_rows.clear()

    def settle(self) -> None:
        """Lets the costs know of the rounds that are over. Apart from committed(), so that the next
        launch does not wait for it.
        """
        timed, self._timed = self._timed, []
        for num_rows, us in timed:
            if num_rows <= MAX_NODES:
                self.costs.observe(num_rows, us)

    def closed(self, request_id: int) -> None:
        """Hears that a request is over, whatever became of its last round."""
        self.settle()
        self._num_rows.pop(request_id, None)


def measure_costs(backend: Backend, progress: bool = False) -> RoundCosts:
    """Times rounds of each of COST_ROWS rows. What else the machine does makes rounds longer, never
    shorter: times that cannot be right are taken again, and so is that of a single row, by which
    all others are judged.
    """
    shown = track(COST_ROWS, "measuring rounds", disable=not progress, transient=True)
    best = [backend.measure_costs([count])[0] for count in shown]
    for _ in range(MAX_REPEATS):
        for size in {0, *_doubtful(best)}:
            best[size] = min(best[size], backend.measure_costs([COST_ROWS[size]])[0])
        if not _doubtful(best):
            break
    return RoundCosts(best)


def _doubtful(us: Sequence[float]) -> list[int]:
    """Returns the sizes that took longer than the next larger one, or than half of it twice."""
    longer = [size for size in range(len(us) - 1) if us[size] > us[size + 1]]
    return longer + [size for size in range(1, len(us)) if us[size] > 2 * us[size - 1]]


def _size_of(num_rows: int) -> int:
    return next(i for i, rows in enumerate(COST_ROWS) if rows >= num_rows)


SIZE_OF_ROWS = [_size_of(num_rows) for num_rows in range(1, MAX_NODES + 1)]
