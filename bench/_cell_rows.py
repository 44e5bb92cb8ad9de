# SPDX-License-Identifier: Apache-2.0
"""What a bench by replay reports of a cell."""

from __future__ import annotations

from collections.abc import Sequence

from _harness import Report
from ooospec.bench.records import Record
from ooospec.bench.summary import Cell
from ooospec.bench.waves import tokens_before


def add_cell(report: Report, cell: Cell, prefix: str) -> None:
    """Adds the two figures of a cell with their intervals, its rate, and how many were equal."""
    case = f"{cell.target}, {cell.file}, {cell.method}, {prefix}"
    for metric, ratio in (("decoding", cell.decode), ("in total", cell.total)):
        for name, value in (("", ratio.value), (" low", ratio.low), (" high", ratio.high)):
            report.add(case, metric + name, value, "x ar")
    report.add(case, "rate", cell.rate, "tokens/round")
    report.add(case, "equal", cell.num_equal, f"of {cell.num_requests} answers, raw logits")


def add_means(report: Report, cells: Sequence[Cell], records: Sequence[Record], case: str) -> None:
    """Adds each method's mean over the files, and tokens committed before hints came."""
    for method in dict.fromkeys(cell.method for cell in cells):
        some = [cell for cell in cells if cell.method == method and cell.file != "all"]
        for metric in ("decode", "total"):
            values = [getattr(cell, metric).value for cell in some]
            report.add(f"{case}, {method}, mean", metric, sum(values) / len(values), "x ar")
    for name, place in (("first", 0), ("last", -1)):
        counts = [
            tokens_before(record, record.hints[place])
            for record in records
            if record.method == "ooo" and record.hints
        ]
        if counts:
            mean = sum(counts) / len(counts)
            report.add(f"{case}, ooo", f"tokens before the {name} hint", mean, "tokens")
