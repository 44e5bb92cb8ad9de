# SPDX-License-Identifier: Apache-2.0
"""The trace of a request says when what happened, in the format that viewers read."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ooospec._core import _C
from ooospec.errors import InvalidRequest
from ooospec.hints import HintArrival
from ooospec.loop import Metrics, Round
from ooospec.sidecar.wave import Step, WaveReport
from ooospec.trace import TracedRequest, chrome_trace, write_trace

METRICS = Metrics(
    prefill_start=100.0,
    prefill_seconds=0.5,
    rounds=[
        Round(100.6, 100.61, 100.68, 100.7, num_rows=8, num_committed=3),
        Round(100.7, 100.71, 100.78, 100.8, num_rows=1, num_committed=1),
    ],
)
ARRIVALS = [
    HintArrival(100.605, _C.HintKind.FUNCTION, 1, 0, 11, True),
    HintArrival(100.71, _C.HintKind.VALUE, 1, 2, 5, False),
]
WAVE = WaveReport(
    7,
    start=100.1,
    stop=100.65,
    num_slots=4,
    num_sent=2,
    steps=[Step(100.2, 100.3, 5), Step(100.3, 100.4, 4)],
)


def spans(trace: dict[str, Any], process: int = 1) -> dict[str, list[dict[str, Any]]]:
    """Returns the spans of a process by the name of their thread."""
    events = [event for event in trace["traceEvents"] if event["pid"] == process]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[names[event["tid"]]].append(event)
    return found


def test_rounds_steps_and_hints_stand_at_their_times() -> None:
    found = spans(chrome_trace([TracedRequest("one", METRICS, ARRIVALS, WAVE)]))
    times = {e["name"]: (e["ts"], e["dur"]) for e in found["target"] if "round" in e["name"]}
    assert times == {
        "round 1": (pytest.approx(600_000), pytest.approx(100_000)),
        "round 2": (pytest.approx(700_000), pytest.approx(100_000)),
    }
    rounds = [e["args"] for e in found["target"] if "round" in e["name"]]
    assert rounds == [{"rows": 8, "committed": 3}, {"rows": 1, "committed": 1}]
    steps = [(e["name"], e["ts"], e["args"].get("rows")) for e in found["sidecar"]]
    assert steps == [
        ("wave: done", pytest.approx(100_000), None),
        ("step 1", pytest.approx(200_000), 5),
        ("step 2", pytest.approx(300_000), 4),
    ]
    hints = [(e["name"], e["ts"], e["args"]["used"]) for e in found["hints"]]
    assert hints == [
        ("function", pytest.approx(605_000), True),
        ("value", pytest.approx(710_000), False),
    ]


def test_spans_of_a_thread_nest_and_never_cross() -> None:
    trace = chrome_trace([TracedRequest("one", METRICS, ARRIVALS, WAVE)])
    for events in spans(trace).values():
        open_until: list[float] = []
        for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            assert event["ts"] >= 0
            assert event["dur"] > 0
            while open_until and open_until[-1] <= event["ts"] + 1e-2:
                open_until.pop()
            stop = event["ts"] + event["dur"]
            assert not open_until or stop <= open_until[-1] + 1e-2
            open_until.append(stop)


def test_the_first_event_of_all_requests_is_at_zero() -> None:
    later = Metrics(prefill_start=250.0, prefill_seconds=0.1)
    trace = chrome_trace([TracedRequest("one", METRICS), TracedRequest("two", later)])
    assert spans(trace, 1)["target"][0]["ts"] == 0
    assert spans(trace, 2)["target"][0]["ts"] == pytest.approx(150e6)
    assert not spans(trace, 2)["sidecar"]
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert names == ["one", "two"]


def test_the_file_is_json(tmp_path: Path) -> None:
    requests = [TracedRequest("one", METRICS, ARRIVALS, WAVE)]
    write_trace(tmp_path / "trace.json", requests)
    assert json.loads((tmp_path / "trace.json").read_text()) == chrome_trace(requests)
    with pytest.raises(InvalidRequest, match="expected a place to write to, got a file at"):
        write_trace(tmp_path / "trace.json" / "no_folder", requests)


def test_a_trace_of_nothing_is_empty() -> None:
    assert chrome_trace([])["traceEvents"] == []
