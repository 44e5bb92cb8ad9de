# SPDX-License-Identifier: Apache-2.0
"""Training rows: a wave's questions, answered by a call; and a clean dev split."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooospec.sidecar.prompt import PromptBuilder
from ooospec.train.labels import BadRow, called_names
from ooospec.train.rows import make_example, make_examples, with_traces
from ooospec.train.split import split_by_tools, tool_key
from ooospec.train.steps import further_on
from tiny_models import tiny_tokenizer
from tiny_sidecar import MESSAGES, TOOLS

CALL = {"name": "get_weather", "arguments": {"days": 3, "city": "Zürich"}}
REQUEST: dict[str, Any] = {"id": "a", "messages": MESSAGES, "tools": TOOLS, "calls": [CALL]}


def builder(max_tokens: int = 1024) -> PromptBuilder:
    return PromptBuilder(tiny_tokenizer(), max_tokens=max_tokens, examples=False)


def shown(request: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns (kind, text) of each row."""
    made = builder()
    rows = make_example(made, request).rows
    return [(row.kind, made.decode(row.question + row.answer).decode()) for row in rows]


WEATHER = [
    ("null", "get_weather.unit: null\n"),
    ("argument", "get_weather.days: 3\n"),
    ("argument", 'get_weather.city: "Zürich"\n'),
    ("null", "get_weather.near: null\n"),
]


def test_every_question_of_the_wave_has_its_answer() -> None:
    assert shown(REQUEST) == [
        ("function", "function: get_weather\n"),
        ("other", "set_alarm.time: null\n"),
        ("other", "set_alarm.repeat: null\n"),
        ("other", "set_alarm.label: null\n"),
        *WEATHER,
        ("call", 'call: get_weather {"days": 3, "city": "Zürich"}\n'),
    ]


def test_questions_and_prefix_are_those_of_the_wave() -> None:
    made = builder()
    prompt, example = made.build(MESSAGES, TOOLS), make_example(made, REQUEST)
    assert example.prefix == prompt.prefix
    assert example.rows[0].question == prompt.question
    assert [row.question for row in example.rows[1:-1]] == [s.question for s in prompt.slots]
    assert example.num_tools == len(TOOLS)


def test_no_call_is_answered_by_none_and_nulls() -> None:
    rows = shown({**REQUEST, "calls": []})
    assert rows[0] == ("function", "function: none\n")
    assert {kind for kind, _ in rows[1:]} == {"other"}
    assert all(text.endswith(": null\n") for _, text in rows[1:])
    assert shown({**REQUEST, "call": None}) == rows


def test_of_several_calls_each_function_gets_its_first_and_the_first_is_chosen() -> None:
    alarm = {"name": "set_alarm", "arguments": '{"time": "06:30"}'}
    later = {"name": "get_weather", "arguments": {"days": 9}}
    rows = shown({**REQUEST, "calls": [CALL, alarm, later]})
    assert rows[0] == ("function", "function: get_weather\n")
    assert rows[1:4] == [
        ("argument", 'set_alarm.time: "06:30"\n'),
        ("null", "set_alarm.repeat: null\n"),
        ("null", "set_alarm.label: null\n"),
    ]
    assert rows[4:8] == WEATHER


def test_what_a_teacher_wrote_goes_before_the_reference() -> None:
    trace = {"id": "a", "call": {"name": "stop", "arguments": {}}}
    extra = {**REQUEST, "id": "b"}
    first, second = with_traces([REQUEST], [trace, extra])
    assert shown(dict(first))[0] == ("function", "function: stop\n")
    assert second == extra


def test_functions_that_are_not_called_can_be_left_out() -> None:
    made = make_example(builder(), REQUEST, others=False)
    assert [row.kind for row in made.rows] == [
        "function", "null", "argument", "argument", "null", "call"
    ]  # fmt: skip
    assert [
        row.kind for row in make_example(builder(), {**REQUEST, "calls": []}, others=False).rows
    ] == ["function"]


def test_values_that_a_wave_cannot_write_make_no_row() -> None:
    long = {"name": "get_weather", "arguments": {"days": 3, "city": "Zürich " * 400}}
    kinds = [kind for kind, _ in shown({**REQUEST, "calls": [long]})]
    assert kinds == ["function", *3 * ["other"], "null", "argument", "null"]


