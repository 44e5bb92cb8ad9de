# SPDX-License-Identifier: Apache-2.0
"""`ooospec estimate`: rounds of recorded answers are those that the engine needs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ooospec
from ooospec import _C
from ooospec.backends.load import load_backend
from ooospec.bench.estimate import ESTIMATED, PERFECT, RECORDED, Recorded, RoundTimes, estimate
from ooospec.bench.sidecars import RecordedSidecar, plain_calls
from ooospec.cli.main import run
from ooospec.config import EngineConfig
from ooospec.draft import new_memory
from ooospec.formats import render
from ooospec.tokens import TokenTable
from tiny_models import tiny_tokenizer
from tiny_sidecar import TOOLS
from tiny_taught import taught_model

CALL = {"name": "get_weather", "arguments": {"city": "the quick fox", "days": 12}}
WRONG = {"name": "get_weather", "arguments": {"city": "Rome", "days": 12}}
MESSAGES = [{"role": "user", "content": "Weather where the fox naps, for a fortnight."}]
ROW = {"messages": MESSAGES, "tools": TOOLS}


def call_text() -> str:
    arguments = json.dumps(CALL["arguments"])
    return _C.render_calls([(str(CALL["name"]), arguments)], _C.CallStyle("tags"))


def test_rounds_of_a_recorded_run_are_those_of_the_engine() -> None:
    table = TokenTable(tiny_tokenizer())
    prompt = table.encode(render(tiny_tokenizer(), MESSAGES, TOOLS))
    model = taught_model([(prompt, [*table.encode(call_text()), tiny_tokenizer().eos_token_id])])
    sidecar = RecordedSidecar()
    engine = ooospec.load(
        load_backend(model, tokenizer=tiny_tokenizer()),
        sidecar=sidecar,
        wave="always",
        cost_model=False,
        config=EngineConfig(cache_tokens=2048),
    )
    recorded = Recorded(tiny_tokenizer())
    plain = engine.generate(MESSAGES, TOOLS, method="ar", max_tokens=100)
    assert plain.tool_calls
    answer = recorded.answer(ROW | {"token_ids": plain.token_ids, "hints": [WRONG]})
    assert answer.calls == plain_calls(plain) == [CALL]
    drafting: Any = engine.drafting
    num_rounds = set()
    for name, method in ESTIMATED.items():
        hints = {RECORDED: [WRONG], PERFECT: answer.calls}.get(name, [])
        sidecar.calls = hints
        memory = new_memory(recorded.text)
        own = drafting.method(replace(method, name=name))
        for _ in range(2):  # the second time with what was learnt
            ran = engine.generate(MESSAGES, TOOLS, method=own, max_tokens=100)
            assert ran.token_ids == plain.token_ids
            rounds = recorded.replay(answer, method, hints, memory)
            assert [(one.nodes, one.committed) for one in rounds] == [
                (one.num_rows, one.num_committed) for one in ran.metrics.rounds
            ]
            num_rounds.add(len(rounds))
    assert len(num_rounds) > 1


def test_a_trace_is_replayed_in_the_tokens_that_were_written() -> None:
    """A model may cut a word where its tokenizer would not."""
    recorded, text = Recorded(tiny_tokenizer()), call_text()
    encode, end = recorded.table.encode, tiny_tokenizer().eos_token_id
    middle = text.index("weather") + 3
    written = encode(text[:middle]) + encode(text[middle:])
    usual = encode(text)
    assert written != usual

    def read(**trace: Any) -> list[int]:
        return recorded.answer(ROW | {"text": text, **trace}).token_ids

    assert read(tokens=[*written, end]) == read(tokens=written) == [*written, end]
    other_end = encode("\n")  # of a model that has another
    assert read(tokens=written + other_end) == [*written, end]
    first = encode("Zürich")[:1]
    assert recorded.table.decode_bytes(first) == b"Z\xc3"  # where tokens ran out
    half = {"text": "Z\ufffd", "tokens": first}
    assert recorded.answer(ROW | half).token_ids == [*first, end]
    for foreign in (None, [], [5, 6, 7], [10**9], ["a"], written[1:]):
        assert read(tokens=foreign) == [*usual, end]


def test_a_log_gives_a_table_and_its_worst_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    log = tmp_path / "log.jsonl"
    prose = "The quick brown fox jumps over the lazy dog [twice]."
    rows = [ROW | {"id": f"call {n}", "answer": call_text(), "hints": [CALL]} for n in range(2)]
    rows += [{"id": "prose", "messages": MESSAGES, "answer": prose}]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    args = ["estimate", str(log), "--tokenizer", str(tmp_path), "--round-ms", "10"]
    assert run([*args, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    methods = said["methods"]
    assert [*methods] == ["ar", *ESTIMATED]
    assert [methods[name]["answers"] for name in methods] == [3, 3, 3, 2, 3]
    assert methods[PERFECT]["rate"] > 1.5
    assert methods[RECORDED]["speedup"] > methods["toolspec"]["speedup"] > 1
    assert methods["ar"]["seconds"] == pytest.approx(methods["ar"]["rounds"] / 100)
    assert said["worst"][0]["name"] == "prose"
    assert run(args) == 0
    assert "[twice]" in capsys.readouterr().out


def test_times_are_those_of_the_rounds() -> None:
    times = RoundTimes(10.0, 1.5)
    assert (times.ms(1), times.ms(64)) == (10.0, 15.0)
    row = ROW | {"id": "a", "answer": call_text()}
    (one,) = estimate(Recorded(tiny_tokenizer()), [row], times)
    assert one.plain_ms == 10.0 * one.num_tokens
    for name, num_rounds in one.num_rounds.items():
        assert 10.0 * num_rounds <= one.ms[name] <= 15.0 * num_rounds


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "a"}, "a: expected `token_ids`, `answer` or `text`, got none"),
        ({"id": "a", "token_ids": [1, 10**6]}, "of the tokenizer, got 1000000"),
        ({"id": "a", "answer": "x", "hints": ["y"]}, "expected hints with a name and arguments"),
        ({"id": "a", "answer": "x", "hints": [{"arguments": {}}]}, "expected hints with a name"),
        ({"id": "a", "answer": "x", "hints": 5}, "a: expected a list of hints, got 5"),
        ({"id": "a", "answer": "x\ud800"}, "a: answer: expected Unicode text, got half"),
        ({"id": "a", "text": "\ud800", "tokens": [1]}, "a: text: expected Unicode text, got half"),
        ({"id": "a", "answer": "x", "tools": [{"function": {"name": "f", "parameters": []}}]}, "f"),
    ],
)
def test_what_is_refused(
    row: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps(ROW | row) + "\n")
    assert run(["estimate", str(log), "--tokenizer", str(tmp_path)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert run(["estimate", str(log), "--tokenizer", str(tmp_path / "none")]) == 2
    assert "--tokenizer: expected a folder or hub id" in capsys.readouterr().err
