# SPDX-License-Identifier: Apache-2.0
"""`ooospec estimate`: what drafting would gain on recorded answers, without a model."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

import ooospec.cli.options as opt
from ooospec.cli.requests import read_requests

if TYPE_CHECKING:
    from ooospec.bench.estimate import Estimate

NUM_WORST = 10
EXCERPT = 72


def estimate(
    logs: Annotated[
        Path,
        typer.Argument(
            help='Recorded answers, a line each: {"messages", "tools", "answer" or "token_ids"}, '
            'or of `ooospec trace`, and "hints" (calls) where a sidecar said some.',
            exists=True,
            dir_okay=False,
        ),
    ],
    tokenizer: Annotated[str, typer.Option(help="Folder or hub id of the target's tokenizer.")],
    limit: Annotated[int | None, typer.Option(help="Only so many answers.", min=1)] = None,
    round_ms: Annotated[
        float, typer.Option(help="Milliseconds of a plain token of your target.", min=0.001)
    ] = 25.0,
    wide: Annotated[
        float,
        typer.Option(help="How many times as long a round of 64 rows takes.", min=1.0),
    ] = 1.05,
    as_json: opt.Json = False,
) -> None:
    """Estimate tokens a round and time on your own logs: no model, no GPU.

    ooospec estimate logs.jsonl --tokenizer Qwen/Qwen3-8B --round-ms 5

    The real drafter runs; the record stands for the target. Time is behind the first token; a
    sidecar's wave is not in it. What only a model knows, its likeliest successors, is not drafted.
    """
    from ooospec.bench.estimate import Recorded, RoundTimes, worst
    from ooospec.bench.estimate import estimate as run
    from ooospec.model_files import load_tokenizer

    rows = read_requests(logs, limit)
    recorded = Recorded(load_tokenizer(tokenizer, "--tokenizer"))
    console = Console(stderr=True)
    shown = iter(
        track(range(len(rows)), "replaying", console=console, transient=True, disable=as_json)
    )
    next(shown)
    found = run(recorded, rows, RoundTimes(round_ms, wide), lambda: next(shown, None))
    totals = _totals(found)
    listed = worst(found, "toolspec", NUM_WORST)
    if as_json:
        print(json.dumps({"methods": totals, "worst": [asdict(one) for one in listed]}))
        return
    table = Table(title=f"{len(found)} recorded answers", title_justify="left")
    table.add_column("method", no_wrap=True)
    for heading in ("answers", "tokens a round", "x plain decoding", "seconds"):
        table.add_column(heading, justify="right")
    for name, one in totals.items():
        counts = (f"{one['rate']:.2f}", f"{one['speedup']:.2f}", f"{one['seconds']:,.1f}")
        table.add_row(name, str(one["answers"]), *counts)
    opt.table_console().print(table)
    _print_worst(listed)


def _totals(found: list[Estimate]) -> dict[str, dict[str, float]]:
    """Returns each method's figures over the requests that it was replayed on."""
    totals: dict[str, dict[str, float]] = {}
    num_tokens, plain = sum(one.num_tokens for one in found), sum(one.plain_ms for one in found)
    totals["ar"] = {
        "answers": len(found),
        "rate": 1.0,
        "speedup": 1.0,
        "rounds": num_tokens,
        "seconds": plain / 1000,
    }
    for name in dict.fromkeys(name for one in found for name in one.num_rounds):
        own = [one for one in found if name in one.num_rounds]
        rounds, ms = sum(one.num_rounds[name] for one in own), sum(one.ms[name] for one in own)
        totals[name] = {
            "answers": len(own),
            "rate": sum(one.num_tokens for one in own) / max(1, rounds),
            "speedup": sum(one.plain_ms for one in own) / ms if ms else 1.0,
            "rounds": rounds,
            "seconds": ms / 1000,
        }
    return totals


def _print_worst(listed: list[Estimate]) -> None:
    table = Table(title="fewest tokens a round of toolspec", title_justify="left")
    for heading in ("request", "tokens", "toolspec", "perfect", "answer"):
        table.add_column(heading, justify="left" if heading in ("request", "answer") else "right")
    for one in listed:
        rates = [
            f"{one.num_tokens / max(1, one.num_rounds[name]):.2f}"
            for name in ("toolspec", "ooo, perfect hints")
        ]
        text = " ".join(one.text.split())
        text = text if len(text) <= EXCERPT else text[: EXCERPT - 1] + "…"
        table.add_row(escape(one.name), str(one.num_tokens), *rates, escape(text))
    opt.table_console().print(table)
