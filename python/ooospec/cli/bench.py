# SPDX-License-Identifier: Apache-2.0
"""`ooospec bench`: methods side by side on targets and files of requests, with a report."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import ooospec.cli.options as opt
from ooospec.cli.bench_report import RESULTS, bench_files, run_and_report
from ooospec.errors import InvalidRequest
from ooospec.hashes import checkpoint_hash, requests_hash
from ooospec.version import VERSION

SMOKE_REQUESTS, SMOKE_TOKENS = 2, 24
METHODS = ("ar", "pld", "sam", "recycling", "span", "toolspec", "self")
PERFECT = "perfect"


def bench(
    target: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", help="Model that answers; may be repeated."),
    ] = None,
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
            "'ooo, NAME' and 'ooo+self, NAME': with that adapter."
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
        Path,
        typer.Option(
            help="Folder of the results. A run that was stopped goes on there.",
            callback=opt.folder_place,
        ),
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
    split_device: opt.SplitDevice = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    smoke: Annotated[
        bool,
        typer.Option(
            "--smoke",
            help="Only show that it runs: two requests, short answers; without --target by tiny "
            "models that know nothing.",
        ),
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Compare methods on your models and requests: a table, CSV, JSON and one HTML page with plots.

    ooospec bench --target MODEL --requests requests.jsonl --out results

    ooospec bench --target MODEL --requests a.jsonl --requests b.jsonl --sidecar SMALL_MODEL
    --adapter mine=adapter --method toolspec --method "ooo, mine" --method perfect

    Every answer is compared with that of `ar`; exit code 1 if one differs.
    """
    from ooospec.bench.plots import check_matplotlib
    from ooospec.bench.records import RecordFile
    from ooospec.bench.run import BenchConfig, run_bench

    check_matplotlib()
    console = Console(stderr=True)
    adapters = _adapters(adapter or [], sidecar)
    if smoke:
        limit, max_tokens = SMOKE_REQUESTS, SMOKE_TOKENS
    if target is None:
        if not smoke:
            raise InvalidRequest("--target: expected at least one model, got none")
        target, sidecar, wave = *_untrained(out), opt.Wave.always
    if split_device is not None and sidecar is None:
        raise InvalidRequest("--split-device: expected a --sidecar that runs there, got none")
    config = BenchConfig(
        methods=_methods(method, sidecar, adapters, draft_model, split_device),
        sidecar=sidecar,
        adapters=adapters,
        wave=wave.value,
        sources=tuple(source or ()),
        draft_model=draft_model,
        device=device,
        dtype=dtype,
        sidecar_device=sidecar_device,
        sidecar_dtype=sidecar_dtype,
        split_device=split_device,
        cost_model=cost_model,
        warm=warm,
        max_tokens=max_tokens,
    )
    files = bench_files(requests or [], limit)
    hashes = {path.name.partition(".")[0]: requests_hash(path) for path in requests or []}
    models = [*target, *filter(None, (sidecar, draft_model)), *adapters.values()]
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
    if sidecar is not None:
        opt.announce("sidecar", sidecar, console)
    notes = [
        f"Speed-ups are over this engine's own plain decoding (`ar`), prompts "
        f"{'cached' if warm else 'not cached'} for all methods; trees are "
        f"{'sized by measured cost' if cost_model else 'as large as they may be'}. "
        "Perfect hints are what `ar` wrote, there at arrival: a ceiling, not a method.",
    ]
    run_and_report(
        lambda say: run_bench(target, files, config, kept, say=say),
        kept,
        out=out,
        total=len(target) * sum(map(len, files.values())),
        settings=settings,
        notes=notes,
        seed=seed,
        as_json=as_json,
        console=console,
    )


def _untrained(out: Path) -> tuple[list[str], str]:
    """Returns a target and a sidecar that are made in the folder of the results."""
    from ooospec.tiny.untrained import untrained_pair

    target, sidecar = untrained_pair(out / "untrained")
    return [target], sidecar


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
    wanted: list[str] | None,
    sidecar: str | None,
    adapters: dict[str, str],
    draft: str | None,
    split: str | None,
) -> tuple[str, ...]:
    from ooospec.bench import run

    if wanted is None:
        names = [*METHODS, *(["draft"] if draft else [])]
        names += ["ooo", "ooo+self"] if sidecar else []
        names += [f"ooo, {name}" for name in adapters]
        if split is not None:
            names += [name + run.SPLIT for name in names if name.startswith("ooo")]
        names.append(run.PERFECT)
    else:
        names = [run.PERFECT if name == PERFECT else name for name in wanted]
        if not {"ooo", "ooo+self"}.isdisjoint(names) and sidecar is None:
            raise InvalidRequest("--method ooo: expected a --sidecar, got none")
        for name in adapters:
            if not any(one.removesuffix(run.SPLIT).endswith(f", {name}") for one in names):
                raise InvalidRequest(f"--adapter: expected --method 'ooo, {name}' for it, got none")
    return tuple(dict.fromkeys([run.PLAIN, *names]))
