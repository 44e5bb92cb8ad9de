# SPDX-License-Identifier: Apache-2.0
"""`ooospec trace`: what a teacher writes to your requests, to train a sidecar on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import ooospec.cli.options as opt
from ooospec.cli.requests import read_requests
from ooospec.errors import InvalidRequest


@opt.with_engine_options
def trace(
    target: opt.Target,
    requests: Annotated[
        list[Path],
        typer.Option(help="File of requests; may be repeated.", exists=True, dir_okay=False),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="File to add to.", dir_okay=False, callback=opt.place),
    ],
    method: Annotated[str, typer.Option(help="The same answers by each.")] = "toolspec",
    limit: Annotated[int | None, typer.Option(help="Only so many of each file.", min=1)] = None,
    max_tokens: opt.MaxTokens = 512,
    as_json: opt.Json = False,
    sidecar: opt.Sidecar = None,
    *,
    how: opt.EngineOptions,
) -> None:
    """Record what a model answers to requests; started again with the same --out, it goes on.

    Answers without a usable call go to OUT with the ending .failed.jsonl, each with the reason.

    ooospec trace --target MODEL --requests requests.jsonl --out traces.jsonl
    """
    from ooospec.train.teacher import TraceFiles
    from ooospec.train.teacher import trace as trace_requests

    console = Console(stderr=True)
    opt.check_method(method, how)
    found = [request for path in requests for request in read_requests(path, limit)]
    ids = Counter(str(request["id"]) for request in found)
    if len(ids) < len(found):
        twice = ids.most_common(1)[0][0]
        raise InvalidRequest(f"requests: expected an id of its own in each, got {twice!r} twice")
    files = TraceFiles(out)
    num_done = len(files.done() & ids.keys())
    failures: Counter[str] = Counter()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        opt.open_engine(target, sidecar, how, console) as engine,
        Progress(*columns, TimeRemainingColumn(), console=console) as bar,
    ):
        task = bar.add_task("trace", total=len(found), completed=num_done)
        for failure in trace_requests(engine, found, files, method=method, max_tokens=max_tokens):
            bar.advance(task)
            failures[failure.partition(":")[0]] += 1
    num_usable = failures.pop("", 0)
    if as_json:
        print(json.dumps({"done before": num_done, "usable": num_usable, "failed": failures}))
        return
    console.print(f"{out}: {num_usable} new rows, {num_done} were there", highlight=False)
    for reason, count in failures.most_common():
        console.print(f"{files.failed_path}: {count} x {reason}", highlight=False, markup=False)
