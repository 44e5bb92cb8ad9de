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
            assert said.keys() == call["arguments"].keys()
            assert all(source in text for source in said.values()), (row["id"], said)


NUMBER = re.compile(rf"\d+(\.\d+)?|\b({'|'.join(NUMBER_WORDS)}|an?|half an?|one)\b")
NEGATIVE = re.compile(
    r"(?i)\b(no|not|nope|without|uninsured|unfurnished|rather|certainly|don't|normal|in person|"
    r"everyone)\b"
)
UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


DAY_FORMS = ["%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d-%b-%Y", "%B %d, %Y", "%d %B %Y", "%b %d, %Y"]
TODAY = re.compile(
    r"(?:[Tt]oday is|[Ii]t is|date:|date=|We have|date is)"
    r" ?((?:\w+, )?\d{4}-\d\d-\d\d|\w+ \d+, \d{4})"
)


def number_in(text: str) -> float:
    """Returns the number that a text says, read by other rules than it was written by."""
    found = NUMBER.search(text)
    assert found is not None, text
    word = found.group()
    if word[0].isdigit():
        return float(word)
    return {"half a": 0.5, "half an": 0.5, "a": 1, "an": 1}.get(word) or NUMBER_WORDS.index(word)


def unit_in(text: str) -> int:
    """Returns the seconds of the unit of time in a text; 1 for none."""
    return next((seconds for name, seconds in UNITS.items() if f" {name}" in text), 1)


def day_in(text: str, row: Row) -> str:
    """Returns the date that a text says, as YYYY-MM-DD."""
    for form in (
        "%Y-%m-%d",
        "%Y/%m/%d",
        "%Y.%m.%d",
        "%B %d, %Y",
        "%d %B %Y",
        "%b %d, %Y",
        "%d-%b-%Y",
    ):
        plain = re.sub(r"(\d)(st|nd|rd|th)\b", r"\1", text).replace("the ", "").replace(" of", "")
        plain = re.sub(r"^[A-Z]\w+day, ", "", plain)
        try:
            return datetime.strptime(plain, form).date().isoformat()
        except ValueError:
            pass
    today = TODAY.search(dialogue(row)) or re.search(r"(\d{4}-\d\d-\d\d)", last_result(row))
    assert today is not None, (row["id"], text)
    fixed = {"today": 0, "tomorrow": 1, "the day after tomorrow": 2, "in a week": 7}
    fixed |= {"in a fortnight": 14}
    ahead = fixed[text] if text in fixed else number_in(text)
    start = datetime.fromisoformat(day_in(today[1], row))
    return (start + timedelta(ahead)).date().isoformat()


def time_in(text: str) -> str:
    """Returns the time of day that a text says, as HH:MM."""
    found = re.fullmatch(r"(\d+)(?:[:.h](\d\d))?(?: h)? ?([apAP]\.?[mM]\.?)?", text)
    assert found is not None, text
    hour, half = int(found[1]), (found[3] or "").lower()
    if half:
        hour = hour % 12 + (12 if half[0] == "p" else 0)
    return f"{hour:02}:{int(found[2] or 0):02}"


def test_values_are_what_the_dialogue_says(rows: list[Row]) -> None:
    counted: dict[str, int] = dict.fromkeys((*TYPES, "day", "time", "moment"), 0)
    for row in rows:
        for call, said in zip(row["calls"], row["meta"]["said"], strict=True):
            schemas = parameters(called_tool(row, call))
            for key, value in call["arguments"].items():
                kind = check_value(row, schemas[key], value, said[key])
                counted[kind] += 1
    assert all(counted.values()), counted


def check_value(row: Row, schema: Row, value: Any, said: str) -> str:
    """Asserts that `value` can be read off `said`; returns how it was read."""
    where, kind, hint = (row["id"], value, said), schema["type"], schema.get("description", "")
    if kind in ("integer", "number"):
        factor = unit_in(said) / unit_in(hint.split("(in")[-1]) if "(in " in hint else 1
        assert value == pytest.approx(number_in(said) * factor), where
    elif kind == "boolean":
        assert value is not bool(NEGATIVE.search(said)), where
    elif kind in ("array", "object"):
        items = value if kind == "array" else value.values()
        assert all(str(item) in said or NUMBER_WORDS[item] in said for item in items), where
    elif schema.get("format") == "date":
        assert value == day_in(said, row), where
        return "day"
    elif "(HH:MM)" in hint:
        assert value == time_in(said), where
        return "time"
    elif "HH:MM:SS" in hint:
        assert value == moment_in(said, row), where
        return "moment"
    elif "enum" not in schema:
        assert value == (said[1:-1] if said[0] in "\"'" else said), where
    return kind


