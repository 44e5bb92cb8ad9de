# SPDX-License-Identifier: Apache-2.0
"""Methods on real requests: tokens a round of the call, or wall time.

`--mode rounds`: 64 nodes, cost model off, hints ready before the first round; every answer must
equal that of `ar`.
`--mode time`: cost model on, everything live; Hugging Face `generate` beside it, and the cases
where speculation cannot pay.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import ooospec
from _harness import Report, parse_args, quantile
from _requests import FILES, read_requests, spread
from ooospec import CallReader, HintKind, HintRing
from ooospec.config import EngineConfig
from ooospec.formats import tool_set
from ooospec.loading import COST_ROWS
from ooospec.replay import slot_records
from ooospec.sidecar.placement import open_sidecar
from ooospec.sidecar.worker import SidecarConfig

READY_SECONDS = 120.0
NUM_BOOTSTRAP = 10_000


@dataclass
class RecordedSidecar:
    """A sidecar that sends the slot records of calls it is given beforehand."""

    calls: Sequence[dict[str, Any]] = ()
    ring: HintRing = field(default_factory=HintRing)
    status: str = "ready"

    def ask(
        self, request_id: int, messages: Sequence[Any], tools: Sequence[dict[str, Any]]
    ) -> None:
        for record in slot_records(request_id, self.calls, tools):
            self.ring.try_push(
                request_id, record.kind, record.call, record.tool, record.parameter, record.text
            )

    def cancel(self, request_id: int) -> None:
        pass

    def close(self) -> None:
        pass


class ReadySidecar:
    """A real sidecar whose wave has ended before the first round."""

    def __init__(self, sidecar: Any) -> None:
        self.sidecar = sidecar
        self.ring = HintRing()
        self.seconds: list[float] = []

    @property
    def status(self) -> str:
        return str(self.sidecar.status)

    def ask(
        self, request_id: int, messages: Sequence[Any], tools: Sequence[dict[str, Any]]
    ) -> None:
        start = time.perf_counter()
        self.sidecar.ask(request_id, messages, tools)
        while time.perf_counter() < start + READY_SECONDS:
            record = self.sidecar.ring.try_pop()
            if record is None:
                time.sleep(0.001)
                continue
            if record.request_id != request_id:
                continue
            self.ring.try_push(
                request_id, record.kind, record.call, record.tool, record.parameter, record.text
            )
            if record.kind in (HintKind.END, HintKind.ERROR):
                self.seconds.append(time.perf_counter() - start)
                return
        raise TimeoutError(f"sidecar: expected a wave within {READY_SECONDS} s ({self.status})")

    def cancel(self, request_id: int) -> None:
        self.sidecar.cancel(request_id)

    def close(self) -> None:
        self.sidecar.close()


@dataclass(frozen=True)
class CallRounds:
    """Tokens of an answer's calls that rounds committed, and those rounds."""

    num_tokens: int
    num_rounds: int


def call_rounds(engine: Any, tools: Sequence[dict[str, Any]], answer: Any) -> CallRounds | None:
    """Counts from the first token of the answer's first call to the last of its last; None if none
    parses.
    """
    pieces = engine.tokens.pieces
    reader = CallReader(tool_set(tools))
    ends = []
    for token in answer.token_ids:
        reader.feed(pieces[token])
        ends.append(reader.num_bytes)
    if not reader.spans or any(call.tool < 0 for call in reader.calls):
        return None
    begin, end = reader.spans[0][0], reader.spans[-1][1]
    starts = [0, *ends[:-1]]
    inside = [starts[i] < end and ends[i] > begin for i in range(len(ends))]
    num_tokens = num_rounds = 0
    done = 1  # the first token comes from prefill
    for one in answer.metrics.rounds:
        committed = sum(inside[done : done + one.num_committed])
        num_tokens += committed
        num_rounds += committed > 0
        done += one.num_committed
    return CallRounds(num_tokens, num_rounds)


