# SPDX-License-Identifier: Apache-2.0
"""Time of one round of the target on a GPU, against the time to copy its weights once.

The clock is the host's: from writing the rows to having read the accepted ids. Random weights in
the shapes of real models; branches share the pages of the answer that they leave. `x floor` is the
time over that of copying as many bytes as the weights have, at the copy bandwidth measured in this
run.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import time
from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any

import torch
import transformers

from _harness import Report, parse_args, quantile
from ooospec.backends.base import Ask
from ooospec.backends.fused import FusedBackend
from ooospec.kv import Sequence
from ooospec.rows import Rows
from ooospec.sampling import Chooser, SamplingParams

BRANCHES, BRANCH_ROWS = 4, 6  # that ride beside an answer's rows

SHAPES: dict[str, dict[str, Any]] = {
    "8B": {  # Qwen3-8B
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
    },
    "0.6B": {  # Qwen3-0.6B
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 300,
    },
}


def random_model(shape: str, device: str, dtype: torch.dtype, **changes: Any) -> Any:
    """Returns a Qwen3 model of that shape, but for `changes`, with random weights."""
    config = transformers.Qwen3Config(
        **{**SHAPES[shape], **changes},
        max_position_embeddings=40960,
        tie_word_embeddings=False,
        eos_token_id=0,
        bos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(0)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def copy_bandwidth(device: str) -> float:
    """Returns the bytes a second of a device-to-device copy, read and written, median of 20."""
    size = 2 << 30 if device == "cuda" else 1 << 20
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    times = []
    for _ in range(25):
        synchronize(device)
        start = time.perf_counter()
        target.copy_(source)
        synchronize(device)
        times.append(time.perf_counter() - start)
    return 2 * size / quantile(times[5:], 0.5)


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def random_rows(num_rows: int, vocab: int, rng: random.Random) -> Rows:
    """Returns a random tree."""
    tokens = [rng.randrange(vocab) for _ in range(num_rows)]
    parents, depths, masks = [-1], [0], [1]
    for row in range(1, num_rows):
        parents.append(rng.randrange(max(0, row - 8), row))
        depths.append(depths[parents[row]] + 1)
        masks.append(masks[parents[row]] | 1 << row)
    return Rows.of(tokens, parents, depths, [1] * num_rows, masks, list(range(num_rows)), num_rows)


def bench_shape(report: Report, shape: str, args: Any, bandwidth: float) -> None:
    device = args.device
    backend = FusedBackend(random_model(shape, device, args.dtype))
    num_bytes = sum(p.numel() * p.element_size() for p in backend.model.parameters())
    floor_us = num_bytes / bandwidth * 1e6
    report.add(f"{shape} all weights at copy speed", "floor", floor_us, "us")
    read_us = backend.weights.num_round_bytes / bandwidth * 1e6
    report.add(f"{shape} all weights but the embedding", "floor", read_us, "us")
    rng = random.Random(args.seed)
    chooser = Chooser(SamplingParams(seed=0), backend.decodable, backend.eos_ids)
    for cached in args.cached:
        sequence = Sequence(backend.new_pool(cached + 1024))
        sequence.reserve(cached + 512)
        prompt = [rng.randrange(backend.decodable) for _ in range(cached)]
        backend.prefill(sequence, prompt)
        for num_rows in (1, 64):
            rows = random_rows(num_rows, backend.decodable, rng)
            run = functools.partial(one_round, backend, sequence, cached, rows, chooser)
            case = f"{shape} round, {num_rows} rows, {cached} cached"
            alone_us = add(report, case, run, args.repeats, floor_us)
        sequence.length = cached
        rows = random_rows(64 - BRANCHES * BRANCH_ROWS, backend.decodable, rng)
        riders = []
        for _ in range(BRANCHES):
            fork = sequence.fork(cached + BRANCH_ROWS)
            own = random_rows(BRANCH_ROWS, backend.decodable, rng)
            riders.append(Ask(fork, own, chooser, 0, False))
        run = functools.partial(one_round, backend, sequence, cached, rows, chooser, riders)
        case = f"{shape} round, {len(rows)} rows and {BRANCHES} branches of {BRANCH_ROWS}"
        case += f", {cached} cached"
        us = add(report, case, run, args.repeats, floor_us)
        report.add(case, "x the round of 64 rows", us / alone_us, "x")
        for one in (sequence, *(rider.sequence for rider in riders)):
            one.release()
        if cached == max(args.cached) and cached >= args.prompt:
            sequence.reserve(args.prompt)
            run = functools.partial(first_token, backend, sequence, prompt[: args.prompt])
            case = f"{shape} prefill of {args.prompt} tokens to the first token"
            add(report, case, run, max(5, args.repeats // 20), floor_us)
    backend.close()


def one_round(
    backend: FusedBackend,
    sequence: Sequence,
    cached: int,
    rows: Rows,
    chooser: Chooser,
    riders: Seq[Ask] = (),
) -> None:
    """Verifies `rows`, and those of `riders` beside them, and keeps what is accepted."""
    sequence.length = cached
    for rider in riders:
        rider.sequence.length = cached
    verdict = backend.verify(sequence, rows, chooser, 1, top8=len(rows) > 1, riders=riders)
    sequence.keep(range(len(verdict.path)) if verdict.compacted else verdict.path)
    for rider, ridden in zip(riders, verdict.riders, strict=True):
        if isinstance(ridden, RuntimeError):
            raise ridden
        rider.sequence.keep(range(len(ridden.path)) if ridden.compacted else ridden.path)


def first_token(backend: FusedBackend, sequence: Sequence, prompt: list[int]) -> None:
    sequence.length = 0
    int(backend.prefill(sequence, prompt).argmax())


def add(report: Report, case: str, run: Callable[[], None], repeats: int, floor_us: float) -> float:
    """Adds median and p99 of the host's clock around `run`, and the median over the floor; returns
    the median, in microseconds.
    """
    for _ in range(5):
        run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - start)
    report.add_times(case, times)
    median_us = quantile(times, 0.5) / 1000
    report.add(case, "x floor", median_us / floor_us, "x")
    return median_us


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", nargs="+", default=["8B", "0.6B"], choices=list(SHAPES))
    parser.add_argument("--cached", nargs="+", type=int, default=[1024, 8192])
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--prompt", type=int, default=600)
    args = parse_args(__doc__ or "", parser)
    args.device, args.dtype = "cuda", torch.bfloat16
    if args.smoke:
        args.device, args.dtype = "cpu", torch.float32
        args.shapes, args.cached, args.repeats, args.prompt = ["tiny"], [70], 2, 60
    elif not torch.cuda.is_available():
        sys.exit("bench_round: expected a CUDA device, got none; --smoke shows that it runs")
    report = Report("round", args)
    bandwidth = copy_bandwidth(args.device)
    report.add("device-to-device copy, read + written", "bandwidth", bandwidth / 1e9, "GB/s")
    for shape in args.shapes:
        bench_shape(report, shape, args, bandwidth)
    report.finish()


if __name__ == "__main__":
    main()
