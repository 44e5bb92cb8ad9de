# SPDX-License-Identifier: Apache-2.0
"""`ooospec requests synth`: made-up requests, to train, to test and to load a server with."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

import ooospec.cli.options as opt
from ooospec.errors import InvalidRequest
from ooospec.files import whole_file

requests = typer.Typer(
    help="Make up requests for tool calls, or build evaluation sets.", no_args_is_help=True
)


@requests.callback()
def _group() -> None:
    """Make up requests for tool calls, or build evaluation sets: one JSON object a line."""


@requests.command()
def synth(
    count: Annotated[int, typer.Option("--count", "-n", help="How many.", min=1)] = 1000,
    seed: Annotated[int, typer.Option(help="Other seeds give other requests.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File, *.gz is compressed; else standard output.",
            dir_okay=False,
            callback=opt.place,
        ),
    ] = None,
    families: Annotated[
        str | None, typer.Option(help="Comma-separated; all if not given. See above.")
    ] = None,
    held_out: Annotated[
        bool,
        typer.Option(
            "--held-out",
            help="Other wordings, kinds of values and parameter words: a test of training.",
        ),
    ] = False,
    strange: Annotated[
        float,
        typer.Option(help="Share of names and values that are made-up words: a test of copying."),
    ] = 0.0,
) -> None:
    """Make up requests with tools and reference calls; the same seed gives the same ones.

    Families: one (a single tool), choice (of several), turns (values bit by bit), none (no tool
    fits), several (calls at once), needed (another tool gives a value: it comes first), given (its
    result is there), progress (the next of several calls), done (nothing is left to call), ask (a
    value is missing).

    ooospec requests synth --count 10000 --out train.jsonl.gz

    ooospec requests synth --count 500 --held-out --families needed,given --out test.jsonl
    """
    from ooospec.synth.families import FAMILIES
    from ooospec.synth.generate import generate

    names = [name.strip() for name in (families or "").split(",") if name.strip()]
    if families is not None and not names:
        known = ", ".join(FAMILIES)
        raise InvalidRequest(f"--families: expected some of {known}, got {families!r}")
    found: Counter[str] = Counter()
    with writer(out) as file:
        for row in generate(count, seed=seed, families=names, held_out=held_out, strange=strange):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            found[row["meta"]["family"]] += 1
    if out is not None:
        told = ", ".join(f"{name} {number}" for name, number in found.most_common())
        print(f"{out}: {count} requests ({told})", file=sys.stderr)


@contextmanager
def writer(path: Path | None) -> Iterator[TextIO]:
    """Gives a text file to write to; it is at `path` once it is whole. The same rows give the same
    bytes. Raises InvalidRequest.
    """
    if path is None:
        yield sys.stdout
        return
    with ExitStack() as stack:
        file: Any = stack.enter_context(whole_file(path))
        if path.suffix == ".gz":
            file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8"))
