# SPDX-License-Identifier: Apache-2.0
"""`ooospec replay`: methods side by side on models in the shapes of large ones, without weights."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import ooospec.cli.options as opt
from ooospec.cli.bench_report import RESULTS, bench_files, run_and_report
from ooospec.errors import InvalidRequest
from ooospec.hashes import checkpoint_hash, requests_hash
from ooospec.model_files import load_tokenizer


class Runs(StrEnum):
    """What computes the target's rows."""

    fused = "fused"
    transformers = "transformers"


def replay(
    shape: Annotated[
        list[str], typer.Option("--shape", help="Of a target, such as Qwen3-8B; may be repeated.")
    ],
    tokenizer: Annotated[str, typer.Option(help="Folder or hub id: the targets' tokenizer.")],
    requests: Annotated[
        list[Path],
        typer.Option(
            help='File of requests, {"messages", "tools"} and "answer", "token_ids" or "text" (of '
            '`ooospec trace`), else "calls", a line; "hints": of a sidecar. May be repeated.',
            exists=True,
            dir_okay=False,
        ),
    ],
    sidecar_shape: Annotated[
        str | None, typer.Option(help="Of the sidecar; without it there is no ooo and no ooo+self.")
    ] = None,
    sidecar_tokenizer: Annotated[
        str | None, typer.Option(help="The sidecar's; --tokenizer.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Only this one; may be repeated.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder of the results. A run that was stopped goes on there.",
            callback=opt.folder_place,
        ),
    ] = Path("replay-results"),
    limit: Annotated[
        int | None, typer.Option(help="So many requests of each file, evenly spread.", min=1)
    ] = None,
    warm: Annotated[
        bool, typer.Option("--warm", help="Prompts are cached for all methods, not for none.")
    ] = False,
    cost_model: Annotated[
        bool, typer.Option(help="Size trees by the measured cost of rounds.")
    ] = True,
    backend: Annotated[
        Runs, typer.Option(help="Our kernels, or the modules of transformers.")
    ] = Runs.fused,
    device: opt.Device = None,
    dtype: opt.Dtype = None,
    wave: opt.WaveOption = opt.Wave.always,
    split_device: opt.SplitDevice = None,
    seed: Annotated[int, typer.Option(help="Of the weights and the bootstrap.")] = 0,
    as_json: opt.Json = False,
) -> None:
    """Compare methods on models of true shape with random weights, along recorded answers.

    All is computed that a real model computes; what it would say is replaced by the record. The
    sidecar's wave runs too, and each recorded hint goes out when its own steps have ended.

    ooospec replay --shape Qwen3-8B --sidecar-shape Qwen2.5-0.5B --tokenizer MODEL
    --requests a.jsonl

    Raw logits behind every token are compared with those of `ar`; exit code 1 if one differs.
    """
    from ooospec.bench.plots import check_matplotlib
    from ooospec.bench.records import RecordFile
    from ooospec.bench.replayed import APART, CAPTION, HINTED, REPLAYED, run_replay
    from ooospec.bench.run import PERFECT, PLAIN, BenchConfig
    from ooospec.bench.shapes import shape_of

    check_matplotlib()
    if wave is opt.Wave.auto:
        raise InvalidRequest("--wave: expected always, wait or never in a replay, got auto")
    console = Console(stderr=True)
    shapes = [shape_of(name) for name in shape]
    if split_device is not None and sidecar_shape is None:
        raise InvalidRequest("--split-device: expected a --sidecar-shape, got none")
    wanted = [PERFECT if name == "perfect" else name for name in method or REPLAYED]
    if method is None and sidecar_shape is None:
        wanted = [name for name in wanted if name not in HINTED]
    elif method is None and split_device is not None:
        wanted.append(APART)
    config = BenchConfig(
        methods=tuple(dict.fromkeys([PLAIN, *wanted])),
        device=device,
        dtype=dtype,
        wave=wave.value,
        split_device=split_device,
        cost_model=cost_model,
        warm=warm,
    )
    texts = load_tokenizer(tokenizer, "--tokenizer")
    small = None
    if sidecar_shape is not None:
        own = load_tokenizer(sidecar_tokenizer or tokenizer, "--sidecar-tokenizer")
        small = shape_of(sidecar_shape), own
    files = bench_files(requests, limit)
    of: dict[str, Any] = {
        "targets": shape,
        "sidecar": sidecar_shape,
        "backend": backend.value,
        "requests": {path.name.partition(".")[0]: requests_hash(path) for path in requests},
        "limit": limit,
        "checkpoints": {tokenizer: checkpoint_hash(tokenizer)},
        "weights": f"random, seed {seed}",
    }
    settings = json.loads(json.dumps(asdict(config) | of))
    kept = RecordFile(out / RESULTS, settings)
    run_and_report(
        lambda say: run_replay(
            shapes,
            files,
            config,
            kept,
            tokenizer=texts,
            sidecar=small,
            backend=backend.value,
            seed=seed,
            say=say,
        ),
        kept,
        out=out,
        total=len(shapes) * sum(map(len, files.values())),
        settings=settings,
        notes=[
            f"Prompts are {'cached' if warm else 'not cached'} for all methods. Hints are recorded "
            "ones where the requests have them, else the calls of the answer itself."
        ],
        seed=seed,
        as_json=as_json,
        console=console,
        caption=CAPTION,
        verdict="have the raw logits of plain decoding behind every token",
    )
