# SPDX-License-Identifier: Apache-2.0
"""Attention of a draft tree over paged keys and values, next to what others offer for it.

Random trees, pages shuffled, inside a CUDA graph. `floor` is the larger of two times: all keys and
values read once at the speed of a copy, and the operations of all rows over all they see at the
speed of a large product, both measured in this run. Planning, once a round, has rows of its own.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
import torch

from _attention_peers import peers
from _gpu import Clock, Peaks, Provider, bench_providers, check, measure_peaks
from _harness import Report, parse_args
from ooospec import ops

PAGE = 64
SHAPES = {  # query heads, kv heads, head dim
    "8B": (32, 8, 128),  # Qwen3-8B, Llama-3.1-8B
    "7B": (28, 4, 128),  # Qwen2.5-7B
    "1.5B": (12, 2, 128),  # Qwen2.5-1.5B
    "0.6B": (16, 8, 128),  # Qwen3-0.6B
    "0.5B": (14, 2, 64),  # Qwen2.5-0.5B
}
LENGTHS = (512, 1024, 2048, 8192, 32768)
SWEEP: dict[str, dict[str, Any]] = {  # tilings other than the shape's own
    "programs start in turn": {"pdl": False},
    "tiles of 32 rows": {"tile_rows": 32, "max_splits": 16},
    "tiles of 32 rows, 8 warps": {"tile_rows": 32, "head_warps": 8, "num_programs": 132},
    "16 splits": {"max_splits": 16},
    "4 splits": {"max_splits": 4},
    "few splits up to 512 positions each": {"enough_blocks": 8},
    "many splits": {"few_splits": 16},
    "3 stages": {"head_stages": 3},
    "tiles of 32 queries": {"tile_rows": 8},
    "tail of 1 warp": {"tail_warps": 1},
    "tail of 2 warps": {"tail_warps": 2},
}


class Rows:
    """Trees of `sizes` rows behind `lengths` committed tokens, the first `shared` in one place."""

    def __init__(
        self, lengths: list[int], sizes: list[int], device: str, seed: int, shared: int = 0
    ) -> None:
        random = np.random.default_rng(seed)
        need = [-(-(n + size) // PAGE) for n, size in zip(lengths, sizes, strict=True)]
        self.num_pages = sum(need) + 1
        order = random.permutation(self.num_pages - 1).astype(np.int32)
        table = np.zeros((len(lengths), max(need)), np.int32)
        positions, sequences, slots, masks = [], [], [], []
        for index, (length, size) in enumerate(zip(lengths, sizes, strict=True)):
            table[index, : need[index]] = order[sum(need[:index]) :][: need[index]]
            table[index, : shared // PAGE] = table[0, : shared // PAGE]
            first = len(positions)
            depths: list[int] = []
            for row in range(size):
                parent = row - 1 if random.random() < 0.7 else int(random.integers(max(1, row)))
                depths.append(depths[parent] + 1 if row else 0)
                masks.append(1 << (first + row) | (masks[first + parent] if row else 0))
                positions.append(length + depths[row])
                sequences.append(index)
                slots.append(table[index, (length + row) // PAGE] * PAGE + (length + row) % PAGE)

        def tensor(numbers: Any, dtype: Any) -> torch.Tensor:
            return torch.from_numpy(np.array(numbers, dtype=dtype)).to(device)

        self.positions, self.sequences = tensor(positions, np.int32), tensor(sequences, np.int32)
        self.slots, self.page_table = tensor(slots, np.int64), tensor(table, np.int32)
        self.mask = tensor(masks, np.uint64).view(torch.int64)
        self.lengths = tensor(lengths, np.int32)
        self.leaders = torch.zeros_like(self.lengths)
        self.num_shared = torch.full_like(self.lengths, shared)

    def visible(self) -> torch.Tensor:
        """Returns bool[N, tokens + N] of a single sequence."""
        columns = torch.arange(len(self.positions), device=self.mask.device)
        own = (self.mask[:, None] >> columns) & 1 == 1
        committed = own.new_ones((len(own), int(self.lengths[0])))
        return torch.cat((committed, own), dim=1)


class Tensors:
    """Random queries, keys and values of a launch."""

    def __init__(self, rows: Rows, shape: tuple[int, int, int], device: str, dtype: Any) -> None:
        num_heads, num_kv_heads, dim = shape
        size = (rows.num_pages * PAGE, num_kv_heads, dim)
        self.rows, self.shape, self.scale = rows, shape, dim**-0.5
        self.keys, self.values = (torch.randn(size, device=device).to(dtype) for _ in range(2))
        self.q = torch.randn(len(rows.positions), num_heads, dim, device=device).to(dtype)

    def provider(self, name: str, **options: Any) -> Provider:
        """Returns tree_attention with a plan of its own, made here."""
        plan = ops.TreePlan(self.rows, *self.shape, **options)
        ops.tail_slots(plan)
        out = torch.empty_like(self.q)

        def run() -> torch.Tensor:
            ops.tree_attention(self.q, self.keys, self.values, plan, out, self.scale)
            return out

        return Provider(name, run)

    def expected(self) -> torch.Tensor:
        out = torch.empty(self.q.shape, dtype=torch.float64, device=self.q.device)
        with ops.using("reference"):
            plan = ops.TreePlan(self.rows, *self.shape)
            tensors = (self.q.double(), self.keys.double(), self.values.double())
            ops.tree_attention(*tensors, plan, out, self.scale)
        return out

    def check(self, providers: list[Provider]) -> None:
        expected = self.expected()
        for provider in providers:
            if provider.run is not None:
                check(provider, expected, 1e-5 if self.q.dtype == torch.float32 else 8e-3)

    def cost(self, num_tokens: int) -> dict[str, float]:
        """Returns the bytes of `num_tokens` keys and values, and the operations of all rows."""
        num_heads, num_kv_heads, dim = self.shape
        num_bytes = 2 * num_tokens * num_kv_heads * dim * self.keys.element_size()
        num_seen = int(self.rows.positions.sum()) + len(self.rows.positions)
        return {"num_bytes": num_bytes, "num_flops": 4 * num_seen * num_heads * dim}


def bench_trees(report: Report, clock: Clock, peaks: Peaks, args: Any) -> None:
    """One tree of 64 rows, and plain decoding, at each shape and length."""
    for name, shape in SHAPES.items():
        for length in LENGTHS if name == "8B" else LENGTHS[1:4:2]:
            rows = Rows([length], [64], "cuda", args.seed)
            tensors = Tensors(rows, shape, "cuda", torch.bfloat16)
            providers = [tensors.provider("ooospec")]
            if name == "8B":
                inputs = (tensors.q, tensors.keys, tensors.values, rows.page_table[0])
                providers = [*peers(*inputs, rows.visible(), tensors.scale), *providers]
            if args.sweep:
                providers += [tensors.provider(key, **tiling) for key, tiling in SWEEP.items()]
            case = f"{name}, 64 rows, {length} cached"
            tensors.check(providers)
            cost = tensors.cost(length + 64)
            bench_providers(report, case, providers, clock, peaks, **cost)


def bench_wave(report: Report, clock: Clock, peaks: Peaks, args: Any) -> None:
    """32 branches of one prefix, a row each, told of it or not."""
    random = np.random.default_rng(args.seed)
    lengths = [int(n) for n in random.integers(610, 660, 32)]
    rows = Rows(lengths, [1] * 32, "cuda", args.seed, shared=576)
    tensors = Tensors(rows, SHAPES["0.6B"], "cuda", torch.bfloat16)
    family = {"leaders": rows.leaders, "num_shared": rows.num_shared}
    providers = [tensors.provider("ooospec, apart"), tensors.provider("ooospec", **family)]
    case = "0.6B, 32 branches of 576 shared tokens"
    cost = tensors.cost(576 + sum(lengths) - 32 * 576)
    tensors.check(providers)
    bench_providers(report, case, providers, clock, peaks, **cost)


def bench_plan(report: Report, clock: Clock, args: Any) -> None:
    """What is done once a round."""
    rows = Rows([1024], [64], "cuda", args.seed)
    plan = ops.TreePlan(rows, *SHAPES["8B"])
    for cold in (True, False):
        times = clock.times(lambda: ops.tail_slots(plan), cold=cold)
        case = f"plan of a round, {'cold' if cold else 'warm'} L2"
        report.add(case, "p50", sorted(times)[len(times) // 2], "us")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweep", action="store_true", help="time other tilings too")
    args = parse_args(__doc__ or "", parser)
    torch.manual_seed(args.seed)
    if args.smoke or not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")
        report = Report("tree_attention", args)
        tensors = Tensors(Rows([150], [5], "cpu", args.seed), (4, 1, 16), "cpu", torch.float32)
        tensors.check([tensors.provider("interpreted")])
        report.add("tiny tree agreed", "rows", len(tensors.q), "")
        report.finish()
        return
    report = Report("tree_attention", args)
    peaks, clock = measure_peaks(report), Clock()
    bench_trees(report, clock, peaks, args)
    bench_wave(report, clock, peaks, args)
    bench_plan(report, clock, args)
    report.finish()


if __name__ == "__main__":
    main()
