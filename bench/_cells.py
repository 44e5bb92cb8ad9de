# SPDX-License-Identifier: Apache-2.0
"""The requests of each cell: which rows of which files, with what was recorded of them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from _requests import FILES, read_requests, spread
from ooospec.bench.shapes import SHAPES
from ooospec.hashes import requests_hash

Row = dict[str, Any]
Files = dict[str, list[Row]]
FULL = ("Qwen3-8B", "Llama-3.1-8B")  # shapes that answer all requests
SAMPLE = 30  # of each file, for the others
_RECORDED = ("text", "tokens", "answer", "hints")  # by `ooospec trace`, or of `eval-sidecar`
_OF_OUTPUT = ("work", "save", "json", "shapes", "seconds")
BROUGHT = ("train_bfcl", "train_glaive")  # files with rows of several calls, and of none


def paper_files(data: Path) -> Files:
    """Returns API-Bank, ToolAlpaca, and as many BFCL requests as the paper has."""
    files = {file: read_requests(data, file) for file in FILES}
    files["eval_bfcl_javajs"] = [
        row for row in files["eval_bfcl_javajs"] if row["meta"]["paper_like"]
    ]
    return files


def sampled(files: Files, shape: str, count: int = SAMPLE, full: int | None = None) -> Files:
    """Returns a fixed sample, stratified by arguments, of `count` rows a file; for the shapes of
    FULL of `full`, or all.
    """
    if shape in FULL:
        if full is None:
            return files
        count = full
    return {file: stratified(rows, count) for file, rows in files.items()}


def stratified(rows: Sequence[Row], count: int) -> list[Row]:
    """Returns `count` rows at even distances in the order of their numbers of arguments."""
    order = sorted(range(len(rows)), key=lambda i: (_num_arguments(rows[i]), str(rows[i]["id"])))
    return [rows[i] for i in sorted(spread(order, count))]  # type: ignore[arg-type,type-var]


def unrolled_files(data: Path) -> Files:
    """Returns every turn of API-Bank's dialogues that calls, in order; apart those with a value
    that stands in a tool's result before.
    """
    files: Files = {"unrolled": [], "unrolled, values of tools": []}
    for row in read_requests(data, FILES[0]):
        for turn in _turns(row):
            results = " ".join(m["content"] for m in turn["messages"] if m["role"] == "tool")
            values = [str(v) for call in turn["calls"] for v in call["arguments"].values()]
            given = any(value and value in results for value in values)
            files["unrolled, values of tools" if given else "unrolled"].append(turn)
    return files


def other_files(data: Path) -> Files:
    """Returns rows with several calls, and rows with none."""
    rows = [row for file in BROUGHT for row in read_requests(data, file)]
    return {
        "several calls": [row for row in rows if len(row["calls"]) > 1],
        "no call": [row for row in rows if not row["calls"]],
    }


def with_records(files: Files, *records: Path | None) -> Files:
    """Returns the files, each row with what the lines of `records` of its id have besides."""
    known: dict[str, Row] = {}
    for path in filter(None, records):
        for line in path.read_text().splitlines():
            found = json.loads(line)
            kept = {key: found[key] for key in _RECORDED if key in found}
            known.setdefault(str(found["id"]), {}).update(kept)
    return {
        file: [row | known.get(str(row["id"]), {}) for row in rows] for file, rows in files.items()
    }


def replay_parser(tokenizer: str) -> argparse.ArgumentParser:
    """Returns a parser with the options of every bench by replay. tokenizer: whose it is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="folder of the request files")
    parser.add_argument("--tokenizer", help=f"folder or hub id: {tokenizer}")
    parser.add_argument("--sidecar-shape", choices=SHAPES, default="Qwen2.5-0.5B")
    parser.add_argument("--answers", type=Path, help="of `ooospec trace`")
    parser.add_argument("--hints", type=Path, help="of `ooospec eval-sidecar --hints`")
    return parser


def settings_of(args: Any, **more: Any) -> dict[str, Any]:
    """Returns the options of a run that decide what its records are, for a run that goes on."""
    told = {key: value for key, value in vars(args).items() if key not in _OF_OUTPUT}
    read = {key: requests_hash(told[key]) for key in ("answers", "hints") if told.get(key)}
    return json.loads(json.dumps(told | read | more, default=str))  # type: ignore[no-any-return]


def _num_arguments(row: Row) -> int:
    return sum(len(call["arguments"]) for call in row["calls"])


def _turns(row: Row) -> Iterator[Row]:
    """Yields a request for each turn of a dialogue that is a call, the last one included."""
    messages = row["messages_unrolled"]
    turns = [i for i, message in enumerate(messages) if message.get("tool_calls")]
    for number, i in enumerate(turns):
        calls = [
            {"name": one["function"]["name"], "arguments": json.loads(one["function"]["arguments"])}
            for one in messages[i]["tool_calls"]
        ]
        yield {**row, "id": f"{row['id']}.{number}", "messages": messages[:i], "calls": calls}
    yield {**row, "id": f"{row['id']}.{len(turns)}", "messages": messages}