def moment_in(said: str, row: Row) -> str:
    for joint in (" at ", " around ", " on ", ", "):
        day, found, time = said.rpartition(joint)
        if found:
            if joint == " on ":
                day, time = time, day
            return f"{day_in(day, row)} {time_in(time)}:00"
    raise AssertionError(said)


def earlier_calls(row: Row) -> list[str]:
    """Returns the names of the tools that were called before, in real turns or in a text."""
    found = [
        call["function"]["name"]
        for message in row["messages"]
        for call in message.get("tool_calls", ())
    ]
    names = "|".join(re.escape(tool["function"]["name"]) for tool in row["tools"])
    form = rf'\b({names})(?=",|\(?{{| {{| with {{|\n(?:Action )?Input: )'
    return found + re.findall(form, row["messages"][-1]["content"])


def test_the_next_call_is_the_one_that_the_state_of_the_dialogue_asks_for() -> None:
    for held_out in (False, True):
        for family in FAMILIES:
            for row in generate(60, seed=2, families=[family], held_out=held_out):
                check_state(row, family)


def last_result(row: Row) -> str:
    """Returns what stands behind the last call that was made."""
    before = earlier_calls(row)
    return dialogue(row).rsplit(before[-1], 1)[1] if before else ""


def check_state(row: Row, family: str) -> None:
    before, calls = earlier_calls(row), [call["name"] for call in row["calls"]]
    where = (row["id"], before, calls)
    if family in ("none", "ask", "done"):
        assert calls == [], where
        assert row["meta"]["answer"], where
    else:
        assert calls, where
        assert not set(calls) & set(before), where
    if family in ("given", "progress", "done"):
        assert before, where
    if family == "several":
        assert len(calls) > 1, where
    if family == "given":  # a value that no call has written yet: it comes from the last result
        result = last_result(row)  # of a calendar: what it tells is not copied
        told = re.search(r"\d{4}-\d\d-\d\d", result) is not None
        assert told or any(said in result for said in row["meta"]["said"][0].values()), where


def test_worlds_share_no_words_kinds_sentences_or_markups() -> None:
    train, held_out = (traits(world) for world in WORLDS)
    for name, found in train.items():
        assert found, name
        assert not found & held_out[name], name
    sentences = [
        {plain(text) for found in one.values() for text in found} for one in (train, held_out)
    ]
    assert not {text for text in sentences[0] & sentences[1] if text.count(" ") > 1}


def plain(text: str) -> str:
    """Returns the letters and fields of a text."""
    return re.sub(r"[^a-z{}]+", " ", text.lower()).strip()


def traits(world: World) -> dict[str, set[str]]:
    """Returns what may not occur in both worlds."""
    given = [provider.gives for provider in world.providers]
    every = [*world.parameters.values(), *given]
    kinds = {one.kind.name for one in every} | {kind.name for kind in world.keys.values()}
    said = {name: set(flat(value)) - {"", "{one}"} for name, value in vars(world.wording).items()}
    return {
        "words": {cased(word, "snake") for one in every for word in one.words} | set(world.keys),
        "kinds": kinds,
        "clauses": {clause for one in every for clause in one.clauses} - {"{}"},
        "nouns": {entity.bare for entity in world.entities},
        "providers": {name for one in world.providers for name in one.names},
        "markups": {part for one in world.markups for part in (one.user, one.call, one.result)},
        "heads": {head for one in world.markups for head in one.head} - {""},
        "verbs": {name for one in world.verbs.values() for name in (*one.names, *one.said)},
        "modifiers": set(world.modifiers),
        "adjectives": set(world.adjectives),
        "needs": {text for one in world.providers for text in (*one.needs, *one.before)},
        "describes": {text for one in world.providers for text in one.describes},
        **said,
    }


def flat(value: Iterable[Any]) -> list[str]:
    return [text for one in value for text in ([one] if isinstance(one, str) else flat(one))]


