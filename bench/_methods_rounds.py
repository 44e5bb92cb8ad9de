# SPDX-License-Identifier: Apache-2.0
"""Tokens a round of the methods: what bench_methods.py runs with `--mode rounds`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ooospec
from _harness import Report
from _kept import Kept
from ooospec.bench.calls import call_rounds, own_values
from ooospec.bench.sidecars import RecordedSidecar, plain_calls
from ooospec.bench.summary import bootstrap_ratio
from ooospec.sidecar.placement import open_sidecar
from ooospec.sidecar.ready import ReadySidecar
from ooospec.sidecar.worker import SidecarConfig

NUM_BOOTSTRAP = 10_000
PERFECT = "ooo, perfect hints"


def rate(calls: Sequence[tuple[int, int]]) -> float:
    """Returns tokens a round of calls, each (tokens, rounds)."""
    num_tokens, num_rounds = (sum(column) for column in zip(*calls, strict=True))
    return num_tokens / max(1, num_rounds)


@dataclass
class Counts:
    """What one request took.

    num_equal: tokens of all methods, each equal to that of `ar`. calls: (tokens, rounds) of the
    call by method; empty where no call of `ar` parses. own: by method with branches, (values
    that are equal, values written, rows of branches, rounds); see own_values.
    """

    file: str
    id: str
    num_equal: int = 0
    calls: dict[str, tuple[int, int]] = field(default_factory=dict)
    own: dict[str, tuple[int, ...]] = field(default_factory=dict)


class Methods:
    """All methods of `--mode rounds` over one target."""

    def __init__(self, args: Any) -> None:
        self._max_tokens = args.max_tokens
        load: dict[str, Any] = {
            "device": args.device,
            "dtype": args.dtype,
            "cost_model": False,
            "progress": True,
        }
        self._plain = ooospec.load(args.target, **load)
        self._recorded = RecordedSidecar()
        self._sidecars: list[ReadySidecar] = []
        self._runs: dict[str, tuple[Any, str]] = {
            name: (self._plain, name) for name in ("pld", "span", "toolspec", "self")
        }
        for name, adapter in adapters(args).items():
            how = {"device": args.device, "dtype": args.dtype, "adapter": adapter}
            sidecar = open_sidecar(SidecarConfig(args.sidecar, wave="always", **how))
            ready = ReadySidecar(sidecar)
            self._sidecars.append(ready)
            engine = ooospec.load(self._plain.backend, sidecar=ready, wave="always", **load)
            self._runs[name], self._runs[f"{name}+self"] = (engine, "ooo"), (engine, "ooo+self")
        perfect = ooospec.load(self._plain.backend, sidecar=self._recorded, wave="always", **load)
        self._runs[PERFECT] = perfect, "ooo"

    def close(self) -> None:
        for sidecar in self._sidecars:
            sidecar.close()

    def count(self, file: str, row: dict[str, Any]) -> Counts:
        """Returns what every method took for a row of `file`. Raises SystemExit where an answer
        differs from that of `ar`.
        """
        options = {"max_tokens": self._max_tokens}
        ar = self._plain.generate(row["messages"], row["tools"], method="ar", **options)
        self._recorded.calls = plain_calls(ar)
        counted = call_rounds(self._plain.tokens.pieces, row["tools"], ar)
        found = Counts(file, row["id"])
        for name, (engine, method) in self._runs.items():
            answer = engine.generate(row["messages"], row["tools"], method=method, **options)
            if answer.token_ids != ar.token_ids:
                raise SystemExit(f"{row['id']}: {name} differs from ar")
            found.num_equal += len(answer.token_ids)
            if answer.metrics.branches is not None:
                used = answer.metrics.branches.num_rows, answer.metrics.num_rounds
                found.own[name] = (*own_values(answer, row["tools"]), *used)
            if counted is not None:
                one = call_rounds(engine.tokens.pieces, row["tools"], answer)
                assert one is not None
                found.calls[name] = one.num_tokens, one.num_rounds
        return found


def adapters(args: Any) -> dict[str, str | None]:
    """Returns the adapter of each method with a sidecar. Raises SystemExit where two have one
    name.
    """
    found = {f"ooo, {Path(path).name}": path for path in args.adapter}
    if len(found) < len(args.adapter):
        raise SystemExit(f"--adapter: expected folders of different names, got {args.adapter}")
    return {"ooo": None} | found


def count_all(args: Any, requests: Sequence[tuple[str, dict[str, Any]]]) -> list[Counts]:
    """Returns the counts of all requests; those that lie in the folder `--work` are not run."""
    kept = None
    if args.work is not None:
        of_counts = ("target", "sidecar", "adapter", "max_tokens", "device", "dtype")
        kept = Kept(args.work, {name: getattr(args, name) for name in of_counts}, Counts)
    known = {} if kept is None else dict(kept.results)
    missing = [(file, row) for file, row in requests if row["id"] not in known]
    if missing:
        with closing(Methods(args)) as methods:
            for file, row in missing:
                known[row["id"]] = one = methods.count(file, row)
                if kept is not None:
                    kept.add(one)
                rounds = "  ".join(f"{name} {n}/{r}" for name, (n, r) in one.calls.items())
                print(f"{one.id:<28} {rounds}", flush=True)
    return [known[row["id"]] for _, row in requests]


def bench_rounds(args: Any, report: Report, requests: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Adds tokens a round of the call of each method."""
    every = count_all(args, requests)
    called = [one for one in every if one.calls]
    report.add("all", "rows", len(every), "rows")
    report.add("all", "parse", len(called) / len(every), "of the rows")
    report.add("all", "equal", sum(one.num_equal for one in every), "tokens")
    for name in every[0].own:
        sums = (sum(column) for column in zip(*(one.own[name] for one in every), strict=True))
        num_equal, num_written, num_rows, num_rounds = sums
        report.add(name, "values", num_written, "that the answer has too")
        report.add(name, "equal values", num_equal / max(1, num_written), "of these")
        report.add(name, "branch rows", num_rows / max(1, num_rounds), "rows/round")
    for name in called[0].calls if called else ():
        report.add(name, "rate", rate([one.calls[name] for one in called]), "tokens/round")
        for file in dict.fromkeys(one.file for one in called):
            here = [one.calls[name] for one in called if one.file == file]
            report.add(f"{name}, {file}", "rate", rate(here), "tokens/round")
    sidecars = list(adapters(args))
    with_branches = [f"{name}+self" for name in sidecars]
    pairs = [(name, "toolspec") for name in (*sidecars, PERFECT, "self", *with_branches)]
    pairs += [(name, PERFECT) for name in sidecars]
    if not called:
        print("no answer of ar parses: there is no call to compare the methods on")
        pairs = []
    for above, below in pairs:
        # The same tokens in other rounds: the ratio of the rates is that of the rounds.
        rounds = ([one.calls[name][1] for one in called] for name in (below, above))
        ratio, low, high = bootstrap_ratio(*rounds, args.seed, NUM_BOOTSTRAP)
        for metric, value in (("ratio", ratio), ("low", low), ("high", high)):
            report.add(f"{above} / {below}", metric, value, "x")
