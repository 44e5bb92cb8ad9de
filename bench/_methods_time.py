# SPDX-License-Identifier: Apache-2.0
"""Time of the methods with everything live: what bench_methods.py runs with `--mode time`."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import ooospec
from _harness import Report, quantile
from _lockstep import Lane, hugging_face_steps, run_lanes
from ooospec.backends.load import load_backend
from ooospec.bench.sidecars import RecordedSidecar, plain_calls, wrong_calls
from ooospec.config import EngineConfig
from ooospec.costs import COST_ROWS, RoundCosts, measure_costs

CACHE_TOKENS = 16384  # five answers side by side
CLOCKS = ("wall", "cpu")
HINTED = ("perfect hints", "all hints wrong", "sidecar dead", "live sidecar, wave=auto")
QUESTIONS = (
    "how bread is baked",
    "why the sky is blue",
    "what a bank does with savings",
    "how a bicycle stays upright",
    "who Ada Lovelace was",
    "what makes a good garden soil",
    "how vaccines work",
    "why leaves fall in autumn",
)


def prose(number: int) -> dict[str, Any]:
    """Returns messages that ask for words alone, whatever the tools."""
    question = QUESTIONS[number % len(QUESTIONS)]
    text = f"Tell me in plain words, calling no tool, {question}."
    return {"messages": [{"role": "user", "content": text}]}


class Subjects:
    """One model: Hugging Face's own, and an engine in which each case is a method of its own, so
    that none learns of another's answers.

    The engine's model has modules and attention of its own and shares the weights.
    """

    def __init__(self, args: Any) -> None:
        dtype = getattr(torch, args.dtype)
        model = AutoModelForCausalLM.from_pretrained(args.target, dtype=dtype)
        self.model = model.to(args.device)
        shared = {id(weights): weights for weights in self.model.parameters()}
        tokenizer = AutoTokenizer.from_pretrained(args.target)
        self.backend = load_backend(copy.deepcopy(self.model, shared), tokenizer=tokenizer)
        self.max_tokens = args.max_tokens
        self.costs = measure_costs(self.backend)
        self.sidecars = {name: RecordedSidecar() for name in HINTED[:2]}
        self.engine = self._load(None, CACHE_TOKENS)
        sidecars: dict[str, Any] = {
            **self.sidecars,
            "sidecar dead": RecordedSidecar(status="dead: killed"),
            "live sidecar, wave=auto": args.sidecar,
            "no tools": RecordedSidecar(),
            "prose": RecordedSidecar(),
        }
        self.cases = {name: self._load(sidecar, 16) for name, sidecar in sidecars.items()}
        for name, engine in self.cases.items():
            self.engine.methods[name] = engine.methods["ooo"]

    def _load(self, sidecar: Any, cache_tokens: int) -> Any:
        config = EngineConfig(cache_tokens=cache_tokens)
        costs = RoundCosts(self.costs.measured())
        return ooospec.load(self.backend, sidecar=sidecar, config=config, cost_model=costs)

    def steps(self, row: dict[str, Any], method: str) -> Iterator[Any]:
        """Yields after each step of an answer; the answer last."""
        return self.engine.stream(
            row["messages"], row["tools"], method=method, max_tokens=self.max_tokens
        )

    def hugging_face(self, row: dict[str, Any]) -> Iterator[list[int]]:
        """Yields the tokens so far after each one of Hugging Face `generate`."""
        prompt_ids = self.engine.prompt_ids(row["messages"], row["tools"])
        return hugging_face_steps(self.model, prompt_ids, self.max_tokens, self.backend.eos_ids)

    def warm_up(self) -> None:
        """Lets all code run once; nothing is learnt of calls."""
        for method in self.engine.methods:
            self.engine.generate([{"role": "user", "content": "Hi"}], method=method, max_tokens=3)

    def close(self) -> None:
        for engine in self.cases.values():
            engine.close()


@dataclass(frozen=True)
class Pair:
    """An answer and the plain one that it is compared with.

    Prefill is the same launches in both: what it takes a token is timed once for a request, without
    a cached prefix, and counts for both. prefill: seconds a token by clock.
    """

    plain: Lane
    own: Lane
    prefill: dict[str, float]

    def decode_gain(self, clock: str) -> float:
        return self.plain.decode(clock) / self.own.decode(clock)

    def total_gain(self, clock: str) -> float:
        prefill = self.prefill[clock] * self.own.answer.usage.prompt_tokens
        plain, own = (
            lane.start_up() + prefill + lane.decode(clock) for lane in (self.plain, self.own)
        )
        return plain / own


def run_request(
    subjects: Subjects, row: dict[str, Any], number: int
) -> tuple[Lane, Lane, dict[str, Pair]]:
    """Returns Hugging Face's answer, the plain one beside it, and a pair for each case."""
    first = run_lanes({"HF": subjects.hugging_face(row), "ar": subjects.steps(row, "ar")})
    plain = first["ar"]
    if first["HF"].answer != plain.answer.token_ids:
        raise SystemExit(f"{row['id']}: ar differs from Hugging Face generate")
    usage = plain.answer.usage
    num_new = usage.prompt_tokens - usage.cached_tokens
    prefill = {clock: plain.prefill(clock) / num_new for clock in CLOCKS}
    subjects.sidecars["perfect hints"].calls = plain_calls(plain.answer)
    subjects.sidecars["all hints wrong"].calls = wrong_calls(row)
    asked = dict.fromkeys(HINTED, row) | {
        "no tools": row | {"tools": []},
        "prose": row | prose(number),
    }
    pairs = {}
    for cases in (HINTED, ("no tools",), ("prose",)):
        what = asked[cases[0]]
        lanes = run_lanes({case: subjects.steps(what, case) for case in ("ar", *cases)})
        pairs |= {case: Pair(lanes["ar"], lanes[case], prefill) for case in cases}
    for case, pair in pairs.items():
        if pair.plain.answer.token_ids != pair.own.answer.token_ids:
            raise SystemExit(f"{row['id']}: {case}: ooo differs from ar")
    return first["HF"], plain, pairs


