# SPDX-License-Identifier: Apache-2.0
"""Sidecars that say less, later, or something else than one that is replayed: for ablations."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from typing import Any

from ooospec._core import _C
from ooospec.engine import MakeDrafter, Request
from ooospec.hints import LAST, HintWait

WAVE_SECONDS = 60.0
FUNCTION, VALUE = _C.HintKind.FUNCTION, _C.HintKind.VALUE


class ChangedSidecar:
    """A sidecar whose records go through `change` on their way; what it drops is not sent.

    inner: any sidecar; closed with this one. at_once: nothing is sent before the last record is
    there. delay: seconds by which each record is late.
    """

    def __init__(
        self,
        inner: Any,
        *,
        change: Callable[[_C.HintRecord], str | None] = lambda record: record.text,
        at_once: bool = False,
        delay: float = 0.0,
    ) -> None:
        self.inner = inner
        self.ring = _C.HintRing()
        self._change, self._at_once, self._delay = change, at_once, delay
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()

    @property
    def status(self) -> str:
        """See Sidecar."""
        return str(self.inner.status)

    def ask(
        self,
        request_id: int,
        messages: Seq[Any],
        tools: Seq[dict[str, Any]],
        tenant: str = "",
    ) -> None:
        """See Sidecar."""
        self.inner.ask(request_id, messages, tools, tenant)

    def cancel(self, request_id: int) -> None:
        """See Sidecar."""
        self.inner.cancel(request_id)

    def wait_wave(self, request_id: int, timeout: float) -> Any:
        """See Sidecar in placement.py."""
        return self.inner.wait_wave(request_id, timeout)

    def close(self) -> None:
        """Ends both sidecars."""
        self._stopped.set()
        self._thread.join()
        self.inner.close()

    def _forward(self) -> None:
        held: list[tuple[float, _C.HintRecord]] = []
        while not self._stopped.is_set():
            record = self.inner.ring.try_pop()
            if record is not None:
                held.append((time.perf_counter() + self._delay, record))
            ended = any(one.kind in LAST for _, one in held)
            while held and held[0][0] <= time.perf_counter() and (ended or not self._at_once):
                self._send(held.pop(0)[1])
            if record is None:
                time.sleep(5e-5)

    def _send(self, record: _C.HintRecord) -> None:
        text = self._change(record)
        if text is not None:
            self.ring.try_push(
                record.request_id, record.kind, record.call, record.tool, record.parameter, text
            )


def hints_first(method: MakeDrafter) -> MakeDrafter:
    """Returns a method as `method` that waits for the whole wave before the prefill: on one GPU it
    then has that for itself. It raises TimeoutError for a wave that does not end.
    """

    def make(request: Request) -> Any:
        drafter: Any = method(request)
        wait = HintWait(drafter.arrivals, WAVE_SECONDS)
        while drafter.router is not None and not wait.is_over():
            drafter.router.poll()
        if drafter.router is not None and not wait.has_ended:
            drafter.finish()
            raise TimeoutError(f"sidecar: expected the end of a wave within {WAVE_SECONDS} s")
        return drafter

    return make


def only(*kinds: _C.HintKind) -> Callable[[_C.HintRecord], str | None]:
    """Returns a change that lets records of these kinds pass."""
    return lambda record: record.text if record.kind in kinds else None


def less_accurate(
    call: Mapping[str, Any] | None, accuracy: float, key: str
) -> Mapping[str, Any] | None:
    """Returns a call each of whose values is right with a probability of `accuracy`, the others
    being another value of the same JSON type. key: the same one gives the same call, and what is
    wrong at one accuracy is wrong at all lower ones.
    """
    if call is None:
        return None
    rng = random.Random(key)
    return {
        "name": call["name"],
        "arguments": {
            name: value if rng.random() < accuracy else _other(value)
            for name, value in call["arguments"].items()
        },
    }


def _other(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + 17
    if isinstance(value, str):
        return f"quite another {len(value)}"
    return json.loads(json.dumps(value))[:-1] if isinstance(value, list) and value else {}
