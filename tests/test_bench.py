# SPDX-License-Identifier: Apache-2.0
"""`ooospec bench`: what it runs, what it counts, how it goes on, and its report."""

from __future__ import annotations

import csv
import html.parser
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ooospec import _C
from ooospec.bench.calls import Rightness, rightness
from ooospec.bench.records import Record, RecordFile
from ooospec.bench.report import COLUMNS
from ooospec.bench.summary import bootstrap_ratio, summarise
from ooospec.cli.main import run
from ooospec.errors import InvalidRequest
from ooospec.formats import render
from ooospec.tokens import TokenTable
from tiny_models import tiny_tokenizer
from tiny_sidecar import TOOLS
from tiny_taught import taught_model

CALL = {"name": "get_weather", "arguments": {"city": "the quick fox", "days": 12}}
MESSAGES = [{"role": "user", "content": "12 days of weather for 'the quick fox'."}]


def row(number: int) -> dict[str, Any]:
    return {"id": f"r{number}", "messages": MESSAGES, "tools": TOOLS, "calls": [CALL]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a tiny model that answers the rows with their call."""
    folder = tmp_path_factory.mktemp("model")
    table = TokenTable(tiny_tokenizer())
    text = _C.render_calls([(CALL["name"], json.dumps(CALL["arguments"]))], _C.CallStyle("tags"))
    prompt = table.encode(render(tiny_tokenizer(), MESSAGES, TOOLS))
    answer = [*table.encode(text), tiny_tokenizer().eos_token_id]
    taught_model([(prompt, answer)]).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "calls.jsonl"
    path.write_text("".join(json.dumps(row(number)) + "\n" for number in range(2)))
    return path


def test_a_bench_compares_goes_on_and_reports(
    model: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    args = ["bench", "--target", model, "--requests", str(file), "--out", str(out)]
    args += ["--draft-model", model, "--no-cost-model", "--max-tokens", "128"]
    assert run([*args, "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    methods = ["ar", "pld", "sam", "recycling", "span", "toolspec", "self", "draft"]
    methods.append("ooo, perfect hints")
    assert [cell["method"] for cell in cells] == methods
    by = {cell["method"]: cell for cell in cells}
    for cell in cells:
        assert cell["num_equal"] == cell["num_requests"] == 2
        assert cell["parses"] == cell["function"] == cell["arguments"] == 1.0
        low_to_high = cell["decode"][1:2] + cell["decode"][:1] + cell["decode"][2:]
        assert low_to_high == sorted(low_to_high)
    assert by["ar"]["rate"] == by["ar"]["decode"][0] == 1.0
    assert by["ooo, perfect hints"]["call_rate"] >= by["span"]["call_rate"] > 2
    assert by["draft"]["call_rate"] > 4

    lines = (out / "results.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 1 + 2 * len(methods)
    (out / "results.jsonl").write_text("".join(lines[: 1 + len(methods)]) + lines[-1][:50])
    assert run(args) == 0  # of the second request only
    again = (out / "results.jsonl").read_text().splitlines(keepends=True)
    assert again[: 1 + len(methods)] == lines[: 1 + len(methods)]
    assert len(again) == len(lines)
    records = [Record(**json.loads(line)) for line in again[1:]]
    old = [Record(**json.loads(line)) for line in lines[1:]]
    assert [one.token_ids for one in records] == [one.token_ids for one in old]
    toolspec = [len(r.rounds) for many in (old, records) for r in many if r.method == "toolspec"]
    assert toolspec[1] == toolspec[3]  # it has learnt the first answer again
    assert "perfect hints" in capsys.readouterr().out

    class Page(html.parser.HTMLParser):
        tags: list[str]

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.tags.append(tag)
            for name, value in attrs:
                outside = name in ("src", "href", "xlink:href") and not value.startswith("#")
                assert not outside, (tag, value)

    page = Page()
    page.tags = []
    page.feed((out / "report.html").read_text())
    assert page.tags.count("svg") == 7
    assert page.tags.count("tr") == 1 + len(methods)
    assert page.tags.count("th") == len(COLUMNS)
    with (out / "cells.csv").open(newline="") as rows:
        assert [one["method"] for one in csv.DictReader(rows)] == methods


def test_a_warm_bench_reads_all_prompts_from_the_cache(
    model: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    args = ["bench", "--target", model, "--requests", str(file), "--out", str(out)]
    args += ["--smoke", "--warm"]
    assert run([*args, "--method", "toolspec"]) == 0
    records = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()[1:]]
    assert {one["method"] for one in records} == {"ar", "toolspec"}
    assert all(one["cached_tokens"] > 0 for one in records)
    capsys.readouterr()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--adapter", "x"), "expected NAME=FOLDER, got 'x'"),
        (("--adapter", "x=."), "expected a --sidecar that it belongs to"),
        (("--method", "ooo"), "expected a --sidecar, got none"),
        (
            ("--sidecar", "{model}", "--adapter", "x=.", "--method", "ooo"),
            "--adapter: expected --method 'ooo, x' for it, got none",
        ),
        (("--method", "fast"), "expected some of ar, ooo, .*, got 'fast'"),
        (("--requests", "{twice}"), "expected ids that differ, got 'a' twice"),
        (("--device", "nowhere"), "device: expected one that is here, .*, got 'nowhere'"),
        (("--sidecar", "/no/model"), "got '/no/model': no such folder"),
        (("--sidecar", "{model}", "--adapter", "x=.", "--method", "ooo, x"), "failed: not loaded"),
        (("--requests", "{calls}"), "a: expected calls, a list of objects .*, got 3"),
    ],
)
def test_what_is_refused(
    args: tuple[str, ...],
    message: str,
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    twice = tmp_path / "twice.jsonl"
    twice.write_text('{"id": "a", "messages": []}\n' * 2)
    calls = tmp_path / "calls.jsonl"
    calls.write_text('{"id": "a", "messages": [], "calls": 3}\n')
    names = {"twice": str(twice), "calls": str(calls), "model": model}
    assert run(["bench", "--target", model, *(arg.format(**names) for arg in args)]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calls.jsonl", "twice.jsonl"]
    assert re.search(message, capsys.readouterr().err.strip().splitlines()[-1])


def record(method: str, request: str, last: float, **rest: Any) -> Record:
    one = Record(
        target="t",
        file="f",
        request=request,
        method=method,
        token_ids=[1, 2, 3],
        equal=True,
        prompt_tokens=4,
        cached_tokens=0,
        prefill=0.1,
        first=0.1,
        last=last,
        verify=0.1,
        rounds=[[0.1, 0.1, 0.2, last, 1, 2]],
        accepted={},
        rejected={},
        call_tokens=None,
        call_rounds=None,
        parses=None,
        function=None,
        arguments=None,
        wave=None,
        hints=[],
    )
    return replace(one, **rest)


def test_speedups_are_of_sums_over_the_requests_that_both_answered() -> None:
    records = [
        record("ar", "a", 1.1),
        record("ar", "b", 2.1),
        record("x", "a", 0.6, equal=False, arguments=[1, 2], parses=True, function=False),
        record("x", "b", 1.1, arguments=[2, 2], parses=True, function=True),
        record("x", "c", 9.0),
    ]
    plain, ours = summarise(records)
    assert plain.decode == (1.0, 1.0, 1.0)
    assert ours.num_requests == 2
    assert ours.num_equal == 1
    assert ours.decode.value == pytest.approx(3.0 / 1.5)
    assert ours.total.value == pytest.approx(3.2 / 1.7)
    assert ours.total.low <= ours.total.value <= ours.total.high
    assert (ours.parses, ours.function, ours.arguments) == (1.0, 0.5, 0.75)
    assert ours.rate == 2.0
    assert (ours.p50_ms, ours.first_p50_ms) == (pytest.approx(850), pytest.approx(100))
    both = summarise([*records, record("ar", "a", 1.0, file="g")])
    assert {cell.file for cell in both} == {"f", "g", "all"}


def test_a_bootstrap_interval_holds_the_ratio_in_most_samples() -> None:

    chance = np.random.default_rng(0)
    held = 0
    for seed in range(100):
        below = chance.uniform(1, 3, 40)
        above = below * chance.normal(2.0, 0.5, 40)
        ratio = bootstrap_ratio(above.tolist(), below.tolist(), seed, 400)
        held += ratio.low <= 2.0 <= ratio.high
    assert 85 <= held <= 100
    with pytest.raises(ValueError, match="expected two lists of one length above 0, got 0, 0"):
        bootstrap_ratio([], [], 0)


def test_a_target_is_needed_but_to_see_that_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "--out", str(tmp_path)]) == 2
    assert "--target: expected at least one model, got none" in capsys.readouterr().err
    command = ["bench", "--smoke", "--method", "ooo", "--no-cost-model", "--json"]
    assert run([*command, "--out", str(tmp_path)]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert {cell["method"] for cell in cells} == {"ar", "ooo"}
    assert all(cell["num_equal"] == 2 for cell in cells)


def test_results_of_other_settings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    kept = RecordFile(path, {"max_tokens": 4})
    kept.add([record("ar", "a", 1.0)])
    assert RecordFile(path, {"max_tokens": 4}).records == kept.records
    with pytest.raises(InvalidRequest, match=r"max_tokens: 4, not 5\); give another --out"):
        RecordFile(path, {"max_tokens": 5})


@pytest.mark.parametrize(
    ("calls", "reference", "expected"),
    [
        ([("f", '{"a": 1, "b": "x"}')], [("f", {"a": 1, "b": "y"})], (True, True, 1, 2)),
        ([("f", '{"a": 1}')], [("g", {"a": 1})], (True, False, 0, 1)),
        ([("h", "{}")], [("f", {})], (False, False, 0, 0)),
        ([], [("f", {"a": 1})], (False, False, 0, 1)),
        ([], [], (True, True, 0, 0)),
        ([("f", "{}")], [], (False, False, 0, 0)),
    ],
)
def test_answers_are_compared_with_reference_calls(
    calls: list[Any], reference: list[Any], expected: tuple[bool, bool, int, int]
) -> None:
    made = [{"function": {"name": name, "arguments": text}} for name, text in calls]
    tools = [{"function": {"name": name}} for name in "fg"]
    wanted = [{"name": name, "arguments": values} for name, values in reference]
    answer: Any = SimpleNamespace(tool_calls=made)
    assert rightness(answer, {"tools": tools, "calls": wanted}) == Rightness(*expected)
    assert rightness(answer, {"tools": tools}) is None