BAD = {
    "messages or tools are not valid": [{"messages": []}, {"messages": "x"}, {"tools": [{}]}],
    "no tools": [{"tools": []}],
    "no call: expected `call` or `calls`": [{"calls": "x"}],
    "a call of a tool that is not listed": [{"calls": [{"name": "x", "arguments": {}}]}],
    "arguments that are no JSON object": [
        {"calls": [{"name": "stop", "arguments": "{"}]},
        {"calls": [{"name": "stop", "arguments": []}]},
        {"calls": ["stop"]},
    ],
}


def test_bad_rows_are_skipped_and_counted_by_reason() -> None:
    rows = [{**REQUEST, **change} for changes in BAD.values() for change in changes]
    examples, skipped = make_examples(builder(), [REQUEST, *rows])
    assert [example.name for example in examples] == ["a"]
    assert skipped == {reason: len(changes) for reason, changes in BAD.items()}


def test_a_prompt_without_room_is_a_bad_row() -> None:
    with pytest.raises(BadRow, match="longer than a prompt may be"):
        make_example(builder(96), REQUEST)


# --- further on ---------------------------------------------------------------------------------


def test_what_follows_the_first_call_is_asked_too() -> None:
    alarm = {"name": "set_alarm", "arguments": {"time": "06:30"}}
    rows = [{**REQUEST, "id": str(i), "calls": [CALL, alarm]} for i in range(20)]
    found = further_on(rows)
    assert found == further_on(rows)
    assert len(found) == 20
    chosen = set()
    for one in found:
        num_made = 2 - len(one["calls"])
        assert [message["role"] for message in one["messages"]] == [
            "user",
            *num_made * ["assistant", "tool"],
        ]
        assert one["messages"][1]["tool_calls"][0]["function"]["name"] == "get_weather"
        chosen.add(shown(dict(one))[0][1])
    assert chosen == {"function: set_alarm\n", "function: none\n"}


def test_few_requests_with_one_call_are_followed_by_none() -> None:
    rows = [{**REQUEST, "id": str(i)} for i in range(200)]
    more = further_on(rows)
    assert 5 < len(more) < 40
    assert {tuple(one["calls"]) for one in more} == {()}
    assert not further_on([{**REQUEST, "call": CALL}, {**REQUEST, "calls": []}])


# --- the dev split ------------------------------------------------------------------------------


def request(name: str, listed: list[str], called: list[str], source: str = "s") -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": tool}} for tool in listed]
    calls = [{"name": tool, "arguments": {}} for tool in called]
    return {"id": name, "source": source, "messages": MESSAGES, "tools": tools, "calls": calls}


def names(requests: Any) -> set[str]:
    return {tool_key(tool["function"]["name"]) for one in requests for tool in one["tools"]}


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True), max_size=40))
def test_train_and_dev_share_no_tool_name(lists: list[list[int]]) -> None:
    rows = [
        request(str(i), [f"Tool_{n}" if i % 2 else f"tool{n}" for n in listed], [])
        for i, listed in enumerate(lists)
    ]
    for row in rows:
        row["calls"] = [{"name": row["tools"][0]["function"]["name"], "arguments": {}}]
    split = split_by_tools(rows, 0.2)
    assert not names(split.train) & names(split.dev)
    assert len(split.train) + len(split.dev) + split.num_lost == len(rows)
    by_id = {row["id"]: row for row in rows}
    assert all(by_id[row["id"]] == row for row in split.dev)
    for row in split.train:
        assert row["tools"]
        assert set(called_names(row)) <= {tool["function"]["name"] for tool in row["tools"]}
    pruned = sum(len(by_id[row["id"]]["tools"]) - len(row["tools"]) for row in split.train)
    assert pruned == split.num_pruned


def test_the_split_is_of_each_source_and_of_the_seed() -> None:
    rows = [
        request(f"{source}{i}", [f"{source}{i}"], [f"{source}{i}"], source)
        for source in "ab"
        for i in range(50)
    ]
    split = split_by_tools(rows, 0.1)
    assert [sum(row["source"] == source for row in split.dev) for source in "ab"] == [5, 5]
    assert split.num_lost == 0
    assert split == split_by_tools(rows, 0.1)
    assert split.dev != split_by_tools(rows, 0.1, seed=1).dev
    assert not split_by_tools(rows, 0).dev


def test_a_tool_that_all_call_is_not_for_dev() -> None:
    rows = [request(str(i), ["all", f"own{i}"], ["all"]) for i in range(20)]
    split = split_by_tools(rows, 0.2)
    assert not split.dev
    assert len(split.train) == 20
    json.dumps(split.train)
