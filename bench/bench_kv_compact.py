# SPDX-License-Identifier: Apache-2.0
"""Moving an accepted path's keys and values of all layers, against torch indexing.

Inside a CUDA graph, pages shuffled. Bytes are those read and written.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from _gpu import Clock, Provider, bench_providers, check, measure_peaks
from _harness import Report, parse_args
from ooospec import ops

SHAPES = {  # layers, kv heads, head dim
    "8B": (36, 8, 128),
    "0.6B": (28, 8, 128),
    "0.5B": (24, 2, 64),
}


class Pool:
    """Keys and values of all layers, and moves of a path of `num_moves` rows among 64."""

    def __init__(self, shape: tuple[int, int, int], num_moves: int, device: str) -> None:
        num_layers, num_heads, dim = shape
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        size = (2, num_layers, 64 * 64, num_heads, dim)
        self.cached = torch.randn(size, device=device).to(dtype)
        slots = torch.randperm(64, device=device)[:2, None] * 64 + torch.arange(64, device=device)
        rows = torch.randperm(64, device=device)[:num_moves].sort().values
        self.sources, self.targets = torch.zeros(2, 64, dtype=torch.int64, device=device)
        self.sources[:num_moves] = slots.flatten()[30 + rows]
        self.targets[:num_moves] = slots.flatten()[30 : 30 + num_moves]
        self.count = torch.tensor([num_moves], dtype=torch.int32, device=device)
        self.num_moves = num_moves
        self.num_bytes = 2 * num_moves * self.cached[:, :, 0].nbytes

    def kernel(self) -> torch.Tensor:
        ops.kv_compact(*self.cached, self.sources, self.targets, self.count)
        return self.cached

    def index(self) -> torch.Tensor:
        moved = self.cached.index_select(2, self.sources[: self.num_moves])
        return self.cached.index_copy_(2, self.targets[: self.num_moves], moved)

    def providers(self) -> list[Provider]:
        """Returns both ways, which go on from what earlier moves left, once each is checked."""
        before = self.cached.clone()
        expected = before.double()
        expected[:, :, self.targets[: self.num_moves]] = expected[
            :, :, self.sources[: self.num_moves]
        ]
        providers = [Provider("index_copy", self.index), Provider("ooospec", self.kernel)]
        for provider in providers:

            def anew(move: Any = provider.run) -> torch.Tensor:
                self.cached.copy_(before)
                return move()

            check(Provider(provider.name, anew), expected, 0)
        return providers


def main() -> None:
    args = parse_args(__doc__ or "")
    torch.manual_seed(args.seed)
    if args.smoke or not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")
        report = Report("kv_compact", args)
        Pool((2, 1, 16), 5, "cpu").providers()
        report.add("tiny path moved", "rows", 5, "")
        report.finish()
        return
    report = Report("kv_compact", args)
    peaks, clock = measure_peaks(report), Clock()
    for name, shape in SHAPES.items():
        for num_moves in (1, 16, 64):
            pool = Pool(shape, num_moves, "cuda")
            case = f"{name}, {shape[0]} layers, path of {num_moves}"
            bench_providers(report, case, pool.providers(), clock, peaks, num_bytes=pool.num_bytes)
    report.finish()


if __name__ == "__main__":
    main()
