# SPDX-License-Identifier: Apache-2.0
"""The call writer: from every byte of a call exactly the rest, and never what is no JSON."""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import permutations, takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from call_strategies import (
    evaluation_calls,
    fixed_styles,
    scalars,
    slots_of,
    styles,
    tool,
    tools_and_call,
)
from ooospec._core import _C

STYLES = fixed_styles()


def rests(
    tools: _C.ToolSet, text: bytes, style: _C.CallStyle, slots: list[_C.Slots], every: int = 1
) -> list[tuple[bytes, bytes]]:
    """Returns (expected, got) for each byte at which the writer does not write exactly the rest."""
    reader, writer, wrong = _C.CallReader(tools), _C.CallWriter(), []
    guess = [_C.StyleGuess(style, 1.0)]
    for at in range(len(text)):
        if at % every == 0 or at < 3:
            paths = writer.write_on(reader, guess, slots, 1, 1 << 20)
            whole = bool(paths) and paths[0].ends_answer
            if not whole or paths[0].text != text[at:]:
                wrong.append((text[at:], paths[0].text if paths else b""))
        reader.feed(text[at : at + 1])
    return wrong


@given(tools_and_call(), styles())
def test_the_rest_is_written_from_every_byte(
    drawn: tuple[Any, str, dict[str, Any]], style: _C.CallStyle
) -> None:
    """Any tools, any call, any style; F10, F25, G33, G40 among them."""
    tools, name, arguments = drawn
    parsed = _C.ToolSet(json.dumps(tools))
    text = _C.render_calls([(name, json.dumps(arguments))], style).encode()
    assert rests(parsed, text, style, [slots_of(parsed, name, arguments)]) == []


@given(tools_and_call(), styles(), st.integers(2, 3))
def test_several_calls_are_written_on(
    drawn: tuple[Any, str, dict[str, Any]], style: _C.CallStyle, count: int
) -> None:
    tools, name, arguments = drawn
    parsed = _C.ToolSet(json.dumps(tools))
    text = _C.render_calls([(name, json.dumps(arguments))] * count, style).encode()
    slots = [slots_of(parsed, name, arguments)] * count
    assert rests(parsed, text, style, slots, every=7) == []


@given(tools_and_call(), styles(), st.data())
def test_paths_never_break_a_call(
    drawn: tuple[Any, str, dict[str, Any]], style: _C.CallStyle, data: st.DataObject
) -> None:
    """Whatever was hinted, each path goes on with JSON, and to a call of a known tool."""
    tools, name, arguments = drawn
    parsed = _C.ToolSet(json.dumps(tools))
    text = _C.render_calls([(name, json.dumps(arguments))], style).encode()
    reader = _C.CallReader(parsed)
    reader.feed(text[: data.draw(st.integers(0, len(text)))])
    slots = _C.Slots()
    slots.tool = data.draw(st.integers(-2, len(tools)))
    slots.ended = data.draw(st.booleans())
    for _ in range(data.draw(st.integers(0, 6))):
        of_tool, parameter = data.draw(st.integers(0, len(tools))), data.draw(st.integers(0, 5))
        slots.set(
            of_tool, parameter, json.dumps(data.draw(scalars | st.lists(scalars, max_size=2)))
        )
    guesses = data.draw(st.sampled_from([[], [_C.StyleGuess(style, 0.7)]]))
    paths = _C.CallWriter().write_on(reader, guesses, [slots], 12)
    for path in paths:
        after = reader.copy()
        after.feed(path.text)
        assert path.text[: path.shared] == paths[0].text[: path.shared]
        assert [piece.end for piece in path.pieces] == sorted(piece.end for piece in path.pieces)
        assert path.pieces[-1].end == len(path.text)
        assert all(0 < piece.probability <= 1 for piece in path.pieces)
        if reader.in_call:
            assert after.in_call or len(after.calls) > len(reader.calls)
        if path.ends_answer:
            assert after.calls
            assert not after.in_call
        for call in after.calls[len(reader.calls) :]:
            assert call.tool >= 0
            json.loads(call.arguments)
    assert len({path.text for path in paths}) >= len(paths) - 1


@given(tools_and_call(), st.sampled_from(list(STYLES)), st.data())
def test_other_orders_are_survived(
    drawn: tuple[Any, str, dict[str, Any]], style_name: str, data: st.DataObject
) -> None:
    """F15: arguments in any order take no more than a round each."""
    tools, name, arguments = drawn
    parsed, style = _C.ToolSet(json.dumps(tools)), STYLES[style_name]
    order = {key: arguments[key] for key in data.draw(st.permutations(list(arguments)))}
    text = _C.render_calls([(name, json.dumps(order))], style).encode()
    slots = [slots_of(parsed, name, arguments)]
    assert rounds(parsed, text, [_C.StyleGuess(style, 1.0)], slots) <= 1 + len(arguments)


def rounds(
    tools: _C.ToolSet, text: bytes, guesses: list[_C.StyleGuess], slots: list[_C.Slots]
) -> int:
    """Returns how many rounds it takes to write `text`: the longest right path, and a byte more."""
    reader, writer, done, num_rounds = _C.CallReader(tools), _C.CallWriter(), 0, 0
    while done < len(text):
        right = 0
        for path in writer.write_on(reader, guesses, slots, 16):
            pairs = zip(path.text, text[done:], strict=False)
            right = max(right, len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))))
        step = text[done : done + right + 1]
        reader.feed(step)
        done += len(step)
        num_rounds += 1
    return num_rounds