def test_the_command_writes_the_same_file_again(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.jsonl.gz", "b.jsonl.gz")]
    for path in paths:
        args = ("--count", "30", "--seed", "4", "--families", "needed, given", "--out", str(path))
        assert run(("requests", "synth", *args)) == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with gzip.open(paths[0], "rt") as file:
        written = [json.loads(line) for line in file]
    assert written == list(generate(30, seed=4, families=["needed", "given"]))
    assert {row["meta"]["family"] for row in read_requests(paths[0])} == {"needed", "given"}


def test_the_command_prints_rows_and_refuses_what_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(("requests", "synth", "-n", "3", "--held-out")) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in printed] == list(generate(3, held_out=True))
    assert run(("requests", "synth", "--families", "one,two")) == 2
    assert "got 'two'" in capsys.readouterr().err
    for none in (",", ""):
        assert run(("requests", "synth", "--families", none)) == 2
        said = capsys.readouterr().err
        assert "--families: expected some of one, choice, " in said
        assert f"got {none!r}" in said
    assert run(("requests", "synth", "--out", str(tmp_path))) == 2
    assert "is a directory" in capsys.readouterr().err
    with pytest.raises(InvalidRequest, match="count: expected at least 0, got -1"):
        generate(-1)


def test_strange_words_are_copied() -> None:
    """They stand in schema, dialogue and call alike, and change nothing where there are none."""
    plain = list(generate(60, seed=3))
    assert list(generate(60, seed=3, strange=0.0, words=["zugzwang"])) == plain
    strange = list(generate(60, seed=3, strange=1.0, words=["zugzwang"]))
    assert strange == list(generate(60, seed=3, strange=1.0, words=["zugzwang"]))
    named = [row for row in strange if "zugzwang" in json.dumps(row["tools"]).lower()]
    assert len(named) > 50
    for row in strange:
        label(row)  # calls are of the tools, their values as the schemas have them
        for call, said in zip(row["calls"], row["meta"]["said"], strict=True):
            for key, value in call["arguments"].items():
                if isinstance(value, str) and "zugzwang" in value:
                    assert value in said[key]
    names = [tool["function"]["name"].lower() for row in strange for tool in row["tools"]]
    assert any(name.startswith("zugzwang") for name in names)  # in place of a verb that is known
    with pytest.raises(InvalidRequest, match="strange: expected a share from 0 to 1, got 2"):
        generate(1, strange=2)


def test_unclear_calls_are_of_listed_tools_and_of_their_types() -> None:
    plain, unclear = (list(generate(200, seed=3, unclear=share)) for share in (0.0, 1.0))
    assert plain == list(generate(200, seed=3))
    others = 0
    for row, known in zip(unclear, plain, strict=True):
        label(row)
        assert len(row["calls"]) == len(row["meta"]["said"]) == bool(known["calls"])
        if len(known["calls"]) == 1 < len(row["tools"]):
            others += row["calls"][0]["name"] != known["calls"][0]["name"]
    assert others > 40
    some = list(generate(200, seed=3, unclear=0.2))
    changed = [row["calls"] != known["calls"] for row, known in zip(some, plain, strict=True)]
    assert 10 < sum(changed) < 60
    with pytest.raises(InvalidRequest, match="unclear: expected a share from 0 to 1, got -1"):
        generate(1, unclear=-1)


def test_strange_scenes_hang_on_no_wording_and_say_every_value() -> None:
    rows = list(generate(400, seed=3, strange=1.0, words=["zugzwang", "quokka"]))
    known = [re.escape(form.split("{", 1)[0]) for form in train_world.WORLD.wording.requests]
    begins = re.compile("|".join(filter(None, known)))
    markups = 0
    for row in rows:
        text = "\n".join(str(message["content"]) for message in row["messages"])
        for said in row["meta"]["said"]:
            assert all(value in text for value in said.values())
        markups += bool(
            re.search(r"[\[(<](?i:zugzwang|quokka)[\])>]|## (?i:zugzwang|quokka)", text)
        )
    asked = [row["messages"][-1]["content"] for row in rows if len(row["messages"]) == 1]
    share = sum(bool(begins.match(text)) for text in asked) / len(asked)
    plain = [row["messages"][0]["content"] for row in generate(400, seed=3, families=["one"])]
    assert share < 0.6 * sum(bool(begins.match(text)) for text in plain) / len(plain)
    assert markups > 20
