# SPDX-License-Identifier: Apache-2.0
"""The worker's side of the hints: what came, by session and request, until somebody wants it."""

from __future__ import annotations

from collections import OrderedDict

from ooospec._core import _C
from ooospec.sidecar.remote import RemoteSidecar
from ooospec.sidecar.worker import SidecarConfig

MAX_SESSIONS = 8  # of API servers and fronts; the one unseen for longest goes
MAX_REQUESTS = 1024  # whose hints wait
MAX_RECORDS = 4096  # taken at once, and kept of one request


class HintTable:
    """Hints of the sessions seen so far. A thread a session receives them; nothing here waits.

    The first request of a session may come too late for its own hints.
    """

    def __init__(self, address: str | None) -> None:
        """address: of the sidecar; None: there are none."""
        self._address = address
        self._sidecars: OrderedDict[int, RemoteSidecar] = OrderedDict()
        self._waiting: OrderedDict[tuple[int, int], list[_C.HintRecord]] = OrderedDict()

    def poll(self) -> None:
        """Takes up what has arrived. Cost: some microseconds a record."""
        for session, sidecar in self._sidecars.items():
            for _ in range(MAX_RECORDS):
                record = sidecar.ring.try_pop()
                if record is None:
                    break
                self._keep((session, record.request_id), record)

    def take(self, session: int, request: int) -> list[_C.HintRecord]:
        """Returns the hints of a request that were not returned before."""
        if session and self._address is not None:
            self._listen(session)
        return self._waiting.pop((session, request), [])

    def close(self) -> None:
        """Ends all sessions."""
        while self._sidecars:
            self._sidecars.popitem()[1].close()

    def _keep(self, key: tuple[int, int], record: _C.HintRecord) -> None:
        records = self._waiting.setdefault(key, [])
        if len(records) < MAX_RECORDS:
            records.append(record)
        if len(self._waiting) > MAX_REQUESTS:
            self._waiting.popitem(last=False)

    def _listen(self, session: int) -> None:
        if session not in self._sidecars:
            config = SidecarConfig(self._address, wave="always")
            self._sidecars[session] = RemoteSidecar(config, session)
            if len(self._sidecars) > MAX_SESSIONS:
                self._sidecars.popitem(last=False)[1].close()
        self._sidecars.move_to_end(session)
