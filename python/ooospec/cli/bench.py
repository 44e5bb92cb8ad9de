# SPDX-License-Identifier: Apache-2.0
"""`ooospec bench`: methods side by side on targets and files of requests, with a report."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import ooospec.cli.options as opt
from ooospec.cli.requests import read_requests
from ooospec.cli.samples import SAMPLES
from ooospec.errors import InvalidRequest
from ooospec.hashes import checkpoint_hash, requests_hash
from ooospec.version import VERSION

SMOKE_REQUESTS, SMOKE_TOKENS = 2, 24
METHODS = ("ar", "pld", "sam", "recycling", "span", "toolspec")
PERFECT = "perfect"
RESULTS, TABLE, CELLS, PAGE = "results.jsonl", "cells.csv", "cells.json", "report.html"


def bench(
    target: Annotated[
        list[str],
        typer.Option("--target", "-t", help="Model that answers; may be repeated."),
    ],
    requests: Annotated[
        list[Path] | None,
        typer.Option(
            help='File of requests, {"messages", "tools", "calls"} a line; may be repeated.',
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this one; may be repeated. 'perfect': ooo with perfect hints; "
            "'ooo, NAME': with that adapter."
        ),
    ] = None,
    sidecar: opt.Sidecar = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            help="An adapter of the sidecar as NAME=FOLDER; may be repeated.",
            rich_help_panel=opt.MODEL,
        ),
    ] = None,
    draft_model: opt.DraftModel = None,
    source: opt.Source = None,
    out: Annotated[
        Path, typer.Option(help="Folder of the results. A run that was stopped goes on there.")
    ] = Path("bench-results"),
    limit: Annotated[
        int | None, typer.Option(help="So many requests of each file, evenly spread.", min=1)
    ] = None,
    max_tokens: opt.MaxTokens = 256,
    warm: Annotated[
        bool, typer.Option("--warm", help="Prompts are cached for all methods, not for none.")
    ] = False,
    cost_model: Annotated[
        bool, typer.Option(help="Size trees by the measured cost of rounds.")
    ] = True,
    wave: opt.WaveOption = opt.Wave.auto,
    device: opt.Device = None,
    dtype: opt.Dtype = None,
    sidecar_device: Annotated[
        str | None, typer.Option(help="Of the sidecar; --device.", rich_help_panel=opt.MODEL)
    ] = None,
    sidecar_dtype: Annotated[
        str | None, typer.Option(help="Of the sidecar; --dtype.", rich_help_panel=opt.MODEL)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Only show that it runs: two requests, short answers.")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Compare methods on your models and requests: a table, CSV, JSON and one HTML page with plots.

    ooospec bench --target MODEL --requests requests.jsonl --out results

    ooospec bench --target MODEL --requests a.jsonl --requests b.jsonl --sidecar SMALL_MODEL
    --adapter mine=adapter --method toolspec --method ooo --method perfect

    Every answer is compared with that of `ar`; exit code 1 if one differs.
    """
    from ooospec.bench.plots import check_matplotlib
    from ooospec.bench.records import RecordFile
    from ooospec.bench.report import rich_tables, write_csv, write_html, write_json
    from ooospec.bench.run import BenchConfig, run_bench
    from ooospec.bench.summary import summarise

    try:
        check_matplotlib()
    except ImportError as error:
        raise InvalidRequest(str(error)) from error
    console = Console(stderr=True)
    adapters = _adapters(adapter or [], sidecar)
    if smoke:
        limit, max_tokens = SMOKE_REQUESTS, SMOKE_TOKENS
    config = BenchConfig(
        methods=_methods(method, sidecar, adapters, draft_model),
        sidecar=sidecar,
        adapters=adapters,
        wave=wave.value,
        sources=tuple(source or ()),
        draft_model=draft_model,
        device=device,
        dtype=dtype,
        sidecar_device=sidecar_device,
        sidecar_dtype=sidecar_dtype,
        cost_model=cost_model,
        warm=warm,
        max_tokens=max_tokens,
    )
    files = _files(requests or [], limit)
    hashes = {path.name.partition(".")[0]: requests_hash(path) for path in requests or []}
    models = [*target, *filter(None, (sidecar, draft_model)), *adapters.values()]
    out.mkdir(parents=True, exist_ok=True)
    of = {
        "targets": target,
        "requests": hashes or {"samples": VERSION},
        "limit": limit,
        "checkpoints": {name: checkpoint_hash(name) for name in models},
    }
    settings = json.loads(json.dumps(asdict(config) | of))
    kept = RecordFile(out / RESULTS, settings)
    for name in target:
        opt.announce("target", name, console)
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        console.print(line, highlight=False, markup=False, style="dim")

    total = len(target) * sum(map(len, files.values()))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        num_done = len({(r.cell, r.request) for r in kept.records})
        task = progress.add_task("requests", total=total, completed=num_done)
        try:
            for records in run_bench(target, files, config, kept, say=say):
                where = f"{records[0].target}, {records[0].file}"
                progress.update(task, advance=1, description=where)
        except (ValueError, RuntimeError) as error:
            if type(error) in (ValueError, RuntimeError):  # of an option or a device
                raise InvalidRequest(str(error)) from error
            raise
    cells = summarise(kept.records, seed)
    facts = {
        "command": shlex.join(["ooospec", *sys.argv[1:]]),
        "version": VERSION,
        "machine": f"{platform.system()} {platform.machine()}, {_device()}",
        "settings": json.dumps(settings, sort_keys=True),
        "seed": seed,
    }
    notes = [
        f"Speed-ups are over this engine's own plain decoding (`ar`), prompts "
        f"{'cached' if warm else 'not cached'} for all methods; trees are "
        f"{'sized by measured cost' if cost_model else 'as large as they may be'}. "
        "Perfect hints are what `ar` wrote, there at arrival: a ceiling, not a method.",
        *said,
    ]
    write_csv(out / TABLE, cells, facts)
    write_json(out / CELLS, cells, facts)
    write_html(out / PAGE, cells, kept.records, facts, notes)
    if as_json:
        print((out / CELLS).read_text(), end="")
    else:
        for table in rich_tables(cells):
            Console().print(table)
    console.print(f"{out / PAGE}, {TABLE}, {CELLS}", highlight=False, markup=False)
    raise typer.Exit(0 if all(record.equal for record in kept.records) else 1)


