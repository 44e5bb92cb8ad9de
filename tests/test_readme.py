# SPDX-License-Identifier: Apache-2.0
"""What the README shows is there: its Python runs, its commands and files exist."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ooospec.cli.main import run
from tiny_models import save_tiny

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Returns the code blocks of a language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [code for name, code in found if name == language]


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_tiny(tmp_path, max_position_embeddings=4096)
    code, num_models = re.subn(r'"Qwen/[^"]+"', repr(str(tmp_path)), code)
    assert num_models > 0
    code = code.replace("[get_weather]\n", "[get_weather], max_tokens=16\n")
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out


def test_commands_have_the_options_they_are_shown_with(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for block in blocks("") for line in block.splitlines()]
    plain = (line.removeprefix("$ ") for line in lines)
    shown = [line.partition("#")[0] for line in plain if line.startswith("ooospec ")]
    assert shown
    for line in shown:
        command = re.match(r"ooospec((?: +[a-z][a-z-]*)+)", line)
        assert command is not None, line
        assert run([*command[1].split(), "--help"]) == 0
        known = capsys.readouterr().out
        for option in re.findall(r" (--[a-z-]+)", line):
            assert option in known, line


def test_the_shown_tools_make_the_shown_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tools,) = blocks("json")
    (tmp_path / "tools.json").write_text(tools)
    monkeypatch.chdir(tmp_path)
    (shown,) = (block for block in blocks("") if "<tool_call>" in block)
    command, _, answer = shown.partition("\n")
    assert run([*shlex.split(command.removeprefix("$ ooospec ")), "--device", "cpu"]) == 0
    assert capsys.readouterr().out == answer


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize(
    "page", ["README.md", "adapters/README.md", "docs/embedding.md", "docs/vllm.md"]
)
def test_files_that_are_named_exist(page: str) -> None:
    folders = "adapters|bench|csrc|docs|examples|python|recipes|tests|triton_kernels"
    named = re.findall(rf"\b((?:{folders})/[\w/.-]*\w)", (ROOT / page).read_text())
    assert named
    for name in named:
        assert (ROOT / name).exists(), name


FILES = ("eval_apibank", "eval_toolalpaca", "eval_bfcl_javajs")

# What the README says, and the committed row and format that it comes from.
BESIDE = "8B target, 0.6B sidecar, 20 slots, 10 steps"
ATTENTION = [  # tokens cached; of ooospec, SDPA, FlashInfer
    (512, "| ooospec | {:.1f} us |", "of torch | {:.1f} us |", "custom mask | {:.1f} us |"),
    (2048, "15.7 us | {:.1f} us |", "22.3 us | {:.1f} us |", "33.3 us | {:.1f} us |"),
    (8192, "22.7 us | {:.1f} us |", "58.0 us | {:.0f} us |", "45.3 us | {:.0f} us |"),
    (32768, "41.4 us | {:.0f} us |", "200 us | {:.0f} us |", "101 us | {:.0f} us |"),
]
SPAN = [
    ("span", f"{name}, {file}", "rate", said)
    for name, sayings in {
        "toolspec without span": ("from {:.1f}, 7.3", "9.4, {:.1f} and 5.9", "and {:.1f} tokens a"),
        "toolspec": ("to {:.1f}, 9.5", "12.1, {:.1f} and 10.6", "9.5 and {:.1f}, by replay"),
    }.items()
    for file, said in zip(FILES, sayings, strict=True)
]
IN_MS = ("wave p50", "first hint p50", "chosen values p50")  # their rows are in us
BRANCHED = "round, 40 rows and 4 branches of 6, 1024 cached"
NUMBERS = [
    *SPAN,
    ("methods_rounds", "all", "equal", "{:,.0f} tokens, all equal"),
    ("methods_rounds", "all", "parse", "{:.0%} of the plain answers"),
    (
        "split",
        "Qwen3-8B, one sidecar, two targets over one",
        "rate",
        "make {:.2f} x the tokens of one",
    ),
    ("methods_rounds", "ooo+self", "rate", "({:.1f} tokens a round against"),
    ("methods_rounds", "ooo", "rate", "against {:.1f}). Both"),
    ("methods_time", "perfect hints, decoding, wall", "p50", "hints {:.2f} x plain decoding"),
    ("methods_time", "perfect hints, in total, wall", "p50", "{:.2f} x from request to last token"),
    ("methods_time", "sidecar dead, in total, wall", "p50", "no sidecar {:.2f} x"),
    ("methods_time", "all", "requests", "float32, {:.0f} requests of the three files, medians"),
    ("methods_time", "prose, in total, wall", "p50", "in prose {:.2f} x (to"),
    ("methods_time", "prose, in total, wall", "p95", "but {:.2f} x at the 95th percentile"),
    ("methods_time", "ar, time a token, wall", "p50", "takes {:.2f} x the time of Hugging Face"),
    ("methods_time", "no tools, in total, wall", "p50", "no tools {:.2f} x"),
    ("round", "8B round, 1 rows, 1024 cached", "x floor", "4.91 ms ({:.2f} x) | 1.33 ms"),
    ("round", "8B round, 64 rows, 1024 cached", "x floor", "5.08 ms ({:.2f} x) | 1.39 ms"),
    ("round", "0.6B round, 1 rows, 1024 cached", "x floor", "1.33 ms ({:.1f} x)"),
    ("round", "0.6B round, 64 rows, 1024 cached", "x floor", "1.39 ms ({:.1f} x)"),
    ("round", f"8B {BRANCHED}", "x the round of 64 rows", "5.11 ms ({:.2f} x) | 1.43 ms"),
    ("round", f"0.6B {BRANCHED}", "x the round of 64 rows", "1.43 ms ({:.2f} x)"),
    *(
        ("tree_attention", f"8B, 64 rows, {length} cached, {name}, cold L2", "p50", said)
        for length, *row in ATTENTION
        for name, said in zip(("ooospec", "SDPA", "FlashInfer"), row, strict=True)
    ),
    ("wave", "20 slots, 600 tokens, 10 steps", "wave p50", "takes {:.1f} ms alone"),
    ("wave", "20 slots, 600 tokens, 10 steps", "first hint p50", "after {:.1f} ms, and"),
    ("wave", "400 slots, 600 tokens, 10 steps", "chosen values p50", "after {:.1f} ms. Beside"),
    ("colocation", f"{BESIDE}: wave beside the target, from arrival", "wave p50", "{:.1f} ms: k"),
    ("colocation", f"{BESIDE}: target during the wave", "round ratio", "then {:.2f} x as long"),
    ("colocation", f"{BESIDE}: target beside the wave", "first token ratio", "token {:.2f} x."),
    ("ablations", "64 tools, ooo", "rate", "takes the same rounds, {:.1f} tokens each;"),
    ("ablations", "4 tools, ooo", "rate", "takes the same rounds, {:.1f} tokens each;"),
    ("ablations", "1 earlier calls, ooo", "rate", "takes the same rounds, {:.1f} tokens each;"),
    ("ablations", "10000 earlier calls, ooo", "rate", "takes the same rounds, {:.1f} tokens each;"),
    ("ablations", "context of 1024, ooo", "in total", "gain ({:.1f} x at 1k"),
    ("ablations", "context of 32768, ooo", "in total", "1k, {:.1f} x at 32k)"),
    ("ablations", "context of 32768, ooo", "rate", "takes the same rounds, {:.1f} tokens each;"),
    ("gap", "all", "p50", "waits {:.0f} us"),
    ("gap", "all", "p99", "{:.0f} us at the 99th percentile. Rows"),
    ("host", "propose + commit, without the tokenizer", "p50", "takes {:.1f} us"),
    ("host", "propose + commit, without the tokenizer", "p99", "and {:.0f} us"),
    ("host", "tokenizer", "p50", "beside {:.1f} us of tokenising"),
    ("host", "prepare, while the target verifies", "p50", "{:.0f} us more are spent"),
    ("serve", "toolspec, 1 clients", "throughput", "{:,.0f} tokens a second for one client"),
    ("serve", "ooo, 1 clients", "throughput", "and {:,.0f} with `ooo`, an"),
    ("serve", "ar, 1 clients", "throughput", "against {:.0f} with `ar`; for"),
    ("serve", "toolspec, 8 clients", "throughput", "for eight clients {:,.0f},"),
    ("serve", "ooo, 8 clients", "throughput", "2,834, {:,.0f} and"),
    ("serve", "ar, 8 clients", "throughput", "and {:,.0f}: 4.7 x"),
    ("serve", "toolspec, 1 clients", "ratio", "1,603: {:.1f} x and"),
    ("serve", "toolspec, 8 clients", "ratio", "4.7 x and {:.1f} x, and no"),
    ("vllm", "ooospec, perfect hints", "rate of the calls", "API-Bank: {:.1f} tokens a step"),
    ("vllm", "ooospec, no sidecar", "rate of the calls", "hints, {:.1f} without a sidecar"),
    ("vllm", "ngram", "rate of the calls", "own n-gram proposer {:.2f}, and the same tokens"),
    ("hint_path", "tcp, loopback", "p50", "takes {:.0f} us from ring to ring"),
    ("hint_ring", "push + pop, clock included", "p50", "{:.2f} us (`bench/results/hint_ring.csv`)"),
]


@pytest.mark.parametrize(("bench", "case", "metric", "said"), NUMBERS)
def test_numbers_are_those_of_the_committed_rows(
    bench: str, case: str, metric: str, said: str
) -> None:
    with (ROOT / "bench" / "results" / f"{bench}.csv").open(newline="") as file:
        rows = [
            row for row in csv.DictReader(file) if (row["case"], row["metric"]) == (case, metric)
        ]
    assert len(rows) == 1
    value = float(rows[0]["value"]) / (1000 if metric in IN_MS else 1)
    assert said.format(value).replace("%", " %") in " ".join(README.split())


def test_tables_are_those_of_the_committed_rows() -> None:
    subprocess.run([sys.executable, str(ROOT / "bench" / "tables.py"), "--check"], check=True)


def test_the_break_even_picture_is_that_of_the_committed_rows(tmp_path: Path) -> None:
    new = tmp_path / "new.svg"
    subprocess.run([sys.executable, ROOT / "bench" / "break_even.py", "--out", new], check=True)
    old = ROOT / "docs" / "break_even.svg"
    texts = [re.findall(r"<text[^>]*>([^<]*)<", picture.read_text()) for picture in (old, new)]
    assert texts[0] == texts[1]
    assert any("as fast as ooo" in text for text in texts[0])


def test_it_says_what_the_worst_rows_are() -> None:
    def values(bench: str, metric: str, without: str = "\0") -> list[float]:
        with (ROOT / "bench" / "results" / f"{bench}.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["metric"] == metric]
        return [float(row["value"]) for row in rows if without not in row["case"]]

    text = " ".join(README.split())
    assert f"at {min(values('retokenise', 'equal')):.1%} of".replace("%", " %") in text
    most = max(values("survival", "most", without="its own rounds"))
    replays = sum(values("survival", "cases", without="its own rounds"))
    assert f"at most {most:.0f} rounds in each of {replays:,.0f} replays" in text


def test_it_says_what_rounds_cost_on_a_cpu() -> None:
    with (ROOT / "bench" / "results" / "methods_time.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["case"] == "cost"]
    cost = {row["metric"]: float(row["value"]) for row in rows}
    times = cost["64 rows"] / cost["1 rows"]
    said = f"a round of 64 rows takes {times:.1f} times as long as one of a single row."
    assert said in " ".join(README.split())


def test_it_says_what_a_wave_on_the_same_gpu_costs() -> None:
    with (ROOT / "bench" / "results" / "real.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file) if row["file"] == "all"}

    def over_toolspec(method: str, what: Callable[[dict[str, str]], float]) -> float:
        return what(rows[method]) / what(rows["toolspec"])

    def per_round(row: dict[str, str]) -> float:
        return float(row["rate"]) / float(row["decode"])

    first = over_toolspec("ooo, R", lambda row: float(row["first_p50_ms"]))
    text = " ".join(README.split())
    assert (
        f"{first:.1f} x as late and rounds {over_toolspec('ooo, R', per_round):.2f} x as long"
        in text
    )
    assert f"but each takes {over_toolspec('self', per_round):.2f} x as long" in text


def test_it_says_in_which_cells_the_sidecar_is_ahead() -> None:
    with (ROOT / "bench" / "results" / "cells_paper.csv").open(newline="") as file:
        rows = {(row["case"], row["metric"]): float(row["value"]) for row in csv.DictReader(file)}

    def ahead(shape: str, metric: str) -> int:
        cells = [f"{shape}, {file}, {{}}, cold prefix" for file in FILES]
        return sum(
            rows[cell.format("ooo"), metric] > rows[cell.format("toolspec"), metric]
            for cell in cells
        )

    text = " ".join(README.split())
    assert "Decoding, `ooo` is ahead of `toolspec` in all files; from arrival it is so at" in text
    assert "at 14B and 32B, and at 8B in two of three, but there" in text
    shapes = ("Qwen3-14B", "Qwen3-32B", "Qwen3-8B")
    assert [ahead(shape, "decoding") for shape in shapes] == [3, 3, 3]
    assert [ahead(shape, "in total") for shape in shapes] == [3, 3, 2]


def test_it_says_what_auto_and_another_target_make_of_the_adapter() -> None:
    def rows(name: str) -> dict[str, dict[str, str]]:
        with (ROOT / "bench" / "results" / f"{name}.csv").open(newline="") as file:
            return {row["method"]: row for row in csv.DictReader(file) if row["file"] == "all"}

    text = " ".join(README.split())
    auto, other = rows("wave_auto"), rows("transfer")
    times = [float(auto[method]["total"]) for method in ("ooo, R", "toolspec")]
    number = auto["ooo, R"]["num_requests"]
    said = f"on {number} of these requests `ooo` was then {times[0]:.2f} x as fast from arrival, "
    assert f"{said}`toolspec` {times[1]:.2f} x" in text
    waits, own = rows("wave_wait")["ooo, R"], rows("target_specific")
    said = f'(`wave="wait"`): {float(waits["call_rate"]):.1f} tokens a round of the call, '
    with (ROOT / "bench" / "results" / "wave_wait.csv").open(newline="") as file:
        one = next(
            row
            for row in csv.DictReader(file)
            if (row["file"], row["method"]) == (FILES[0], "ooo, R")
        )
    assert (
        f"{said}{float(one['call_rate']):.1f} on API-Bank, at {float(waits['total']):.1f} x" in text
    )
    rates = [float(own[name]["call_rate"]) for name in ("ooo, T", "ooo, R")]
    number = own["ar"]["num_requests"]
    said = f"makes {rates[0]:.1f} on {number} requests where ours makes {rates[1]:.1f}"
    assert said in text
    rates = [
        float(other[name]["call_rate"]) for name in ("ooo, R", "toolspec", "ooo, perfect hints")
    ]
    said = (
        "its hints make {:.1f} tokens a round of the call of {:.1f} with `toolspec`, perfect ones"
    )
    assert f"{said.format(*rates[:2])} {rates[2]:.1f}" in text


def test_it_says_where_it_runs() -> None:
    assert "Windows is not supported" in README
    assert re.search(r"macOS builds from source and is\s+untested", README)
