# SPDX-License-Identifier: Apache-2.0
"""Replay: full arithmetic, recorded answers; equality of raw logits; hints by their steps."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import pytest
import torch

from ooospec import ops
from ooospec._core import _C
from ooospec.backends.fused import FusedBackend
from ooospec.backends.load import load_backend
from ooospec.backends.tape import Tape
from ooospec.bench.branch_values import BranchValues
from ooospec.bench.records import Record, RecordFile
from ooospec.bench.replayed import Answers, ReplaySubjects, run_replay
from ooospec.bench.run import PERFECT, BenchConfig
from ooospec.bench.shapes import SHAPES, misfit, shape_of
from ooospec.cli.main import run
from ooospec.errors import InvalidRequest
from ooospec.hashes import requests_hash
from ooospec.kv import Sequence
from ooospec.sidecar.graph_wave import GraphWaveRunner
from ooospec.sidecar.prompt import PromptBuilder
from ooospec.sidecar.recorded import with_record
from ooospec.sidecar.wave import WaveReport, WaveRunner
from tiny_models import tiny_tokenizer

TINY = SHAPES["tiny"]
PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"type": "string"},
    },
    "required": ["city"],
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "set_alarm", "parameters": {"type": "object"}}},
]
ROWS: list[dict[str, Any]] = [
    {
        "id": "recorded",
        "messages": [{"role": "user", "content": "Weather in Paris, three days?"}],
        "tools": TOOLS,
        "answer": "```json\n"
        '{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}\n```',
        "hints": [{"name": "get_weather", "arguments": {"city": "Paris", "days": 4}}],
    },
    {
        "id": "reference",
        "messages": [{"role": "user", "content": "Weather in Oslo?"}],
        "tools": TOOLS,
        "calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}],
    },
]
THREE: dict[str, Any] = {  # values that stand nowhere in the request
    "id": "three",
    "messages": [{"role": "user", "content": "Will it be warm?"}],
    "tools": TOOLS,
    "answer": '<tool_call>\n{"name": "get_weather", "arguments": '
    '{"city": "Reykjavik by the harbour", "days": 12, "unit": "kelvin, rounded"}}\n</tool_call>',
}
METHODS = ("ar", "ooo", PERFECT)


@pytest.fixture(autouse=True)
def references() -> Iterator[None]:
    """The references stand for the kernels, which have tests of their own."""
    with ops.using("reference"):
        yield


def replay(folder: Path, backend: Any, shapes: Any = (TINY,)) -> tuple[list[Record], list[str]]:
    config = BenchConfig(METHODS, device="cpu", cost_model=False)
    kept, said = RecordFile(folder / "records", {}), []
    how: Any = {"tokenizer": tiny_tokenizer(), "sidecar": (TINY, tiny_tokenizer())}
    rows = ROWS if backend == "fused" else ROWS[1:]
    runs = run_replay(shapes, {"f": rows}, config, kept, backend=backend, say=said.append, **how)
    return [record for records in runs for record in records], said


@pytest.mark.parametrize("backend", ["fused", "transformers"])
def test_all_methods_see_the_raw_logits_of_plain_decoding(backend: str, tmp_path: Path) -> None:
    records, said = replay(tmp_path, backend)
    assert [record.method for record in records] == len(records) // len(METHODS) * [*METHODS]
    assert all(record.equal for record in records)
    assert any("replayed" in line for line in said)
    for i in range(0, len(records), len(METHODS)):
        plain, *others = records[i : i + len(METHODS)]
        assert plain.parses is None or plain.parses
        assert len(plain.rounds) == len(plain.token_ids) - 1
        assert all(one.token_ids == plain.token_ids for one in others)
        assert len(others[-1].rounds) < len(plain.rounds) / 2
    ooo = records[1]
    assert ooo.wave is not None
    assert all(hint > ooo.wave[0] for hint in ooo.hints)


def test_another_bit_in_the_cache_is_seen(tmp_path: Path) -> None:
    config = BenchConfig(("ar", "pld"), device="cpu", cost_model=False)
    subjects = ReplaySubjects(TINY, tiny_tokenizer(), config, rows=ROWS)
    verify, calls = subjects.taped._inner.verify, []

    def spoilt(sequence: Any, *args: Any, **how: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            slot = sequence.slots(sequence.length - 1, sequence.length)[0]
            sequence.pool.values[0][slot] += 1e-3
        return verify(sequence, *args, **how)

    subjects.taped._inner.verify = spoilt  # type: ignore[method-assign]
    plain, pld = subjects.run("t", "f", ROWS[0], 0)
    subjects.close()
    assert plain.equal
    assert not pld.equal
    assert pld.token_ids == plain.token_ids  # the bent tokens count for nothing


@pytest.fixture
def three() -> Iterator[ReplaySubjects]:
    config = BenchConfig(("ar", "toolspec", "self"), device="cpu", cost_model=False)
    subjects = ReplaySubjects(TINY, tiny_tokenizer(), config, rows=[THREE])
    yield subjects
    subjects.close()


@pytest.mark.parametrize("backend", ["fused", "transformers"])
def test_branches_write_the_values_of_the_answer_beside_it(backend: Any) -> None:
    config = BenchConfig(("ar", "toolspec", "self", "ooo+self"), device="cpu", cost_model=False)
    how: Any = {"rows": [THREE], "sidecar": (TINY, tiny_tokenizer()), "backend": backend}
    subjects = ReplaySubjects(TINY, tiny_tokenizer(), config, **how)
    records = subjects.run("t", "f", THREE, 0)
    ride = subjects.answer(THREE, "self").answer.metrics.branches
    subjects.close()
    assert all(record.equal for record in records)
    plain, guessed, own, both = (len(record.rounds) for record in records)
    assert both <= own < guessed < plain
    assert all(sum(one[-1] for one in record.rounds) > 0 for record in records[2:])
    assert ride is not None
    assert ride.num_opened == 3  # the first value is written before its branch is done with it
    assert {(slot[2], json.loads(value)) for *slot, value in ride.values} == {
        (1, 12),
        (2, "kelvin, rounded"),
    }


def test_a_branch_gets_its_tokens_from_its_own_launches(three: ReplaySubjects) -> None:
    verify, given, written = three.taped._inner.verify, {}, {}

    def seen(sequence: Any, *args: Any, riders: Any, **how: Any) -> Any:
        fed = [one.rows.tokens[: one.num_given + 1].tolist() for one in riders]
        lengths = [one.sequence.length - sequence.length for one in riders]
        verdict = verify(sequence, *args, riders=riders, **how)
        for one, tokens, length, ridden in zip(riders, fed, lengths, verdict.riders, strict=True):
            branch = one.sequence
            given.setdefault(branch, (sequence.length + length, tokens))
            assert 0 < len(ridden.tokens) <= len(one.rows) - one.num_given
            written.setdefault(branch, []).extend(ridden.tokens)
        return verdict

    three.taped._inner.verify = seen  # type: ignore[method-assign]
    three.answer(THREE, "self")
    answer = Answers(tiny_tokenizer(), [THREE]).of(THREE)
    values = Answers(tiny_tokenizer(), [THREE]).branches(answer)
    assert len(given) == 3
    for branch, (place, fed) in given.items():
        said = values.tokens(place - len(answer.prompt_ids), fed)
        assert written[branch] == said[: len(written[branch])]
    decoded = [tiny_tokenizer().decode(tokens) for tokens in written.values()]
    assert any(text.startswith(' "kelvin, rounded"') for text in decoded)


@pytest.mark.parametrize("said", ["", ' 7, "'])
def test_branches_that_say_something_else_cost_rows_alone(
    three: ReplaySubjects, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = three.answer(THREE, "ar").answer
    guessed = three.answer(THREE, "toolspec").answer.metrics
    tokens = tiny_tokenizer().encode(said)
    monkeypatch.setattr(BranchValues, "tokens", lambda *_: tokens)
    other = three.answer(THREE, "self").answer
    assert three.hashes["self"] == three.hashes["ar"]
    assert other.token_ids == plain.token_ids
    assert other.metrics.branches is not None
    assert other.metrics.branches.num_opened == 3
    assert other.metrics.num_rounds >= guessed.num_rounds


def test_a_branch_that_writes_into_the_pages_of_the_answer_is_seen(
    three: ReplaySubjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork(self: Sequence, num_tokens: int = 0, length: int | None = None) -> Sequence:
        child = Sequence(self.pool)
        self.pool.retain(self.pages)
        child._append(list(self.pages))
        child.length = self.length if length is None else length
        return child

    three.answer(THREE, "ar")
    monkeypatch.setattr(Sequence, "fork", fork)
    three.answer(THREE, "self")
    assert three.hashes["self"] != three.hashes["ar"]


def test_a_branch_whose_tokens_are_those_of_the_answer_is_seen(
    three: ReplaySubjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = Tape.tell

    def leak(self: Tape, riders: Any) -> None:
        tell(self, riders)
        for row in range(1, len(riders) + 1):
            self.answer[0] = torch.where(self.answer[row] < 0, self.answer[0], self.answer[row])

    monkeypatch.setattr(Tape, "tell", leak)
    with pytest.raises(RuntimeError, match="three: self did not replay the recorded answer"):
        three.answer(THREE, "self")


def test_a_branch_says_its_value_as_the_answer_writes_it() -> None:
    answers, tokenizer = Answers(tiny_tokenizer(), [THREE]), tiny_tokenizer()
    head = '<tool_call>\n{"name": "get_weather", "arguments": '
    first = head + '{"city": "\\u0050aris, \\"F\\"", "days": -3}}\n</tool_call>\n'
    second = head + '{\n  "days": 4,\n  "city": [ "Oslo", {"x": 1} ]}}\n</tool_call>'
    values = answers.branches(answers.of({**THREE, "answer": first + second}))

    def said(before: str, begun: str) -> str:
        num_before = len(tokenizer.encode(before + head))
        found = values.tokens(num_before, tokenizer.encode(begun))
        return str(tokenizer.decode(found))

    assert said("", '{"city":') == ' "\\u0050aris, \\"F\\"", "'
    assert said("", '{"days":') == ' -3, "'
    assert said(first, '{\n  "days":') == ' 4, "'
    assert said(first, '{\n  "city":') == ' [ "Oslo", {"x": 1} ], "'
    assert said("", '{"unit":') == ' null, "'  # the call has none
    assert said("", '{"days": "') == ' null, "'  # the call begins it otherwise
    long = answers.branches(answers.of({**THREE, "answer": first.replace("-3", "3" * 99)}))
    fed = tokenizer.encode('{"days":')
    assert len(long.tokens(len(tokenizer.encode(head)), fed)) == _C.SlotBranch.MAX_TOKENS


def test_answers_are_records_then_calls_in_their_styles() -> None:
    answers = Answers(tiny_tokenizer(), ROWS)
    assert answers.of(ROWS[0]).text == ROWS[0]["answer"]
    written = answers.of(ROWS[1])
    assert written.text.startswith("```json\n")
    assert written.calls == ROWS[1]["calls"]
    assert answers.of(ROWS[0]).hints == ROWS[0]["hints"]
    alone = Answers(tiny_tokenizer(), ROWS[1:])
    assert alone.of(ROWS[1]).text.startswith("<tool_call>")  # as the template has it
    assert alone.of({**ROWS[1], "calls": []}).text == "No tool is needed."
    with pytest.raises(InvalidRequest, match="reference: expected an answer or calls"):
        answers.of({key: value for key, value in ROWS[1].items() if key != "calls"})


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> Iterator[WaveRunner | GraphWaveRunner]:
    model = TINY.model("cpu", torch.float32)
    builder = PromptBuilder(tiny_tokenizer(), max_tokens=2048, examples=False)
    if request.param == "graph":
        backend = FusedBackend(model, tiny_tokenizer(), num_sequences=5)
        yield GraphWaveRunner(backend, builder, num_rows=4)
    else:
        plain = load_backend(model, tokenizer=tiny_tokenizer())
        yield WaveRunner(plain, builder, num_rows=4)
        plain.close()


@pytest.mark.parametrize("runner", ["plain", "graph"], indirect=True)
def test_a_recorded_hint_comes_behind_the_steps_of_its_slot(
    runner: WaveRunner | GraphWaveRunner,
) -> None:
    call = {"name": "get_weather", "arguments": {"city": "Paris, the long way round", "days": 3}}
    prompt = with_record(
        runner.builder.build(ROWS[0]["messages"], TOOLS), runner.builder, call, TOOLS
    )
    ring, report = _C.HintRing(), WaveReport(1)
    runner.run(prompt, ring, report)
    found = {}
    while (record := ring.try_pop()) is not None:
        if record.kind == _C.HintKind.VALUE:
            found[record.parameter] = json.loads(record.text)
    assert found == {0: "Paris, the long way round", 1: 3, 2: None}
    assert report.answers[0].tool == 0
    steps = [step for step in report.steps if step.stop > report.answers[0].time]
    for answer in report.answers[1:]:
        reader, told = _C.ValueReader(), prompt.slots[answer.parameter].recorded
        size = 1 + [reader.feed(runner.builder.decode([token])) for token in told].index(True)
        if isinstance(runner, GraphWaveRunner):
            size = least_launches(prompt.prefix, told[:size])
        ended = [step.stop for step in report.steps if step.stop <= answer.time]
        # The first token comes from the launch that scored the functions, or from one behind it.
        assert len(ended) >= len(report.steps) - len(steps) + size - 1, answer
    assert len(steps) >= 8


def least_launches(prefix: Seq[int], told: Seq[int]) -> int:
    """Returns the launches of an answer if each of them drafts all that stands in the prefix behind
    the answer's last tokens, where most of these do.
    """
    text, launches, done = list(prefix), 1, 1
    while done < len(told):
        best = max(range(len(text)), key=lambda end: (same_end(text[: end + 1], told[:done]), end))
        behind = text[best + 1 :] if text[best] == told[done - 1] else []
        pairs = zip(told[done:], behind, strict=False)
        right = list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        done, launches = done + len(right) + 1, launches + 1
    return launches


def same_end(one: Seq[int], other: Seq[int]) -> int:
    """Returns how many tokens both end with, at most four."""
    pairs = zip(reversed(one[-4:]), reversed(other[-4:]), strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


def test_a_record_without_a_call_ends_the_wave_at_once() -> None:
    builder = PromptBuilder(tiny_tokenizer(), max_tokens=2048, examples=False)
    prompt = builder.build(ROWS[0]["messages"], TOOLS)
    for call in (None, {"name": "unknown", "arguments": {}}):
        told = with_record(prompt, builder, call, TOOLS)
        assert told.recorded == (None,)
        backend = load_backend(TINY.model("cpu", torch.float32), tokenizer=tiny_tokenizer())
        ring, report = _C.HintRing(), WaveReport(1)
        WaveRunner(backend, builder).run(told, ring, report)
        backend.close()
        assert report.num_unsaid == report.num_slots == 3
        record = ring.try_pop()
        assert record is not None
        assert record.tool == _C.HintRecord.NO_TOOL


def test_what_does_not_fit_is_skipped_with_its_reason(tmp_path: Path) -> None:
    huge = SHAPES["Qwen2.5-32B"]
    records, said = replay(tmp_path, "fused", [huge])
    assert records == []
    assert len(said) == 1
    assert said[0].startswith("Qwen2.5-32B: skipped, it needs 163.8 GB")
    assert 60e9 < huge.num_bytes(torch.bfloat16) < 68e9
    small = misfit(TINY, range(700), "cpu", torch.float32)
    assert small == "its vocabulary has 640 ids, the tokenizer 700"


def test_methods_that_read_logits_are_refused() -> None:
    config = BenchConfig(("ar", "recycling"), device="cpu", cost_model=False)
    with pytest.raises(InvalidRequest, match="got 'recycling', which reads"):
        ReplaySubjects(TINY, tiny_tokenizer(), config, rows=ROWS)
    with pytest.raises(InvalidRequest, match=r"shape: expected one of .*Qwen3-8B.*got 'Qwen9'"):
        shape_of("Qwen9")


def test_the_command_reports_with_its_caption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(ROWS[1]) + "\n")
    out = tmp_path / "out"
    command = ["replay", "--shape", "tiny", "--tokenizer", str(tmp_path), "--requests", str(file)]
    command += ["--method", "perfect", "--no-cost-model", "--device", "cpu", "--out", str(out)]
    assert run(command) == 0
    said = capsys.readouterr()
    assert "rows on tiny, 1 requests" in said.out
    assert "the bent tokens count for" in said.out
    page = (out / "report.html").read_text()
    assert "2 of 2 answers have the raw logits of plain decoding behind every token." in page
    assert page.count("logits bent by absolute position") >= page.count("<figcaption>") > 1
    facts = json.loads((out / "cells.json").read_text())["facts"]
    assert json.loads(facts["settings"])["requests"] == {"rows": requests_hash(file)}
    assert run([*command[:2], "Qwen2.5-32B", *command[3:-1], str(tmp_path / "other")]) == 2
    assert "nothing was run: Qwen2.5-32B: skipped, it needs" in capsys.readouterr().err
