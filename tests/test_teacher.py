# SPDX-License-Identifier: Apache-2.0
"""A teacher's answers as training rows: what is usable, and going on after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ooospec.engine import Generation
from ooospec.formats import answer_calls
from ooospec.loop import Metrics
from ooospec.output import Usage
from ooospec.train.teacher import TraceFiles, first_call, trace, why_unusable
from tiny_sidecar import MESSAGES, TOOLS

GOOD = '<tool_call>\n{"name": "stop", "arguments": {"now": true}}\n</tool_call>'


def answer(text: str, reason: Any = "stop") -> Generation:
    calls = answer_calls(text, TOOLS)
    return Generation(text, [1, 2, 3], [0, 0, 0], reason, Usage(1, 3), Metrics(), calls)


def request(name: str) -> dict[str, Any]:
    return {"id": name, "messages": MESSAGES, "tools": TOOLS}


class Teacher:
    """An engine whose answers are given."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def generate(self, *_: Any, **__: Any) -> Generation:
        return answer(self.texts.pop(0))


@pytest.mark.parametrize(
    ("text", "reason", "failure"),
    [
        (GOOD, "stop", ""),
        ("I cannot help with that.", "stop", ""),
        (GOOD.replace("stop", "halt"), "stop", "a call of an unknown function: halt"),
        (GOOD[:40], "length", "cut off before a call was complete"),
        (GOOD[:40], "stop", "a call that does not end"),
        ('<tool_call>\n{"name": stop, "arguments": {}}\n', "stop", "a call that is no JSON"),
        ("Well, " * 9, "length", "cut off before a call was complete"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(text: str, reason: Any, failure: str) -> None:
    assert why_unusable(answer(text, reason), request("a")) == failure


def test_the_first_call_is_the_row() -> None:
    assert first_call(answer(GOOD)) == {"name": "stop", "arguments": {"now": True}}
    assert first_call(answer("No.")) is None
    assert why_unusable(answer(GOOD), {**request("a"), "tools": None}) == "the request has no tools"


def test_a_killed_trace_goes_on(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path / "traces.jsonl")
    asked = [request(name) for name in "abc"]
    bad = GOOD.replace("stop", "halt")
    engine: Any = Teacher(GOOD, bad)
    assert list(trace(engine, asked[:2], files)) == ["", "a call of an unknown function: halt"]
    with files.path.open("a") as file:  # killed in the middle of a line
        file.write('{"id": "c", "mess')
    assert files.done() == {"a", "b"}
    engine = Teacher("No.")
    assert list(trace(engine, asked, files)) == [""]
    rows = [json.loads(line) for line in files.path.read_text().splitlines()]
    assert [row["id"] for row in rows] == ["a", "c"]
    assert rows[0]["call"] == {"name": "stop", "arguments": {"now": True}}
    assert rows[1]["call"] is None
    assert {"messages", "tools", "text", "tokens"} <= rows[0].keys()
    (failed,) = (json.loads(line) for line in files.failed_path.read_text().splitlines())
    assert failed["reason"] == "a call of an unknown function: halt"
    assert failed["text"] == bad


def test_a_request_without_bytes_of_its_own_stops_no_trace(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path / "traces.jsonl")
    half = {**request("b \ud800"), "messages": [{"role": "user", "content": "\ud800"}]}
    files.add(half, None, "not run: half of a surrogate pair")
    assert files.done() == {"b \ud800"}
    assert list(trace(Teacher(GOOD), [half, request("c")], files)) == [""]  # type: ignore[arg-type]
    assert files.done() == {"b \ud800", "c"}
