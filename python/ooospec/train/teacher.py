# SPDX-License-Identifier: Apache-2.0
"""What a teacher writes to requests, kept as training rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ooospec._core import _C
from ooospec.engine import Engine, Generation
from ooospec.errors import InvalidRequest, OutOfPages
from ooospec.files import append_whole, make_folder, whole_lines
from ooospec.formats import tool_set
from ooospec.train.labels import BadRow, label


@dataclass
class TraceFiles:
    """Where traces go: rows to learn from, and beside them what could not be read, with why."""

    path: Path

    @property
    def failed_path(self) -> Path:
        return self.path.with_suffix(".failed.jsonl")

    def done(self) -> set[str]:
        """Returns the ids that were traced already, read or not; a line that a kill cut off is
        taken away. Mutates: the files. Raises InvalidRequest for a file of something else.
        """
        return {
            _id_of(line, f"{path}, line {number}")
            for path in (self.path, self.failed_path)
            for number, line in enumerate(whole_lines(path), start=1)
        }

    def add(self, request: Mapping[str, Any], answer: Generation | None, failure: str) -> None:
        """Writes the row of a request. failure: why its answer has no call that can be learnt, or
        "". Raises InvalidRequest where that cannot be.
        """
        row: dict[str, Any] = {"id": request["id"], "messages": request["messages"]}
        row["tools"] = request.get("tools")
        if "source" in request:
            row["source"] = request["source"]
        if answer is not None:
            row |= {"text": answer.text, "tokens": answer.token_ids}
        if failure:
            row["reason"] = failure
        else:
            assert answer is not None
            row["call"] = first_call(answer)
        path = self.failed_path if failure else self.path
        make_folder(path.parent)
        try:
            line = json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # half of a surrogate pair has no bytes
            line = json.dumps(row).encode()
        append_whole(path, line + b"\n")


def trace(
    engine: Engine,
    requests: Seq[Mapping[str, Any]],
    files: TraceFiles,
    *,
    method: str = "toolspec",
    max_tokens: int = 512,
) -> Iterator[str]:
    """Runs a teacher over the requests that `files` does not hold yet; yields after each why it
    failed, or "". The answers are those of plain greedy decoding, whatever the method.
    """
    done = files.done()
    for request in requests:
        if str(request["id"]) in done:
            continue
        answer = None
        try:
            answer = engine.generate(
                request["messages"], request.get("tools"), method=method, max_tokens=max_tokens
            )
            failure = why_unusable(answer, request)
        except (InvalidRequest, OutOfPages) as error:
            failure = f"not run: {error}"
        files.add(request, answer, failure)
        yield failure


def first_call(answer: Generation) -> dict[str, Any] | None:
    """Returns the first call of an answer as `{"name", "arguments": object}`; None for no call."""
    if not answer.tool_calls:
        return None
    function = answer.tool_calls[0]["function"]
    return {"name": function["name"], "arguments": json.loads(function["arguments"])}


def why_unusable(answer: Generation, request: Mapping[str, Any]) -> str:
    """Returns why nothing can be learnt from the call of an answer, or ""."""
    tools = request.get("tools")
    if not tools:
        return "the request has no tools"
    if not answer.tool_calls:
        return _why_no_call(answer, tools)
    try:
        call = first_call(answer)
    except ValueError:
        return "the arguments are no JSON"
    try:
        label({**request, "call": call})
    except BadRow as error:
        return str(error)
    return ""


def _why_no_call(answer: Generation, tools: Seq[Any]) -> str:
    """Returns what is wrong with an answer that has no call, or "" where it wants none."""
    reader = _C.CallReader(tool_set(tools))
    reader.feed(answer.text.encode())
    if reader.calls:
        return f"a call of an unknown function: {reader.calls[0].name}"
    if answer.finish_reason == "length":
        return "cut off before a call was complete"
    if reader.in_call:
        return "a call that does not end"
    markers = ("<tool_call>", "<|python_tag|>", '"arguments"', '"parameters"')
    if any(marker in answer.text for marker in markers):
        return "a call that is no JSON"
    return ""


def _id_of(line: str, where: str) -> str:
    try:
        return str(json.loads(line)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(
            f"{where}: expected a row of `ooospec trace`, got {line:.60}; give another --out"
        ) from error
