# SPDX-License-Identifier: Apache-2.0
"""What every bench shares: options, the clock, quantiles, and rows that say where they are from.

A bench reads its options with `parse_args`, adds rows to a `Report`, and ends with `finish`.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ooospec
from ooospec.hashes import checkpoint_hash, requests_hash

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


def parse_args(description: str, parser: argparse.ArgumentParser | None = None) -> Any:
    """Reads the options that every bench has, and those that `parser` already holds."""
    parser = parser or argparse.ArgumentParser()
    parser.description = description
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    parser.add_argument("--smoke", action="store_true", help="only show that it runs, in seconds")
    parser.add_argument("--save", action="store_true", help="write bench/results/<bench>.csv")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.smoke and args.save:
        parser.error("--save: expected a full run, got --smoke")
    return args


def time_calls(function: Callable[[], object], num_calls: int, num_warmup: int = 100) -> list[int]:
    """Calls `function` and returns the nanoseconds of each call after the warm-up."""
    clock = time.perf_counter_ns
    for _ in range(num_warmup):
        function()
    times = []
    for _ in range(num_calls):
        start = clock()
        function()
        times.append(clock() - start)
    return times


def quantile(values: Sequence[float], q: float) -> float:
    """Returns the smallest value that at least the share `q` of `values` does not exceed."""
    if not values:
        raise ValueError("quantile: expected at least one value, got none")
    return sorted(values)[max(0, -int(-q * len(values) // 1) - 1)]


def run_text(*command: str) -> str:
    """Returns what a command prints, without the last newline. Raises CalledProcessError."""
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout[:-1]


def git_sha() -> str:
    """Returns the commit that is measured, with `-dirty` where files other than results differ."""
    given = os.environ.get("OOOSPEC_GIT_SHA")  # where the code runs outside its repository
    if given:
        return given
    changed = run_text("git", "status", "--porcelain", "--", ".", ":!bench/results")
    return run_text("git", "rev-parse", "HEAD") + ("-dirty" if changed else "")


def cpu_name() -> str:
    """Returns the model of the CPU and its number of cores."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    names = names or [platform.processor() or platform.machine()] * (os.cpu_count() or 1)
    return f"{names[0]} x {len(names)}"


def gpu_name() -> str:
    """Returns the first GPU and its driver, and how many GPUs this process may use; or "none"."""
    if shutil.which("nvidia-smi") is None:
        return "none"
    query = ("--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0")
    count = sys.modules["torch"].cuda.device_count() if "torch" in sys.modules else 1
    return run_text("nvidia-smi", *query) + (f" x {count}" if count > 1 else "")


def library_versions() -> str:
    """Returns the versions of the libraries that the bench has loaded."""
    loaded = [name for name in ("torch", "triton", "transformers") if name in sys.modules]
    return "".join(f", {name} {sys.modules[name].__version__}" for name in loaded)


def requests_said(args: Any) -> str:
    """Returns the evaluation files that lie in the folder of the requests, and their SHA-256."""
    files = sorted(args.data.glob("eval_*.jsonl*")) if getattr(args, "data", None) else []
    return ", ".join(f"{file.name.partition('.')[0]} {requests_hash(file)}" for file in files)


def checkpoints_said(args: Any) -> str:
    """Returns the models and adapters that the options name, and their hashes."""
    names: list[str] = []
    for option in ("target", "sidecar", "model", "tokenizer", "adapter"):
        given = getattr(args, option, None) or []
        names += [given] if isinstance(given, str) else given
    paths = [name.rpartition("=")[2] for name in names]
    hashes = [(Path(path).name, checkpoint_hash(path)) for path in paths]
    return ", ".join(f"{name} {known}" for name, known in hashes if known != "unknown")


class Report:
    """The rows of one run of a bench."""

    def __init__(self, bench: str, args: Any) -> None:
        self.bench = bench
        self.rows: list[dict[str, Any]] = []
        self._args = args
        self._provenance = {
            "git_sha": git_sha(),
            "command": shlex.join(["python", *sys.argv]),
            "seed": args.seed,
            "requests": requests_said(args),
            "checkpoints": checkpoints_said(args),
            "cpu": cpu_name(),
            "gpu": gpu_name(),
            "load": f"{os.getloadavg()[0]:.1f} before the run, niceness {os.nice(0)}",
            "versions": f"ooospec {ooospec.__version__}, Python {platform.python_version()}, "
            f"{platform.system()} {platform.release()}{library_versions()}",
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        }

    def add(self, case: str, metric: str, value: float, unit: str) -> None:
        """Adds and prints one row."""
        row = {"bench": self.bench, "case": case, "metric": metric, "value": value, "unit": unit}
        self.rows.append(row | self._provenance)
        number = f"{value:,d}" if isinstance(value, int) else f"{value:,.6g}"
        print(f"{self.bench}  {case:<44} {metric:<10} {number:>14} {unit}", flush=True)

    def add_times(self, case: str, times_ns: Sequence[float]) -> None:
        """Adds median and 99th percentile of the times of a case, in microseconds."""
        for metric, q in (("p50", 0.5), ("p99", 0.99)):
            self.add(case, metric, quantile(times_ns, q) / 1000, "us")

    def finish(self) -> None:
        """Writes the rows where the options ask for them."""
        if self._args.json:
            self._args.json.write_text(json.dumps(self.rows, indent=1) + "\n")
        if self._args.save:
            RESULTS.mkdir(exist_ok=True)
            with (RESULTS / f"{self.bench}.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(self.rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(self.rows)
