# SPDX-License-Identifier: Apache-2.0
"""The results of a bench for people and machines: a table, CSV, JSON and one page of HTML."""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from ooospec.bench.plots import plots
from ooospec.bench.records import Record
from ooospec.bench.summary import Cell, Ratio
from ooospec.bench.waves import COLUMNS as WAVE_COLUMNS
from ooospec.bench.waves import WaveFigures, wave_figures, wave_texts
from ooospec.files import write_text

COLUMNS = (
    "target",
    "file",
    "method",
    "requests",
    "equal",
    "x ar, after the first token",
    "x ar, arrival to last token",
    "tokens a round",
    "of the call",
    "p50 ms",
    "p95 ms",
    "first token p50 ms",
    "parse",
    "function",
    "arguments",
)
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right;
         white-space: nowrap; }
th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left; }
tr.first td { border-top: 2px solid #999; }
tr.best td { background: #eef6ea; }
figure { margin: 2rem 0; overflow-x: auto; } figcaption { color: #555; max-width: 60rem; }
.wide { overflow-x: auto; } .bad { color: #b00; font-weight: bold; } code { font-size: 13px; }
dt { font-weight: 600; } dd { margin: 0 0 .4rem 1rem; }
"""


def cell_texts(cell: Cell) -> list[str]:
    """Returns a cell as the texts of COLUMNS."""
    return [
        cell.target,
        cell.file,
        cell.method,
        str(cell.num_requests),
        f"{cell.num_equal} of {cell.num_requests}",
        _ratio(cell.decode),
        _ratio(cell.total),
        f"{cell.rate:.2f}",
        "-" if cell.call_rate is None else f"{cell.call_rate:.2f}",
        f"{cell.p50_ms:,.1f}",
        f"{cell.p95_ms:,.1f}",
        f"{cell.first_p50_ms:,.1f}",
        *(_share(value) for value in (cell.parses, cell.function, cell.arguments)),
    ]


def rich_tables(cells: Seq[Cell], caption: str = "") -> list[Table]:
    """Returns a table for each target and file, for a terminal. caption: said below each."""
    tables = []
    for place in dict.fromkeys((cell.target, cell.file) for cell in cells):
        own = [cell for cell in cells if (cell.target, cell.file) == place]
        shares = [own[0].parses, own[0].function, own[0].arguments]
        names = ("parse", "right functions", "right arguments")
        right = ", ".join(f"{_share(s)} {n}" for s, n in zip(shares, names, strict=True) if s)
        title = f"{place[1]} on {place[0]}, {own[0].num_requests} requests"
        below = "\n".join(filter(None, (right, caption)))
        table = Table(title=title, title_justify="left", caption=below, caption_justify="left")
        table.add_column("method", no_wrap=True)
        headings = ("equal", "decoding", "in total", "a round", "of the call", "p50 ms", "p95 ms")
        for heading in headings:
            table.add_column(heading, justify="right", overflow="fold")
        for cell in own:
            texts = cell_texts(cell)
            style = "bold red" if cell.num_equal < cell.num_requests else None
            equal = f"{cell.num_equal}/{cell.num_requests}"
            table.add_row(texts[2], equal, *texts[5:11], style=style)
        tables.append(table)
    return tables


def wave_table(waves: Seq[WaveFigures]) -> Table:
    """Returns what became of waves, for a terminal."""
    table = Table(title="the sidecar's waves", title_justify="left")
    for place, heading in enumerate(WAVE_COLUMNS):
        table.add_column(heading, justify="left" if place < 2 else "right", overflow="fold")
    for one in waves:
        table.add_row(*wave_texts(one))
    return table


def write_csv(path: Path, cells: Seq[Cell], facts: dict[str, Any]) -> None:
    """Writes a row for each cell, each with the facts of the run."""
    rows = []
    for cell in cells:
        row = asdict(cell)
        for name in ("decode", "total"):
            ratio: Ratio = row.pop(name)
            row |= {name: ratio[0], f"{name}_low": ratio[1], f"{name}_high": ratio[2]}
        rows.append(row | facts)
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, file.getvalue())


def write_json(
    path: Path, cells: Seq[Cell], waves: Seq[WaveFigures], facts: dict[str, Any]
) -> None:
    """Writes facts, cells and waves; ratios are [value, low, high]."""
    known = {
        "facts": facts,
        "cells": [asdict(cell) for cell in cells],
        "waves": [asdict(one) for one in waves],
    }
    write_text(path, json.dumps(known, indent=1) + "\n")


def write_html(
    path: Path,
    cells: Seq[Cell],
    records: Seq[Record],
    facts: dict[str, Any],
    notes: Seq[str],
    *,
    caption: str = "",
    verdict: str = "have the token ids of plain decoding",
) -> None:
    """Writes one page that needs nothing else. Raises MissingExtra without matplotlib.

    caption: said below every table and plot. verdict: what equal answers have.
    """
    equal = sum(record.equal for record in records)
    said = html.escape(f"{equal:,} of {len(records):,} answers {verdict}.")
    page = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>ooospec bench</title>',
        f"<style>{STYLE}</style></head><body>",
        "<h1>ooospec bench</h1>",
        f"<p>{said}</p>" if equal == len(records) else f'<p class="bad">{said}</p>',
        *(f"<p>{html.escape(note)}</p>" for note in notes),
        '<div class="wide"><table><tr>',
        *(f"<th>{html.escape(name)}</th>" for name in COLUMNS),
        "</tr>",
        *_rows(cells),
        "</table></div>",
    ]
    waves = wave_figures(records)
    if waves:
        page += [
            "<h2>The sidecar's waves</h2>",
            *_plain_table(WAVE_COLUMNS, map(wave_texts, waves)),
        ]
    if caption:
        page.append(f"<p>{html.escape(caption)}</p>")
    for about, picture in plots(cells, records):
        below = html.escape(f"{about} {caption}".strip())
        page.append(f"<figure>{picture}<figcaption>{below}</figcaption></figure>")
    page.append("<h2>The run</h2><dl>")
    for name, value in facts.items():
        page.append(f"<dt>{html.escape(name)}</dt><dd><code>{html.escape(str(value))}</code></dd>")
    page.append("</dl></body></html>")
    write_text(path, "\n".join(page) + "\n")


def _plain_table(columns: Seq[str], rows: Iterable[Seq[str]]) -> list[str]:
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    lines = ["".join(f"<td>{html.escape(text)}</td>" for text in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return ['<div class="wide"><table>', f"<tr>{heads}</tr>{body}", "</table></div>"]


def _rows(cells: Seq[Cell]) -> list[str]:
    rows = []
    best: dict[tuple[str, str], float] = {}
    for cell in cells:
        place = (cell.target, cell.file)
        best[place] = max(best.get(place, 0), cell.total.value)
    before: tuple[str, str] | None = None
    for cell in cells:
        place = (cell.target, cell.file)
        classes = ["first"] if place != before else []
        if cell.total.value == best[place]:
            classes.append("best")
        before = place
        texts = "".join(f"<td>{html.escape(text)}</td>" for text in cell_texts(cell))
        rows.append(f'<tr class="{" ".join(classes)}">{texts}</tr>')
    return rows


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.value:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"
