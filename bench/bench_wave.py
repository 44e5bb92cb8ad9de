# SPDX-License-Identifier: Apache-2.0
"""Time and memory of a wave on a GPU of its own: prompt in, every slot's answer out.

The clock is the host's. Random weights in the shape of a real sidecar; prompts are new, so that no
prefix is cached, except where it says warm. Steps are the launches without questions.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from typing import Any

import torch

from _harness import Report, parse_args, quantile
from _waves import STANDING, chosen_stop, make_prompt, make_runner, run_wave, with_answers
from bench_round import SHAPES, copy_bandwidth, random_model
from ooospec import HintRing
from ooospec.sidecar.graph_wave import GraphWaveRunner
from ooospec.sidecar.wave import WaveReport


def bench_case(
    report: Report,
    runner: GraphWaveRunner,
    num_tokens: int,
    num_slots: int,
    args: Any,
    *,
    stand: bool = False,
) -> None:
    """Adds the rows of waves over `num_slots` slots behind new prompts, and behind a cached one.

    stand: the answers are tokens that stand in the prompt, as most values of requests do.
    """
    rng, ring, vocab = random.Random(args.seed), HintRing(), runner.backend.decodable
    prompts = [make_prompt(num_tokens, num_slots, vocab, rng) for _ in range(args.repeats)]
    if stand:
        prompts = [with_answers(prompt, runner.max_value_tokens, rng) for prompt in prompts]
    for prompt in prompts[:2]:
        run_wave(runner, prompt, ring)
    runner.prefixes.clear()
    case = f"{num_slots} slots, {num_tokens} tokens, {runner.max_value_tokens} steps"
    case += STANDING if stand else ""
    add_rows(report, case, [run_wave(runner, prompt, ring) for prompt in prompts])
    run_wave(runner, prompts[0], ring)
    warm = [run_wave(runner, prompts[0], ring) for _ in prompts]
    add_times(report, f"{case}, warm prefix", "wave", [r.stop - r.start for r in warm])


def add_rows(report: Report, case: str, waves: Sequence[WaveReport]) -> None:
    add_times(report, case, "wave", [r.stop - r.start for r in waves])
    add_times(report, case, "first hint", [r.answers[0].time - r.start for r in waves])
    add_times(report, case, "chosen values", [chosen_stop(r) - r.start for r in waves])
    num_steps = waves[0].steps
    report.add(case, "launches", len(num_steps), "")
    widest = waves[0].steps[-3].num_rows
    steps = [s for r in waves for s in r.steps[-5:] if s.num_rows == widest]
    add_times(report, case, f"step, {widest} rows", [s.stop - s.start for s in steps])
    chunks = [s for r in waves for s in r.steps if s.num_rows > 64]
    if chunks:
        add_times(report, case, "chunk of prefill", [s.stop - s.start for s in chunks])


def add_times(report: Report, case: str, metric: str, seconds: Sequence[float]) -> None:
    for name, q in (("p50", 0.5), ("p99", 0.99)):
        report.add(case, f"{metric} {name}", quantile(seconds, q) * 1e6, "us")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="0.6B", choices=list(SHAPES))
    parser.add_argument("--slots", nargs="+", type=int, default=[20, 32, 100, 400])
    parser.add_argument("--prompt", nargs="+", type=int, default=[600, 4096])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=30)
    args = parse_args(__doc__ or "", parser)
    device, dtype = "cuda", torch.bfloat16
    if args.smoke:
        device, dtype, args.shape = "cpu", torch.float32, "tiny"
        args.slots, args.prompt, args.steps, args.repeats = [4], [70], 2, 1
    elif not torch.cuda.is_available():
        sys.exit("bench_wave: expected a CUDA device, got none; --smoke shows that it runs")
    report = Report("wave", args)
    bandwidth = copy_bandwidth(device)
    report.add("device-to-device copy, read + written", "bandwidth", bandwidth / 1e9, "GB/s")
    model = random_model(args.shape, device, dtype)
    num_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    report.add(
        f"{args.shape} all weights at copy speed", "floor", num_bytes / bandwidth * 1e6, "us"
    )
    runner = make_runner(model, args.steps)
    for num_tokens in args.prompt:
        for num_slots in args.slots:
            bench_case(report, runner, num_tokens, num_slots, args)
    bench_case(report, runner, args.prompt[0], args.slots[0], args, stand=True)
    if device == "cuda":
        kv = sum(block.numel() * block.element_size() for block in runner.pool.blocks)
        rest = torch.cuda.max_memory_allocated() - num_bytes - kv
        for name, size in (("weights", num_bytes), ("KV cache", kv), ("rest", rest)):
            report.add(f"{args.shape} sidecar", f"memory, {name}", size / 1e9, "GB")
    report.finish()


if __name__ == "__main__":
    main()
