# SPDX-License-Identifier: Apache-2.0
"""Requests as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open.

Each request is a process of the trace with three threads: what the target does, what the sidecar
does, and the hints as they reach the drafter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ooospec.files import write_text

if TYPE_CHECKING:
    from ooospec.hints import HintArrival
    from ooospec.loop import Drafter, Metrics
    from ooospec.run import MakeDrafter, Request
    from ooospec.sidecar.wave import WaveReport

TARGET, SIDECAR, HINTS = 1, 2, 3
THREADS = {TARGET: "target", SIDECAR: "sidecar", HINTS: "hints"}
WAVE_SECONDS = 2.0  # for a wave to end that is cancelled with its request
HINT_SECONDS = 1e-6  # an arrival has no length, but viewers show only what has one
Event = dict[str, Any]


@dataclass(frozen=True)
class TracedRequest:
    """What is known of a request that is over. All times are of time.perf_counter."""

    name: str
    metrics: Metrics
    arrivals: Seq[HintArrival] = ()
    wave: WaveReport | None = None


class Recorder:
    """A method that works as the one it wraps and keeps the request and what drafted for it."""

    def __init__(self, method: MakeDrafter) -> None:
        self._method = method
        self.request: Request | None = None
        self.drafter: Drafter | None = None

    def __call__(self, request: Request) -> Drafter | None:
        self.request, self.drafter = request, self._method(request)
        return self.drafter

    @property
    def arrivals(self) -> Seq[HintArrival]:
        """The hints that reached the drafter so far."""
        return getattr(self.drafter, "arrivals", ())

    def traced(self, name: str, metrics: Metrics) -> TracedRequest:
        """Returns the request, which is over; waits a little for its wave to be over too."""
        router = getattr(self.drafter, "router", None)
        wait_wave = getattr(getattr(router, "sidecar", None), "wait_wave", None)
        wave = None
        if wait_wave is not None and self.request is not None:
            wave = wait_wave(self.request.request_id, WAVE_SECONDS)
        return TracedRequest(name, metrics, self.arrivals, wave)


def chrome_trace(requests: Seq[TracedRequest]) -> dict[str, Any]:
    """Returns the trace of `requests` as the JSON object of the Chrome trace format.

    Times are microseconds since the first event; every span is a complete event ("X").
    """
    named: list[Event] = []
    spans: list[Event] = []
    for number, request in enumerate(requests, start=1):
        named.append(_name("process_name", number, 0, request.name))
        named += [_name("thread_name", number, *thread) for thread in THREADS.items()]
        for event in _target(request.metrics), _sidecar(request.wave), _hints(request.arrivals):
            spans += [{**span, "pid": number} for span in event]
    first = min((span["ts"] for span in spans), default=0.0)
    for span in spans:
        span["ts"] = round(span["ts"] - first, 3)
    return {"traceEvents": named + spans, "displayTimeUnit": "ms"}


def write_trace(path: str | os.PathLike[str], requests: Seq[TracedRequest]) -> None:
    """Writes the trace of `requests` to the file `path`. Raises InvalidRequest."""
    write_text(path, json.dumps(chrome_trace(requests)) + "\n")


def _target(metrics: Metrics) -> Iterator[Event]:
    start = metrics.prefill_start
    yield _span(TARGET, "prefill", start, start + metrics.prefill_seconds)
    for number, one in enumerate(metrics.rounds, start=1):
        counts = {"rows": one.num_rows, "committed": one.num_committed}
        yield _span(TARGET, f"round {number}", one.start, one.stop, **counts)
        yield _span(TARGET, "propose", one.start, one.verify_start)
        yield _span(TARGET, "verify", one.verify_start, one.verify_stop)
        yield _span(TARGET, "commit", one.verify_stop, one.stop)


def _sidecar(wave: WaveReport | None) -> Iterator[Event]:
    if wave is None:
        return
    said = {"slots": wave.num_slots, "hints": wave.num_sent, "reason": wave.reason}
    yield _span(SIDECAR, f"wave: {wave.outcome}", wave.start, wave.stop, **said)
    for number, step in enumerate(wave.steps, start=1):
        yield _span(SIDECAR, f"step {number}", step.start, step.stop, rows=step.num_rows)


def _hints(arrivals: Seq[HintArrival]) -> Iterator[Event]:
    for one in arrivals:
        said = {
            "tool": one.tool,
            "parameter": one.parameter,
            "bytes": one.num_bytes,
            "used": one.used,
        }
        yield _span(HINTS, one.kind.name.lower(), one.time, one.time + HINT_SECONDS, **said)


def _span(thread: int, name: str, start: float, stop: float, **args: Any) -> Event:
    """Returns a complete event; its pid is still to come."""
    times = {"ts": start * 1e6, "dur": round((stop - start) * 1e6, 3)}
    return {"ph": "X", "name": name, "tid": thread, **times, "args": args}


def _name(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}
