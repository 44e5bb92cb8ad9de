# SPDX-License-Identifier: Apache-2.0
"""`ooospec selfcheck`: proof that every method writes what the target writes alone."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import ooospec.cli.options as opt
from ooospec.cli.requests import gather
from ooospec.cli.samples import SAMPLES

if TYPE_CHECKING:
    from ooospec.bits import BitsReport
    from ooospec.engine import Engine
    from ooospec.selfcheck import Difference, MethodReport

MAX_BITS_TOKENS = 4096  # longest prompt whose logits are compared bit by bit
NUM_BITS_LENGTHS = 12


@opt.with_engine_options
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
    bits: Annotated[
        bool, typer.Option("--bits", help="Also compare logits bit by bit, over random trees.")
    ] = False,
    as_json: opt.Json = False,
    *,
    how: opt.EngineOptions,
) -> None:
    """Check that every method gives the tokens of `ar`, greedy and sampled; exit code 1 if not.

    ooospec selfcheck --target Qwen/Qwen2.5-Coder-1.5B-Instruct

    ooospec selfcheck --target MODEL --sidecar SMALL_MODEL --requests requests.jsonl --limit 20

    ooospec selfcheck --target MODEL --bits  (on the GPU that will serve it)
    """
    from ooospec.selfcheck import level_after
    from ooospec.selfcheck import selfcheck as check

    console = Console(stderr=True)
    for name in method or ():
        opt.check_method(name, how)
    asked = SAMPLES[:limit] if requests is None else gather(None, requests, None, limit=limit)
    with opt.open_engine(target, sidecar, how, console) as engine:
        methods = method or list(engine.methods)
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
        found_bits = _check_bits(engine, seed, console) if bits else None
        if found_bits is not None:
            equal = equal and not found_bits.differences
        engine.backend.level = level_after(engine.backend, equal, has_bits=bits)
        if as_json:
            listed = {name: [asdict(one) for one in found] for name, found in reports.items()}
            rest = {} if found_bits is None else {"bits": asdict(found_bits)}
            known = {"target": target, "equal": equal, "level": engine.backend.level}
            print(json.dumps(known | {"passes": listed} | rest))
        else:
            _print(Console(), engine, reports)
            if found_bits is not None:
                _print_bits(found_bits)
            print(f"level: {engine.backend.level}")
            print(f"equal to ar: {'yes' if equal else 'NO'}")
    raise typer.Exit(0 if equal else 1)


def _check_bits(engine: Engine, seed: int, console: Console) -> BitsReport:
    from ooospec.bits import border_lengths, busy_device, check_bits

    model = engine.backend
    limit = min(model.context_limit, MAX_BITS_TOKENS)
    lengths = border_lengths(random.Random(seed), limit, NUM_BITS_LENGTHS)
    with console.status("bits") as status:
        return check_bits(
            model,
            lengths,
            seed=seed,
            beside=busy_device(model.device),
            on_case=lambda case, length: status.update(f"bits: {case}, {length} tokens"),
        )


def _print_bits(report: BitsReport) -> None:
    print(f"bits: {report.num_rows} rows of logits in {report.num_cases} cases")
    for one in report.differences:
        print(
            f"bits: {one.case}, {one.length} tokens: row {one.row} differs by up to"
            f" {one.largest:.3g}"
        )


def _print(console: Console, engine: Any, reports: dict[str, list[MethodReport]]) -> None:
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
