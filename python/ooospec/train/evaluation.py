# SPDX-License-Identifier: Apache-2.0
"""How often a sidecar is right about a call, what it sends and how long it takes."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from ooospec._core import _C
from ooospec.errors import InvalidRequest
from ooospec.formats import function_of, parameters, required
from ooospec.sidecar.placement import Sidecar
from ooospec.sidecar.prompt import words
from ooospec.train.labels import Label, label

WAVE_SECONDS = 600.0
_request_ids = count(1)
SHARES = (
    "function",
    "none",
    "arguments",
    "arguments as text",
    "calls",
    "null precision",
    "null recall",
)
MEANS = (
    "bytes",
    "bytes with headers",
    "bytes, arguments all right",
    "wave p50 ms",
    "wave p90 ms",
)


@dataclass(frozen=True)
class Prediction:
    """What was said of a request. tool: None for no call, -1 for nothing said.

    values: JSON text of each (tool, parameter) that was answered. seconds: of the wave.
    """

    tool: int | None
    values: Mapping[tuple[int, int], str]
    text_bytes: Seq[int] = ()
    seconds: float | None = None

    @property
    def num_bytes(self) -> int:
        """Of all records, without their headers."""
        return sum(self.text_bytes)

    @property
    def num_record_bytes(self) -> int:
        """Of all records as they lie in the ring."""
        return sum(_C.HintRing.RECORD_BYTES + -(-size // 8) * 8 for size in self.text_bytes)


def said_calls(said: Prediction, tools: Seq[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns what was said as calls `{"name", "arguments"}`, none where none was said; arguments
    that are null stay out.
    """
    if said.tool is None or said.tool < 0:
        return []
    names = list(parameters(tools[said.tool]))
    found = {
        names[parameter]: json.loads(text)
        for (tool, parameter), text in sorted(said.values.items())
        if tool == said.tool
    }
    given = {name: value for name, value in found.items() if value is not None}
    function = tools[said.tool].get("function", tools[said.tool])
    return [{"name": function["name"], "arguments": given}]


def ask(sidecar: Sidecar, request_id: int, request: Mapping[str, Any]) -> Prediction:
    """Returns what a sidecar says of a request; waits for its wave to end.

    Raises InvalidRequest where the wave failed.
    """
    sidecar.ask(request_id, request["messages"], request["tools"])
    report = sidecar.wait_wave(request_id, WAVE_SECONDS)
    if report is None or report.outcome != "done":
        why = sidecar.status if report is None else report.outcome
        raise InvalidRequest(f"sidecar: expected a wave for {request.get('id')!r}, got: {why}")
    tool: int | None = -1
    values: dict[tuple[int, int], str] = {}
    sizes: list[int] = []
    while (record := sidecar.ring.try_pop()) is not None:
        if record.request_id != request_id:
            continue
        sizes.append(len(record.text.encode()))
        if record.kind == _C.HintKind.FUNCTION:
            tool = None if record.tool == _C.HintRecord.NO_TOOL else record.tool
        elif record.kind == _C.HintKind.VALUE:
            values[record.tool, record.parameter] = record.text
    return Prediction(tool, values, sizes, report.stop - report.start)


def baseline(request: Mapping[str, Any]) -> Prediction:
    """Returns a guess without a model: the tool whose name has the most words of the dialogue, the
    first of equals, and null for every value.
    """
    said = words(json.dumps(request["messages"], ensure_ascii=False))
    names = [function_of(tool)["name"] for tool in request["tools"]]
    tool = max(range(len(names)), key=lambda i: (len(words(names[i]) & said), -i))
    slots = ((i, j) for i, one in enumerate(request["tools"]) for j in range(len(parameters(one))))
    return Prediction(tool, dict.fromkeys(slots, "null"))


