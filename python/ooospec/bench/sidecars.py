# SPDX-License-Identifier: Apache-2.0
"""Sidecars of a bench: one that says what it is told to, one that is ready before it starts."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ooospec._core import _C
from ooospec.replay import slot_records

READY_SECONDS = 120.0


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


class ReadySidecar:
    """A real sidecar whose wave has ended before the first round."""

    def __init__(self, sidecar: Any) -> None:
        self.sidecar = sidecar
        self.ring = _C.HintRing()
        self.seconds: list[float] = []

    @property
    def status(self) -> str:
        return str(self.sidecar.status)

    def ask(
        self,
        request_id: int,
        messages: Sequence[Any],
        tools: Sequence[dict[str, Any]],
        tenant: str = "",
    ) -> None:
        start = time.perf_counter()
        self.sidecar.ask(request_id, messages, tools)
        while time.perf_counter() < start + READY_SECONDS:
            record = self.sidecar.ring.try_pop()
            if record is None:
                time.sleep(0.001)
                continue
            if record.request_id != request_id:
                continue
            self.ring.try_push(
                request_id, record.kind, record.call, record.tool, record.parameter, record.text
            )
            if record.kind in (_C.HintKind.END, _C.HintKind.ERROR):
                self.seconds.append(time.perf_counter() - start)
                return
        raise TimeoutError(f"sidecar: expected a wave within {READY_SECONDS} s ({self.status})")

    def cancel(self, request_id: int) -> None:
        self.sidecar.cancel(request_id)

    def close(self) -> None:
        self.sidecar.close()


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
