# SPDX-License-Identifier: Apache-2.0
"""From records to the numbers of a table: speed-ups with intervals, rounds, latency, rightness."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ooospec.bench.records import Record

NUM_BOOTSTRAP = 2000
ALL = "all"
PLAIN = "ar"


class Ratio(NamedTuple):
    """A ratio of sums over the same requests, and its paired 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def bootstrap_ratio(
    above: Seq[float], below: Seq[float], seed: int, num_drawn: int = NUM_BOOTSTRAP
) -> Ratio:
    """Returns sum(above) / sum(below) with its interval. Raises ValueError for no requests."""
    if not above or len(above) != len(below):
        raise ValueError(
            f"bootstrap: expected two lists of one length above 0, got {len(above)}, {len(below)}"
        )
    one, other = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(len(one), size=(num_drawn, len(one)))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = one[drawn].sum(axis=1) / other[drawn].sum(axis=1)
        value = one.sum() / other.sum()
    low, high = np.nanpercentile(ratios, (2.5, 97.5)) if np.isfinite(value) else (value, value)
    return Ratio(float(value), float(low), float(high))


@dataclass(frozen=True)
class Cell:
    """What one method made of one file of requests on one target.

    decode, total: how many times as fast as `ar` after the first token, and from arrival to the
    last one. rate: tokens a round; call_rate: of the call. Shares are None without references.
    """

    target: str
    file: str
    method: str
    num_requests: int
    num_equal: int
    decode: Ratio
    total: Ratio
    rate: float
    call_rate: float | None
    p50_ms: float
    p95_ms: float
    first_p50_ms: float
    parses: float | None
    function: float | None
    arguments: float | None


def summarise(records: Seq[Record], seed: int = 0) -> list[Cell]:
    """Returns a cell for each target, file and method, and over all files where there are several.

    Records come by request; a request of which `ar` is missing does not count.
    """
    cells: list[Cell] = []
    for target in dict.fromkeys(record.target for record in records):
        own = [record for record in records if record.target == target]
        files = [*dict.fromkeys(record.file for record in own)]
        groups = {file: [record for record in own if record.file == file] for file in files}
        if len(files) > 1:
            groups[ALL] = own
        for file, group in groups.items():
            plain = {(r.file, r.request): r for r in group if r.method == PLAIN}
            for method in dict.fromkeys(record.method for record in group):
                ours = [r for r in group if r.method == method and (r.file, r.request) in plain]
                if ours:
                    beside = [plain[r.file, r.request] for r in ours]
                    cells.append(_cell(target, file, method, ours, beside, seed))
    return cells


def _cell(
    target: str, file: str, method: str, ours: Seq[Record], plain: Seq[Record], seed: int
) -> Cell:
    num_rounds = sum(len(record.rounds) for record in ours)
    num_committed = sum(len(record.token_ids) - 1 for record in ours)
    counted = [r for r in ours if r.call_rounds is not None and r.call_tokens is not None]
    call_rounds = sum(r.call_rounds or 0 for r in counted)
    judged = [r for r in ours if r.parses is not None]
    arguments = [r.arguments for r in judged if r.arguments is not None]
    num_arguments = sum(total for _, total in arguments)
    last_ms: npt.NDArray[np.float64] = np.array([1000 * record.last for record in ours])
    p50_ms, p95_ms = np.percentile(last_ms, (50, 95))
    return Cell(
        target=target,
        file=file,
        method=method,
        num_requests=len(ours),
        num_equal=sum(record.equal for record in ours),
        decode=bootstrap_ratio([r.decode for r in plain], [r.decode for r in ours], seed),
        total=bootstrap_ratio([r.last for r in plain], [r.last for r in ours], seed),
        rate=num_committed / max(1, num_rounds),
        call_rate=sum(r.call_tokens or 0 for r in counted) / call_rounds if call_rounds else None,
        p50_ms=float(p50_ms),
        p95_ms=float(p95_ms),
        first_p50_ms=float(np.median([1000 * record.first for record in ours])),
        parses=_share([bool(r.parses) for r in judged]),
        function=_share([bool(r.function) for r in judged]),
        arguments=sum(right for right, _ in arguments) / num_arguments if num_arguments else None,
    )


def _share(values: Seq[bool]) -> float | None:
    return sum(values) / len(values) if values else None
