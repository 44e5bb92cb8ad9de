# SPDX-License-Identifier: Apache-2.0
"""Speed of the hint ring, measured inside C++ and from Python, and what it survives.

Records carry 85 bytes of text on average, as hints do. Rows named lost, wrong and torn must be 0.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from _harness import ROOT, Report, parse_args, time_calls
from ooospec import HintKind, HintRing


def compile_bench(folder: str) -> str:
    """Compiles bench/cpp/hint_ring_bench.cc and returns the program."""
    program = str(Path(folder) / "hint_ring_bench")
    sources = ["bench/cpp/hint_ring_bench.cc", "csrc/ring/hint_ring.cc"]
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    command = [*compiler, "-std=c++20", "-O3", "-Wall", "-Wextra", "-Werror", "-Icsrc"]
    subprocess.run([*command, *sources, "-o", program], cwd=ROOT, check=True)
    return program


def run(program: str, *arguments: object) -> str:
    """Runs one mode of the program and returns what it prints."""
    command = [program, *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def bench_cpp(report: Report, program: str, seed: int, scale: int) -> None:
    """Adds the rows measured inside C++; sizes are divided by `scale`."""
    for mode, case in (
        ("clock", "two readings of the clock"),
        ("pair", "push + pop, clock included"),
    ):
        report.add_times(
            case, [float(time) for time in run(program, mode, 200_000 // scale).split()]
        )
    stream = json.loads(run(program, "stream", 10_000_000 // scale))
    case = "writer and reader in two processes"
    report.add(case, "rate", stream["records"] / stream["seconds"] / 1e6, "M records/s")
    for metric in ("records", "lost", "wrong", "torn"):
        report.add(case, metric, stream[metric], "records")
    kill = json.loads(run(program, "kill", 1000 // scale, seed))
    case = "writer killed at a random moment"
    report.add(case, "killed", kill["killed"], "writers")
    for metric in ("records", "wrong", "torn"):
        report.add(case, metric, kill[metric], "records")


def bench_python(report: Report, scale: int) -> None:
    """Adds the rows of the Python binding."""
    ring = HintRing()
    text = "x" * 85
    request_ids = itertools.count()

    def push_and_pop() -> None:
        ring.try_push(next(request_ids), HintKind.VALUE, 0, 0, 0, text)
        ring.try_pop()

    ring_calls = 20_000 // scale
    report.add_times("push + pop, from Python", time_calls(push_and_pop, ring_calls))
    if ring.dropped or ring.torn:
        raise RuntimeError(f"expected every record to pass, got {ring.dropped} dropped")
    report.add_times("poll of an empty ring, from Python", time_calls(ring.try_pop, ring_calls))


def main() -> None:
    """Runs the bench."""
    args = parse_args(__doc__)
    scale = 50 if args.smoke else 1
    report = Report("hint_ring", args)
    with tempfile.TemporaryDirectory() as folder:
        bench_cpp(report, compile_bench(folder), args.seed, scale)
    bench_python(report, scale)
    report.finish()


if __name__ == "__main__":
    main()
