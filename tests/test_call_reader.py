# SPDX-License-Identifier: Apache-2.0
"""The call reader against Python's json, at every cut of the text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from call_strategies import cut, fixed_styles, styles, tools_and_call, values
from ooospec._core import _C

TOOLS = _C.ToolSet('[{"name": "get"}, {"name": "get_all"}, {"name": "a.b"}]')
GET = '{"name": "get", "arguments": {"city": "R\\u00f6m", "days": [1, {"x": -2.5e3}]}}'
PIECES = [
    *(GET, "<tool_call>\n", "\n</tool_call>", "```json\n", "\n```", "Sure.\n", "[", "]", ",", ";"),
    *("<think>", "</think>", "<|python_tag|>", '{"name": "', "get", '", "arguments": ', "{", "}"),
    *('"days": 1', ' "x\\', 'u00e9"', ":", "\n    ", "tru", "-1.", "ü", "<tool_", "``"),
]
places = st.lists(st.integers(0, 10_000), max_size=5)


def read(data: bytes, tools: _C.ToolSet = TOOLS) -> _C.CallReader:
    reader = _C.CallReader(tools)
    reader.feed(data)
    return reader


def strict_object(text: str) -> dict[str, Any] | None:
    """Returns the JSON object that `text` begins with, or None: Python's json, without NaN."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        found, _ = json.JSONDecoder(parse_constant=refuse).raw_decode(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


@given(tools_and_call(), styles(), places)
def test_calls_come_back_whatever_the_style_and_the_cuts(
    drawn: tuple[Any, str, dict[str, Any]], style: _C.CallStyle, at: list[int]
) -> None:
    """G02, G11, G13, G17, G33: names, values and types as they were, at any cut."""
    tools, name, arguments = drawn
    parsed = _C.ToolSet(json.dumps(tools))
    text = _C.render_calls([(name, json.dumps(arguments)), (name, "{}")], style).encode()
    reader = _C.CallReader(parsed)
    for piece in cut(text, at):
        reader.feed(piece)
    assert [call.name for call in reader.calls] == [name, name]
    assert json.loads(reader.calls[0].arguments) == arguments
    assert reader.calls[1].arguments == "{}"
    assert [call.tool for call in reader.calls] == [parsed.find(name)] * 2
    for call in reader.calls:
        assert json.loads(text[call.begin : call.end])["name"] == name
    assert reader.style.agrees_with(style)
    assert reader == read(text, parsed)


@given(values, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_arguments_are_the_text_byte_for_byte(value: Any, indent: Any, ascii_only: bool) -> None:
    """G13: arguments are passed on, not written anew."""
    arguments = json.dumps({"x": value}, indent=indent, ensure_ascii=ascii_only)
    (call,) = read(f'{{"name": "get", "arguments": {arguments}}}'.encode()).calls
    assert call.arguments == arguments


@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.integers(0, 3), st.text(max_size=2)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([GET, '{"arguments": {"a": ["\\ud83d\\ude80", true, null]}, "name": "a.b"}']),
)
def test_broken_json_is_judged_as_python_does(edits: list[tuple[int, int, str]], text: str) -> None:
    """F11, F12, F13: edits a call at random; what is left is a call if Python's json says so."""
    for place, removed, added in edits:
        place = 1 + place % len(text)
        text = text[:place] + added + text[place + removed :]
    expected = strict_object(text)
    calls = read(text.encode()).calls
    if expected is None:
        assert all(call.begin > 0 for call in calls)
        return
    name = expected.get("name")
    given_arguments = [key for key in expected if key in ("arguments", "parameters")]
    is_call = isinstance(name, str) and (TOOLS.find(name) >= 0 or given_arguments)
    assert bool(calls and calls[0].begin == 0) == bool(is_call)
    if is_call and len(given_arguments) == 1:
        assert calls[0].name == name
        arguments = expected[given_arguments[0]]
        if isinstance(arguments, dict):
            assert json.loads(calls[0].arguments) == arguments


