# SPDX-License-Identifier: Apache-2.0
"""What counts as right of a sidecar, and what it is compared with."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ooospec import HintRing
from ooospec.sidecar.placement import open_sidecar
from ooospec.sidecar.worker import SidecarConfig
from ooospec.train.evaluation import Prediction, Tally, ask, baseline, said_calls
from ooospec.train.labels import label
from tiny_models import tiny_tokenizer
from tiny_sidecar import FUNCTION, HINTS, MESSAGES, TOOLS, trained_model

CALL = {"name": "get_weather", "arguments": {"days": 3, "city": "Zürich"}}
REQUEST: dict[str, Any] = {"id": "a", "messages": MESSAGES, "tools": TOOLS, "calls": [CALL]}
RIGHT = {(1, 0): "null", (1, 1): "3", (1, 2): '"Zürich"', (1, 3): "null"}


def tally(*said: Prediction, request: dict[str, Any] = REQUEST) -> dict[str, Any]:
    found = Tally()
    for one in said:
        found.add(request, label(request), one)
    return found.numbers()


def counts(numbers: dict[str, Any]) -> dict[str, tuple[int, int]]:
    found = {key: value for key, value in numbers.items() if isinstance(value, dict)}
    return {key: (value["right"], value["asked"]) for key, value in found.items() if value["asked"]}


def test_all_right() -> None:
    numbers = tally(Prediction(1, RIGHT, (0, 4, 1, 9, 4, 0), 0.02))
    assert counts(numbers) == {
        "function": (1, 1),
        "arguments": (2, 2),
        "arguments as text": (2, 2),
        "calls": (1, 1),
        "null precision": (2, 2),
        "null recall": (2, 2),
    }
    assert numbers["bytes"] == numbers["bytes, arguments all right"] == 18
    assert numbers["bytes with headers"] == 6 * HintRing.RECORD_BYTES + 8 + 8 + 16 + 8
    assert numbers["wave p50 ms"] == pytest.approx(20)


def test_values_of_another_type_are_right_as_text_only() -> None:
    said = Prediction(1, {**RIGHT, (1, 1): '"3"', (1, 0): '"celsius"'})
    assert counts(tally(said)) == {
        "function": (1, 1),
        "arguments": (1, 2),
        "arguments as text": (2, 2),
        "calls": (0, 1),
        "null precision": (1, 1),
        "null recall": (1, 2),
    }


def test_of_a_wrong_function_no_argument_counts() -> None:
    assert counts(tally(Prediction(0, RIGHT), Prediction(None, {}), Prediction(-1, {}))) == {
        "function": (0, 3)
    }


def test_a_request_without_a_call_asks_for_none() -> None:
    nothing = {**REQUEST, "calls": []}
    said = (Prediction(None, {}), Prediction(1, RIGHT))
    assert counts(tally(*said, request=nothing)) == {"none": (1, 2)}


def test_one_tool_is_no_choice() -> None:
    single = {**REQUEST, "tools": TOOLS[1:2]}
    numbers = tally(Prediction(0, {(0, 1): "3.0", (0, 2): "true"}), request=single)
    assert counts(numbers)["arguments"] == (1, 2)
    assert numbers["function"]["share"] is None


def test_the_baseline_takes_the_name_with_most_words_of_the_dialogue_and_null() -> None:
    said = baseline(REQUEST)
    assert said.tool == 1  # "weather"
    assert set(said.values.values()) == {"null"}
    numbers = tally(said)
    assert numbers["arguments"]["share"] == 0
    assert numbers["null recall"]["share"] == numbers["null precision"]["share"] == 1


def test_what_a_sidecar_says_is_gathered_from_its_ring() -> None:
    config = SidecarConfig(trained_model(), tokenizer=tiny_tokenizer(), wave="always")
    config = SidecarConfig(
        **{**vars(config), "examples": False, "device": "cpu", "likely_within": math.inf}
    )
    sidecar = open_sidecar(config)
    try:
        for request_id in (5, 6):
            said = ask(sidecar, request_id, REQUEST)
            assert said.tool == FUNCTION
            assert said.values == HINTS
            assert said.num_bytes == sum(len(text.encode()) for text in HINTS.values())
            assert said.seconds is not None
            assert said.seconds > 0
    finally:
        sidecar.close()


def test_what_was_said_is_a_call_without_its_nulls() -> None:
    names = list(TOOLS[0]["function"]["parameters"]["properties"])
    values = {(0, 0): '"x"', (0, 1): "null", (1, 0): '"of another function"'}
    name = TOOLS[0]["function"]["name"]
    assert said_calls(Prediction(0, values), TOOLS) == [
        {"name": name, "arguments": {names[0]: "x"}}
    ]
    assert said_calls(Prediction(None, values), TOOLS) == []
    assert said_calls(Prediction(-1, {}), TOOLS) == []
