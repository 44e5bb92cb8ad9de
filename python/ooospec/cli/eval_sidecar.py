# SPDX-License-Identifier: Apache-2.0
"""`ooospec eval-sidecar`: how good a sidecar is, beside a guess that costs nothing."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import ooospec.cli.options as opt
from ooospec.cli.requests import read_requests
from ooospec.errors import InvalidRequest
from ooospec.files import write_text

if TYPE_CHECKING:
    from ooospec.train.evaluation import Tally

Tallies = dict[str, tuple["Tally", "Tally"]]  # by set of requests: the sidecar's, the baseline's


def eval_sidecar(
    sidecar: Annotated[
        str, typer.Option("--sidecar", "-s", help="Folder or hub id of the model that guesses.")
    ],
    requests: Annotated[
        list[Path],
        typer.Option(
            help="File of requests with reference `calls`, or a teacher's `call`; may be repeated.",
            exists=True,
            dir_okay=False,
        ),
    ],
    adapter: opt.Adapter = None,
    limit: Annotated[
        int | None, typer.Option(help="Only so many of each file, at even distances.", min=1)
    ] = None,
    by_source: Annotated[
        bool, typer.Option("--by-source", help="Sets are the `source` of rows, not files.")
    ] = False,
    hints: Annotated[
        Path | None,
        typer.Option(
            help="File to write what was said to, as {id, hints}, for `ooospec replay`.",
            dir_okay=False,
            callback=opt.place,
        ),
    ] = None,
    as_json: opt.Json = False,
    placement: opt.PlacementOption = opt.Placement.thread,
    device: opt.Device = None,
    dtype: opt.Dtype = None,
) -> None:
    """Compare what a sidecar says with reference calls, beside name overlap and always null.

    ooospec eval-sidecar --sidecar MODEL --adapter adapter --requests adapter/dev.jsonl
    """
    from ooospec.sidecar.placement import open_sidecar
    from ooospec.sidecar.worker import SidecarConfig
    from ooospec.train.evaluation import Tally, baseline, evaluate, said_calls, wait_ready

    console = Console(stderr=True)
    asked: list[dict[str, Any]] = []
    skipped: Counter[str] = Counter()
    for path in requests:
        valid = _valid(path, skipped)
        if limit is not None and limit < len(valid):
            valid = [valid[i * len(valid) // limit] for i in range(limit)]
        for one in valid:
            asked.append({**one, "_set": one.get("source", "") if by_source else path.name})
    if not asked:
        raise InvalidRequest(f"requests: expected one with a call, got none ({dict(skipped)})")
    opt.announce("sidecar", sidecar, console)
    config = SidecarConfig(
        sidecar,
        adapter=None if adapter is None else str(adapter),
        placement=placement.value,
        wave="always",
        device=device,
        dtype=dtype,
    )
    running = open_sidecar(config)
    lines: list[dict[str, Any]] = []
    tallies: Tallies = defaultdict(lambda: (Tally(), Tally()))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    try:
        wait_ready(running)
        with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
            for request, wanted, said in bar.track(evaluate(running, asked), total=len(asked)):
                ours, trivial = tallies[request["_set"]]
                ours.add(request, wanted, said)
                trivial.add(request, wanted, baseline(request))
                lines.append({"id": request.get("id"), "hints": said_calls(said, request["tools"])})
        status = running.status
    finally:
        running.close()
    if hints is not None:
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        write_text(hints, text)
    if as_json:
        sets = {
            name: {"sidecar": ours.numbers(), "baseline": trivial.numbers()}
            for name, (ours, trivial) in tallies.items()
        }
        report = {"model": sidecar, "adapter": None if adapter is None else str(adapter)}
        print(json.dumps({**report, "status": status, "sets": sets, "skipped": skipped}))
        return
    Console().print(table(tallies))
    for reason, count in skipped.items():
        console.print(f"skipped: {count} x {reason}", highlight=False, markup=False)


def _valid(path: Path, skipped: Counter[str]) -> list[dict[str, Any]]:
    """Returns the requests of a file that have a usable call."""
    from ooospec.train.labels import BadRow, label

    bad: list[str] = []
    found = []
    for request in read_requests(path, bad=bad):
        try:
            label(request)
        except BadRow as error:
            skipped[str(error)] += 1
        else:
            found.append(request)
    if bad:
        skipped["a line that is no request"] += len(bad)
    return found


def table(tallies: Mapping[str, tuple[Tally, Tally]]) -> Table:
    """Returns shares, bytes and times of each set: the sidecar's, the baseline's, of how many."""
    from ooospec.train.evaluation import MEANS, SHARES

    found = Table(title="a sidecar, and name overlap with always null")
    for name in ("set", "measure", "sidecar", "baseline", "of"):
        found.add_column(name, justify="left" if name in ("set", "measure") else "right")
    for name, (ours, trivial) in tallies.items():
        numbers = ours.numbers()
        labels = iter([f"{name} ({ours.num_requests})"])
        for what in SHARES:
            share, asked = ours.share(what), numbers[what]["asked"]
            if share is not None:
                row = (_percent(share), _percent(trivial.share(what)), str(asked))
                found.add_row(next(labels, ""), what, *row)
        for what in MEANS:
            if numbers[what] is not None:
                found.add_row(next(labels, ""), what, f"{numbers[what]:.0f}", "", "")
        found.add_section()
    return found


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
