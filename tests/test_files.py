# SPDX-License-Identifier: Apache-2.0
"""Files that are written: whole or not at all, on full disks and in folders that are none."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ooospec.bench.records import RecordFile
from ooospec.cli.main import run
from ooospec.errors import InvalidRequest
from ooospec.files import append_whole, check_place, whole_file, whole_lines, write_text
from ooospec.train.teacher import TraceFiles
from test_bench import record
from tiny_models import save_tiny
from tiny_sidecar import MESSAGES, TOOLS

CALL = {"name": "set_alarm", "arguments": {"time": "06:30"}}
TOO_LARGE = "expected a place to write to, got File too large"


@contextmanager
def disk_of(num_bytes: int) -> Iterator[None]:
    """Lets no file grow beyond `num_bytes`: what fits is written, then the system refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    with disk_of(1000), pytest.raises(InvalidRequest, match=f"file.txt: {TOO_LARGE}"):
        write_text(path, "x" * 2000)
    assert not list(path.parent.iterdir())
    write_text(path, "Zürich")
    with disk_of(1000), pytest.raises(InvalidRequest, match=TOO_LARGE):
        write_text(path, "y" * 2000)
    with pytest.raises(ZeroDivisionError), whole_file(path) as file:
        file.write(b"half" * (1 // 0))
    assert [one.name for one in path.parent.iterdir()] == ["file.txt"]
    assert path.read_text() == "Zürich"
    link = tmp_path / "link"
    link.symlink_to(path)
    write_text(link, "behind the link")
    assert (link.is_symlink(), path.read_text()) == (True, "behind the link")


def test_places_where_nothing_can_be_are_found_out_early(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check_place(tmp_path / "file")
    check_place(tmp_path / "a" / "b" / "c")
    check_place(tmp_path, is_folder=True)
    for path, is_folder in ((tmp_path / "file", True), (tmp_path / "file" / "x", False)):
        with pytest.raises(InvalidRequest, match=f"{path}: expected .* got a file at .*file$"):
            check_place(path, is_folder=is_folder)


def test_what_is_added_is_added_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    with disk_of(1000), pytest.raises(InvalidRequest, match=f"lines: {TOO_LARGE}"):
        append_whole(path, b"x" * 2000)
    assert not path.exists()
    append_whole(path, b"first\n")
    with disk_of(1000), pytest.raises(InvalidRequest, match=f"lines: {TOO_LARGE}"):
        append_whole(path, b"x" * 2000 + b"\n")
    append_whole(path, b"second\n")
    assert path.read_bytes() == b"first\nsecond\n"
    path.write_bytes(b"first\nsecond\ncut o")
    assert whole_lines(path) == ["first", "second"]
    assert path.read_bytes() == b"first\nsecond\n"
    assert whole_lines(tmp_path / "none") == []
    path.write_bytes(b"\xff\n")
    with pytest.raises(InvalidRequest, match="expected lines of text"):
        whole_lines(path)


def test_records_go_on_behind_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "out" / "results.jsonl"
    kept = RecordFile(path, {"seed": 1})
    assert not path.parent.exists()
    with disk_of(100), pytest.raises(InvalidRequest, match=TOO_LARGE):
        kept.add([record("m", "a", 1.1), record("m", "b", 1.1)])
    assert kept.records == RecordFile(path, {"seed": 1}).records == []
    kept.add([record("m", "a", 1.1)])
    size = path.stat().st_size
    with disk_of(size + 100), pytest.raises(InvalidRequest, match=TOO_LARGE):
        kept.add([record("m", "b", 1.1), record("n", "b", 1.1)])
    assert path.stat().st_size == size
    assert RecordFile(path, {"seed": 1}).records == kept.records == [record("m", "a", 1.1)]
    kept.add([record("m", "b", 1.1)])
    assert len(RecordFile(path, {"seed": 1}).records) == 2


@pytest.mark.parametrize("content", ["no JSON", "[1]", "{}", '{"settings": {}}\n{"no": "record"}'])
def test_results_of_something_else_are_left_alone(content: str, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(content + "\n")
    with pytest.raises(InvalidRequest, match=r"results.jsonl: expected what a bench wrote, got .*"):
        RecordFile(path, {})
    assert path.read_text() == content + "\n"


@pytest.mark.parametrize("content", ["no JSON", "[1]", '{"no": "id"}'])
def test_traces_of_something_else_are_left_alone(content: str, tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_text(content + "\n")
    with pytest.raises(InvalidRequest, match=r"traces.jsonl, line 1: expected a row of"):
        TraceFiles(path).done()
    assert path.read_text() == content + "\n"


# --- commands on a full disk ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a tiny random model."""
    return save_tiny(tmp_path_factory.mktemp("model"), num_hidden_layers=1)


@pytest.fixture
def requests(tmp_path: Path) -> str:
    path = tmp_path / "requests.jsonl"
    row = {"messages": MESSAGES, "tools": TOOLS, "calls": [CALL]}
    path.write_text("".join(json.dumps({"id": f"r{i}", **row}) + "\n" for i in range(3)))
    return str(path)


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> None:
    """Runs a command that finds no room, and sees that it says so in one line."""
    assert run(args) == 2
    err = capsys.readouterr().err
    assert err.count("ooospec: ") == 1
    assert TOO_LARGE in err.splitlines()[-1]
    assert "Traceback" not in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_device_is_one_sentence(
    model: str, requests: str, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--max-tokens", "4")
    for args in (
        ("generate", "Hi", "--target", model, *few, "--trace", "/dev/full"),
        ("demo", "Hi", "--target", model, "--sidecar", "", *few, "--svg", "/dev/full"),
        ("eval-sidecar", "--sidecar", model, "--requests", requests, "--hints", "/dev/full"),
        ("requests", "synth", "--count", "3", "--out", "/dev/full"),
    ):
        assert run(args) == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert said == "ooospec: /dev/full: expected a place to write to, got " + os.strerror(28)


def test_a_bench_goes_on_behind_a_full_disk(
    model: str, requests: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    args = ("bench", "--target", model, "--requests", requests, "--out", str(out))
    args += ("--method", "pld", "--max-tokens", "4", "--no-cost-model")
    with disk_of(3000):
        refused(capsys, *args)
    (first, *_) = RecordFile(out / "results.jsonl", settings_in(out)).records
    assert files_in(out) == ["results.jsonl"]
    assert run(args) == 0
    records = RecordFile(out / "results.jsonl", settings_in(out)).records
    assert len(records) == 6
    assert records[0] == first
    assert files_in(out) == ["cells.csv", "cells.json", "report.html", "results.jsonl"]


def settings_in(out: Path) -> dict[str, object]:
    with (out / "results.jsonl").open() as lines:
        found: dict[str, object] = json.loads(next(lines))["settings"]
        return found


def test_a_trace_goes_on_behind_a_full_disk(
    model: str, requests: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "traces.jsonl"
    args = ("trace", "--target", model, "--requests", requests, "--out", str(out))
    args += ("--max-tokens", "4")
    with disk_of(1000):
        refused(capsys, *args)
    failed = TraceFiles(out).failed_path
    num_done = len(whole_lines(failed))
    assert 0 < num_done < 3
    assert run([*args, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done before"] == num_done
    assert [json.loads(line)["id"] for line in whole_lines(failed)] == ["r0", "r1", "r2"]


def test_training_goes_on_behind_a_full_disk(
    model: str, requests: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "adapter"
    args = ("train", "--model", model, "--requests", requests, "--out", str(out), "--rank", "1")
    args += ("--dev-share", "0", "--max-tokens", "1024")
    with disk_of(1000):
        refused(capsys, *args)
    assert files_in(out) == []
    with disk_of(28_000):  # enough for the checkpoint, not for the curves
        refused(capsys, *args)
    assert {"checkpoint.pt", "adapter_model.safetensors"} <= set(files_in(out))
    assert not [name for name in files_in(out) if name.endswith(".new")]
    assert run([*args, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 1
    assert {"README.md", "curves.svg", "training.json"} <= set(files_in(out))