class AnyCut(RuleBasedStateMachine):
    """The state after any pieces is the state of a reader that starts anew."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = _C.CallReader(TOOLS)
        self.text = b""

    @rule(piece=st.sampled_from(PIECES))
    def feed_text(self, piece: str) -> None:
        self.feed(piece.encode())

    @rule(piece=st.binary(max_size=3))
    def feed(self, piece: bytes) -> None:
        self.reader.feed(piece)
        self.text += piece

    @rule(data=st.data())
    def feed_part_of_a_call(self, data: st.DataObject) -> None:
        end = data.draw(st.integers(0, len(GET)))
        self.feed(GET.encode()[data.draw(st.integers(0, end)) : end])

    @rule()
    def copy(self) -> None:
        original = self.reader
        self.reader = original.copy()
        original.feed(b'{"')

    @invariant()
    def equals_a_new_reader(self) -> None:
        assert self.reader == read(self.text)
        assert self.reader.num_bytes == len(self.text)

    @invariant()
    def calls_are_where_they_are_said_to_be(self) -> None:
        for call in self.reader.calls:
            found = strict_object(self.text[call.begin : call.end].decode(errors="replace"))
            assert found is not None
            assert isinstance(found["name"], str)
        ends = [0, *(at for span in self.reader.spans for at in span)]
        assert ends == sorted(ends)
        assert ends[-1] <= len(self.text)


class CallsInProse(RuleBasedStateMachine):
    """Calls, prose and thinking one after the other, against a list of what was put in."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.expected: list[tuple[str, Any]] = []

    @initialize(style=st.sampled_from(list(fixed_styles().values())))
    def begin(self, style: _C.CallStyle) -> None:
        self.style = style

    @rule(
        name=st.sampled_from(["get", "get_all", "a.b", "unknown"]),
        arguments=st.dictionaries(st.text(max_size=5), values, max_size=3),
    )
    def write_call(self, name: str, arguments: dict[str, Any]) -> None:
        self.text += "\n" + _C.render_calls([(name, json.dumps(arguments))], self.style)
        self.expected.append((name, arguments))

    @rule(
        prose=st.sampled_from(["Sure.", "{", "a [list] of {things}", "`code`", "1 < 2, 3 > 2", '"'])
    )
    def write_prose(self, prose: str) -> None:
        self.text += f"\nWell: {prose}\n"

    @rule(arguments=st.dictionaries(st.text(max_size=5), values, max_size=3))
    def think(self, arguments: dict[str, Any]) -> None:
        """G31: a call in the middle of thinking is none."""
        call = json.dumps({"name": "get", "arguments": arguments}).replace("<", "\\u003c")
        self.text += f"\n<think>\n{call}\n</think>\n"

    @invariant()
    def all_calls_are_found(self) -> None:
        found = _C.parse_calls(self.text.encode(), TOOLS)
        assert [(call.name, json.loads(call.arguments)) for call in found] == self.expected
        assert [call.tool >= 0 for call in found] == [
            name != "unknown" for name, _ in self.expected
        ]


TestAnyCut = AnyCut.TestCase
TestCallsInProse = CallsInProse.TestCase


def test_a_tokenizer_may_cut_characters() -> None:
    """E15, G35: text in the middle of a character, and of an escaped pair."""
    data = '{"name": "get", "arguments": {"x": "🧪 naïve \\ud83d\\ude80"}}'.encode()
    reader = _C.CallReader(TOOLS)
    for k in range(len(data)):
        reader.feed(data[k : k + 1])
    assert json.loads(reader.calls[0].arguments) == {"x": "🧪 naïve 🚀"}


def test_bad_arguments_raise() -> None:
    with pytest.raises(ValueError, match="call reader: expected a tool set, got none"):
        _C.CallReader(None)
    with pytest.raises(ValueError, match="call style: expected a text with a call"):
        _C.CallStyle.from_text("no call", TOOLS)
    with pytest.raises(ValueError, match=r"wrapper: expected bare, tags.*got 'xml'"):
        _C.CallStyle("xml")
