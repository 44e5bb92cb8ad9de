# SPDX-License-Identifier: Apache-2.0
"""Methods on real requests: tokens a round of the call, or wall time.

`--mode rounds`: 64 nodes, cost model off, hints ready before the first round; every answer must
equal that of `ar`.
With `--smoke` both models are tiny; the target knows the answer to its one request by heart.
`--mode time`: cost model on, everything live; Hugging Face `generate` beside it, and the cases
where speculation cannot pay; see _methods_time.py.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import ooospec
from _harness import Report, parse_args
from _methods_time import bench_time
from _requests import FILES, read_requests, spread
from _taught import teach
from ooospec.bench.calls import CallRounds, call_rounds, own_values
from ooospec.bench.sidecars import ReadySidecar, RecordedSidecar, plain_calls
from ooospec.bench.summary import bootstrap_ratio
from ooospec.sidecar.placement import open_sidecar
from ooospec.sidecar.worker import SidecarConfig
from ooospec.tiny.untrained import untrained_pair

NUM_BOOTSTRAP = 10_000
PERFECT = "ooo, perfect hints"


def rate(rows: Sequence[CallRounds]) -> float:
    return sum(row.num_tokens for row in rows) / max(1, sum(row.num_rounds for row in rows))


def bench_rounds(args: Any, report: Report, requests: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Adds tokens a round of the call of each method."""
    recorded = RecordedSidecar()
    load: dict[str, Any] = {
        "device": args.device,
        "dtype": args.dtype,
        "cost_model": False,
        "progress": True,
    }
    plain = ooospec.load(args.target, **load)
    perfect = ooospec.load(plain.backend, sidecar=recorded, wave="always", **load)
    where = {"device": args.device, "dtype": args.dtype}
    adapters = {"ooo": None} | {f"ooo, {Path(path).name}": path for path in args.adapter}
    sidecars = {
        name: ReadySidecar(
            open_sidecar(SidecarConfig(args.sidecar, adapter=path, wave="always", **where))
        )
        for name, path in adapters.items()
    }
    runs: dict[str, tuple[Any, str]] = {
        name: (plain, name) for name in ("pld", "span", "toolspec", "self")
    }
    for name, ready in sidecars.items():
        engine = ooospec.load(plain.backend, sidecar=ready, wave="always", **load)
        runs[name], runs[f"{name}+self"] = (engine, "ooo"), (engine, "ooo+self")
    runs[PERFECT] = perfect, "ooo"
    counts: dict[str, list[CallRounds]] = {name: [] for name in runs}
    by_file: dict[str, dict[str, list[CallRounds]]] = {}
    own = {name: [0, 0, 0, 0] for name, (_, method) in runs.items() if "self" in method}
    num_tokens = 0
    for file, row in requests:
        options = {"max_tokens": args.max_tokens}
        ar = plain.generate(row["messages"], row["tools"], method="ar", **options)
        recorded.calls = plain_calls(ar)
        counted = call_rounds(plain.tokens.pieces, row["tools"], ar)
        line = []
        for name, (engine, method) in runs.items():
            answer = engine.generate(row["messages"], row["tools"], method=method, **options)
            if answer.token_ids != ar.token_ids:
                raise SystemExit(f"{row['id']}: {name} differs from ar")
            num_tokens += len(answer.token_ids)
            if answer.metrics.branches is not None:
                used = answer.metrics.branches.num_rows, answer.metrics.num_rounds
                counted_here = *own_values(answer, row["tools"]), *used
                own[name] = [a + b for a, b in zip(own[name], counted_here, strict=True)]
            if counted is not None:
                one = call_rounds(engine.tokens.pieces, row["tools"], answer)
                assert one is not None
                counts[name].append(one)
                by_file.setdefault(file, {}).setdefault(name, []).append(one)
                line.append(f"{name} {one.num_tokens}/{one.num_rounds}")
        print(f"{row['id']:<28} {len(ar.token_ids):>4} tokens  {'  '.join(line)}", flush=True)
    report.add("all", "rows", len(requests), "rows")
    report.add("all", "parse", len(counts["ooo"]) / len(requests), "of the rows")
    report.add("all", "equal", num_tokens, "tokens")
    for name, (num_equal, num_written, num_rows, num_rounds) in own.items():
        report.add(name, "values", num_written, "that the answer has too")
        report.add(name, "equal values", num_equal / max(1, num_written), "of these")
        report.add(name, "branch rows", num_rows / max(1, num_rounds), "rows/round")
    for name, rows in counts.items():
        report.add(name, "rate", rate(rows), "tokens/round")
        for file, cells in by_file.items():
            report.add(f"{name}, {file}", "rate", rate(cells[name]), "tokens/round")
    with_branches = [f"{name}+self" for name in sidecars]
    pairs = [(name, "toolspec") for name in (*sidecars, PERFECT, "self", *with_branches)]
    pairs += [(name, PERFECT) for name in sidecars]
    if not by_file:
        print("no answer of ar parses: there is no call to compare the methods on")
        pairs = []
    for above, below in pairs:
        # The same tokens in other rounds: the ratio of the rates is that of the rounds.
        rounds = ([one.num_rounds for one in counts[name]] for name in (below, above))
        ratio, low, high = bootstrap_ratio(*rounds, args.seed, NUM_BOOTSTRAP)
        for metric, value in (("ratio", ratio), ("low", low), ("high", high)):
            report.add(f"{above} / {below}", metric, value, "x")
    for name, ready in sidecars.items():
        report.add(f"wave of {name}", "median", statistics.median(ready.seconds), "s")
        ready.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", help="model folder or hub id")
    parser.add_argument("--sidecar", help="model folder or hub id")
    parser.add_argument(
        "--adapter", nargs="*", default=(), help="folders of adapters of the sidecar, in rounds"
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the request files")
    parser.add_argument("--mode", choices=("rounds", "time"), default="rounds")
    parser.add_argument("--files", nargs="+", choices=FILES, default=FILES)
    parser.add_argument("--rows", type=int, default=20, help="rows of each file")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    args = parse_args(__doc__ or "", parser)
    if not args.smoke and None in (args.target, args.sidecar):
        parser.error("--target, --sidecar: expected both, or --smoke")
    files, rows = (args.files[-1:], 1) if args.smoke else (args.files, args.rows)
    requests = [
        (file, row) for file in files for row in spread(read_requests(args.data, file), rows)
    ]
    run: Callable[..., None] = bench_rounds if args.mode == "rounds" else bench_time
    torch.backends.cuda.matmul.allow_tf32 = False
    with tempfile.TemporaryDirectory() as folder:
        if args.smoke:
            args.target, args.sidecar = untrained_pair(Path(folder))
            teach(args.target, requests[0][1])
        report = Report(f"methods_{args.mode}", args)
        run(args, report, requests)
        report.finish()


if __name__ == "__main__":
    main()