TOOLS = [
    tool(
        "book",
        {
            "who": {"type": "string"},
            "when": {"type": "string"},
            "seats": {"type": "integer"},
            "class": {"enum": ["first", "second"]},
        },
        ["who", "when"],
    ),
    tool("cancel", {"id": {"type": "string"}}, ["id"]),
]
CALL = {"who": "Ann Lee", "when": "2026-03-26", "seats": 2, "class": "second"}


@pytest.mark.parametrize("order", list(permutations(CALL)), ids=" ".join)
@pytest.mark.parametrize("style_name", STYLES)
def test_every_key_that_may_come_has_a_path(order: tuple[str, ...], style_name: str) -> None:
    """F16: behind each value some path goes on with the key that comes, whatever the order."""
    parsed, guess = _C.ToolSet(json.dumps(TOOLS)), [_C.StyleGuess(STYLES[style_name], 1.0)]
    arguments = json.dumps({key: CALL[key] for key in order})
    text = _C.render_calls([("book", arguments)], STYLES[style_name]).encode()
    reader, slots, done = _C.CallReader(parsed), [slots_of(parsed, "book", CALL)], 0
    for key in order:
        end = text.index(f'"{key}"'.encode()) + len(key) + 2
        border = len(text[: end - len(key) - 2].rstrip(b" ,\n\t"))
        reader.feed(text[done:border])
        done = border
        paths = _C.CallWriter().write_on(reader, guess, slots, 16)
        assert any(path.text.startswith(text[border:end]) for path in paths)


@pytest.mark.parametrize("style_name", STYLES)
@pytest.mark.parametrize("wrong", CALL)
def test_a_wrong_value_costs_that_value(style_name: str, wrong: str) -> None:
    """Each value wrong in turn: the rest takes two rounds more at most, besides its own bytes."""
    parsed, style = _C.ToolSet(json.dumps(TOOLS)), STYLES[style_name]
    text = _C.render_calls([("book", json.dumps(CALL))], style).encode()
    guesses = [_C.StyleGuess(style, 1.0)]
    hint = CALL | {wrong: 77 if wrong == "seats" else "another"}
    perfect = rounds(parsed, text, guesses, [slots_of(parsed, "book", CALL)])
    flawed = rounds(parsed, text, guesses, [slots_of(parsed, "book", hint)])
    assert perfect == 1
    assert flawed <= perfect + 2 + len(json.dumps(CALL[wrong]))


@pytest.mark.parametrize("style_name", STYLES)
def test_a_hint_may_come_at_any_byte(style_name: str) -> None:
    parsed, style = _C.ToolSet(json.dumps(TOOLS)), STYLES[style_name]
    text = _C.render_calls([("book", json.dumps(CALL))], style).encode()
    reader, writer = _C.CallReader(parsed), _C.CallWriter()
    guesses, slots = [_C.StyleGuess(style, 1.0)], [slots_of(parsed, "book", CALL)]
    for at in range(len(text)):
        writer.write_on(reader, guesses, [], 8)
        assert writer.write_on(reader, guesses, slots, 8)[0].text == text[at:]
        reader.feed(text[at : at + 1])


@pytest.mark.parametrize("style_name", STYLES)
def test_a_style_is_read_back_from_a_probe(style_name: str) -> None:
    """A chat template's rendering of a probe call is all that is needed to draft in its style."""
    parsed, style = _C.ToolSet(json.dumps(TOOLS)), STYLES[style_name]
    probe = _C.render_calls([("book", json.dumps(CALL)), ("cancel", '{"id": "é/"}')], style)
    learnt = _C.CallStyle.from_text(f"<|im_start|>assistant\n{probe}<|im_end|>\n", parsed)
    assert learnt.agrees_with(style)
    text = _C.render_calls([("cancel", '{"id": "ü/[]"}')], style).encode()
    slots = [slots_of(parsed, "cancel", {"id": "ü/[]"})]
    assert rests(parsed, text, learnt, slots) == []


@pytest.mark.skipif("OOOSPEC_DATA" not in os.environ, reason="OOOSPEC_DATA is not set")
def test_all_evaluation_calls_in_every_style() -> None:
    """Every call in three of the styles, taken in turns, from every byte."""
    wrong: Counter[str] = Counter()
    names = list(STYLES)
    num_calls = 0
    for row, tools, name, arguments in evaluation_calls():
        parsed = _C.ToolSet(json.dumps(tools))
        slots = [slots_of(parsed, name, arguments)]
        for turn in range(3):
            style_name = names[(num_calls + turn * 4) % len(names)]
            text = _C.render_calls([(name, json.dumps(arguments))], STYLES[style_name]).encode()
            for expected, got in rests(parsed, text, STYLES[style_name], slots):
                wrong[f"{row}, {style_name}: expected {expected[:40]!r}, got {got[:40]!r}"] += 1
        num_calls += 1
    assert num_calls > 900
    assert not wrong
