# SPDX-License-Identifier: Apache-2.0
"""Made-up requests: the same by seed, valid, and answered by what their dialogues say."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ooospec.cli.main import run
from ooospec.cli.requests import read_requests
from ooospec.errors import InvalidRequest
from ooospec.formats import parameters, required
from ooospec.synth import held_out_world, train_world
from ooospec.synth.families import FAMILIES
from ooospec.synth.generate import generate
from ooospec.synth.kinds import NUMBER_WORDS
from ooospec.synth.tools import cased
from ooospec.synth.world import World
from ooospec.train.labels import label

Row = dict[str, Any]
WORLDS = (train_world.WORLD, held_out_world.WORLD)
TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


@pytest.fixture(scope="module", params=[False, True], ids=["train", "held-out"])
def rows(request: pytest.FixtureRequest) -> list[Row]:
    return list(generate(1500, seed=11, held_out=request.param))


def dialogue(row: Row) -> str:
    """Returns all that is said, called and answered."""
    parts = []
    for message in row["messages"]:
        parts.append(message["content"])
        for call in message.get("tool_calls", ()):
            parts += [call["function"]["name"], call["function"]["arguments"]]
    return "\n".join(parts)


def called_tool(row: Row, call: Row) -> Row:
    return next(tool for tool in row["tools"] if tool["function"]["name"] == call["name"])


def is_of(value: Any, schema: Row) -> bool:
    """Returns whether a value is what a schema asks for."""
    if not isinstance(value, TYPES[schema["type"]]):
        return False
    if isinstance(value, bool) and schema["type"] != "boolean":
        return False
    if isinstance(value, list):
        return all(is_of(item, schema["items"]) for item in value)
    if isinstance(value, dict):
        fields = schema["properties"]
        return set(schema["required"]) <= value.keys() <= fields.keys() and all(
            is_of(item, fields[key]) for key, item in value.items()
        )
    return value in schema.get("enum", [value])


def test_rows_are_a_function_of_seed_and_number() -> None:
    first = list(generate(40, seed=5))
    assert list(generate(40, seed=5)) == first
    assert list(generate(7, seed=5)) == first[:7]
    assert list(generate(40, seed=6)) != first
    assert json.dumps(first) != json.dumps(list(generate(40, seed=5, held_out=True)))
    assert len({row["id"] for row in first}) == 40


def test_every_row_is_a_valid_request_with_calls_of_its_schemas(rows: list[Row]) -> None:
    for row in rows:
        wanted = label(row)
        assert (wanted.tool is None) == (row["calls"] == [])
        names = [tool["function"]["name"] for tool in row["tools"]]
        assert len(set(names)) == len(names)
        for call in row["calls"]:
            tool = called_tool(row, call)
            assert set(required(tool)) <= call["arguments"].keys() <= parameters(tool).keys()
            for key, value in call["arguments"].items():
                assert is_of(value, parameters(tool)[key]), (row["id"], key, value)


def test_the_source_of_every_argument_stands_in_the_dialogue(rows: list[Row]) -> None:
    for row in rows:
        text = dialogue(row)
        assert len(row["meta"]["said"]) == len(row["calls"])
        for call, said in zip(row["calls"], row["meta"]["said"], strict=True):
            for key, value in call["arguments"].items():
                if isinstance(value, str) and "zugzwang" in value:
                    assert value in said[key]
    with pytest.raises(InvalidRequest, match="strange: expected a share from 0 to 1, got 2"):
        generate(1, strange=2)