def _adapters(given: list[str], sidecar: str | None) -> dict[str, str]:
    adapters = {}
    for one in given:
        name, equals, folder = one.partition("=")
        if not equals or not name or not Path(folder).is_dir():
            raise InvalidRequest(f"--adapter: expected NAME=FOLDER, got {one!r}")
        adapters[name] = folder
    if adapters and sidecar is None:
        raise InvalidRequest("--adapter: expected a --sidecar that it belongs to, got none")
    return adapters


def _methods(
    wanted: list[str] | None, sidecar: str | None, adapters: dict[str, str], draft: str | None
) -> tuple[str, ...]:
    from ooospec.bench import run

    if wanted is None:
        names = [*METHODS, *(["draft"] if draft else []), *(["ooo"] if sidecar else [])]
        names += [*(f"ooo, {name}" for name in adapters), run.PERFECT]
    else:
        names = [run.PERFECT if name == PERFECT else name for name in wanted]
        if "ooo" in names and sidecar is None:
            raise InvalidRequest("--method ooo: expected a --sidecar, got none")
    return tuple(dict.fromkeys([run.PLAIN, *names]))


def _files(paths: list[Path], limit: int | None) -> dict[str, list[dict[str, Any]]]:
    """Returns requests by name of their file. Raises InvalidRequest for an id that comes twice."""
    files = {path.name.partition(".")[0]: read_requests(path) for path in paths}
    if len(files) < len(paths):
        raise InvalidRequest("--requests: expected files of different names")
    if not paths:
        files = {"samples": [dict(one) for one in SAMPLES]}
    for name, rows in files.items():
        ids = [str(row["id"]) for row in rows]
        if len(set(ids)) < len(ids):
            twice = next(one for one in ids if ids.count(one) > 1)
            raise InvalidRequest(f"{name}: expected ids that differ, got {twice!r} twice")
        if limit is not None and limit < len(rows):
            files[name] = [rows[i * len(rows) // limit] for i in range(limit)]
    return files


def _device() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
