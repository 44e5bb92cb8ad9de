# SPDX-License-Identifier: Apache-2.0
"""`ooospec selfcheck`: proof that every method writes what the target writes alone."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import ooospec.cli.options as opt
from ooospec.cli.requests import read_requests
from ooospec.cli.samples import SAMPLES

if TYPE_CHECKING:
    from ooospec.selfcheck import Difference, MethodReport


def selfcheck(
    target: opt.Target,
    sidecar: opt.Sidecar = None,
    requests: opt.Requests = None,
    limit: Annotated[int | None, typer.Option(help="Only so many requests.", min=1)] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Only this method; may be repeated.")
    ] = None,
    max_tokens: opt.MaxTokens = 96,
    temperature: Annotated[
        float, typer.Option(help="Of the second pass, which samples; 0: no such pass.", min=0)
    ] = 0.8,
    seed: Annotated[int, typer.Option(help="Of the second pass.")] = 0,
    as_json: opt.Json = False,
    adapter: opt.Adapter = None,
    placement: opt.PlacementOption = opt.Placement.thread,
    wave: opt.WaveOption = opt.Wave.auto,
    source: opt.Source = None,
    device: opt.Device = None,
    dtype: opt.Dtype = None,
) -> None:
    """Check that every method gives the tokens of `ar`, greedy and sampled; exit code 1 if not.

    ooospec selfcheck --target Qwen/Qwen2.5-Coder-1.5B-Instruct

    ooospec selfcheck --target MODEL --sidecar SMALL_MODEL --requests requests.jsonl --limit 20
    """
    from ooospec.selfcheck import selfcheck as check

    console = Console(stderr=True)
    asked = SAMPLES[:limit] if requests is None else read_requests(requests, limit)
    with opt.open_engine(
        target,
        sidecar,
        adapter=adapter,
        placement=placement,
        wave=wave,
        source=source,
        device=device,
        dtype=dtype,
        console=console,
    ) as engine:
        methods = [opt.check_method(engine, name) for name in method or engine.methods]
        passes: dict[str, dict[str, Any]] = {"greedy": {}}
        if temperature > 0:
            passes["sampled"] = {"temperature": temperature, "seed": seed}
        reports: dict[str, list[MethodReport]] = {}
        for name, sampling in passes.items():
            with console.status(name) as status:
                reports[name] = check(
                    engine,
                    asked,
                    methods,
                    on_answer=lambda *what, name=name: status.update(f"{name}: {', '.join(what)}"),
                    max_tokens=max_tokens,
                    **sampling,
                )
        equal = not any(one.differences for found in reports.values() for one in found)
        if as_json:
            listed = {name: [asdict(one) for one in found] for name, found in reports.items()}
            print(json.dumps({"target": target, "equal": equal, "passes": listed}))
        else:
            _print(Console(), engine, reports)
            print(f"equal to ar: {'yes' if equal else 'NO'}")
    raise typer.Exit(0 if equal else 1)


def _print(console: Console, engine: Any, reports: dict[str, list[MethodReport]]) -> None:
    backend = engine.backend
    console.print(f"{backend.description}; level: {backend.level}", highlight=False)
    for name, found in reports.items():
        table = Table("method", title=name, title_justify="left")
        for heading in ("tokens", "rounds", "a round", "accepted", "rejected", "seconds", "equal"):
            table.add_column(heading, justify="right")
        for one in found:
            rate = one.num_tokens / max(1, one.num_rounds)
            counts = (one.num_tokens, one.num_rounds, f"{rate:.2f}", one.num_accepted)
            equal = f"{one.num_requests - len(one.differences)} of {one.num_requests}"
            ends = (one.num_rejected, f"{one.seconds:.1f}", "-" if one.method == "ar" else equal)
            table.add_row(one.method, *map(str, counts), *map(str, ends))
        console.print(table)
        for one in found:
            for difference in one.differences:
                console.print(f"{one.method}: {describe(engine, difference)}", highlight=False)


def describe(engine: Any, difference: Difference) -> str:
    """Returns a sentence on a difference."""

    def piece(token: int) -> str:
        if token < 0:
            return "the end"
        return f"{token} {engine.tokens.decode_bytes([token]).decode(errors='replace')!r}"

    gap = "" if difference.gap is None else f"; logit gap {difference.gap:.3g}"
    return (
        f"{difference.request}: token {difference.position}: expected"
        f" {piece(difference.expected)}, got {piece(difference.got)}{gap}"
    )
