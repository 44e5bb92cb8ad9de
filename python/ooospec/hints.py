# SPDX-License-Identifier: Apache-2.0
"""From the hint ring to the drafters: the engine's side of a sidecar."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ooospec._core import _C
from ooospec.draft import Drafter

LAST = (_C.HintKind.END, _C.HintKind.ERROR)  # kinds that end what is said of a call
MAX_RECORDS_A_POLL = 256  # a poll is short, whatever a sidecar writes


class AnySidecar(Protocol):
    """What an engine needs of a sidecar, ours (ooospec.sidecar) or another."""

    @property
    def ring(self) -> _C.HintRing:
        """Where its hints arrive. A restarted sidecar has a new one."""

    @property
    def status(self) -> str:
        """One line: ready, loading, or what failed."""

    def ask(
        self,
        request_id: int,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]],
        tenant: str = "",
    ) -> None:
        """Starts a wave for a request of a tenant. Never blocks. Its last record is END or ERROR;
        who waits for hints waits in vain otherwise.
        """

    def cancel(self, request_id: int) -> None:
        """Ends the request's wave, if it still runs. Never blocks."""

    def close(self) -> None:
        """Ends the sidecar."""


@dataclass(frozen=True)
class HintArrival:
    """A record that reached its drafter. time: seconds of time.perf_counter. num_bytes: of its
    text.
    """

    time: float
    kind: _C.HintKind
    tool: int
    parameter: int
    num_bytes: int
    used: bool


@dataclass
class HintRouter:
    """The only reader of a sidecar's ring: hands each record to the drafter of its request.

    Records of requests that are not live are dropped and counted.
    """

    sidecar: AnySidecar
    num_dropped: int = 0
    _live: dict[int, tuple[Drafter, list[HintArrival]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, request_id: int, drafter: Drafter) -> list[HintArrival]:
        """From now on hints of `request_id` go to `drafter`. Returns the list that its arrivals are
        added to.
        """
        arrivals: list[HintArrival] = []
        with self._lock:
            self._live[request_id] = (drafter, arrivals)
        return arrivals

    def close(self, request_id: int) -> None:
        """Ends the request: its wave is cancelled, later records are dropped."""
        with self._lock:
            self._live.pop(request_id, None)
        self.sidecar.cancel(request_id)

    def poll(self) -> None:
        """Hands over what has arrived. Never waits. Cost: some microseconds a record."""
        with self._lock:
            ring = self.sidecar.ring
            for _ in range(MAX_RECORDS_A_POLL):
                record = ring.try_pop()
                if record is None:
                    return
                live = self._live.get(record.request_id)
                if live is None:
                    self.num_dropped += 1
                    continue
                drafter, arrivals = live
                used = drafter.offer_hint(record)
                arrivals.append(
                    HintArrival(
                        time.perf_counter(),
                        record.kind,
                        record.tool,
                        record.parameter,
                        len(record.text.encode()),
                        used,
                    )
                )


class HintWait:
    """The wait of a request for the whole of its wave, from when it is first asked about on."""

    def __init__(self, arrivals: Sequence[HintArrival], seconds: float) -> None:
        """arrivals: of HintRouter.open(). seconds: the wait takes no longer."""
        self._arrivals = arrivals
        self._seconds = seconds
        self._until: float | None = None

    def is_over(self) -> bool:
        """Returns whether the wave has ended or time is up, which runs from the first question on.
        Mutates: when that was.
        """
        now = time.perf_counter()
        if self._until is None:
            self._until = now + self._seconds
        return self.has_ended or now >= self._until

    @property
    def has_ended(self) -> bool:
        """Whether the wave has ended, by the records that were polled."""
        return any(arrival.kind in LAST for arrival in self._arrivals)
