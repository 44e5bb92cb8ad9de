# SPDX-License-Identifier: Apache-2.0
"""A sidecar apart from the target: its process, its device, its cores, and what it cost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ooospec import HintKind, ops
from ooospec.bench.records import Record
from ooospec.bench.replayed import APART, ReplaySubjects, open_apart
from ooospec.bench.run import BenchConfig, hint_ages, method_of
from ooospec.bench.shapes import SHAPES
from ooospec.bench.waves import wave_figures
from ooospec.cli.main import run
from ooospec.hints import HintArrival
from ooospec.sidecar import near
from ooospec.sidecar.wave import Answered, WaveReport
from ooospec.trace import TracedRequest
from test_replay_bench import ROWS, TINY
from tiny_models import tiny_tokenizer


@pytest.fixture(autouse=True)
def references(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("gpu"):
        yield
        return
    with ops.using("reference"):
        yield


def test_a_replayed_process_says_what_a_thread_says(monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {"device": "cpu", "split_device": "cpu", "cost_model": False}
    config = BenchConfig(("ar", "ooo", APART), wave="wait", **how)
    monkeypatch.setattr("ooospec.drafting.WAIT_SECONDS", 60.0)  # a wave on a CPU is slow
    how = {"rows": ROWS, "sidecar": (TINY, tiny_tokenizer())}
    subjects = ReplaySubjects(TINY, tiny_tokenizer(), config, **how)
    try:
        assert list(subjects.status) == ["ooo", APART]
        for number, row in enumerate(ROWS):
            plain, thread, process = subjects.run("t", "f", row, number)
            assert thread.equal
            assert process.equal
            assert plain.token_ids == thread.token_ids == process.token_ids
            assert len(process.hints) == len(thread.hints) > 0
            assert len(process.rounds) == len(thread.rounds)
            assert len(process.ages) > 0
            assert min(process.ages) > 0  # one clock, and written before it is there
            assert process.wave is not None
            assert process.wave[0] > 0
    finally:
        subjects.close()


@pytest.mark.gpu
def test_both_gpus_compute_the_same_bits() -> None:
    """Whichever is the target's, the other the sidecar's, and whatever the current one is."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    shape, hashes = SHAPES["Qwen3-0.6B"], []
    for ours, other in (("cuda:0", "cuda:1"), ("cuda:1", "cuda:0")):
        config = BenchConfig(
            ("ar", "ooo", APART), device=ours, split_device=other, cost_model=False
        )
        small = (shape, tiny_tokenizer())
        subjects = ReplaySubjects(shape, tiny_tokenizer(), config, rows=ROWS, sidecar=small)
        try:
            subjects.warm_up()
            for number, row in enumerate(ROWS):
                records = subjects.run("t", "f", row, number)
                assert all(record.equal for record in records)
                assert all(record.hints for record in records[1:])
                hashes.append(subjects.hashes["ar"])
        finally:
            subjects.close()
        assert torch.cuda.current_device() == 0
    assert hashes[: len(ROWS)] == hashes[len(ROWS) :]


def test_a_process_that_cannot_load_is_one_sentence() -> None:
    model = TINY.model("cpu", torch.float32)
    with pytest.raises(RuntimeError, match="expected a process that loads its model, got failed"):
        open_apart(model, tiny_tokenizer(), device="cuda:77")


def test_the_command_has_a_method_for_the_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", "--smoke", "--no-cost-model", "--split-device", "cpu", "--json"]
    command += ["--method", "ooo", "--method", "ooo, split", "--out", str(tmp_path)]
    assert run(command) == 0
    known = json.loads(capsys.readouterr().out)
    assert {cell["method"] for cell in known["cells"]} == {"ar", "ooo", "ooo, split"}
    assert all(cell["num_equal"] == 2 for cell in known["cells"])
    nobody = ["bench", "--target", "none", "--split-device", "cpu", "--out", str(tmp_path / "no")]
    assert run(nobody) == 2
    assert "--split-device: expected a --sidecar that runs there" in capsys.readouterr().err
    wrong = "--split-device: expected one with a method such as 'ooo, split', and only then, got"
    alone = ["bench", "--smoke", "--method", "ooo, split", "--out", str(tmp_path / "alone")]
    assert run(alone) == 2
    assert f"{wrong} None with ar, ooo, split" in capsys.readouterr().err
    unused = ["bench", "--smoke", "--split-device", "cpu", "--method", "span"]
    assert run([*unused, "--out", str(tmp_path / "unused")]) == 2
    assert f"{wrong} cpu with ar, span" in capsys.readouterr().err