def bootstrap_ratio(
    above: Sequence[CallRounds], below: Sequence[CallRounds], seed: int
) -> tuple[float, float, float]:
    """Returns the ratio of tokens a round over the same rows, and its paired 95 % bootstrap
    interval.
    """
    chance = random.Random(seed)

    def ratio(rows: Sequence[int]) -> float:
        return rate([above[i] for i in rows]) / rate([below[i] for i in rows])

    every = range(len(above))
    drawn = sorted(ratio(chance.choices(every, k=len(every))) for _ in range(NUM_BOOTSTRAP))
    return ratio(every), drawn[NUM_BOOTSTRAP // 40], drawn[-NUM_BOOTSTRAP // 40]


def rate(rows: Sequence[CallRounds]) -> float:
    return sum(row.num_tokens for row in rows) / max(1, sum(row.num_rounds for row in rows))


def bench_rounds(args: Any, report: Report, requests: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Adds tokens a round of the call of each method."""
    recorded = RecordedSidecar()
    load = {"device": args.device, "dtype": args.dtype, "cost_model": False, "progress": True}
    plain = ooospec.load(args.target, **load)
    perfect = ooospec.load(plain.backend, sidecar=recorded, wave="always", **load)
    ready = ReadySidecar(
        open_sidecar(
            SidecarConfig(args.sidecar, wave="always", device=args.device, dtype=args.dtype)
        )
    )
    live = ooospec.load(plain.backend, sidecar=ready, wave="always", **load)
    runs: dict[str, tuple[Any, str]] = {
        "pld": (plain, "pld"),
        "toolspec": (plain, "toolspec"),
        "ooo": (live, "ooo"),
        "ooo, perfect hints": (perfect, "ooo"),
    }
    counts: dict[str, list[CallRounds]] = {name: [] for name in runs}
    by_file: dict[str, dict[str, list[CallRounds]]] = {}
    num_tokens = 0
    for file, row in requests:
        options = {"max_tokens": args.max_tokens}
        ar = plain.generate(row["messages"], row["tools"], method="ar", **options)
        recorded.calls = plain_calls(ar)
        counted = call_rounds(plain, row["tools"], ar)
        line = []
        for name, (engine, method) in runs.items():
            answer = engine.generate(row["messages"], row["tools"], method=method, **options)
            if answer.token_ids != ar.token_ids:
                raise SystemExit(f"{row['id']}: {name} differs from ar")
            num_tokens += len(answer.token_ids)
            if counted is not None:
                one = call_rounds(engine, row["tools"], answer)
                assert one is not None
                counts[name].append(one)
                by_file.setdefault(file, {}).setdefault(name, []).append(one)
                line.append(f"{name} {one.num_tokens}/{one.num_rounds}")
        print(f"{row['id']:<28} {len(ar.token_ids):>4} tokens  {'  '.join(line)}", flush=True)
    report.add("all", "rows", len(requests), "rows")
    report.add("all", "parse", len(counts["ooo"]) / len(requests), "of the rows")
    report.add("all", "equal", num_tokens, "tokens")
    for name, rows in counts.items():
        report.add(name, "rate", rate(rows), "tokens/round")
        for file, cells in by_file.items():
            report.add(f"{name}, {file}", "rate", rate(cells[name]), "tokens/round")
    for above, below in (("ooo", "toolspec"), ("ooo, perfect hints", "toolspec")):
        ratio, low, high = bootstrap_ratio(counts[above], counts[below], args.seed)
        for metric, value in (("ratio", ratio), ("low", low), ("high", high)):
            report.add(f"{above} / {below}", metric, value, "x")
    report.add("wave", "median", statistics.median(ready.seconds), "s")
    live.close()


@dataclass(frozen=True)
class Timed:
    """One timed answer, in seconds."""

    total: float
    decode: float
    num_tokens: int


def timed(engine: Any, row: dict[str, Any], method: str, max_tokens: int) -> tuple[Any, Timed]:
    start = time.perf_counter()
    answer = engine.generate(row["messages"], row["tools"], method=method, max_tokens=max_tokens)
    total = time.perf_counter() - start
    decode = sum(one.stop - one.start for one in answer.metrics.rounds)
    return answer, Timed(total, decode, len(answer.token_ids))


def hugging_face_token_seconds(model: Any, prompt_ids: list[int], num_tokens: int) -> float:
    """Returns the time of a further token of `generate`, by the difference of a long and a short
    run.
    """
    ids = torch.tensor([prompt_ids])

    def run(count: int) -> float:
        start = time.perf_counter()
        model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            min_new_tokens=count,
            max_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
        )
        return time.perf_counter() - start

    short = run(1)
    return (run(num_tokens) - short) / (num_tokens - 1)


def wrong_calls(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a call of the row's first tool in which nothing is right."""
    function = row["tools"][0]["function"]
    names = (function.get("parameters") or {}).get("properties") or {}
    return [{"name": function["name"], "arguments": dict.fromkeys(names, "quite another value")}]


PROSE = {
    "messages": [
        {"role": "user", "content": "Tell me in plain words, calling no tool, how bread is baked."}
    ]
}


def bench_time(args: Any, report: Report, requests: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Adds wall times: `ar` against Hugging Face, perfect hints against `ar`, and what cannot
    gain.
    """
    from transformers import AutoModelForCausalLM

    recorded, silent = RecordedSidecar(), RecordedSidecar(status="dead: killed")
    load = {
        "device": args.device,
        "dtype": args.dtype,
        "config": EngineConfig(prefix_cache=False),
        "progress": True,
    }
    engine = ooospec.load(args.target, sidecar=recorded, wave="always", **load)
    dead = ooospec.load(engine.backend, sidecar=silent, wave="always", **load)
    model = AutoModelForCausalLM.from_pretrained(args.target, dtype=getattr(torch, args.dtype))
    for rows in COST_ROWS:
        report.add("cost", f"{rows} rows", engine.drafting.costs_us[rows - 1] / 1000, "ms")
    peers, gains = [], []
    worst: dict[str, list[float]] = {}
    for _, row in requests:
        recorded.calls = ()
        answer, ar = timed(engine, row, "ar", args.max_tokens)
        hugging_face = hugging_face_token_seconds(
            model, engine.prompt_ids(row["messages"], row["tools"]), max(8, ar.num_tokens // 2)
        )
        peers.append(ar.decode / max(1, ar.num_tokens - 1) / hugging_face)
        recorded.calls = plain_calls(answer)
        same, hinted = timed(engine, row, "ooo", args.max_tokens)
        if same.token_ids != answer.token_ids:
            raise SystemExit(f"{row['id']}: ooo differs from ar")
        if recorded.calls:
            gains.append(ar.decode / hinted.decode)
        cases = {
            "no tools": (engine, row | {"tools": []}, []),
            "prose": (engine, row | PROSE, []),
            "all hints wrong": (engine, row, wrong_calls(row)),
            "sidecar dead": (dead, row, []),
        }
        for case, (which, asked, calls) in cases.items():
            recorded.calls = calls
            pair = [timed(which, asked, method, args.max_tokens)[1] for method in ("ar", "ooo")]
            worst.setdefault(case, []).append(pair[0].total / pair[1].total)
        print(
            f"{row['id']:<28} ar / HF {peers[-1]:.3f}  "
            + str({k: round(v[-1], 3) for k, v in worst.items()}),
            flush=True,
        )
    report.add("ar / Hugging Face generate, per token", "median", statistics.median(peers), "x")
    report.add("ooo with perfect hints, decoding", "median", statistics.median(gains), "x ar")
    for case, ratios in worst.items():
        report.add(f"{case}, in total", "p50", statistics.median(ratios), "x ar")
        report.add(f"{case}, in total", "p95", quantile(ratios, 0.05), "x ar")


def plain_calls(answer: Any) -> list[dict[str, Any]]:
    """Returns the calls of an answer as names and JSON values: all that perfect hints may know."""
    import json

    return [
        {"name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])}
        for call in answer.tool_calls
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True, help="model folder or hub id")
    parser.add_argument("--sidecar", required=True, help="model folder or hub id")
    parser.add_argument("--data", type=Path, required=True, help="folder of the request files")
    parser.add_argument("--mode", choices=("rounds", "time"), default="rounds")
    parser.add_argument("--rows", type=int, default=20, help="rows of each file")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    args = parse_args(__doc__ or "", parser)
    rows = 1 if args.smoke else args.rows
    requests = [
        (file, row) for file in FILES for row in spread(read_requests(args.data, file), rows)
    ]
    report = Report(f"methods_{args.mode}", args)
    run: Callable[..., None] = bench_rounds if args.mode == "rounds" else bench_time
    torch.backends.cuda.matmul.allow_tf32 = False
    run(args, report, requests)
    report.finish()


if __name__ == "__main__":
    main()
