# SPDX-License-Identifier: Apache-2.0
"""`ooospec trace | train | eval-sidecar`: the whole way from requests to a measured adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ooospec.cli.main import run
from tiny_models import save_tiny
from tiny_sidecar import MESSAGES, TOOLS

CALL = {"name": "set_alarm", "arguments": {"time": "06:30"}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a tiny random model."""
    return save_tiny(tmp_path_factory.mktemp("model"), num_hidden_layers=1)


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    """A file of eight requests, two of them with a tool of their own, and a line that is none."""
    rows: list[dict[str, Any]] = [
        {"id": f"a{i}", "messages": MESSAGES, "tools": TOOLS, "calls": [CALL]} for i in range(6)
    ]
    for i in range(2):
        tool = {"type": "function", "function": {"name": f"rare{i}"}}
        call = {"name": f"rare{i}", "arguments": {}}
        rows.append({"id": f"d{i}", "messages": MESSAGES, "tools": [tool], "calls": [call]})
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join([*map(json.dumps, rows), "no request"]) + "\n")
    return path


def report(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    """Runs a command with --json and returns what it prints."""
    assert run([*args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_train_and_eval_sidecar(
    model: str, requests: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "adapter"
    args = ["train", "--model", model, "--requests", str(requests), "--out", str(out)]
    args += ["--rank", "2", "--step-requests", "2", "--dev-share", "0.25", "--max-tokens", "1024"]
    assert run([*args, "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert "data: 6 requests to train on, 2 in the dev split" in said
    assert "skipped: 1 x a line that is no request" in said
    assert "minutes for 4 steps" in said
    assert not out.exists()
    trained = report(capsys, *args, "--base", "some/base")
    assert trained["steps"] == 4
    assert trained["best"]["step"] in (1, 2, 3, 4)
    assert "some/base" in (out / "README.md").read_text()
    args = ["eval-sidecar", "--sidecar", model, "--adapter", str(out)]
    args += ["--requests", str(requests), "--requests", str(out / "dev.jsonl"), "--limit", "3"]
    found = report(capsys, *args)
    assert found["sets"].keys() == {"requests.jsonl", "dev.jsonl"}
    assert found["skipped"] == {"a line that is no request": 1}
    for pair in found["sets"].values():
        assert pair["sidecar"]["requests"] == pair["baseline"]["requests"] > 0
        assert pair["sidecar"]["wave p50 ms"] > 0
    assert run([*args, "--by-source"]) == 0
    assert "baseline" in capsys.readouterr().out


def test_trace_goes_on_and_train_takes_its_rows(
    model: str, requests: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean = tmp_path / "clean.jsonl"
    clean.write_text("".join(requests.read_text().splitlines(keepends=True)[:-1]))
    out = tmp_path / "traces.jsonl"
    args = ["trace", "--target", model, "--requests", str(clean), "--out", str(out)]
    args += ["--max-tokens", "8"]
    first = report(capsys, *args, "--limit", "2")
    assert first["done before"] == 0
    assert first["usable"] + sum(first["failed"].values()) == 2
    assert first["failed"] == {"cut off before a call was complete": 2}
    second = report(capsys, *args)
    assert second["done before"] == 2
    assert second["usable"] + sum(second["failed"].values()) == 6
    failed = out.with_suffix(".failed.jsonl").read_text().splitlines()
    assert len({json.loads(line)["id"] for line in failed}) == 8
    trace = {"id": "a0", "messages": MESSAGES, "tools": TOOLS, "call": None}
    out.write_text(json.dumps(trace) + "\n")
    args = ["train", "--model", model, "--requests", str(clean), "--traces", str(out)]
    args += ["--out", str(tmp_path / "adapter"), "--dev-share", "0", "--max-tokens", "1024"]
    assert run([*args, "--dry-run"]) == 0
    assert "data: 8 requests to train on, 0 in the dev split" in capsys.readouterr().err


def test_what_is_wrong_is_one_sentence(
    model: str, requests: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["train", "--model", model, "--requests", str(requests), "--out", str(tmp_path / "o")]
    assert run([*base, "--rank", "0"]) == 2
    assert "--rank: expected at least 1, got 0" in capsys.readouterr().err
    assert run([*base, "--dev-share", "1"]) == 2
    assert "--dev-share: expected a share below 1" in capsys.readouterr().err
    assert run([*base, "--dtype", "float16"]) == 2
    assert "expected bfloat16 or float32" in capsys.readouterr().err
    twice = ["trace", "--target", model, "--requests", str(requests), "--requests", str(requests)]
    assert run([*twice, "--out", str(tmp_path / "t.jsonl")]) == 2
    assert "expected a JSON object" in capsys.readouterr().err
