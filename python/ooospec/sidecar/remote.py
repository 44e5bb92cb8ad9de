# SPDX-License-Identifier: Apache-2.0
"""A sidecar elsewhere, as its engine sees it: asks go out over ZeroMQ, hints come into a ring.

Nothing is waited for. A message that cannot be sent at once is dropped; one that is lost, late,
doubled, damaged or forged costs time at most: what comes in is checked, bounded, and only advice.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue
import secrets
import socket
import threading
import time
from typing import Any

from ooospec._core import _C
from ooospec.errors import InvalidRequest
from ooospec.sidecar import wire
from ooospec.sidecar.placement import Sidecar
from ooospec.sidecar.sockets import MAX_AT_ONCE, zmq_module
from ooospec.sidecar.wave import WaveReport
from ooospec.sidecar.wire import Kind, Message
from ooospec.sidecar.worker import Ask, SidecarConfig

logger = logging.getLogger("ooospec.sidecar")

HELLO_SECONDS = 1.0  # between two questions whether it is there
FIRST_HELLO_SECONDS = 0.02  # so at first, then twice as long each time: connecting takes a moment
AWAY_SECONDS = 5.0  # without a word it counts as away
MAX_QUEUED = 64  # messages to a sidecar that does not take them


class RemoteSidecar(Sidecar):
    """A sidecar behind an address; see `ooospec sidecar --listen`. Its thread owns the socket.

    num_dropped: messages that could not be sent. num_refused: those that came and were not right.
    """

    def __init__(self, config: SidecarConfig, session: int | None = None) -> None:
        """config.source: tcp://HOST:PORT or ipc://PATH. session: whose hints are to come here, if
        somebody else asks; None: one of its own. Raises InvalidRequest for another address.
        """
        zmq = zmq_module()
        super().__init__(config)
        self.num_dropped = self.num_refused = 0
        self.session = secrets.randbits(64) if session is None else session
        self._ring = _C.HintRing()
        self._outbox: queue.SimpleQueue[Ask | int] = queue.SimpleQueue()
        self._closing = False
        self._heard = self._connected = 0.0  # when the sidecar last spoke, and was last connected
        self._zmq = zmq
        self._context = zmq.Context()
        try:
            self._socket = self._connect(str(config.source))
        except InvalidRequest:
            atexit.unregister(self.close)
            self._context.term()
            raise
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._thread = threading.Thread(target=self._main, name="ooospec-remote", daemon=True)
        self._thread.start()

    @property
    def ring(self) -> _C.HintRing:
        return self._ring

    def _ask(self, request: Ask) -> None:
        self._send(request)

    def cancel(self, request_id: int) -> None:
        self._send(request_id)

    def close(self) -> None:
        atexit.unregister(self.close)
        if self._closing:
            return
        self._closing = True
        self._rouse()
        self._thread.join()
        self._wake.close()
        self._woken.close()
        self._hear_state("closed", 0)

    def _send(self, message: Ask | int) -> None:
        self._outbox.put(message)
        self._rouse()

    def _rouse(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake; closed: nothing is sent any more
            self._wake.send(b"x")

    def _connect(self, address: str) -> Any:
        zmq = self._zmq
        self._connected = time.monotonic()
        dealer = self._context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.IMMEDIATE, 1)  # nothing is kept for a sidecar that is not there
        dealer.setsockopt(zmq.SNDHWM, MAX_QUEUED)
        dealer.setsockopt(zmq.RCVHWM, MAX_AT_ONCE)
        dealer.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        dealer.setsockopt(
            zmq.MAXMSGSIZE, wire.HEADER_BYTES + wire.MAX_BODY_BYTES[Kind.HINT]
        )  # what is larger ends the connection
        try:
            dealer.connect(address)
        except zmq.ZMQError as error:
            dealer.close()
            raise InvalidRequest(
                f"sidecar: expected an address tcp://HOST:PORT or ipc://PATH, got {address!r} "
                f"({error})"
            ) from error
        return dealer

    def _main(self) -> None:
        poller = self._zmq.Poller()
        poller.register(self._socket, self._zmq.POLLIN)
        poller.register(self._woken, self._zmq.POLLIN)
        asked = 0.0  # when it was last asked whether it is there
        pause = FIRST_HELLO_SECONDS
        while not self._closing:
            now = time.monotonic()
            if now - max(self._heard, self._connected) > AWAY_SECONDS:
                poller.unregister(self._socket)
                self._start_anew()
                poller.register(self._socket, self._zmq.POLLIN)
                pause = FIRST_HELLO_SECONDS
            if now - asked >= pause:
                self._transmit(Message(Kind.HELLO, self.session))
                asked = now
                known = self._heard > self._connected
                pause = HELLO_SECONDS if known else min(2 * pause, HELLO_SECONDS)
            ready = dict(poller.poll(pause * 1000))
            if self._socket in ready:
                self._take()
            if self._woken.fileno() in ready:
                self._woken.recv(4096)
                self._empty_outbox()
        self._socket.close()
        self._context.term()

    def _start_anew(self) -> None:
        """Connects again: a peer that broke the rules of ZeroMQ is cut off for good otherwise."""
        self._socket.close()
        self._socket = self._connect(str(self.config.source))
        if self._state.startswith("ready"):
            self._hear_state(f"away: {self.config.source} does not answer", 0)

    def _empty_outbox(self) -> None:
        while True:
            try:
                message = self._outbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(message, int):
                self._transmit(Message(Kind.CANCEL, self.session, message))
                continue
            try:
                body = wire.ask_body(message.messages, message.tools, message.tenant)
                self._transmit(Message(Kind.ASK, self.session, message.request_id, body))
            except (TypeError, ValueError, RecursionError) as error:  # no JSON, or too long
                self._hear_report(WaveReport(message.request_id, outcome=f"failed: {error}"))

    def _transmit(self, message: Message) -> None:
        try:
            self._socket.send(wire.pack(message), self._zmq.NOBLOCK)
        except self._zmq.Again:
            self.num_dropped += 1

    def _take(self) -> None:
        for _ in range(MAX_AT_ONCE):
            try:
                frames = self._socket.recv_multipart(self._zmq.NOBLOCK)
            except self._zmq.Again:
                return
            message = wire.parse(frames[0]) if len(frames) == 1 else None
            if message is None or message.session != self.session or not self._hear(message):
                self.num_refused += 1
            else:
                self._heard = time.monotonic()

    def _hear(self, message: Message) -> bool:
        """Takes up a message that is for us; returns whether it is of a kind that comes here."""
        if message.kind is Kind.HINT:
            hint = wire.read_hint(message.body)
            return hint is not None and self._ring.try_push(message.request, *hint)
        if message.kind is Kind.STATE:
            state = wire.read_state(message.body)
            if state is not None and state[0] != self._state:
                self._hear_state(*state)
            return state is not None
        if message.kind is Kind.DONE:
            outcome = message.body.decode(errors="replace")
            self._hear_report(WaveReport(message.request, outcome=outcome))
            return True
        return False
