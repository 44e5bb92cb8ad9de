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
from _kept import Kept
from _lockstep import Lane, hugging_face_steps, run_lanes
from ooospec.backends.load import load_backend
from ooospec.bench.sidecars import RecordedSidecar, plain_calls, wrong_calls
from ooospec.config import EngineConfig
from ooospec.costs import COST_ROWS, RoundCosts, measure_costs

CACHE_TOKENS = 16384  # five answers side by side
CLOCKS = ("wall", "cpu")
WORDS_TOKENS = 48  # at most, of answers without a call
HINTED = ("perfect hints", "all hints wrong", "sidecar dead", "live sidecar, wave=auto")
CASES = (*HINTED, "no tools", "prose")
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
        self.wanted = args.cases or CASES
        self.with_hugging_face = not args.cases
        self.costs = measure_costs(self.backend)
        self.costs_us = tuple(self.costs.measured())
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

    def steps(self, row: dict[str, Any], method: str, max_tokens: int) -> Iterator[Any]:
        """Yields after each step of an answer; the answer last."""
        return self.engine.stream(
            row["messages"], row["tools"], method=method, max_tokens=max_tokens
        )

    def hugging_face(self, row: dict[str, Any]) -> Iterator[list[int]]:
        """Yields the tokens so far after each one of Hugging Face `generate`."""
        prompt_ids = self.engine.prompt_ids(row["messages"], row["tools"])
        return hugging_face_steps(self.model, prompt_ids, self.max_tokens, self.backend.eos_ids)

    def warm_up(self) -> None:
        """Lets all code run once; nothing is learnt of calls."""
        for method in self.engine.methods:
            self.engine.generate([{"role": "user", "content": "Hi"}], method=method, max_tokens=3)

    @property
    def num_waves(self) -> int:
        """Waves of the live sidecar that came to their end."""
        reports = self.cases["live sidecar, wave=auto"].drafting.router.sidecar.reports
        return sum(report.outcome == "done" for report in reports)

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


@dataclass(frozen=True)
class Gains:
    """What one request gained. Clocks: see CLOCKS.

    plain: by clock, the time of a token of `ar` over Hugging Face's; empty where that did not run.
    decoding, total: by case and
    clock, the time of `ar` over the case's. num_waves: of the live sidecar that came to their end.
    costs_us: of rounds of COST_ROWS rows, measured when its run began.
    """

    id: str
    plain: dict[str, float]
    decoding: dict[str, dict[str, float]]
    total: dict[str, dict[str, float]]
    num_waves: int
    costs_us: list[float]


def run_request(subjects: Subjects, row: dict[str, Any], number: int) -> Gains:
    """Runs a request; perfect hints are no case where `ar` calls nothing. Raises SystemExit where
    an answer differs.
    """
    num_waves = subjects.num_waves
    most = subjects.max_tokens
    lanes = {"ar": subjects.steps(row, "ar", most)}
    if subjects.with_hugging_face:
        lanes["HF"] = subjects.hugging_face(row)
    first = run_lanes(lanes)
    plain, ratios = first["ar"], {}
    if subjects.with_hugging_face:
        if first["HF"].answer != plain.answer.token_ids:
            raise SystemExit(f"{row['id']}: ar differs from Hugging Face generate")
        ratios = {clock: plain.decode(clock) / first["HF"].decode(clock) for clock in CLOCKS}
        print(f"{row['id']}: ar / Hugging Face {ratios['wall']:.3f} (cpu {ratios['cpu']:.3f})")
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
    words = min(most, WORDS_TOKENS)
    for together, limit in ((HINTED, most), (("no tools",), words), (("prose",), words)):
        cases = [case for case in together if case in subjects.wanted]
        if not cases:
            continue
        what = asked[cases[0]]
        ran = run_lanes({case: subjects.steps(what, case, limit) for case in ("ar", *cases)})
        pairs |= {case: Pair(ran["ar"], ran[case], prefill) for case in cases}
    for case, pair in pairs.items():
        if pair.plain.answer.token_ids != pair.own.answer.token_ids:
            raise SystemExit(f"{row['id']}: {case}: ooo differs from ar")
        print_pair(case, pair)
    if not plain.answer.tool_calls:
        pairs.pop("perfect hints", None)
    return Gains(
        row["id"],
        ratios,
        {
            name: {clock: pair.decode_gain(clock) for clock in CLOCKS}
            for name, pair in pairs.items()
        },
        {name: {clock: pair.total_gain(clock) for clock in CLOCKS} for name, pair in pairs.items()},
        subjects.num_waves - num_waves,
        list(subjects.costs_us),
    )


def time_all(args: Any, requests: Sequence[tuple[str, dict[str, Any]]]) -> list[Gains]:
    """Returns the gains of all requests; those that lie in the folder `--work` are not run."""
    kept = None
    if args.work is not None:
        of_gains = ("target", "sidecar", "max_tokens", "device", "dtype", "cases")
        kept = Kept(args.work, {name: getattr(args, name) for name in of_gains}, Gains)
    known = {} if kept is None else dict(kept.results)
    missing = [(i, row) for i, (_, row) in enumerate(requests) if row["id"] not in known]
    if missing:
        subjects = Subjects(args)
        subjects.warm_up()
        for number, row in missing:
            known[row["id"]] = one = run_request(subjects, row, number)
            if kept is not None:
                kept.add(one)
        subjects.close()
    return [known[row["id"]] for _, row in requests]


def bench_time(args: Any, report: Report, requests: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Adds the time of `ar` against Hugging Face's, of perfect hints against `ar`, and of what
    cannot gain against `ar`.
    """
    report.add("all", "requests", len(requests), "requests")
    report.add("all", "threads", torch.get_num_threads(), "threads")
    every = time_all(args, requests)
    for i, rows in enumerate(COST_ROWS):
        cost_us = statistics.median(one.costs_us[i] for one in every)
        report.add("cost", f"{rows} rows", cost_us / 1000, "ms")
    if HINTED[-1] in (args.cases or CASES):
        report.add(HINTED[-1], "waves", sum(one.num_waves for one in every), "waves")
    cases = list(dict.fromkeys(case for one in every for case in one.decoding))
    for clock in CLOCKS:
        if every[0].plain:
            median = statistics.median(one.plain[clock] for one in every)
            report.add(f"ar, time a token, {clock}", "p50", median, "x Hugging Face")
        for case in cases:
            some = [one for one in every if case in one.decoding]
            decoding = statistics.median(one.decoding[case][clock] for one in some)
            total = [one.total[case][clock] for one in some]
            report.add(f"{case}, decoding, {clock}", "p50", decoding, "x ar")
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
