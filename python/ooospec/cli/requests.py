# SPDX-License-Identifier: Apache-2.0
"""Requests and tools as people keep them in files."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ooospec.errors import InvalidRequest

Request = dict[str, Any]


def read_requests(
    path: Path, limit: int | None = None, *, bad: list[str] | None = None
) -> list[Request]:
    """Returns the requests of a file with one JSON object a line, at most `limit` of them.

    Each has messages, and may have tools and an id. Raises InvalidRequest, naming file and line;
    where there is a list `bad`, such lines are named there and left out.
    """
    found: list[Request] = []
    for number, line in enumerate(_lines(path), start=1):
        if len(found) == limit:
            break
        if not line.strip():
            continue
        try:
            found.append({"id": f"line {number}", **_parse(line, f"{path}, line {number}")})
        except InvalidRequest as error:
            if bad is None:
                raise
            bad.append(str(error))
    if not found:
        why = f"; {bad[-1]}" if bad else ""
        raise InvalidRequest(f"{path}: expected at least one request, got none{why}")
    return found


def _parse(line: str, where: str) -> Request:
    try:
        request = json.loads(line.strip())
    except (ValueError, RecursionError) as error:
        got = f"{line.strip():.60}"
        if isinstance(error, json.JSONDecodeError):
            got += f" ({error.msg} at column {error.colno})"
        raise InvalidRequest(f"{where}: expected a JSON object a line, got {got}") from error
    if not isinstance(request, dict) or not isinstance(request.get("messages"), list):
        raise InvalidRequest(f"{where}: expected an object with messages, got {line.strip():.60}")
    return request


def _lines(path: Path) -> Iterator[str]:
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            yield from file
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path}: expected lines of JSON, got {error}") from error


def read_tools(path: Path) -> list[dict[str, Any]]:
    """Returns the tools of a JSON file. Raises InvalidRequest if it holds no list."""
    try:
        tools = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{path}: expected a JSON list of tools, got {error}") from error
    if not isinstance(tools, list):
        raise InvalidRequest(f"{path}: expected a JSON list of tools, got {type(tools).__name__}")
    _check_tools(tools, str(path))
    return tools


def _check_tools(tools: Any, where: str) -> None:
    """Raises InvalidRequest for tools that an engine would refuse."""
    from ooospec.formats import check_tools, tools_as_json

    try:
        check_tools(tools_as_json(tools))
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {error}") from error


def gather(
    text: str | None,
    requests: Path | None,
    tools: Path | None,
    *,
    system: str | None = None,
    limit: int | None = None,
) -> list[Request]:
    """Returns the requests of a command: its text ("-": standard input), or those of a file.

    tools: file of the tools, for requests that bring none. Raises InvalidRequest.
    """
    if (text is None) == (requests is None):
        got = "neither" if text is None else "both"
        raise InvalidRequest(f"expected a request as text or a file with --requests, got {got}")
    if requests is not None:
        found = read_requests(requests, limit)
        for request in found:
            _check_tools(request.get("tools"), f"{requests}, {request['id']}")
    else:
        content = sys.stdin.read() if text == "-" else text
        found = [{"id": "request", "messages": [{"role": "user", "content": content}]}]
    if system is not None:
        for request in found:
            request["messages"] = [{"role": "system", "content": system}, *request["messages"]]
    if tools is not None:
        given = read_tools(tools)
        found = [{"tools": given, **request} for request in found]
    return found