@dataclass
class Tally:
    """Right and asked, by what was asked; see SHARES.

    function: over requests with a call and two or more tools. none: over those without a call.
    Over those whose function is right: arguments, equal as JSON to the reference or, "as text",
    without regard to quotes; calls, with every argument of the reference right; null precision and
    recall, over optional parameters.
    """

    num_requests: int = 0
    counts: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    num_bytes: list[int] = field(default_factory=list)
    num_record_bytes: list[int] = field(default_factory=list)
    right_bytes: list[int] = field(default_factory=list)  # of requests with every argument right
    seconds: list[float] = field(default_factory=list)

    def add(self, request: Mapping[str, Any], wanted: Label, said: Prediction) -> None:
        """Takes up what was said of a request."""
        self.num_requests += 1
        self.num_bytes.append(said.num_bytes)
        self.num_record_bytes.append(said.num_record_bytes)
        if said.seconds is not None:
            self.seconds.append(said.seconds)
        right = said.tool == wanted.tool
        if wanted.tool is None:
            self._count("none", right)
            return
        if len(request["tools"]) > 1:
            self._count("function", right)
        if right:
            self._add_arguments(request["tools"][wanted.tool], wanted.tool, wanted, said)

    def _add_arguments(
        self, tool: Mapping[str, Any], number: int, wanted: Label, said: Prediction
    ) -> None:
        reference = wanted.arguments[number]
        all_right = True
        for i, name in enumerate(parameters(tool)):
            text = said.values.get((number, i))
            is_null = text == "null"
            if reference.get(name) is not None:
                equal = text is not None and _same(json.loads(text), reference[name])
                self._count("arguments", equal)
                self._count("arguments as text", equal or _as_text(text) == _plain(reference[name]))
                all_right = all_right and equal
            if name not in required(tool):
                missing = reference.get(name) is None
                if is_null:
                    self._count("null precision", missing)
                if missing:
                    self._count("null recall", is_null)
        self._count("calls", all_right)
        if all_right:
            self.right_bytes.append(said.num_bytes)

    def _count(self, what: str, right: bool) -> None:
        self.counts[what][0] += right
        self.counts[what][1] += 1

    def share(self, what: str) -> float | None:
        """Returns right / asked; None where nothing was asked."""
        right, asked = self.counts.get(what, (0, 0))
        return right / asked if asked else None

    def numbers(self) -> dict[str, Any]:
        """Returns everything as JSON; times in milliseconds, bytes as means."""
        found: dict[str, Any] = {"requests": self.num_requests}
        for what in SHARES:
            right, asked = self.counts.get(what, (0, 0))
            found[what] = {"share": self.share(what), "right": right, "asked": asked}
        for name, values in zip(
            MEANS[:3], (self.num_bytes, self.num_record_bytes, self.right_bytes), strict=True
        ):
            found[name] = float(np.mean(values)) if values else None
        for name, percent in zip(MEANS[3:], (50, 90), strict=True):
            found[name] = 1e3 * _percentile(self.seconds, percent) if self.seconds else None
        return found


def evaluate(
    sidecar: Sidecar, requests: Seq[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], Label, Prediction]]:
    """Yields each request with its label and what the sidecar said. requests: valid ones."""
    for request in requests:  # a sidecar that is asked again keeps the reports of before
        yield request, label(request), ask(sidecar, next(_request_ids), request)


def wait_ready(sidecar: Sidecar, timeout: float = WAVE_SECONDS) -> None:
    """Waits until a sidecar is loaded. Raises InvalidRequest if it cannot be."""
    start = time.perf_counter()
    if not sidecar.wait_ready(timeout):
        seconds = time.perf_counter() - start
        raise InvalidRequest(f"sidecar: {sidecar.status} after {seconds:.0f} s")


def _percentile(values: Seq[float], percent: int) -> float:
    return float(np.percentile(values, percent))


def _same(one: Any, other: Any) -> bool:
    """Returns whether JSON values are equal: true is not 1, but 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)


def _as_text(text: str | None) -> str | None:
    return None if text is None else _plain(json.loads(text))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
