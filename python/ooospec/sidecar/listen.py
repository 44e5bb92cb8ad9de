# SPDX-License-Identifier: Apache-2.0
"""A sidecar that serves engines elsewhere: asks come in over ZeroMQ, hints go out when ready.

What an engine sends is checked and bounded; what is not right is dropped. An engine that is gone,
or takes nothing, loses its hints and costs the others nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import queue
import threading
from collections import OrderedDict
from typing import NamedTuple

from ooospec._core import _C
from ooospec.sidecar import wire
from ooospec.sidecar.sockets import MAX_AT_ONCE, Bound, zmq_module
from ooospec.sidecar.wave import WaveReport
from ooospec.sidecar.wire import Kind, Message
from ooospec.sidecar.worker import Ask, SidecarConfig, Worker

logger = logging.getLogger("ooospec.sidecar")

MAX_LIVE = 256  # requests of all engines that wait or run
MAX_LIVE_OF_ONE = 64  # and of one of them
MAX_SESSIONS = 256  # whose connections are known
MAX_READERS = 8  # connections that get the hints of one session
IDLE_MS = 50


class Asked(NamedTuple):
    """Whose request it is. identity: of the connection."""

    identity: bytes
    session: int
    request: int


class Listener:
    """Serves engines with one sidecar, a wave after the other, until close().

    address: where it listens. num_refused: messages that were not right, or too many. failure: why
    its model was not loaded, or "".
    """

    def __init__(self, config: SidecarConfig, bound: Bound) -> None:
        """bound: where it listens; closed by run(), which loads the model."""
        self._zmq = zmq_module()
        self.num_refused = 0
        self.failure = ""
        self._bound = bound
        self._socket = bound.socket
        self.address = bound.address
        self._ring = _C.HintRing()
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        self._ring.wake_by(self._wake)
        self._reports: queue.SimpleQueue[WaveReport] = queue.SimpleQueue()
        self._state = ("loading", 0)
        self._worker = Worker(config, self._ring, self._hear_state, self._hear_report)
        self._numbers = itertools.count(1)
        self._live: dict[int, Asked] = {}
        self._readers: OrderedDict[int, list[bytes]] = OrderedDict()  # by session, newest last
        self._closing = threading.Event()

    def run(self) -> None:
        """Loads the model and serves until close(), or until the model has failed to load; the
        sockets are closed then.
        """
        thread = threading.Thread(target=self._work, name="ooospec-sidecar", daemon=True)
        thread.start()
        poller = self._zmq.Poller()
        poller.register(self._socket, self._zmq.POLLIN)
        poller.register(self._woken, self._zmq.POLLIN)
        while not self._closing.is_set():
            ready = dict(poller.poll(IDLE_MS))
            if self._woken in ready:
                os.read(self._woken, 1 << 16)
                self._give()
            if self._socket in ready:
                self._take()
        self._worker.stop()
        thread.join()
        self._bound.close()
        for end in (self._woken, self._wake):
            os.close(end)

    def close(self) -> None:
        """Makes run() return. Safe to call twice, from any thread."""
        self._closing.set()

    def _work(self) -> None:
        self._worker.load()
        if self._state[0].startswith("failed"):
            self.failure = self._state[0]
            self.close()
        self._worker.run()

    def _hear_state(self, state: str, context_limit: int) -> None:
        self._state = (state, context_limit)
        logger.info("%s", state)

    def _hear_report(self, report: WaveReport) -> None:
        self._reports.put(report)
        with contextlib.suppress(BlockingIOError):  # full: it wakes up anyway
            os.write(self._wake, b"x")

    def _take(self) -> None:
        """Takes what engines sent."""
        for _ in range(MAX_AT_ONCE):
            try:
                frames = self._socket.recv_multipart(self._zmq.NOBLOCK)
            except self._zmq.Again:
                return
            message = wire.parse(frames[1]) if len(frames) == 2 else None
            if message is None or not self._hear(frames[0], message):
                self.num_refused += 1

    def _hear(self, identity: bytes, message: Message) -> bool:
        """Takes up a message; returns whether it was one that comes here."""
        asked = Asked(identity, message.session, message.request)
        if message.kind is Kind.HELLO:
            self._greet(identity, message.session)
            self._send(asked._replace(request=0), Kind.STATE, wire.state_body(*self._state))
            return True
        if message.kind is Kind.CANCEL:
            for number, live in self._live.items():
                if live == asked:
                    self._worker.cancel(number)
            return True
        found = wire.read_ask(message.body) if message.kind is Kind.ASK else None
        of_it = sum(live.identity == identity for live in self._live.values())
        if found is None or len(self._live) >= MAX_LIVE or of_it >= MAX_LIVE_OF_ONE:
            return False
        messages, tools, tenant = found
        number = next(self._numbers)
        self._live[number] = asked
        # Engines share no cached prefixes, whatever their tenants are called.
        self._worker.ask(Ask(number, messages, tools, f"{message.session:x}:{tenant}"))
        return True

    def _greet(self, identity: bytes, session: int) -> None:
        """Notes that hints of a session go to a connection."""
        readers = self._readers.setdefault(session, [])
        self._readers.move_to_end(session)
        if identity not in readers:
            readers[:] = [*readers, identity][-MAX_READERS:]
        if len(self._readers) > MAX_SESSIONS:
            self._readers.popitem(last=False)

    def _give(self) -> None:
        """Sends what is ready: hints before the report that ends them."""
        reports = []
        with contextlib.suppress(queue.Empty):
            while True:
                reports.append(self._reports.get_nowait())
        while (record := self._ring.try_pop()) is not None:
            asked = self._live.get(record.request_id)
            if asked is not None:
                body = wire.hint_body(record)
                for identity in self._readers.get(asked.session) or [asked.identity]:
                    self._send(asked._replace(identity=identity), Kind.HINT, body)
        for report in reports:
            asked = self._live.pop(report.request_id, None)
            if asked is not None:
                self._send(asked, Kind.DONE, wire.done_body(report.outcome))

    def _send(self, asked: Asked, kind: Kind, body: bytes) -> None:
        """Sends a message to an engine; one that is gone or full does not get it."""
        frame = wire.pack(Message(kind, asked.session, asked.request, body))
        with contextlib.suppress(self._zmq.Again):
            self._socket.send_multipart([asked.identity, frame], self._zmq.NOBLOCK)
