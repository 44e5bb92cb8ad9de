# SPDX-License-Identifier: Apache-2.0
"""`ooospec train`: an adapter that makes a small model a sidecar for your tools."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import ooospec.cli.options as opt
from ooospec.cli.requests import read_requests
from ooospec.errors import InvalidRequest

if TYPE_CHECKING:
    from ooospec.train.report import Data
    from ooospec.train.trainer import Trainer

LORA, RUN = "LoRA", "Training"


class Where(StrEnum):
    """What gets adapters."""

    attention = "attention"
    linear = "linear"


class Rows(StrEnum):
    """How the rows of a request are run."""

    auto = "auto"
    branches = "branches"
    separate = "separate"


Files = Annotated[
    list[Path],
    typer.Option(
        "--requests",
        help="File of requests with reference `calls`, or a teacher's `call`; may be repeated.",
        exists=True,
        dir_okay=False,
    ),
]
Traces = Annotated[
    list[Path] | None,
    typer.Option(
        help="What `ooospec trace` wrote: goes before the reference calls of the same ids.",
        exists=True,
        dir_okay=False,
    ),
]


def train(
    model: Annotated[str, typer.Option("--model", "-m", help="Folder or hub id to adapt.")],
    requests: Files,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder of the adapter.", callback=opt.folder_place),
    ],
    traces: Traces = None,
    limit: Annotated[int | None, typer.Option(help="Only so many of each file.", min=1)] = None,
    dev_share: Annotated[float, typer.Option(help="Of each source, not trained on.")] = 0.05,
    base: Annotated[
        str | None, typer.Option(help="Name of the model in the card, if not as given.")
    ] = None,
    where: Annotated[Where, typer.Option(rich_help_panel=LORA)] = Where.attention,
    rank: Annotated[int, typer.Option(rich_help_panel=LORA)] = 32,
    alpha: Annotated[float, typer.Option(rich_help_panel=LORA)] = 64.0,
    dropout: Annotated[float, typer.Option(rich_help_panel=LORA)] = 0.0,
    epochs: Annotated[int, typer.Option(rich_help_panel=RUN)] = 1,
    learning_rate: Annotated[float, typer.Option(rich_help_panel=RUN)] = 3e-4,
    step_requests: Annotated[int, typer.Option(help="Requests a step.", rich_help_panel=RUN)] = 16,
    pass_tokens: Annotated[
        int | None,
        typer.Option(help="Of a forward pass; 16384 on a GPU, 2048 else.", rich_help_panel=RUN),
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Of a prompt.", rich_help_panel=RUN)] = 4096,
    steps: Annotated[
        bool,
        typer.Option(
            help="Ask too for what follows the first reference call.", rich_help_panel=RUN
        ),
    ] = True,
    others: Annotated[
        bool,
        typer.Option(help="Ask for null as the value of what is not called.", rich_help_panel=RUN),
    ] = False,
    evaluations: Annotated[
        int, typer.Option(help="On the dev split, an epoch.", rich_help_panel=RUN)
    ] = 8,
    patience: Annotated[
        int, typer.Option(help="Evaluations without gain before it stops.", rich_help_panel=RUN)
    ] = 4,
    rows: Annotated[
        Rows, typer.Option(help="Share the prefix of a request or not.", rich_help_panel=RUN)
    ] = Rows.auto,
    gradient_checkpointing: Annotated[
        bool, typer.Option(help="Less memory, a third more time.", rich_help_panel=RUN)
    ] = False,
    seed: Annotated[int, typer.Option(rich_help_panel=RUN)] = 0,
    dry_run: Annotated[bool, typer.Option(help="Say what it will take, and stop.")] = False,
    as_json: opt.Json = False,
    device: opt.Device = None,
    dtype: opt.Dtype = None,
) -> None:
    """Train a sidecar on your requests; started again with the same --out, it goes on.

    ooospec train --model Qwen/Qwen2.5-Coder-0.5B-Instruct --requests requests.jsonl --out adapter

    ooospec train --model SMALL_MODEL --requests requests.jsonl --traces traces.jsonl --out adapter
    """
    from ooospec.train.config import TrainConfig
    from ooospec.train.report import write_report
    from ooospec.train.run import open_run

    console = Console(stderr=True)
    plain: Any = {"highlight": False, "markup": False}
    skipped: Counter[str] = Counter()
    found = _read(requests, limit, skipped)
    traced = _read(traces or (), None, skipped)
    try:
        on_gpu = _on_gpu(device)
        config = TrainConfig(
            where=where.value,
            rank=rank,
            alpha=alpha,
            dropout=dropout,
            epochs=epochs,
            learning_rate=learning_rate,
            step_requests=step_requests,
            pass_tokens=pass_tokens or (16384 if on_gpu else 2048),
            max_tokens=max_tokens,
            steps=steps,
            others=others,
            dev_share=dev_share,
            num_evaluations=evaluations,
            patience=patience,
            rows=rows.value,
            gradient_checkpointing=gradient_checkpointing,
            seed=seed,
        )
    except ValueError as error:
        raise InvalidRequest(f"--{str(error).replace('_', '-', 1)}") from error
    opt.announce("model", model, console)
    run = open_run(
        model,
        found,
        traced,
        config,
        out,
        device=device,
        dtype=dtype,
        skipped=skipped,
        files=[path.name for path in requests],
        traced=[path.name for path in traces or ()],
    )
    trainer, data = run.trainer, run.data
    for line in _describe(data, run.why_apart):
        console.print(line, **plain)
    console.print(f"estimate: {run.estimate}", **plain)
    seconds = trainer.measure()
    num_left = trainer.num_steps - len(trainer.history.losses)
    console.print(f"estimate: {seconds / 60:.1f} minutes for {num_left} steps", **plain)
    if dry_run:
        return
    _run(trainer, console)
    num_bytes = run.save(base or model)
    write_report(
        out,
        base=base or model,
        command="ooospec " + shlex.join(sys.argv[1:]),
        config=config,
        data=data,
        history=trainer.history,
        num_bytes=num_bytes,
        shared=trainer.shared,
    )
    best = trainer.history.best
    console.print(f"{out}: {num_bytes / 1e6:.1f} MB; {trainer.history.stopped}", **plain)
    if as_json:
        summary = {
            "steps": len(trainer.history.losses),
            "loss": trainer.history.losses[-1],
            "seconds": trainer.history.seconds,
            "best": None if best is None else {"step": best.step, "loss": best.loss, **best.exact},
            "bytes": num_bytes,
            "skipped": data.skipped,
        }
        print(json.dumps(summary))


def _read(paths: Seq[Path], limit: int | None, skipped: Counter[str]) -> list[Mapping[str, Any]]:
    """Returns the requests of files; bad lines are counted in `skipped`."""
    bad: list[str] = []
    found: list[Mapping[str, Any]] = []
    for path in paths:
        found += read_requests(path, limit, bad=bad)
    if bad:
        skipped["a line that is no request"] += len(bad)
    return found


def _on_gpu(device: str | None) -> bool:
    from ooospec.backends.load import find_device

    return find_device(device).type == "cuda"


def _describe(data: Data, why_apart: str) -> list[str]:
    """Returns lines on what will be trained on, and what not."""
    lines = [
        f"data: {sum(data.train.values())} requests to train on, {sum(data.dev.values())} in the "
        f"dev split, {data.num_lost} in neither (they call a tool of the dev split)"
    ]
    if data.num_further:
        lines.append(f"data: {data.num_further} of them again, with some of their calls made")
    lines += [f"skipped: {count} x {reason}" for reason, count in sorted(data.skipped.items())]
    if why_apart:
        lines.append(f"the rows of a request are run apart: {why_apart}")
    return lines


def _run(trainer: Trainer, console: Console) -> None:
    """Trains to the end, with a bar on a terminal and a line an evaluation anywhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        history = trainer.history
        task = bar.add_task("train", total=trainer.num_steps, completed=len(history.losses))
        num_told = len(history.evaluations)
        for loss in trainer.run():
            bar.update(task, advance=1, description=f"loss {loss:.3f}")
            for one in history.evaluations[num_told:]:
                shares = ", ".join(f"{kind} {share:.1%}" for kind, share in one.exact.items())
                console.print(
                    f"step {one.step}: dev loss {one.loss:.4f}; exact: {shares}", highlight=False
                )
            num_told = len(history.evaluations)
