# SPDX-License-Identifier: Apache-2.0
"""Products of a round: ops.linear against cuBLAS, each alone and as the chain of all layers.

Every product runs inside a CUDA graph over enough different weights that the L2 holds none of the
next; x and out are the same. `of copy` is the bandwidth of the weights over that of a copy, read
and written, measured in this run. cuBLAS is torch.mm; where a product is fused with SwiGLU, cuBLAS
does the product alone.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from _harness import Report, parse_args, quantile
from ooospec import ops

# hidden size, outputs of qkv, inputs of o, inner size, layers, vocabulary
MODELS = {
    "qwen2.5-0.5b": (896, 1152, 896, 4864, 24, 151936),
    "qwen2.5-1.5b": (1536, 2048, 1536, 8960, 28, 151936),
    "qwen2.5-7b": (3584, 4608, 3584, 18944, 28, 152064),
    "qwen3-0.6b": (1024, 4096, 2048, 3072, 28, 151936),
    "qwen3-4b": (2560, 6144, 4096, 9728, 36, 151936),
    "qwen3-8b": (4096, 6144, 4096, 12288, 36, 151936),
    "qwen3-32b": (5120, 10240, 8192, 25600, 64, 151936),
    "llama3-8b": (4096, 6144, 4096, 14336, 32, 128256),
}
TINY = (64, 96, 64, 128, 2, 320)
NUM_ROWS = 64
POOL_BYTES = 8 << 30


def graph_us(run: Callable[[], None], num_replays: int = 9) -> float:
    """Returns the median time of a replay of `run` as a graph, after one more."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    graph.replay()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(num_replays + 1)]
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize()
    times = [before.elapsed_time(mark) for before, mark in pairwise(marks)]
    return quantile(times, 0.5) * 1000


class Weights:
    """Matrices cut out of one block of random numbers, one behind the other, then anew."""

    def __init__(self, num_bytes: int, device: str) -> None:
        self._pool = torch.empty(num_bytes // 2, dtype=torch.bfloat16, device=device)
        self._pool.normal_(0, 0.02)
        self._used = 0

    def take(self, rows: int, cols: int) -> torch.Tensor:
        if self._used + rows * cols > len(self._pool):
            self._used = 0
        matrix = self._pool[self._used : self._used + rows * cols].view(rows, cols)
        self._used += rows * cols
        return matrix


class Chain:
    """The products of a model's layers and its head, without what lies between them."""

    def __init__(self, shape: tuple[int, ...], weights: Weights, device: str) -> None:
        hidden, qkv, attended, inner, num_layers, vocab = shape
        sizes = {
            "qkv": (qkv, hidden),
            "o": (hidden, attended),
            "gate_up": (2 * inner, hidden),
            "down": (hidden, inner),
        }
        self.layers = [
            {name: weights.take(*size) for name, size in sizes.items()} for _ in range(num_layers)
        ]
        self.head = weights.take(vocab, hidden)
        self.num_bytes = 2 * (num_layers * sum(m * k for m, k in sizes.values()) + vocab * hidden)

        def rows(width: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
            return torch.randn(NUM_ROWS, width, device=device).to(dtype)

        self.inputs = {"qkv": rows(hidden), "o": rows(attended), "gate_up": rows(hidden)}
        self.inputs |= {"down": rows(inner), "head": rows(hidden)}
        self.outputs = {"qkv": rows(qkv), "o": rows(hidden), "gate_up": rows(inner)}
        self.outputs |= {"down": rows(hidden), "head": rows(vocab, torch.float32)}
        self.gate_up = rows(2 * inner)

    def product(self, name: str, weight: torch.Tensor, provider: str) -> None:
        x, out = self.inputs[name], self.outputs[name]
        if provider == "ooospec":
            (ops.linear_swiglu if name == "gate_up" else ops.linear)(x, weight, out)
        elif name == "head":
            torch.mm(x, weight.t(), out_dtype=torch.float32, out=out)
        else:
            torch.mm(x, weight.t(), out=self.gate_up if name == "gate_up" else out)

    def check(self, name: str, weight: torch.Tensor) -> None:
        """Raises AssertionError unless both providers agree with float32."""
        exact = self.inputs[name].float() @ weight.float().t()
        for provider in ("cublas", "ooospec"):
            self.outputs[name].fill_(torch.nan)
            self.product(name, weight, provider)
            got, expected = self.outputs[name], exact
            if name == "gate_up" and provider == "cublas":
                got = self.gate_up
            elif name == "gate_up":
                gate, up = exact.chunk(2, dim=1)
                expected = torch.nn.functional.silu(gate) * up
            error = (got.float() - expected).norm() / expected.norm()
            assert error < 4e-3, f"{provider} {name}: {error}"

    def run(self, provider: str) -> None:
        for layer in self.layers:
            for name, weight in layer.items():
                self.product(name, weight, provider)
        self.product("head", self.head, provider)


def copy_bandwidth(pool: torch.Tensor) -> float:
    """Returns the bytes a second of a copy within `pool`, read and written."""
    half = len(pool) // 2
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(12):
        start.record()
        pool[:half].copy_(pool[half : 2 * half])
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return 2 * pool[:half].nbytes / quantile(times[2:], 0.5) * 1000


def bench_model(report: Report, name: str, weights: Weights, copy: float) -> None:
    chain = Chain(MODELS[name], weights, "cuda")
    torch.cuda.synchronize()
    products = {key: [layer[key] for layer in chain.layers] for key in chain.layers[0]}
    products["head"] = [chain.head]
    for key, matrices in products.items():
        chain.check(key, matrices[0])
        some = matrices[: max(2, -(-(1 << 30) // matrices[0].nbytes))]
        for provider in ("cublas", "ooospec"):

            def run(key: str = key, some: Any = some, provider: str = provider) -> None:
                for matrix in some:
                    chain.product(key, matrix, provider)

            time_us = graph_us(run) / len(some)
            case = f"{name} {key} {provider}"
            report.add(case, "time", time_us, "us")
            report.add(case, "of copy", some[0].nbytes / time_us * 1e6 / copy * 100, "%")
    for provider in ("cublas", "ooospec"):
        time_us = graph_us(lambda provider=provider: chain.run(provider))  # type: ignore[misc]
        report.add(f"{name} all {provider}", "time", time_us, "us")
        report.add(
            f"{name} all {provider}", "of copy", chain.num_bytes / time_us * 1e6 / copy * 100, "%"
        )


def main() -> None:
    args = parse_args(__doc__ or "")
    torch.manual_seed(args.seed)
    report = Report("linear", args)
    if args.smoke or not torch.cuda.is_available():
        chain = Chain(TINY, Weights(1 << 20, "cpu"), "cpu")
        for _ in range(2):
            chain.run("ooospec")
        report.add("tiny chain ran", "products", 4 * len(chain.layers) + 1, "")
        report.finish()
        return
    weights = Weights(POOL_BYTES, "cuda")
    copy = copy_bandwidth(weights.take(POOL_BYTES // 4, 1).flatten())
    report.add(torch.cuda.get_device_name() + " copy", "bandwidth", copy / 1e9, "GB/s")
    for name in MODELS:
        bench_model(report, name, weights, copy)
    report.finish()


if __name__ == "__main__":
    main()
