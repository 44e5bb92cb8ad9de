# SPDX-License-Identifier: Apache-2.0
"""An answer cut into content, thinking and calls: the same parts, however the text comes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from call_strategies import styles, tools_and_call
from ooospec._core import _C

TOOLS = _C.ToolSet('[{"name": "get"}, {"name": "get_all"}, {"name": "a.b"}]')
GET = '{"name": "get", "arguments": {"city": "R\\u00f6m", "days": [1, {"x": -2.5e3}]}}'
OTHER = '{"name": "unknown", "arguments": {"a": 1}}'
PIECES = [
    *(GET, OTHER, "<tool_call>\n", "\n</tool_call>", "```json\n", "\n```", "Sure.\n", "[", "]"),
    *(",", ";", "<think>", "</think>", "<|python_tag|>", '{"name": "', "get", '", "arguments": '),
    *("{", "}", '"days": 1', ' "x\\', "\\ud83d", 'u00e9"', ":", "\n    ", "tru", "-1.", "ü"),
    *("<tool_", "``", '{"arguments": {"a": 1}, "name": "get"}', '{"name": "get"}'),
    *('{"name": "get", "arguments": "{\\"a\\": 1}"}', " ", "\n"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
places = st.lists(st.integers(0, 10_000), max_size=6)
Call = tuple[str, str]


class Parts:
    """The parts of an answer, joined. order: a letter a part."""

    def __init__(self, text: str, sizes: list[int], **options: Any) -> None:
        """sizes: of the pieces that the text comes in; the last one repeats."""
        reader = _C.AnswerReader(options.pop("tools", TOOLS), **options)
        self.content = self.thinking = self.order = ""
        self.calls: list[Call] = []
        self.num_ended = 0
        self.pieces: list[str] = []
        start = 0
        for i in range(len(text) + 1):
            if start == len(text):
                break
            stop = start + sizes[min(i, len(sizes) - 1)]
            self._take(reader.feed(text[start:stop]))
            start = min(stop, len(text))
        self._take(reader.finish())
        assert self.num_ended == len(self.calls)

    def _take(self, parts: list[_C.AnswerPart]) -> None:
        for one in parts:
            if one.part == "content":
                self.content += one.text
            elif one.part == "thinking":
                self.thinking += one.text
            elif one.part == "call":
                assert self.num_ended == len(self.calls)  # the one before has ended
                self.calls.append((one.text, ""))
            elif one.part == "arguments":
                self.calls[-1] = (self.calls[-1][0], self.calls[-1][1] + one.text)
                self.pieces.append(one.text)
            else:
                self.num_ended += 1
            if not self.order.endswith(one.part[0]) or one.part == "call":
                self.order += one.part[0]

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Parts)
        return (self.content, self.thinking, self.calls) == (
            other.content,
            other.thinking,
            other.calls,
        )

    def __repr__(self) -> str:
        return f"{self.content!r} {self.thinking!r} {self.calls}"


def whole(text: str, **options: Any) -> Parts:
    return Parts(text, [max(1, len(text))], **options)


@given(texts, st.lists(st.integers(1, 9), min_size=1, max_size=6), st.booleans())
@example(GET, [1], False)
@example("[" + GET + "," + OTHER + "," + GET + "]", [1], False)
def test_any_cut_gives_the_same_parts(text: str, sizes: list[int], thinking: bool) -> None:
    """G02, G04, G05, G07, G12, G16, G39: pieces of any size, down to single characters."""
    expected = whole(text, thinking=thinking)
    assert Parts(text, sizes, thinking=thinking) == expected
    assert Parts(text, [1], thinking=thinking) == expected
    assert Parts(text, sizes, tools=None) == whole(text, tools=None)


@given(st.text(max_size=60) | st.text(st.sampled_from('{}[]",:<>/`tool_ca \n'), max_size=60))
def test_any_text_is_read(text: str) -> None:
    assert Parts(text, [1]) == whole(text)
    without_space = "".join(text.split())
    if "<think>" not in text:
        assert "".join(whole(text, tools=None).content.split()) == without_space


@given(texts)
def test_complete_calls_are_those_of_the_call_reader(text: str) -> None:
    """What is read in one go, and what is streamed, are the same calls; broken ones may be more."""
    complete = [(c.name, c.arguments) for c in _C.parse_calls(text, TOOLS) if c.tool >= 0]
    streamed = iter(whole(text).calls)
    assert all(call in streamed for call in complete)  # in order


@given(texts, st.integers(0, 200))
def test_what_was_said_is_never_taken_back(text: str, at: int) -> None:
    """G03: an answer that is cut gives the beginning of what the whole one gives."""
    cut, full = whole(text[:at]), whole(text)
    for mine, its in zip(cut.calls, full.calls, strict=False):
        assert mine[0] == its[0]
        assert its[1].startswith(mine[1])
    assert len(cut.calls) <= len(full.calls)


@given(tools_and_call(), styles(), st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_every_style_of_the_drafter_is_read(
    drawn: tuple[Any, str, dict[str, Any]], style: _C.CallStyle, sizes: list[int]
) -> None:
    """G01, G11, G13, G17, G19, G33: names, values and types as they were written, in order."""
    tools, name, arguments = drawn
    text = _C.render_calls([(name, json.dumps(arguments)), (name, "{}")], style)
    parts = Parts(text, sizes, tools=_C.ToolSet(json.dumps(tools)))
    assert parts.content == ""
    assert [call[0] for call in parts.calls] == [name, name]
    assert json.loads(parts.calls[0][1]) == arguments
    assert parts.calls[0][1] in text
    assert parts.calls[1][1] == "{}"


ARGUMENTS = '{"city": "R\\u00f6m", "days": [1, {"x": -2.5e3}]}'
CASES = {
    "content before, between and behind": (
        f"Sure.\n<tool_call>\n{GET}\n</tool_call>\n<tool_call>\n{GET}\n</tool_call>\nDone.",
        ("Sure.\nDone.", "", [("get", ARGUMENTS)] * 2),
    ),
    "two calls in one marker": (
        f"<tool_call>\n{GET}\n{GET}\n</tool_call>",
        ("", "", [("get", ARGUMENTS)] * 2),
    ),
    "a stray marker": (  # G08
        f"<tool_call> I will call.\n<tool_call>\n{GET}\n</tool_call>",
        ("<tool_call> I will call.", "", [("get", ARGUMENTS)]),
    ),
    "an unknown name between two": (  # G18
        f"<tool_call>\n{GET}\n</tool_call>\n<tool_call>\n{OTHER}\n</tool_call>\n"
        f"<tool_call>\n{GET}\n</tool_call>",
        (f"<tool_call>\n{OTHER}\n</tool_call>", "", [("get", ARGUMENTS)] * 2),
    ),
    "an unknown name in a list": (
        f"[{GET}, {OTHER}, {GET}]",
        (OTHER, "", [("get", ARGUMENTS)] * 2),
    ),
    "a call inside thinking": (  # G31, G06
        f"<think>\nI would write <tool_call>\n{GET}\n</tool_call>.</think><tool_call>\n{GET}\n"
        "</tool_call>",
        ("", f"I would write <tool_call>\n{GET}\n</tool_call>.", [("get", ARGUMENTS)]),
    ),
    "call, thinking, call": (  # G07
        f"<tool_call>{GET}</tool_call><think>next</think><tool_call>{GET}</tool_call>",
        ("", "next", [("get", ARGUMENTS)] * 2),
    ),
    "thinking again in one piece": (  # F07
        f"<think>x</think><think>y</think>z<think>{GET}</think>",
        ("z", f"xy{GET}", []),
    ),
    "empty thinking": ("<think>\n\n</think>\n\nHello", ("Hello", "", [])),
    "no arguments at all": ('{"name": "get"}', ("", "", [("get", "{}")])),  # G09, G37
    "after empty arguments": (  # G10
        '<tool_call>{"name": "get", "arguments": {}}</tool_call>'
        '<tool_call>{"name": "get_all", "arguments": {"x": 1}}</tool_call>',
        ("", "", [("get", "{}"), ("get_all", '{"x": 1}')]),
    ),
    "braces and brackets in strings": (  # G14, G15
        '{"name": "get", "arguments": {"a": "}A", "b": "a]b", "c": "mkdir -p a/{b,c"}}',
        ("", "", [("get", '{"a": "}A", "b": "a]b", "c": "mkdir -p a/{b,c"}')]),
    ),
    "the name comes last": (
        '{"arguments": {"a": 1}, "name": "a.b"}',
        ("", "", [("a.b", '{"a": 1}')]),
    ),
    "arguments in a string": (
        '{"name": "get", "arguments": "{\\"a\\": 1}"}',
        ("", "", [("get", '{"a": 1}')]),
    ),
    "llama": (  # G43
        '<|python_tag|>{"name": "get", "parameters": {"a": 1}}; {"name": "a.b", "parameters": {}}',
        ("", "", [("get", '{"a": 1}'), ("a.b", "{}")]),
    ),
    "not promoted in the middle of a line": (f"Write {GET}", (f"Write {GET}", "", [])),
    "cut in its arguments": (
        '<tool_call>\n{"name": "get", "arguments": {"city": "Ro',
        ("", "", [("get", '{"city": "Ro')]),
    ),
    "cut in its name": (  # B16
        '<tool_call>\n{"name": "ge',
        ('<tool_call>\n{"name": "ge', "", []),
    ),
    "cut in its closing marker": (
        f"<tool_call>\n{GET}\n</tool_c",
        ("", "", [("get", ARGUMENTS)]),
    ),
    "broken in its arguments": (
        '<tool_call>\n{"name": "get", "arguments": {"a": nope}}\n</tool_call>',
        ("ope}}\n</tool_call>", "", [("get", '{"a": n')]),
    ),
    "of two arguments the first": (
        '{"name": "get", "arguments": {"a": 1}, "arguments": {"b": 2}}',
        ("", "", [("get", '{"a": 1}')]),
    ),
    "plain text": ("  Hello <b>you</b>\n", ("  Hello <b>you</b>\n", "", [])),
    "json that is no call": ('{"name": "Ada", "age": 36}', ('{"name": "Ada", "age": 36}', "", [])),
    "code": ("```python\nprint()\n```\n", ("```python\nprint()\n```\n", "", [])),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [1, 3, 999])
def test_cases(name: str, size: int) -> None:
    """G24, G25: content in order; no white space alone beside calls."""
    text, (content, thinking, calls) = CASES[name]
    parts = Parts(text, [size])
    assert (parts.content, parts.thinking, parts.calls) == (content, thinking, calls)


def test_the_prompt_may_have_opened_thinking() -> None:
    """G32, G23."""
    parts = whole(f"So.\n</think>\n\n<tool_call>\n{GET}\n</tool_call>", thinking=True)
    assert (parts.content, parts.thinking, parts.calls) == ("", "So.", [("get", ARGUMENTS)])
    assert whole("never closed", thinking=True).thinking == "never closed"


def test_without_tools_nothing_is_held_back() -> None:
    reader = _C.AnswerReader(None)
    assert [one.text for one in reader.feed('{"name": "get", "arguments": {"a')] == [
        '{"name": "get", "arguments": {"a'
    ]


def test_pairs_of_surrogates_are_not_cut() -> None:
    """G35: an escape, or a pair of them, comes in one piece."""
    text = '{"name": "get", "arguments": {"a": "x\\ud83d\\ude00y\\ud83dz\\u00e9\\n"}}'
    parts = Parts(text, [1])
    assert "\\ud83d\\ude00" in parts.pieces
    assert {"\\u00e9", "\\n", "\\ud83dz"} <= set(parts.pieces)
    assert parts.calls == [("get", '{"a": "x\\ud83d\\ude00y\\ud83dz\\u00e9\\n"}')]


def test_parts_say_how_far_the_answer_was_read() -> None:
    reader = _C.AnswerReader(TOOLS)
    text = f"<tool_call>\n{GET}\n</tool_call>"
    parts = reader.feed(text)
    assert [one.part for one in parts] == ["call", "arguments", "call_end"]
    assert parts[-1].end == text.index("\n</tool_call>")
    assert reader.num_bytes == len(text)


@pytest.mark.parametrize("kind", ["one string", "white space", "markers"])
def test_time_is_linear(kind: str) -> None:
    """G34: 256 KiB, a character at a time."""
    count = 1 << 18
    text = {
        "one string": '{"name": "get", "arguments": {"a": "' + "x" * count + '"}}',
        "white space": "Hello" + " " * count + "you",
        "markers": "<tool_call>" * (count // 11),
    }[kind]
    reader = _C.AnswerReader(TOOLS)
    start = time.process_time()
    num_parts = sum(len(reader.feed(character)) for character in text) + len(reader.finish())
    assert time.process_time() - start < 2  # a fifth of a second, where nothing else runs
    assert num_parts > 0
