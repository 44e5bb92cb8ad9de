# SPDX-License-Identifier: Apache-2.0
"""What benches of kernels share: checked providers, the clock of the GPU, and its measured peaks.

A call is timed inside a CUDA graph. Cold: what is read in between leaves nothing of it in the L2;
the time of that reading, measured alone, is taken off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from _harness import Report, quantile

CALLS = 20  # in a graph
REPLAYS = 15
FLUSH_BYTES = 256 << 20


@dataclass(frozen=True)
class Provider:
    """One way to compute a thing. run: returns its result. missing: why there is none."""

    name: str
    run: Callable[[], torch.Tensor] | None = None
    missing: str = ""


@dataclass(frozen=True)
class Peaks:
    """Bytes a second, read and written, of a copy; operations a second of a bfloat16 product."""

    copy: float
    product: float

    def floor_us(self, num_bytes: float, num_flops: float) -> float:
        """Returns the time below which nothing that reads and computes so much can go."""
        return max(num_bytes / self.copy, num_flops / self.product) * 1e6


def graph_times(*calls: Callable[[], object], num_calls: int = CALLS) -> list[float]:
    """Returns the microseconds of each replay of a graph of `calls`, over `num_calls`."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(num_calls):
            for call in calls:
                call()
    times = []
    for _ in range(REPLAYS + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / num_calls)
    return times[2:]


def _event_times(call: Callable[[], object]) -> list[float]:
    """Returns the microseconds of calls outside a graph, where a copy is a kernel."""
    times = []
    for _ in range(REPLAYS + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000)
    return times[2:]


class Clock:
    """Times calls with a cold or a warm L2."""

    def __init__(self) -> None:
        self._read = torch.ones(FLUSH_BYTES // 4, device="cuda")
        self._sum = torch.empty((), device="cuda")
        self._flush_us = quantile(graph_times(self._flush), 0.5)

    def _flush(self) -> None:
        torch.sum(self._read, dim=0, out=self._sum)

    def times(self, call: Callable[[], object], *, cold: bool) -> list[float]:
        """Returns microseconds of a call."""
        if not cold:
            return graph_times(call)
        return [time - self._flush_us for time in graph_times(self._flush, call)]


def measure_peaks(report: Report) -> Peaks:
    """Measures and reports what this GPU reaches now."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy_us = quantile(_event_times(lambda: target.copy_(source)), 0.5)
    a, b, out = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    product_us = quantile(graph_times(lambda: torch.mm(a, b, out=out), num_calls=2), 0.5)
    peaks = Peaks(2 * len(source) / copy_us * 1e6, 2 * 8192**3 / product_us * 1e6)
    report.add("device-to-device copy, read + written", "bandwidth", peaks.copy / 1e9, "GB/s")
    report.add("bfloat16 product of 8192 x 8192 x 8192", "rate", peaks.product / 1e12, "TFLOP/s")
    return peaks


def check(provider: Provider, expected: torch.Tensor, limit: float) -> None:
    """Raises RuntimeError unless the provider's result is `expected` but for a relative error."""
    assert provider.run is not None
    provider.run().fill_(torch.nan)  # if it is the same memory next time, all must be written
    got = provider.run()
    error = (got.double() - expected.to(got.device)).norm() / expected.norm()
    if not float(error) <= limit:
        raise RuntimeError(
            f"{provider.name}: expected a relative error of {limit}, got {float(error)}"
        )


def bench_providers(
    report: Report,
    case: str,
    providers: Sequence[Provider],
    clock: Clock,
    peaks: Peaks,
    *,
    num_bytes: float,
    num_flops: float = 0,
) -> None:
    """Times the providers of a case, which are checked; the first that is there is the baseline."""
    floor_us = peaks.floor_us(num_bytes, num_flops)
    report.add(case, "floor", floor_us, "us")
    baseline_us = 0.0
    for provider in providers:
        if provider.run is None:
            report.add(f"{case}, {provider.name}", f"missing: {provider.missing}", 1, "")
            continue
        for mode in ("cold", "warm"):
            times = clock.times(provider.run, cold=mode == "cold")
            name = f"{case}, {provider.name}, {mode} L2"
            for metric, q in (("p50", 0.5), ("p20", 0.2), ("p80", 0.8)):
                report.add(name, metric, quantile(times, q), "us")
            if mode == "warm":
                continue
            time_us = quantile(times, 0.5)
            baseline_us = baseline_us or time_us
            report.add(name, "bandwidth", num_bytes / time_us / 1000, "GB/s")
            report.add(name, "of floor", floor_us / time_us * 100, "%")
            report.add(name, "speedup", baseline_us / time_us, "x baseline")
