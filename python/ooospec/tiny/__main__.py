# SPDX-License-Identifier: Apache-2.0
"""`python -m ooospec.tiny`: makes the tiny models again, or evaluates a target."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence as Seq
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from ooospec.cli.main import run
from ooospec.cli.requests import read_requests
from ooospec.errors import InvalidRequest
from ooospec.shipped import TARGET, shipped_folder
from ooospec.tiny.build import Builder, evaluate_target, held_out_requests
from ooospec.tiny.examples import Recipe, Request
from ooospec.tiny.training import Settings
from ooospec.train.steps import further_on

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Part(StrEnum):
    """Which of the pair."""

    target = "target"
    sidecar = "sidecar"


Files = Annotated[
    list[Path] | None,
    typer.Option("--requests", help="File of requests; may be repeated.", exists=True),
]


@app.command()
def train(
    part: Annotated[Part, typer.Argument(help="target or sidecar")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the model.")],
    requests: Files = None,
    repeat: Annotated[int, typer.Option(help="How often the files are read, an epoch.")] = 2,
    synth: Annotated[int, typer.Option(help="Requests to make up.", min=0)] = 100_000,
    steps: Annotated[int | None, typer.Option(help="Of the optimizer.", min=1)] = None,
    seconds: Annotated[float, typer.Option(help="Without --steps: as many as this has.")] = 150,
    step_tokens: Annotated[int, typer.Option(help="Of a step, padding included.", min=1)] = 32768,
    learning_rate: Annotated[float, typer.Option(help="At its highest.")] = 2e-3,
    text_weight: Annotated[
        float, typer.Option(help="Of a token of a prompt in the loss; answers: see WEIGHTS.")
    ] = 0.03,
    processes: Annotated[int, typer.Option(help="That prepare examples.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Of weights, requests and their order.")] = 0,
    strange: Annotated[
        float, typer.Option(help="Share of made-up requests' names and values: strange words.")
    ] = 0.0,
    unclear: Annotated[
        float, typer.Option(help="Share of their calls that nobody can tell.")
    ] = 0.0,
    cuts: Annotated[int, typer.Option(help="Other ways to cut words into tokens.")] = 0,
    start: Annotated[
        Path | None, typer.Option(help="Folder of one that is trained further.", exists=True)
    ] = None,
    device: Annotated[str, typer.Option()] = DEVICE,
) -> None:
    """Train one of the pair from scratch; started again with the same settings, it goes on."""
    others: list[Request] = []
    for path in requests or ():
        others += read_requests(path)
    all_others = [*others, *further_on(others, seed)]
    recipe = Recipe(synth, all_others, seed, repeat, strange, unclear, cuts)
    builder = Builder(part.value, recipe, out, device=device, processes=processes, start=start)
    num_tokens = sum(example.num_tokens for example in builder.train)
    _say(
        f"{part}: {builder.model.num_parameters() / 1e6:.2f} M parameters, {len(builder.train)} "
        f"examples of {num_tokens / 1e6:.1f} M tokens"
    )
    settings = Settings(steps or 1, step_tokens, learning_rate, text_weight=text_weight, seed=seed)
    if steps is None:
        settings = builder.steps_in(seconds, settings)
    _say(f"{settings.num_steps} steps")
    for step, loss in enumerate(builder.run(settings), start=1):
        if step % max(1, settings.num_steps // 50) == 0:
            _say(f"step {step}: loss {loss:.4f}")
    numbers = builder.save(settings)
    _say(f"{out}: {numbers['seconds']:.0f} s; {json.dumps(numbers['dev'])}")


def _target_folder(name: Path) -> Path:
    """Returns the folder of a target. Raises InvalidRequest where there is none."""
    folder = shipped_folder(str(name)) or name
    if not folder.is_dir():
        raise InvalidRequest(f"target: expected a folder or {TARGET}, got '{name}'")
    return folder


@app.command()
def evaluate(
    target: Annotated[
        Path, typer.Argument(help=f"Folder of one, or {TARGET}.", callback=_target_folder)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the numbers.")],
    requests: Files = None,
    held_out: Annotated[
        int, typer.Option(help="Made-up requests that share no words.", min=1)
    ] = 400,
    limit: Annotated[
        int | None, typer.Option(help="Of each file, at even distances.", min=1)
    ] = None,
    rows: Annotated[int, typer.Option(help="Answers at a time.", min=1)] = 64,
    device: Annotated[str, typer.Option()] = DEVICE,
) -> None:
    """Count a target's answers that parse, and those that are right."""
    sets: dict[str, Seq[Any]] = {"held-out": held_out_requests(held_out)}
    for path in requests or ():
        found = read_requests(path)
        number = min(limit or len(found), len(found))
        sets[path.name] = [found[i * len(found) // number] for i in range(number)]
    numbers = evaluate_target(target, sets, device=device, rows=rows)
    out.write_text(json.dumps(numbers, ensure_ascii=False, indent=1) + "\n")
    for name, one in numbers.items():
        _say(f"{name}: {json.dumps(one['shares']['all'])}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], app, "python -m ooospec.tiny"))
