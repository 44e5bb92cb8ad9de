# SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints, for people and machines, and how it refuses."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import socket
import subprocess
import sys
import threading
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from ooospec import _core
from ooospec.backends import kernels
from ooospec.cli import doctor, options, view
from ooospec.cli.main import run
from ooospec.cli.requests import gather, read_requests
from ooospec.cli.samples import TOOLS
from ooospec.errors import InvalidRequest
from ooospec.methods import METHODS
from ooospec.rows import Rows
from tiny_models import save_tiny

COMMANDS = ("generate", "demo", "selfcheck", "doctor")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a tiny random model."""
    return save_tiny(tmp_path_factory.mktemp("model"), max_position_embeddings=4096)


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    """A file of two requests, one of them with a tool."""
    path = tmp_path / "requests.jsonl.gz"
    rows = [
        {"id": "a", "messages": [{"role": "user", "content": "Hi."}]},
        {"messages": [{"role": "user", "content": "Weather?"}], "tools": TOOLS[1:]},
    ]
    with gzip.open(path, "wt") as file:
        file.write("\n".join(map(json.dumps, rows)) + "\n\n")
    return path


def refusal(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Runs a command that must be refused, and returns its one sentence."""
    assert run(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert lines[-1].startswith("ooospec: ")
    assert "Traceback" not in captured.err
    return lines[-1]


# --- generate -----------------------------------------------------------------------------------


def test_generate_prints_the_same_text_by_every_method(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = set()
    for method in ("ar", "toolspec"):
        args = ("generate", "Hello", "--target", model, "--method", method, "--max-tokens", "20")
        assert run(args) == 0
        captured = capsys.readouterr()
        texts.add(captured.out)
        assert f"target: {model}" in captured.err
        assert "20 tokens in" in captured.err
    assert len(texts) == 1


def test_generate_json_has_a_line_a_request_and_a_trace_of_each(
    model: str, requests: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json"
    args = ["generate", "--requests", str(requests), "--target", model, "--sidecar", model]
    args += ["--wave", "always", "--max-tokens", "12", "--json", "--trace", str(trace)]
    assert run(args) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["id"] for row in rows] == ["a", "line 2"]
    for row in rows:
        assert len(row["token_ids"]) == len(row["sources"]) == row["usage"]["completion_tokens"]
        assert row["sources"][0] == "target"
        assert set(row["sources"]) <= set(view.COLOURS)
    events = json.loads(trace.read_text())["traceEvents"]
    for number, row in enumerate(rows, start=1):
        names = [e["name"] for e in events if e["pid"] == number]
        assert sum(name.startswith("round ") for name in names) == row["num_rounds"]
    assert [e["pid"] for e in events if e["name"].startswith("wave: ")] == [2]


def test_generate_samples_the_same_for_the_same_seed(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for seed, method in (("1", "ar"), ("1", "ooo"), ("2", "ooo")):
        args = ["generate", "Hi", "--target", model, "--seed", seed, "--method", method]
        assert run([*args, "--temperature", "1", "--max-tokens", "16", "--stop", "zzz"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["generate"], "Missing option '--target'"),
        (["generate", "--target", "M", "--max-tokns", "3"], "--max-tokens"),
        (
            ["generate", "--target", "M", "--max-tokens", "0", "x"],
            "Invalid value for '--max-tokens'",
        ),
        (
            ["generate", "--target", "M", "--max-tokens", "two", "x"],
            "Invalid value for '--max-tokens'",
        ),
        (["generate", "--target", "M"], "expected a request as text or a file"),
        (["generate", "--target", "M", "x", "--tools", "/no/file"], "'/no/file' does not exist"),
        (["generate", "--target", "/no/model", "x"], "got '/no/model': no such folder"),
        (["generate", "--target", "M", "-s", "ftp://x", "x"], "got 'M'"),
        (["generate", "--target", "M", "x", "--wave", "maybe"], "'maybe' is not one of"),
        # Before a model is looked for:
        (["generate", "--target", "/no/model", "x", "--method", "warp"], "--method: expected ar, "),
        (
            ["generate", "--target", "/no/model", "x", "--method", "draft"],
            "a --draft-model, got none",
        ),
        (["generate", "--target", "/no/model", "x", "--top-p", "2"], "top_p: expected"),
        (["demo", "--target", "/no/model", "--method", "warp"], "--method: expected ar, "),
        (["selfcheck", "--target", "/no/model", "--method", "warp"], "--method: expected ar, "),
        (["genrate"], "No such command 'genrate'"),
        (["selfcheck"], "Missing option '--target'"),
        (["doctor", "now"], "unexpected extra argument"),
    ],
)
def test_wrong_arguments_get_a_sentence(
    args: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refusal(capsys, *args)


def test_wrong_input_gets_a_sentence(
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tools = tmp_path / "tools.json"
    asks = ("generate", "Hi", "--target", model)
    assert "expected ar, " in refusal(capsys, *asks, "--method", "fast")
    assert "top_p: expected" in refusal(capsys, *asks, "--top-p", "0")
    assert "expected a --sidecar" in refusal(capsys, *asks, "--adapter", str(tmp_path))
    assert "module:Class" in refusal(capsys, *asks, "--source", "nothing")
    assert "device: expected one that is here" in refusal(capsys, *asks, "--device", "toaster")
    there = ("--sidecar", model, "--sidecar-device", "toaster")
    assert "sidecar_device: expected one that is here" in refusal(capsys, *asks, *there)
    assert not [one for one in threading.enumerate() if one.name == "ooospec-sidecar"]
    (tmp_path / "broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    assert "ZeroDivisionError" in refusal(capsys, *asks, "--source", "broken:Class")
    assert "got a file at" in refusal(capsys, *asks, "--trace", f"{__file__}/trace.json")
    assert "dtype: expected" in refusal(capsys, *asks, "--dtype", "int3")
    tools.write_text("{}")
    assert "expected a JSON list of tools" in refusal(capsys, *asks, "--tools", str(tools))
    nowhere = ("--target", "/no/model")  # refused before it is looked for
    tools.write_text('[{"type": "function", "function": {"parameters": {}}}]')
    for command in ("generate", "demo"):
        said = refusal(capsys, command, "Hi", *nowhere, "--tools", str(tools))
        assert f"{tools}: tools[0]: expected a function with a name" in said
    asked = tmp_path / "requests.jsonl"
    asked.write_text('{"messages": [], "tools": [{"name": "f"}, {"name": "f"}]}')
    for command in ("generate", "demo", "selfcheck"):
        said = refusal(capsys, command, *nowhere, "--requests", str(asked))
        assert f"{asked}, line 1: tools: expected every name once" in said


def test_a_bug_keeps_its_traceback_for_debug(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(doctor, "EXAMINATIONS", (broken,))
    assert run(["doctor"]) == 1
    assert (
        capsys.readouterr().err == "ooospec: ZeroDivisionError: oh (a bug; --debug shows where)\n"
    )
    assert run(["doctor", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


# --- requests -----------------------------------------------------------------------------------


def test_requests_are_read_as_they_are_written(requests: Path, tmp_path: Path) -> None:
    found = read_requests(requests)
    assert [request["id"] for request in found] == ["a", "line 2"]
    assert found[1]["tools"] == TOOLS[1:]
    assert len(read_requests(requests, limit=1)) == 1
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    first, second = gather(None, requests, tools, system="Be brief.")
    assert (first["tools"], second["tools"]) == (TOOLS, TOOLS[1:])
    assert first["messages"][0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "expected at least one request, got none"),
        (
            b'{"messages": []}\n{"messages"',
            r"bad\.jsonl, line 2: expected a JSON object a line, got {\"messages\" \(.*column 12\)",
        ),
        (b"hello", r"line 1: expected a JSON object a line, got hello \(Expecting value at"),
        (b"[1]", "line 1: expected an object with messages"),
        (b'{"messages": "hi"}', "line 1: expected an object with messages"),
        (b"\xff\xfe", "expected lines of JSON"),
        (b'{"messages": ' + b"[" * 100_000, "line 1: expected a JSON object"),
        (
            gzip.compress(b"{}" * 99, mtime=0)[:-9],
            "expected lines of JSON, got Compressed file ended",
        ),
        (gzip.compress(b"", mtime=0)[:10] + b"\xff" * 9, "expected lines of JSON, got Error"),
    ],
)
def test_bad_lines_are_named(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / ("bad.jsonl.gz" if content[:2] == b"\x1f\x8b" else "bad.jsonl")
    path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=sentence):
        read_requests(path)


# --- demo, selfcheck, doctor --------------------------------------------------------------------


def test_demo_ends_with_the_comparison_and_its_picture(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    svg, trace = tmp_path / "demo.svg", tmp_path / "demo.json"
    args = ["demo", "Hello", "--target", model, "--sidecar", model, "--max-tokens", "24"]
    assert run([*args, "--svg", str(svg), "--trace", str(trace)]) == 0
    out = capsys.readouterr().out
    assert "answer by ooo" in out
    assert "24 tokens" in out
    assert "times as fast as ar" in out
    assert out.rstrip().splitlines()[-1].strip() == "equal to ar: yes"
    assert svg.read_text().startswith("<svg")
    assert "equal" in svg.read_text()
    assert json.loads(trace.read_text())["traceEvents"]


def test_demo_answers_a_request_of_your_own_as_json(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["demo", "Hello", "--target", model, "--sidecar", "", "--method", "pld"]
    assert run([*args, "--max-tokens", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"]
    assert [answer["method"] for answer in found["answers"]] == ["pld", "ar"]


def test_selfcheck_passes_and_says_what_it_compared(
    model: str, requests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["selfcheck", "--target", model, "--requests", str(requests), "--json"]
    assert run([*args, "--max-tokens", "24"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"]
    assert found["level"] == "tested"
    assert set(found["passes"]) == {"greedy", "sampled"}
    for reports in found["passes"].values():
        by_method = {one["method"]: one for one in reports}
        assert set(by_method) == {*METHODS, "replay"} - {"draft"}
        assert by_method["replay"]["num_accepted"] >= 20
        assert by_method["replay"]["num_rejected"] >= 5
        assert all(one["num_tokens"] == by_method["ar"]["num_tokens"] for one in reports)


def test_selfcheck_finds_a_method_that_differs(
    model: str, requests: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Rows.check

    def blind(*args: Any, **room: Any) -> Rows:
        """Rows that do not see their ancestors."""
        rows = check(*args, **room)
        columns = (rows.tokens, rows.parents, rows.depths, rows.sources)
        masks = np.uint64(1) << np.arange(len(rows), dtype=np.uint64)
        return Rows.of(*columns, masks, rows.nodes, rows.num_nodes)  # type: ignore[arg-type]

    monkeypatch.setattr(Rows, "check", blind)
    args = ["selfcheck", "--target", model, "--requests", str(requests), "--limit", "1"]
    assert run([*args, "--max-tokens", "24", "--temperature", "0"]) == 1
    out, err = capsys.readouterr()
    assert (out + err).count("float32 on cpu") == 1
    assert "replay: a: token" in out
    assert "level: not exact" in out
    assert "logit gap" in out
    assert out.rstrip().endswith("equal to ar: NO")


def test_doctor_says_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    for word in ("ooospec", "torch", "hint ring", "model cache", "missing: nothing"):
        assert word in out


def test_doctor_says_how_to_mend_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ooospec._core", None)
    assert run(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    (core,) = [one for one in found["findings"] if one["name"] == "core"]
    assert core["state"] == "missing"
    assert "pip install" in core["advice"]
    assert not found["ok"]


@pytest.mark.parametrize(
    ("capability", "memory", "trouble", "words"),
    [
        ((9, 0), 150e9, None, ["ok     GPU 0", "150 GB", "ok     kernels 0", "they run"]),
        ((7, 5), 16e9, None, ["note   kernels 0", "7.5, older than 8.0", "slower but as exact"]),
        ((8, 6), 4e9, None, ["note   GPU 0", "too small for the default models"]),
        ((8, 6), 24e9, "OutOfResources: shared memory", ["note   kernels 0", "shared memory"]),
    ],
)
def test_doctor_says_what_a_gpu_is_good_for(
    capability: tuple[int, int],
    memory: float,
    trouble: str | None,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D16: an old GPU, a small one, one whose kernels do not run: said, and no error."""
    pytest.importorskip("triton")
    card = SimpleNamespace(
        name="Card", total_memory=memory, major=capability[0], minor=capability[1]
    )

    def try_out(*shape: Any) -> None:
        if trouble is not None:
            raise RuntimeError(trouble)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(kernels, "_try_out", try_out)
    assert run(["doctor"]) == 0
    out = re.sub(r" +", " ", capsys.readouterr().out)
    for word in words:
        assert re.sub(r" +", " ", word) in out


def test_doctor_without_triton_or_nvcc_says_what_that_costs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name == "triton":
            raise PackageNotFoundError(name)
        return "1.0"

    def without_nvcc() -> Any:
        raise ImportError("the package was built without nvcc")

    monkeypatch.setattr(doctor, "version", version)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(_core, "cuda_core", without_nvcc)
    assert run(["doctor", "--json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert found["triton"]["state"] == found["CUDA core"]["state"] == "note"
    assert found["triton"]["advice"] == "needed for the GPU's fast path: pip install triton"
    assert found["CUDA core"]["value"] == "built without nvcc"
    assert "install nvcc" in found["CUDA core"]["advice"]
    assert "install torch for CUDA" in found["GPU"]["advice"]


@pytest.mark.parametrize("command", ["serve", "front"])
def test_an_address_that_is_taken_is_named_before_a_model_is_loaded(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("uvicorn")
    what = ("--target", "/no/model") if command == "serve" else ("--upstream", "http://127.0.0.1:9")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refusal(capsys, command, *what, "--port", str(port))
    assert f"expected a free address of this machine, got 127.0.0.1 and {port}" in said
    assert "got 192.0.2.1 and 8000" in refusal(capsys, command, *what, "--host", "192.0.2.1")


# --- what is shown ------------------------------------------------------------------------------


def test_every_token_has_the_colour_of_its_source() -> None:
    pieces = [b"<end>", b"a ", "Z\u00fc".encode()[:2], "Z\u00fc".encode()[2:], b"b"]
    parts = list(view.spans(pieces, [1, 2, 3, 4, 0], [0, 1, 2, 16, 0], "a Z\u00fcb"))
    assert parts == [("a ", "target"), ("Z", "schema"), ("\u00fc", "hint"), ("b", "external")]
    answer = view.coloured(parts)
    assert answer.plain == "a Z\u00fcb"
    assert [str(span.style) for span in answer.spans] == [view.COLOURS[name] for _, name in parts]


def test_the_plot_shows_each_curve_within_its_size() -> None:
    drawn = view.plot([("green", [4, 9, 20]), ("white", list(range(1, 21)))], width=20, height=5)
    lines = drawn.plain.splitlines()
    assert len(lines) == 7
    assert all(len(line) <= 27 for line in lines)
    assert lines[0].startswith("   20")
    assert {str(span.style) for span in drawn.spans} >= {"green", "white"}
    assert view.plot([]).plain == ""


def test_announce_tells_the_size_of_a_folder(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options.announce("target", model, Console(stderr=True, width=500))
    assert capsys.readouterr().err == f"target: {model} (0.0 GB)\n"


# --- as a program -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert f" ooospec {command}" in out
    assert "--json" in out


def test_help_is_quick_and_loads_no_torch() -> None:
    code = (
        "import sys; from ooospec.cli.main import run; run([]); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in COMMANDS)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_output_that_nobody_can_take_is_one_sentence() -> None:
    program = [sys.executable, "-m", "ooospec", "requests", "synth", "--count", "3"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True)
    said = f"ooospec: output: expected the system to do it, got {os.strerror(errno.ENOSPC)}\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_output_that_is_closed_is_no_error() -> None:
    program = [sys.executable, "-m", "ooospec", "requests", "synth", "--count", "3000"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.read(5) == b'{"id"'
        reader.stdout.close()  # as `| head` does
        assert (reader.stderr.read(), reader.wait()) == (b"", 0)
    closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *program], capture_output=True)
    assert (closed.stderr, closed.returncode) == (b"", 0)


def test_exit_codes_of_the_program() -> None:
    program = [sys.executable, "-m", "ooospec"]
    wrong = subprocess.run([*program, "generate"], capture_output=True, text=True)
    assert (wrong.returncode, wrong.stderr) == (2, "ooospec: Missing option '--target' / '-t'.\n")
    version = subprocess.run([*program, "--version"], capture_output=True, text=True)
    assert version.returncode == 0
    assert version.stdout.count(".") == 2


@pytest.mark.parametrize(
    ("module", "extra", "command"),
    [
        ("matplotlib", "bench", ("bench", "--smoke")),
        ("uvicorn", "serve", ("serve", "-t", "MODEL")),
        (
            "uvicorn",
            "front",
            ("front", "--upstream", "http://127.0.0.1:9", "-s", "tcp://127.0.0.1:9"),
        ),
        ("zmq", "remote", ("sidecar", "-s", "MODEL", "--listen", "tcp://127.0.0.1:0")),
    ],
)
def test_a_missing_extra_is_named(
    module: str,
    extra: str,
    command: tuple[str, ...],
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)  # type: ignore[arg-type]
    said = refusal(capsys, *(model if part == "MODEL" else part for part in command))
    assert f"expected the extra `{extra}` (pip install 'ooospec[{extra}]'), got none" in said
