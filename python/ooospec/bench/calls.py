# SPDX-License-Identifier: Apache-2.0
"""What counts of an answer's calls: the rounds that they took, and how right they are."""

from __future__ import annotations

import json
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from ooospec._core import _C
from ooospec.engine import Generation
from ooospec.errors import InvalidRequest
from ooospec.formats import tool_set


@dataclass(frozen=True)
class CallRounds:
    """Tokens of an answer's calls that rounds committed, and those rounds."""

    num_tokens: int
    num_rounds: int


def call_rounds(
    pieces: Seq[bytes], tools: Seq[dict[str, Any]], answer: Generation
) -> CallRounds | None:
    """Counts from the first token of the answer's first call to the last of its last; None if none
    parses.

    pieces: bytes of each token.
    """
    reader = _C.CallReader(tool_set(tools))
    ends = []
    for token in answer.token_ids:
        reader.feed(pieces[token])
        ends.append(reader.num_bytes)
    if not reader.spans or any(call.tool < 0 for call in reader.calls):
        return None
    begin, end = reader.spans[0][0], reader.spans[-1][1]
    starts = [0, *ends[:-1]]
    inside = [starts[i] < end and ends[i] > begin for i in range(len(ends))]
    num_tokens = num_rounds = 0
    done = 1  # the first token comes from prefill
    for one in answer.metrics.rounds:
        committed = sum(inside[done : done + one.num_committed])
        num_tokens += committed
        num_rounds += committed > 0
        done += one.num_committed
    return CallRounds(num_tokens, num_rounds)


def own_values(answer: Generation, tools: Seq[dict[str, Any]]) -> tuple[int, int]:
    """Returns how many values of branches are those that the answer's calls have, and of how many
    that these have at all.
    """
    num_equal = num_written = 0
    calls = [call["function"] for call in answer.tool_calls]
    ride = answer.metrics.branches
    for call, tool, parameter, value in [] if ride is None else ride.values:
        function = tools[tool]["function"]
        name = list(function["parameters"]["properties"])[parameter]
        if call >= len(calls) or calls[call]["name"] != function["name"]:
            continue
        written = json.loads(calls[call]["arguments"])
        if name in written:
            num_written += 1
            num_equal += written[name] == json.loads(value)
    return num_equal, num_written


@dataclass(frozen=True)
class Rightness:
    """How an answer stands to the reference calls.

    parses: it has calls of known tools, or none where none is right. function: the first call is of
    the right function. num_right of num_arguments: the reference's first call's, equal as JSON.
    """

    parses: bool
    function: bool
    num_right: int
    num_arguments: int


def check_reference(row: dict[str, Any]) -> None:
    """Raises InvalidRequest for a row whose `calls` are no list of names and arguments."""
    calls = row.get("calls")
    for call in [] if calls is None else calls if isinstance(calls, list) else [calls]:
        good = isinstance(call, dict) and isinstance(call.get("name"), str)
        if not good or not isinstance(call.get("arguments"), dict):
            raise InvalidRequest(
                f"{row['id']}: expected calls, a list of objects with `name` and `arguments`, got "
                f"{call!r:.80}"
            )


def rightness(answer: Generation, row: dict[str, Any]) -> Rightness | None:
    """Compares an answer with `row["calls"]`; None for a row without reference."""
    if row.get("calls") is None:
        return None
    known = {tool["function"]["name"] for tool in row.get("tools") or ()}
    calls = [call["function"] for call in answer.tool_calls]
    parses = all(call["name"] in known for call in calls) and bool(calls) == bool(row["calls"])
    if not row["calls"]:
        return Rightness(parses, not calls, 0, 0)
    wanted = row["calls"][0]
    right = bool(calls) and calls[0]["name"] == wanted["name"]
    given = json.loads(calls[0]["arguments"]) if right else {}
    num_right = sum(
        name in given and given[name] == value for name, value in wanted["arguments"].items()
    )
    return Rightness(parses, right, num_right, len(wanted["arguments"]))
