# SPDX-License-Identifier: Apache-2.0
"""Tool lists: names, parameters, and one clear error for each that is not valid."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from call_strategies import names, tool, tools_and_call, values
from ooospec._core import _C


@given(tools_and_call())
def test_names_and_parameters_are_found(drawn: tuple[Any, str, Any]) -> None:
    """G33: any text is a name."""
    tools, _, _ = drawn
    parsed = _C.ToolSet(json.dumps(tools))
    assert len(parsed) == len(tools)
    for k, one in enumerate(tools):
        name = one["function"]["name"]
        assert parsed.find(name) == k
        assert parsed.name(k) == name
        assert parsed.parameters(k) == list(one["function"]["parameters"]["properties"])
    assert parsed.find("no such tool") == -1
    assert parsed.hash == _C.ToolSet(json.dumps(tools)).hash


@given(st.dictionaries(names, values, max_size=4), st.sampled_from(["properties", "whole"]))
def test_any_schema_of_a_parameter_is_taken(junk: dict[str, Any], place: str) -> None:
    """F20, F21: whatever stands where a schema belongs, the other tools and parameters work."""
    odd = {"a": {"type": "string"}, "odd": junk if place == "whole" else {"properties": junk}}
    tools = [tool("odd", odd, ["a"]), tool("good", {"b": {"enum": ["x"]}}, ["b"])]
    parsed = _C.ToolSet(json.dumps(tools))
    assert parsed.parameters(0) == ["a", "odd"]
    reader = _C.CallReader(parsed)
    reader.feed(b'{"name": "good", "arguments": {')
    assert _C.CallWriter().write_on(reader, [], [])[0].text.startswith(b'"b": "x"}}')
    reader = _C.CallReader(parsed)
    reader.feed(b'{"name": "odd", "arguments": {"a": "", "odd": ')
    _C.CallWriter().write_on(reader, [], [])


@pytest.mark.parametrize("depth", [11, 12, 20, 30000])
def test_a_schema_of_any_depth_is_drafted_as_deep_as_others(depth: int) -> None:
    """F21: the parts further down are left out, and nothing overflows."""
    start = '{"type": "object", "required": ["a"], "properties": {"a": '
    schema = start * depth + '{"enum": ["x"]}' + "}}" * depth
    reader = _C.CallReader(_C.ToolSet(f'[{{"name": "one", "parameters": {schema}}}]'))
    reader.feed(b'{"name": "one", "arguments": {')
    text = _C.CallWriter().write_on(reader, [], [])[0].text
    assert text.startswith(b'"a": {"a": ')
    assert text.count(b"{") == min(depth - 1, 11)


@pytest.mark.parametrize("keyword", ["anyOf", "$ref", "not", "if", "prefixItems"])
def test_what_is_not_understood_switches_its_own_parameter_off(keyword: str) -> None:
    """F20: its value is not drafted, its key and the other parameters are."""
    odd = {"type": "boolean", keyword: {}}
    tools = [tool("one", {"odd": odd, "good": {"type": "boolean"}}, ["odd", "good"])]
    parsed = _C.ToolSet(json.dumps(tools))
    drafted = {}
    for text in (b"", b'"odd": ', b'"odd": true, "good": '):
        reader = _C.CallReader(parsed)
        reader.feed(b'{"name": "one", "arguments": {' + text)
        drafted[text] = [path.text for path in _C.CallWriter().write_on(reader, [], [])]
    assert drafted[b""][0] == b'"odd": '
    assert drafted[b'"odd": '] == []
    assert drafted[b'"odd": true, "good": '][0].startswith(b"true}}")


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ("[", "tools: JSON: expected a value at byte 1"),
        ({}, "tools: expected a list of functions, got an object"),
        ("null", "tools: expected a list of functions, got null"),
        ([3], r"tools\[0\]: expected an object, got a number"),
        ([{"function": {}}], r"tools\[0\]: expected a function with a name, got none"),
        ([{"type": "function"}], r"tools\[0\]: expected a function with a name, got none"),
        ([{"name": "a"}, {"name": "a"}], "tools: expected every name once, got 'a' twice"),
        ([{"name": "a", "parameters": 1}], "tool 'a': expected `parameters` to be an object"),
        (
            [{"name": "a", "parameters": {"properties": ["x"]}}],
            "tools: expected `properties` to be an object, got a list",
        ),
    ],
)
def test_bad_lists_raise_one_clear_error(tools: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _C.ToolSet(tools if isinstance(tools, str) else json.dumps(tools))


def test_an_index_out_of_range_raises() -> None:
    parsed = _C.ToolSet('[{"name": "a"}]')
    for wrong in (-1, 1):
        with pytest.raises(IndexError, match=rf"expected an index in \[0, 1\), got {wrong}"):
            parsed.name(wrong)
        with pytest.raises(IndexError, match=rf"expected an index in \[0, 1\), got {wrong}"):
            parsed.parameters(wrong)
