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
from _sidecars import RecordedSidecar, plain_calls, wrong_calls
from ooospec.backends.load import load_backend
from ooospec.config import EngineConfig
from ooospec.costs import COST_ROWS, measure_costs

CACHE_TOKENS = 6144  # of each engine: the longest prompt and its answer
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
    """One model: Hugging Face's own, and an engine for each case, so that none learns of another.

    The engines' model has modules and attention of its own and shares the weights.
    """

    def __init__(self, args: Any) -> None:
        dtype = getattr(torch, args.dtype)
        model = AutoModelForCausalLM.from_pretrained(args.target, dtype=dtype)
        self.model = model.to(args.device)
        shared = {id(weights): weights for weights in self.model.parameters()}
        tokenizer = AutoTokenizer.from_pretrained(args.target)
        self.backend = load_backend(copy.deepcopy(self.model, shared), tokenizer=tokenizer)
        self.max_tokens = args.max_tokens
        self.sidecars = {name: RecordedSidecar() for name in HINTED[:2]}
        sidecars: dict[str, Any] = {
            **self.sidecars,
            "sidecar dead": RecordedSidecar(status="dead: killed"),
            "live sidecar, wave=auto": args.sidecar,
            "no tools": RecordedSidecar(),
            "prose": RecordedSidecar(),
        }
        config = EngineConfig(prefix_cache=False, cache_tokens=CACHE_TOKENS)
        self.costs = measure_costs(self.backend)
        self.engines = {
            name: ooospec.load(self.backend, sidecar=sidecar, config=config, cost_model=self.costs)
            for name, sidecar in sidecars.items()
        }

    def steps(self, row: dict[str, Any], method: str, case: str = "prose") -> Iterator[Any]:
        """Yields after each step of an answer; the answer last."""
        return self.engines[case].stream(
            row["messages"], row["tools"], method=method, max_tokens=self.max_tokens
        )

    def hugging_face(self, row: dict[str, Any]) -> Iterator[list[int]]:
        """Yields the tokens so far after each one of Hugging Face `generate`."""
        prompt_ids = self.engines["prose"].prompt_ids(row["messages"], row["tools"])
        return hugging_face_steps(self.model, prompt_ids, self.max_tokens, self.backend.eos_ids)

    def warm_up(self) -> None:
        """Lets all code run once; nothing is learnt of calls."""
        for engine in self.engines.values():
            engine.generate([{"role": "user", "content": "Hi"}], method="ooo", max_tokens=3)

    def close(self) -> None:
        for engine in self.engines.values():
            engine.close()


@dataclass(frozen=True)
class Pair:
    """An answer and the plain one that it is compared with.

    Prefill is the same launches in both: the shorter one counts for both, so that other work on
    the machine meanwhile does not.
    """

    plain: Lane
    own: Lane

    def decode_gain(self, clock: str) -> float:
        return self.plain.decode(clock) / self.own.decode(clock)

    def total_gain(self, clock: str) -> float:
        prefill = min(self.plain.prefill(clock), self.own.prefill(clock))
        plain, own = (
            lane.start_up() + prefill + lane.decode(clock) for lane in (self.plain, self.own)
        )
        return plain / own


def run_request(
    subjects: Subjects, row: dict[str, Any], number: int
) -> tuple[Lane, dict[str, Pair]]:
    """Returns Hugging Face's answer and those of each case; `ar` is paired with itself."""
    plain = run_lanes({"HF": subjects.hugging_face(row), "ar": subjects.steps(row, "ar")})
    if plain["HF"].answer != plain["ar"].answer.token_ids:
        raise SystemExit(f"{row['id']}: ar differs from Hugging Face generate")
    pairs = {"ar": Pair(plain["ar"], plain["ar"])}
    subjects.sidecars["perfect hints"].calls = plain_calls(plain["ar"].answer)
    subjects.sidecars["all hints wrong"].calls = wrong_calls(row)
    lanes = {case: subjects.steps(row, "ooo", case) for case in HINTED}
    hinted = run_lanes({"ar": subjects.steps(row, "ar"), **lanes})
    pairs |= {case: Pair(hinted["ar"], hinted[case]) for case in HINTED}
    for case, asked in (("no tools", row | {"tools": []}), ("prose", row | prose(number))):
        both = run_lanes({name: subjects.steps(asked, name, case) for name in ("ar", "ooo")})
        pairs[case] = Pair(both["ar"], both["ooo"])
    for case, pair in pairs.items():
        if pair.plain.answer.token_ids != pair.own.answer.token_ids:
            raise SystemExit(f"{row['id']}: {case}: ooo differs from ar")
    return plain["HF"], pairs


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
        hugging_face, found = run_request(subjects, row, number)
        plain = found.pop("ar").own
        for clock in CLOCKS:
            peers[clock].append(plain.decode(clock) / hugging_face.decode(clock))
        print(
            f"{row['id']}: ar / Hugging Face {peers['wall'][-1]:.3f} (cpu {peers['cpu'][-1]:.3f})"
        )
        for case, pair in found.items():
            print_pair(case, pair)
            if case != "perfect hints" or pair.plain.answer.tool_calls:
                pairs.setdefault(case, []).append(pair)
    subjects.close()
    for clock in CLOCKS:
        of_peers = statistics.median(peers[clock])
        report.add(f"ar, time a token, {clock}", "p50", of_peers, "x Hugging Face")
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
