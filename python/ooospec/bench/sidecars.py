# SPDX-License-Identifier: Apache-2.0
"""Sidecars of a bench, which say what they are told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ooospec._core import _C
from ooospec.replay import slot_records
from ooospec.sidecar import wire
from ooospec.sidecar.sockets import bind
from ooospec.sidecar.wire import Kind, Message


@dataclass
class RecordedSidecar:
    """A sidecar that sends the slot records of calls it is given beforehand."""

    calls: Sequence[dict[str, Any]] = ()
    ring: _C.HintRing = field(default_factory=_C.HintRing)
    status: str = "ready"

    def ask(
        self,
        request_id: int,
        messages: Sequence[Any],
        tools: Sequence[dict[str, Any]],
        tenant: str = "",
    ) -> None:
        for record in slot_records(request_id, self.calls, tools):
            self.ring.try_push(
                request_id, record.kind, record.call, record.tool, record.parameter, record.text
            )

    def cancel(self, request_id: int) -> None:
        pass

    def close(self) -> None:
        pass


class RecordedListener:
    """A sidecar that listens, and answers each request at once by the calls that `find` knows.

    find: messages -> calls. num_asked: requests so far.
    """

    def __init__(
        self,
        find: Callable[[Sequence[Any]], Sequence[dict[str, Any]]],
        address: str = "tcp://127.0.0.1:*",
    ) -> None:
        self._find = find
        self._bound = bind(address)
        self.address = self._bound.address
        self.num_asked = 0
        self._closing = threading.Event()
        self._readers: dict[int, set[bytes]] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it."""
        self._closing.set()
        self._thread.join()
        self._bound.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            if not self._bound.socket.poll(20):
                continue
            identity, frame = self._bound.socket.recv_multipart()
            message = wire.parse(frame)
            if message is None:
                continue
            if message.kind is Kind.HELLO:
                self._readers.setdefault(message.session, set()).add(identity)
                self._send({identity}, message, Kind.STATE, wire.state_body("ready: recorded", 0))
            elif message.kind is Kind.ASK and (asked := wire.read_ask(message.body)) is not None:
                messages, tools, _ = asked
                for record in slot_records(message.request, self._find(messages), tools):
                    readers = self._readers.get(message.session, {identity})
                    self._send(readers, message, Kind.HINT, wire.hint_body(record))
                self._send({identity}, message, Kind.DONE, wire.done_body("done"))
                self.num_asked += 1

    def _send(self, readers: set[bytes], to: Message, kind: Kind, body: bytes) -> None:
        frame = wire.pack(Message(kind, to.session, to.request, body))
        for identity in readers:
            self._bound.socket.send_multipart([identity, frame])


def plain_calls(answer: Any) -> list[dict[str, Any]]:
    """Returns the calls of an answer as names and JSON values: all that perfect hints may know."""
    return [
        {"name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])}
        for call in answer.tool_calls
    ]


def wrong_calls(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a call of the row's first tool in which nothing is right."""
    function = row["tools"][0]["function"]
    names = (function.get("parameters") or {}).get("properties") or {}
    return [{"name": function["name"], "arguments": dict.fromkeys(names, "quite another value")}]
