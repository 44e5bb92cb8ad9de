# SPDX-License-Identifier: Apache-2.0
"""Schemas that refer to others, or allow several: drafted like those written out; F18, F19."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from call_strategies import tool
from equality import Counts
from ooospec import _C
from ooospec.backends.load import load_backend
from ooospec.draft import Drafter
from ooospec.engine import Engine
from ooospec.methods import METHODS
from ooospec.replay import replay
from test_drafter import answer, byte_text
from tiny_caller import PROMPT, caller_text
from tiny_models import tiny_tokenizer
from tiny_taught import taught_model

POINT = {
    "type": "object",
    "properties": {"latitude": {"type": "number"}, "longitude": {"type": "number"}},
    "required": ["latitude", "longitude"],
}
PLACE = {
    "type": "object",
    "properties": {"town": {"type": "string"}, "is_capital": {"type": "boolean"}},
    "required": ["town", "is_capital"],
}
POINTS = [{"latitude": 1, "longitude": 2}, {"latitude": 3, "longitude": 4}]
PLACES = [{"town": "Ulm", "is_capital": False}, {"latitude": 3, "longitude": 4}]
CASES: list[tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]] = [
    ({"$ref": "#/$defs/Point"}, POINT, POINTS),
    ({"allOf": [{"$ref": "#/definitions/Point"}]}, POINT, POINTS),
    ({"anyOf": [{"$ref": "#/$defs/Point"}, {"$ref": "#/$defs/Place"}]}, {}, PLACES),
    ({"oneOf": [PLACE, {"$ref": "#/$defs/Point"}, {"type": "null"}]}, {}, PLACES),
]


def with_items(items: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns tools of which one takes a list of what `items` describes."""
    only = tool("travel", {"via": {"type": "array", "items": items}}, ["via"])
    definitions = {"Point": POINT, "Place": PLACE}
    only["function"]["parameters"] |= {"$defs": definitions, "definitions": definitions}
    return [only]


def num_rounds(items: dict[str, Any], ids: list[int]) -> int:
    return len(replay(Drafter(byte_text(), with_items(items), METHODS["toolspec"], [1]), ids))


@pytest.mark.parametrize(("linked", "written_out", "values"), CASES)
def test_keys_behind_a_link_are_drafted(
    linked: dict[str, Any], written_out: dict[str, Any], values: list[dict[str, Any]]
) -> None:
    ids = answer({"name": "travel", "arguments": {"via": values}})
    rounds = num_rounds(linked, ids)
    assert rounds < num_rounds({"type": "object"}, ids) / 2
    if written_out:
        assert rounds == num_rounds(written_out, ids)


def test_answers_stay_those_of_the_target() -> None:
    """Calls that follow the schema, and calls that do not: with drafts the ids of `ar`."""
    calls = [POINTS, PLACES, [{"town": 7, "longitude": [], "other": None}], "Ulm"]
    style = _C.CallStyle("tags")
    taught = []
    for k, via in enumerate(calls):
        text = _C.render_calls([("travel", json.dumps({"via": via}))], style)
        prompt = [*PROMPT, 100 + k]
        taught.append((prompt, [*caller_text().encode(text), caller_text().end_token]))
    engine = Engine(load_backend(taught_model(taught), tokenizer=tiny_tokenizer()))
    counts = Counts()
    for linked, _, _ in CASES:
        for prompt, ids in taught:
            drafter = Drafter(caller_text(), with_items(linked), METHODS["toolspec"], prompt)
            got = engine.generate_ids(prompt, method=lambda _, one=drafter: one, max_tokens=200)
            assert got.token_ids == engine.generate_ids(prompt, max_tokens=200).token_ids == ids
            counts.add(got)
    counts.check(tokens=800, accepted=500, rejected=50)


pointers = ["#", "#/$defs/a", "#/$defs/b", "#/properties/x", "", "#/~"]
leaves = st.sampled_from([{"$ref": one} for one in pointers] + [{"const": 1}, {"type": "string"}])
links = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(
            lambda properties, required: {"properties": properties, "required": required},
            st.dictionaries(st.sampled_from("abx"), inner, max_size=3),
            st.lists(st.sampled_from("abx"), max_size=3),
        ),
        st.builds(
            lambda keyword, ways: {keyword: ways},
            st.sampled_from(["anyOf", "oneOf", "allOf"]),
            st.lists(inner, max_size=3),
        ),
        st.builds(lambda items: {"items": items}, inner),
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from("ab"), links), links, st.data())
def test_any_links_are_taken(defs: dict[str, Any], x: dict[str, Any], data: st.DataObject) -> None:
    """F21: in whatever circles schemas lead, drafts are JSON that goes on from the text."""
    one = tool("one", {"x": x}, ["x"])
    one["function"]["parameters"]["$defs"] = defs
    parsed = _C.ToolSet(json.dumps([one]))
    text = b'{"name": "one", "arguments": {"x": '
    for _ in range(3):
        reader = _C.CallReader(parsed)
        reader.feed(text)
        if not reader.in_call:
            return
        for path in (paths := _C.CallWriter().write_on(reader, [], [], 8)):
            ahead = _C.CallReader(parsed)
            ahead.feed(text + path.text)
            assert ahead.in_call or ahead.calls
        if not paths:
            return
        path = data.draw(st.sampled_from(paths))
        text += path.text[: data.draw(st.integers(0, len(path.text)))]
