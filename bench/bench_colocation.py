# SPDX-License-Identifier: Apache-2.0
"""Target and sidecar on one GPU: what a wave costs the target, and what the target costs a wave.

A request arrives: the wave starts in a thread of its own, and the target prefills the same number
of tokens and then verifies rounds of 64 rows. Times are the host's, from arrival on. In turns with
the same requests without a wave, of which the target's tokens must be the same. Answers of the wave
are random tokens, which it cannot draft, and then tokens that stand in the prompt.
"""

from __future__ import annotations

import argparse
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from _harness import Report, parse_args, quantile
from _waves import STANDING, make_prompt, make_runner, run_wave, with_answers
from bench_round import SHAPES, copy_bandwidth, random_model, random_rows
from ooospec import HintRing
from ooospec.backends.fused import FusedBackend
from ooospec.kv import Sequence as Tokens
from ooospec.sampling import Chooser, SamplingParams
from ooospec.sidecar.graph_wave import GraphWaveRunner
from ooospec.sidecar.wave import WaveReport


@dataclass
class Request:
    """What came of one request at the target. Times of time.perf_counter."""

    arrival: float
    first_token: float = 0.0
    rounds: list[tuple[float, float]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    wave: WaveReport | None = None


class Target:
    """Prefills and verifies, as an engine's loop does."""

    def __init__(self, backend: FusedBackend, num_prompt: int, num_rounds: int, seed: int) -> None:
        rng = random.Random(seed)
        self._backend, self._num_rounds = backend, num_rounds
        self._prompt = [rng.randrange(backend.decodable) for _ in range(num_prompt)]
        self._rows = random_rows(64, backend.decodable, rng)
        self._chooser = Chooser(SamplingParams(seed=0), backend.decodable, backend.eos_ids)
        self._sequence = Tokens(backend.new_pool(num_prompt + 1024))
        self._sequence.reserve(num_prompt + 512)

    def serve(self, arrives: Callable[[], None]) -> Request:
        """arrives: called first, which may start a wave."""
        request, sequence = Request(time.perf_counter()), self._sequence
        arrives()
        sequence.length = 0
        request.tokens.append(int(self._backend.prefill(sequence, self._prompt).argmax()))
        request.first_token = time.perf_counter()
        for _ in range(self._num_rounds):
            start = time.perf_counter()
            sequence.length = len(self._prompt)
            verdict = self._backend.verify(sequence, self._rows, self._chooser, 1, top8=True)
            sequence.keep(range(len(verdict.path)) if verdict.compacted else verdict.path)
            request.rounds.append((start, time.perf_counter()))
            request.tokens += verdict.tokens
        return request


class WaveThread:
    """Runs a wave whenever it is asked to."""

    def __init__(self, run: Callable[[], WaveReport]) -> None:
        self._run = run
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[WaveReport | BaseException] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def ask(self) -> None:
        self._asked.put(True)

    def wait(self) -> WaveReport:
        done = self._done.get()
        if isinstance(done, BaseException):
            raise done
        return done

    def _serve(self) -> None:
        while self._asked.get():
            try:
                self._done.put(self._run())
            except BaseException as error:
                self._done.put(error)


def bench(report: Report, args: Any, device: str, dtype: torch.dtype) -> None:
    model = random_model(args.target, device, dtype)
    backend = FusedBackend(model, max_smem=1024 * args.target_smem)
    target = Target(backend, args.prompt, args.rounds, args.seed)
    sidecar = random_model(args.sidecar, device, dtype)
    runner = make_runner(sidecar, args.steps, 1024 * args.sidecar_smem)
    case = f"{args.target} target, {args.sidecar} sidecar, {args.slots} slots, {args.steps} steps"
    for stand in (False, True):
        bench_waves(report, args, case + (STANDING if stand else ""), target, runner, stand)


def bench_waves(
    report: Report, args: Any, case: str, target: Target, runner: GraphWaveRunner, stand: bool
) -> None:
    """Adds the rows of waves over new prompts. stand: see with_answers()."""
    rng, ring, vocab = random.Random(args.seed), HintRing(), runner.backend.decodable

    def run() -> WaveReport:
        prompt = make_prompt(args.prompt, args.slots, vocab, rng)
        return run_wave(runner, with_answers(prompt, args.steps, rng) if stand else prompt, ring)

    thread = WaveThread(run)
    alone: list[WaveReport] = []
    without: list[Request] = []
    beside: list[Request] = []
    for turn in range(args.repeats + 2):
        thread.ask()
        wave = thread.wait()
        plain = target.serve(lambda: None)
        both = target.serve(thread.ask)
        both.wave = thread.wait()
        if both.tokens != plain.tokens:
            raise RuntimeError("colocation: expected the target's tokens to be the same")
        if turn >= 2:  # the first ones warm up
            alone.append(wave)
            without.append(plain)
            beside.append(both)
    add_rows(report, case, alone, without, beside)


def add_rows(
    report: Report,
    case: str,
    alone: Sequence[WaveReport],
    without: Sequence[Request],
    beside: Sequence[Request],
) -> None:
    steps = [s.stop - s.start for wave in alone for s in wave.steps[-5:]]
    add(report, f"{case}: wave alone", "step", steps)
    add(report, f"{case}: wave alone", "wave", [w.stop - w.start for w in alone])
    waves = [(r, r.wave) for r in beside if r.wave is not None]
    name = f"{case}: wave beside the target, from arrival"
    add(report, name, "wave", [w.stop - r.arrival for r, w in waves])
    add(report, name, "first hint", [w.answers[0].time - r.arrival for r, w in waves])
    steps = [s.stop - s.start for _, w in waves for s in w.steps[-5:]]
    add(report, name, "step", steps)
    first = [r.first_token - r.arrival for r in without]
    base = add(report, f"{case}: target alone", "first token", first)
    first = [r.first_token - r.arrival for r, _ in waves]
    slowed = add(report, f"{case}: target beside the wave", "first token", first)
    report.add(f"{case}: target beside the wave", "first token ratio", slowed / base, "x")
    rounds = [stop - start for r in without for start, stop in r.rounds]
    base = add(report, f"{case}: target alone", "round", rounds)
    during = [stop - start for r, w in waves for start, stop in r.rounds if stop <= w.stop]
    after = [stop - start for r, w in waves for start, stop in r.rounds if start >= w.stop]
    for when, times in (("during the wave", during), ("after the wave", after)):
        report.add(f"{case}: target {when}", "rounds", len(times), "")
        if times:
            ratio = add(report, f"{case}: target {when}", "round", times) / base
            report.add(f"{case}: target {when}", "round ratio", ratio, "x")
    tokens = sum(len(r.tokens) for r in beside)
    report.add(f"{case}: target's tokens, the same with a wave", "compared", tokens, "")


def add(report: Report, case: str, metric: str, seconds: Sequence[float]) -> float:
    """Adds median and 99th percentile; returns the median in seconds."""
    for name, q in (("p50", 0.5), ("p99", 0.99)):
        report.add(case, f"{metric} {name}", quantile(seconds, q) * 1e6, "us")
    return quantile(seconds, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="8B", choices=list(SHAPES))
    parser.add_argument("--sidecar", default="0.6B", choices=list(SHAPES))
    parser.add_argument("--prompt", type=int, default=600)
    parser.add_argument("--slots", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=8)
    smem = "KiB of shared memory that its products take; 0: all"
    parser.add_argument("--target-smem", type=int, default=0, help=smem)
    parser.add_argument("--sidecar-smem", type=int, default=0, help=smem)
    parser.add_argument("--repeats", type=int, default=20)
    args = parse_args(__doc__ or "", parser)
    device, dtype = "cuda", torch.bfloat16
    if args.smoke:
        device, dtype, args.target, args.sidecar = "cpu", torch.float32, "tiny", "tiny"
        args.prompt, args.slots, args.steps, args.rounds, args.repeats = 70, 4, 2, 1, 1
    elif not torch.cuda.is_available():
        sys.exit("bench_colocation: expected a CUDA device, got none; --smoke shows that it runs")
    report = Report("colocation", args)
    bandwidth = copy_bandwidth(device)
    report.add("device-to-device copy, read + written", "bandwidth", bandwidth / 1e9, "GB/s")
    bench(report, args, device, dtype)
    report.finish()


if __name__ == "__main__":
    main()
