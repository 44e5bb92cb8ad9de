# SPDX-License-Identifier: Apache-2.0
"""`ooospec requests build`: request files out of what the authors of three sets published."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import ooospec.cli.options as opt
from ooospec.cli.synth import writer
from ooospec.errors import InvalidRequest
from ooospec.sets.build import SETS, build


def build_requests(
    name: Annotated[str, typer.Argument(help="Which set: apibank, toolalpaca or bfcl.")],
    path: Annotated[
        Path,
        typer.Argument(
            help="Clone of the set's repository, or bfcl_eval as a wheel or where it is installed.",
            exists=True,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder of the request file.", callback=opt.folder_place),
    ] = Path(),
) -> None:
    """Build an evaluation set's request file, and print its hash.

    apibank: a clone of github.com/hemingkx/ToolSpec. toolalpaca: of
    github.com/tangqiaoyu/ToolAlpaca. bfcl: pip download --no-deps bfcl_eval==2026.3.23.

    ooospec requests build bfcl bfcl_eval-2026.3.23-py3-none-any.whl --out data

    The hash is SHA-256 over the lines. Exit code 1 if it is not that of the rows the committed
    results are from.
    """
    if name not in SETS:
        raise InvalidRequest(f"name: expected one of {', '.join(SETS)}, got {name!r}")
    one = SETS[name]
    built = build(name, path)
    file = out / f"{one.file}.jsonl.gz"
    with writer(file) as lines:
        lines.write(built.lines)
    print(f"{built.sha256}  {file}")
    for changed in built.changed:
        print(f"{changed}: not the file of {one.source}", file=sys.stderr)
    if built.sha256 != one.sha256:
        print(f"{file}: {built.num_rows} requests, others than {one.sha256}", file=sys.stderr)
        raise typer.Exit(1)
    print(f"{built.num_rows} requests, those of the committed results", file=sys.stderr)