def test_a_split_method_is_what_it_is_called() -> None:
    assert method_of("ooo+self, split") == method_of("ooo+self") == "ooo+self"
    assert method_of("ooo, mine, split") == method_of("ooo, split") == "ooo"
    assert method_of("ooo+self, mine, split") == method_of("ooo+self, mine") == "ooo+self"


def record(method: str, **how: Any) -> Record:
    """A record of ten tokens, the first after 10 ms, then rounds of 10 ms."""
    rounds = [[0.01 * k, 0.01 * k, 0.01 * k + 0.01, 0.01 * k + 0.01, 8, 3] for k in (1, 2, 3)]
    known: dict[str, Any] = {
        "target": "t",
        "file": "f",
        "request": "r",
        "method": method,
        "token_ids": [0] * 10,
        "equal": True,
        "prompt_tokens": 5,
        "cached_tokens": 0,
        "prefill": 0.01,
        "first": 0.01,
        "last": 0.04,
        "verify": 0.03,
        "rounds": rounds,
        "accepted": {},
        "rejected": {},
        "call_tokens": None,
        "call_rounds": None,
        "parses": None,
        "function": None,
        "arguments": None,
        "wave": None,
        "hints": [],
    }
    return Record(**known | how)


def test_what_waves_cost_is_counted() -> None:
    slow = [[0.012, 0.012, 0.032, 0.032, 8, 3], [0.04, 0.04, 0.05, 0.05, 8, 6]]
    beside = record(
        "ooo",
        prefill=0.012,
        first=0.012,
        last=0.05,
        rounds=slow,
        wave=[0.0, 0.04],
        hints=[0.033, 0.039],
        ages=[0.001, 0.003],
    )
    late = record("ooo, split", wave=[0.02, 0.06], hints=[0.055])
    silent = record("toolspec", wave=[0.0, 0.04])
    first, second = wave_figures([record("ar"), beside, late, silent])
    assert (first.method, first.num_waves) == ("ooo", 1)
    assert first.behind_prefill == pytest.approx(0.3)
    assert first.behind_answer == 1.0
    assert first.wave_ms == pytest.approx(40)
    assert first.first_hint_ms == pytest.approx(33)
    assert first.tokens_before == 1 + 3
    assert first.age_us == pytest.approx(2000)
    assert first.prefill == pytest.approx(1.2)
    assert first.rounds == pytest.approx(2.0)
    assert (second.behind_prefill, second.behind_answer) == (0.0, pytest.approx(0.5))
    assert second.age_us is None
    assert second.rounds == pytest.approx(1.0)  # the two that ran within it


def test_a_hint_is_as_old_as_its_way_was_long() -> None:
    def arrival(kind: HintKind, tool: int, parameter: int, time: float) -> HintArrival:
        return HintArrival(time, kind, tool, parameter, 4, True)

    def answered(kind: str, tool: int, parameter: int, time: float) -> Answered:
        return Answered(time, kind, tool, parameter, True)

    wave = WaveReport(1, start=0.0)
    wave.answers = [answered("FUNCTION", 1, 0, 1.0), answered("VALUE", 1, 0, 2.0)]
    arrivals = [
        arrival(HintKind.FUNCTION, 1, 0, 1.5),
        arrival(HintKind.VALUE, 1, 0, 2.25),
        arrival(HintKind.VALUE, 1, 1, 9.0),  # not in the report
    ]
    metrics: Any = None
    assert hint_ages(TracedRequest("r", metrics, arrivals, wave)) == [0.5, 0.25]
    assert hint_ages(TracedRequest("r", metrics, arrivals, None)) == []


def test_lists_of_cores() -> None:
    assert near.read_cpulist("0-2,8,10-11\n") == {0, 1, 2, 8, 10, 11}
    assert near.read_cpulist("\n") == set()
    with pytest.raises(ValueError, match="invalid literal"):
        near.read_cpulist("0-x")


@pytest.mark.parametrize(
    ("listed", "kept"),
    [("2-3\n", {2, 3}), ("3,64-127\n", {3}), ("0-127\n", set()), ("64\n", set()), (None, set())],
)
def test_a_process_stays_near_its_gpu(
    listed: str | None, kept: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only cores that it may use anyway, and only if the system names some of them."""
    if listed is not None:
        (tmp_path / "0000:c4:00.0").mkdir()
        (tmp_path / "0000:c4:00.0" / "local_cpulist").write_text(listed)
    card = SimpleNamespace(pci_domain_id=0, pci_bus_id=0xC4, pci_device_id=0)
    bound: list[set[int]] = []
    monkeypatch.setattr(near, "PCI_DEVICES", tmp_path)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: bound.append(set(cores)))
    assert near.stay_near(torch.device("cuda:1")) == kept
    assert bound == ([kept] if kept else [])
    assert near.stay_near(torch.device("cpu")) == frozenset()
