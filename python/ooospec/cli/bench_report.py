# SPDX-License-Identifier: Apache-2.0
"""What `ooospec bench` and `ooospec replay` have in common: files, progress, and the report."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import ooospec.cli.options as opt
from ooospec.cli.requests import read_requests
from ooospec.cli.samples import SAMPLES
from ooospec.errors import InvalidRequest
from ooospec.version import VERSION

if TYPE_CHECKING:
    from ooospec.bench.records import Record, RecordFile

RESULTS, TABLE, CELLS, PAGE = "results.jsonl", "cells.csv", "cells.json", "report.html"
Say = Callable[[str], None]


def bench_files(paths: list[Path], limit: int | None) -> dict[str, list[dict[str, Any]]]:
    """Returns requests by name of their file. Raises InvalidRequest for an id that comes twice, and
    for reference calls that are none.
    """
    from ooospec.bench.calls import check_reference

    files = {path.name.partition(".")[0]: read_requests(path) for path in paths}
    if len(files) < len(paths):
        names = ", ".join(map(str, paths))
        raise InvalidRequest(f"--requests: expected files of different names, got {names}")
    if not paths:
        files = {"samples": [dict(one) for one in SAMPLES]}
    for name, rows in files.items():
        ids = [str(row["id"]) for row in rows]
        if len(set(ids)) < len(ids):
            twice = next(one for one in ids if ids.count(one) > 1)
            raise InvalidRequest(f"{name}: expected ids that differ, got {twice!r} twice")
        for row in rows:
            check_reference(row)
        if limit is not None and limit < len(rows):
            files[name] = [rows[i * len(rows) // limit] for i in range(limit)]
    return files


def run_and_report(
    bench: Callable[[Say], Iterator[list[Record]]],
    kept: RecordFile,
    *,
    out: Path,
    total: int,
    settings: dict[str, Any],
    notes: list[str],
    seed: int,
    as_json: bool,
    console: Console,
    caption: str = "",
    verdict: str = "have the token ids of plain decoding",
) -> None:
    """Runs a bench under a progress bar, writes table, CSV, JSON and page, and exits: 0 if all
    answers were equal.

    bench: yields the records of each request. total: requests. caption: of every table and plot.
    verdict: what equal answers have. Raises InvalidRequest for an option or a device that is none.
    """
    from ooospec.bench.report import rich_tables, wave_table, write_csv, write_html, write_json
    from ooospec.bench.summary import summarise
    from ooospec.bench.waves import wave_figures

    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        console.print(line, highlight=False, markup=False, style="dim")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        num_done = len({(r.cell, r.request) for r in kept.records})
        task = progress.add_task("requests", total=total, completed=num_done)
        try:
            for records in bench(say):
                where = f"{records[0].target}, {records[0].file}"
                progress.update(task, advance=1, description=where)
        except (ValueError, RuntimeError) as error:
            if type(error) in (ValueError, RuntimeError):  # of an option or a device
                raise InvalidRequest(str(error)) from error
            raise
    if not kept.records:
        raise InvalidRequest("nothing was run: " + "; ".join(said))
    cells, waves = summarise(kept.records, seed), wave_figures(kept.records)
    facts = {
        "command": shlex.join(["ooospec", *sys.argv[1:]]),
        "version": VERSION,
        "machine": f"{platform.system()} {platform.machine()}, {_device()}",
        "settings": json.dumps(settings, sort_keys=True),
        "seed": seed,
    }
    if caption:
        facts["caption"] = caption
    write_csv(out / TABLE, cells, facts)
    write_json(out / CELLS, cells, waves, facts)
    how = {"caption": caption, "verdict": verdict}
    write_html(out / PAGE, cells, kept.records, facts, [*notes, *said], **how)
    if as_json:
        print((out / CELLS).read_text(), end="")
    else:
        for table in rich_tables(cells, caption):
            opt.table_console().print(table)
        if waves:
            opt.table_console().print(wave_table(waves))
    console.print(f"{out / PAGE}, {TABLE}, {CELLS}", highlight=False, markup=False)
    raise typer.Exit(0 if all(record.equal for record in kept.records) else 1)


def _device() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
