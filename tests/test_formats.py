# SPDX-License-Identifier: Apache-2.0
"""Messages and tools on their way to a chat template."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from ooospec.errors import InvalidRequest
from ooospec.formats import check_tools, normalise_messages, render, tools_as_json
from tiny_models import tiny_tokenizer

LOOP: dict[str, Any] = {}
LOOP["properties"] = {"f": LOOP}


def nested(depth: int) -> dict[str, Any]:
    """Returns a function of lists and objects that nest so deep."""
    parameters: dict[str, Any] = {"type": "object"}
    for _ in range(depth - 2):
        parameters = {"items": parameters}
    return {"name": "f", "parameters": parameters}


def get_weather(city: str, days: int = 1) -> str:
    """
    Get the weather of a city.

    Args:
        city: Name of the city.
        days: How many days ahead.
    """
    return f"{city} {days}"


def untyped(city):  # type: ignore[no-untyped-def]
    """
    No types.

    Args:
        city: Name.
    """


def of_no_type(city: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821
    """
    A type that is not there.

    Args:
        city: Name.
    """
    return ""


def turn(arguments: Any, content: Any = None) -> list[dict[str, Any]]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
    ]


def test_arguments_of_earlier_calls_are_decoded_once() -> None:
    """G28, G29, G30: a JSON string and an object render alike, with no doubled escapes."""
    rendered = {render(tiny_tokenizer(), turn(form), None) for form in ('{"a": "b"}', {"a": "b"})}
    assert len(rendered) == 1
    text = rendered.pop()
    assert '"arguments": {"a": "b"}}' in text
    assert '\\"' not in text
    assert "None" not in text
    assert text.endswith("<|im_start|>assistant\n")


def test_history_that_is_broken_is_tolerated() -> None:
    """G37, G38: arguments that are no JSON stay as they are; no arguments are {}."""
    deep, long = '{"a":' * 20000, '{"a": ' + "1" * 5000 + "}"
    for given, expected in [
        ("{oops", "{oops"),
        ("[1]", "[1]"),
        ("", {}),
        (None, {}),
        ("{}", {}),
        (deep, deep),
        (long, long),
    ]:
        message = normalise_messages(turn(given))[1]
        assert message["tool_calls"][0]["function"]["arguments"] == expected


def test_content_may_be_missing_or_in_parts() -> None:
    """G23: no content is empty text; parts of text are joined; the caller's messages stay."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [
        *turn({}),
        {"role": "user", "content": parts},
        {"role": "assistant", "tool_calls": []},
    ]
    before = copy.deepcopy(messages)
    result = normalise_messages(messages)
    assert [message["content"] for message in result] == ["hi", "", "42", "ab", ""]
    assert "tool_calls" not in result[-1]
    assert messages == before


def test_tools_as_json_functions_and_bare_schemas() -> None:
    schema = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
    wrapped = {"type": "function", "function": schema}
    got = tools_as_json([wrapped, schema, get_weather])
    assert got is not None
    assert got[0] == got[1] == wrapped
    function = got[2]["function"]
    assert function["name"] == "get_weather"
    assert function["parameters"]["properties"]["days"]["type"] == "integer"
    assert function["parameters"]["required"] == ["city"]
    assert tools_as_json(None) is None
    assert tools_as_json([]) is None
    assert '"get_weather"' in render(tiny_tokenizer(), turn({}), got)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "at least one message, got none"),
        ("hi", "a list of at least one message, got str"),
        ({"role": "user"}, "got dict"),
        (["hi"], r"messages\[0\]: expected an object with a role"),
        ([{"content": "hi"}], r"messages\[0\]: expected an object with a role"),
        ([{"role": "user", "content": 3}], r"messages\[0\].content: expected text, got 3"),
        ([{"role": "user", "content": [{"type": "image"}]}], "parts of text only"),
        ([{"role": "assistant", "tool_calls": [{"name": "f"}]}], "a function with a name"),
        ([{"role": "assistant", "tool_calls": 3}], r"messages\[0\].tool_calls: expected a list"),
        (3, "a list of at least one message, got int"),
        (iter([{"role": "user"}]), "a list of at least one message, got list_iterator"),
    ],
)
def test_bad_messages_are_named(messages: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        normalise_messages(messages)


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ([{"type": "function", "function": {"description": "d"}}], r"tools\[0\]: .* with a name"),
        ([{"type": "function", "function": {"name": ""}}], r"tools\[0\]"),
        ([get_weather, "f"], r"tools\[1\]"),
        ("f", "tools: expected a list, got str"),
        ([untyped], r"tools\[0\]: .*type hint"),
        ([lambda: None], r"tools\[0\]: .*docstring"),
        ([int], r"tools\[0\]: .*signature"),
        ([of_no_type], r"tools\[0\]: name 'Nowhere' is not defined"),
        (3, "tools: expected a list, got int"),
    ],
)
def test_bad_tools_are_named(tools: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        tools_as_json(tools)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ({"name": "f", "parameters": []}, "tool 'f': expected `parameters` to be an object"),
        ({"name": "f", "parameters": {"x": {1}}}, "tools: Object of type set"),
        ({"name": "f", "parameters": {"x": math.nan}}, "tools: JSON: expected a value"),
        ({"name": "f", "parameters": LOOP}, "tools: "),
        (nested(63), "tools: expected at most 64 nested lists and objects, got 65"),
        (nested(400), "tools: expected at most 64 nested lists and objects, got 402"),
    ],
)
def test_tools_that_are_no_json_are_named(function: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        check_tools([{"type": "function", "function": function}])
    check_tools(None)


def test_the_deepest_tools_are_still_rendered() -> None:
    tools = [{"type": "function", "function": nested(62)}]
    check_tools(tools)
    assert '"items"' in render(tiny_tokenizer(), [{"role": "user", "content": "Hi"}], tools)


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "a\ud800b"}],
        [{"role": "\udfff", "content": "a"}],
        turn('{"a": "\\ud83d"}'),
    ],
)
def test_half_a_surrogate_pair_is_named(messages: Any) -> None:
    """JSON can say it, and no UTF-8 can."""
    with pytest.raises(InvalidRequest, match=r"expected Unicode text, got half of .*'\\ud"):
        render(tiny_tokenizer(), messages, None)


def test_messages_that_have_no_end_are_refused() -> None:
    deep: Any = "x"
    for _ in range(3000):
        deep = [deep]
    with pytest.raises(InvalidRequest, match=r"messages: .*recursion"):
        render(tiny_tokenizer(), [{"role": "user", "content": "a", "x": deep}], None)


def test_a_template_is_needed_and_may_refuse() -> None:
    tokenizer = copy.copy(tiny_tokenizer())
    tokenizer.chat_template = "{{ raise_exception('only users may speak') }}"
    with pytest.raises(InvalidRequest, match="only users may speak"):
        render(tokenizer, turn({}), None)
    tokenizer.chat_template = None
    with pytest.raises(InvalidRequest, match="a chat template, got none"):
        render(tokenizer, turn({}), None)
