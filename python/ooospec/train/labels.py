# SPDX-License-Identifier: Apache-2.0
"""What a sidecar should have said of a request: the call that a reference or a teacher gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from ooospec.errors import InvalidRequest
from ooospec.formats import normalise_messages, tools_as_json


class BadRow(InvalidRequest):
    """A request that nothing can be learnt from; the message is one of a few reasons."""


@dataclass(frozen=True)
class Label:
    """The next call. tool: its number in the request's list, None: no call.

    arguments: of the first call of each function that is called, by its number.
    """

    tool: int | None
    arguments: Mapping[int, Mapping[str, Any]]


def label(request: Mapping[str, Any]) -> Label:
    """Returns the label of a request with `messages`, `tools` and a call.

    The call is what a teacher wrote (`call`, null: none) where there is one, else the first of the
    reference `calls` (an empty list: none). Raises BadRow.
    """
    try:
        normalise_messages(request.get("messages") or [])
        tools = tools_as_json(request.get("tools"))
    except InvalidRequest as error:
        raise BadRow("messages or tools are not valid") from error
    if not tools:
        raise BadRow("no tools")
    names = [tool["function"]["name"] for tool in tools]
    calls = [_call(call) for call in _calls(request)]
    if any(name not in names for name, _ in calls):
        raise BadRow("a call of a tool that is not listed")
    arguments: dict[int, Mapping[str, Any]] = {}
    for name, values in calls:
        arguments.setdefault(names.index(name), values)
    return Label(names.index(calls[0][0]) if calls else None, arguments)


def called_names(request: Mapping[str, Any]) -> list[str]:
    """Returns the names of the functions that a request's label calls. Raises BadRow."""
    return [_call(call)[0] for call in _calls(request)]


def _calls(request: Mapping[str, Any]) -> Seq[Any]:
    if "call" in request:
        return [] if request["call"] is None else [request["call"]]
    calls = request.get("calls")
    if not isinstance(calls, list):
        raise BadRow("no call: expected `call` or `calls`")
    return calls


def _call(call: Any) -> tuple[str, Mapping[str, Any]]:
    call = call.get("function", call) if isinstance(call, dict) else {}
    name, arguments = call.get("name"), call.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError as error:
            raise BadRow("arguments that are no JSON object") from error
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise BadRow("arguments that are no JSON object")
    return name, arguments
