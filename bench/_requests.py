# SPDX-License-Identifier: Apache-2.0
"""Rows of the evaluation files, and styles of calls, that several benches go through."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ooospec import CallStyle, render_calls
from ooospec.draft import TargetText

FILES = ("eval_apibank", "eval_toolalpaca", "eval_bfcl_javajs")
TRAIN_FILES = ("train_sealtools", "train_acebench", "train_bfcl")


def read_requests(folder: Path, file: str) -> list[dict[str, Any]]:
    """Returns the rows of one request file, plain or gzipped JSONL."""
    packed = folder / f"{file}.jsonl.gz"
    if packed.exists():
        with gzip.open(packed, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]
    with (folder / f"{file}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def spread(rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Returns `count` rows at even distances."""
    if count >= len(rows):
        return rows
    return [rows[i * len(rows) // count] for i in range(count)]


def evaluation_calls(
    folder: Path, count: int
) -> Iterator[tuple[str, str, list[dict[str, Any]], dict[str, Any]]]:
    """Yields (row id, dialogue, tools, call) of up to `count` rows of each file whose call is of a
    listed tool.
    """
    for file in FILES:
        for row in spread(read_requests(folder, file), count):
            known = {tool["function"]["name"] for tool in row["tools"]}
            for call in row["calls"][:1]:
                if call["name"] in known:
                    dialogue = "\n".join(message["content"] or "" for message in row["messages"])
                    yield row["id"], dialogue, row["tools"], call


def call_styles() -> dict[str, Any]:
    """Returns the styles that are drafted, by name."""
    usual = CallStyle
    return {
        "tags": usual("tags"),
        "tags, indented by 2": usual("tags", "  "),
        "fenced json, indented by 2": usual("fenced_json", "  "),
        "fenced json, indented by 4": usual("fenced_json", "    "),
        "fenced": usual("fenced"),
        "bare": usual("bare"),
        "bare, tabs": usual("bare", "\t"),
        "python tag": usual("python_tag"),
    }


def long_dialogue(folder: Path) -> str:
    """Returns what many dialogues say, as one text."""
    return "\n".join(
        message["content"] or ""
        for file in FILES
        for row in read_requests(folder, file)[:60]
        for message in row["messages"]
    )


def with_others(
    tools: list[dict[str, Any]], spare: list[dict[str, Any]], count: int
) -> list[dict[str, Any]]:
    """Returns `tools` and, up to `count` in all, those of `spare` that have other names."""
    known = {tool["function"]["name"]: tool for tool in (*reversed(spare), *tools)}
    for tool in tools:
        del known[tool["function"]["name"]]
    return [*tools, *reversed(known.values())][:count]


def answer_ids(text: TargetText, call: dict[str, Any], style: CallStyle) -> list[int]:
    """Returns an answer that consists of `call`, its end included."""
    arguments = json.dumps(call["arguments"], ensure_ascii=False)
    return [*text.encode(render_calls([(call["name"], arguments)], style)), text.end_token]


def earlier_answers(
    folder: Path, text: TargetText, style: CallStyle, count: int
) -> Iterator[list[int]]:
    """Yields `count` answers of other requests; calls come again with numbers in their values where
    they run out.
    """
    calls = [
        call for file in TRAIN_FILES for row in read_requests(folder, file) for call in row["calls"]
    ]
    for i in range(count):
        call = calls[i % len(calls)]
        again = {"serial": i} if i >= len(calls) else {}
        yield answer_ids(text, {**call, "arguments": call["arguments"] | again}, style)