def bench_time(args: Any, report: Report, requests: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Adds the time of `ar` against Hugging Face's, of perfect hints against `ar`, and of what
    cannot gain against `ar`.
    """
    subjects = Subjects(args)
    report.add("all", "requests", len(requests), "requests")
    report.add("all", "threads", torch.get_num_threads(), "threads")
    for rows, cost_us in zip(COST_ROWS, subjects.costs.measured(), strict=True):
        report.add("cost", f"{rows} rows", cost_us / 1000, "ms")
    subjects.warm_up()
    peers: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
    pairs: dict[str, list[Pair]] = {}
    for number, (_, row) in enumerate(requests):
        hugging_face, plain, found = run_request(subjects, row, number)
        for clock in CLOCKS:
            peers[clock].append(plain.decode(clock) / hugging_face.decode(clock))
        print(
            f"{row['id']}: ar / Hugging Face {peers['wall'][-1]:.3f} (cpu {peers['cpu'][-1]:.3f})"
        )
        for case, pair in found.items():
            print_pair(case, pair)
            if case != "perfect hints" or pair.plain.answer.tool_calls:
                pairs.setdefault(case, []).append(pair)
    waves = subjects.cases["live sidecar, wave=auto"].drafting.router.sidecar.reports
    report.add("live sidecar, wave=auto", "waves", sum(w.outcome == "done" for w in waves), "waves")
    subjects.close()
    for clock in CLOCKS:
        median = statistics.median(peers[clock])
        report.add(f"ar, time a token, {clock}", "p50", median, "x Hugging Face")
        for case, both in pairs.items():
            decoding = [pair.decode_gain(clock) for pair in both]
            total = [pair.total_gain(clock) for pair in both]
            report.add(f"{case}, decoding, {clock}", "p50", statistics.median(decoding), "x ar")
            report.add(f"{case}, in total, {clock}", "p50", statistics.median(total), "x ar")
            report.add(f"{case}, in total, {clock}", "p95", quantile(total, 0.05), "x ar")


def print_pair(case: str, pair: Pair) -> None:
    """Shows tokens, rounds, and gains in total and in decoding."""
    answer = pair.own.answer
    rounds = answer.metrics.rounds
    print(
        f"    {case:<24} {len(answer.token_ids):>3} tokens {len(rounds):>3} rounds "
        f"{sum(one.num_rows for one in rounds):>4} rows; "
        f"decoding x{pair.decode_gain('wall'):.3f} (cpu x{pair.decode_gain('cpu'):.3f}), "
        f"in total x{pair.total_gain('wall'):.3f} (cpu x{pair.total_gain('cpu'):.3f})",
        flush=True,
    )
