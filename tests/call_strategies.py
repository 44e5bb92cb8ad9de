# SPDX-License-Identifier: Apache-2.0
"""What the tests of the call readers and writers draw: tools, arguments, styles, cuts of a text."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ooospec._core import _C

KINDS = ("string", "integer", "number", "boolean", "array", "object")

names = st.text(min_size=1, max_size=12) | st.sampled_from(
    ["get", "get_all", "a.b", "srv:tool", "x-y", "über", "name", "arguments", 'q"\\/']
)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=20)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
_of_kind = {
    "string": st.text(max_size=20),
    "integer": st.integers(),
    "number": numbers,
    "boolean": st.booleans(),
    "array": st.lists(values, max_size=3),
    "object": st.dictionaries(names, values, max_size=3),
}


def tool(name: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@st.composite
def tools_and_call(draw: st.DrawFn) -> tuple[list[dict[str, Any]], str, dict[str, Any]]:
    """Returns tools, the name of one, and arguments that its schema allows, in its order."""
    kinds = st.dictionaries(names, st.sampled_from(KINDS), max_size=5)
    tools = []
    for name in draw(st.lists(names, min_size=1, max_size=4, unique=True)):
        chosen = draw(kinds)
        required = draw(st.lists(st.sampled_from(list(chosen)), unique=True)) if chosen else []
        tools.append(tool(name, {key: {"type": kind} for key, kind in chosen.items()}, required))
    called = draw(st.sampled_from(tools))["function"]
    properties = called["parameters"]["properties"]
    arguments = {
        key: draw(_of_kind[schema["type"]])
        for key, schema in properties.items()
        if key in called["parameters"]["required"] or draw(st.booleans())
    }
    return tools, called["name"], arguments


@st.composite
def styles(draw: st.DrawFn) -> _C.CallStyle:
    """Returns any style that is drafted: wrapper, layout, spacing, spelling."""
    wrapper = draw(st.sampled_from(["tags", "fenced_json", "fenced", "bare", "python_tag"]))
    style = _C.CallStyle(wrapper, draw(st.sampled_from(["", "  ", "    ", "\t", " "])))
    if draw(st.booleans()):
        style.lines = draw(st.lists(st.booleans(), min_size=5, max_size=5))
    style.as_list = draw(st.booleans())
    style.type_key = draw(st.booleans())
    style.ascii = draw(st.booleans())
    style.escape_slash = draw(st.booleans())
    style.arguments_key = draw(st.sampled_from(["arguments", "parameters"]))
    style.pad = draw(st.sampled_from(["", " "]))
    style.array_pad = draw(st.sampled_from(["", " "]))
    style.before_comma = draw(st.sampled_from(["", " "]))
    style.after_comma = draw(st.sampled_from(["", " "]))
    style.before_colon = draw(st.sampled_from(["", " "]))
    style.after_colon = draw(st.sampled_from(["", " "]))
    if wrapper == "tags":
        style.open_gap = draw(st.sampled_from(["\n", "", " "]))
        style.close_gap = draw(st.sampled_from(["\n", ""]))
    return style


def fixed_styles() -> dict[str, _C.CallStyle]:
    """Returns the styles that models are known to write, by name."""
    compact = _C.CallStyle("tags")
    compact.after_comma = compact.after_colon = ""
    spaced = _C.CallStyle("bare")
    spaced.pad = spaced.before_colon = " "
    llama = _C.CallStyle("bare")
    llama.arguments_key = "parameters"
    llama.type_key = llama.ascii = True
    listed = _C.CallStyle("fenced_json", "  ")
    listed.as_list = True
    inline = _C.CallStyle("fenced_json", "  ")
    inline.lines = [False, True, False, False, False]
    return {
        "tags": _C.CallStyle("tags"),
        "fenced json, indented by 2": _C.CallStyle("fenced_json", "  "),
        "fenced json, indented by 4": _C.CallStyle("fenced_json", "    "),
        "fenced": _C.CallStyle("fenced"),
        "bare": _C.CallStyle("bare"),
        "bare, tabs": _C.CallStyle("bare", "\t"),
        "python tag": _C.CallStyle("python_tag"),
        "compact": compact,
        "spaced": spaced,
        "llama, with its type, escaped": llama,
        "list, indented by 2": listed,
        "arguments in one line": inline,
    }


def cut(data: bytes, at: list[int]) -> Iterator[bytes]:
    """Yields the pieces of `data` between the given places."""
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in at)})
    for begin, end in pairwise(places):
        yield data[begin:end]


def slots_of(tools: _C.ToolSet, name: str, arguments: dict[str, Any]) -> _C.Slots:
    """Returns what a sidecar says that knows the call."""
    slots = _C.Slots()
    slots.tool = tools.find(name)
    slots.ended = True
    parameters = tools.parameters(slots.tool)
    for key, value in arguments.items():
        assert slots.set(slots.tool, parameters.index(key), json.dumps(value))
    return slots


def evaluation_calls() -> Iterator[tuple[str, list[dict[str, Any]], str, dict[str, Any]]]:
    """Yields (row, tools, name, arguments) of the request files in $OOOSPEC_DATA: calls of a listed
    tool, arguments that it has and whose type is the schema's.
    """
    for path in sorted(Path(os.environ["OOOSPEC_DATA"]).glob("eval_*.jsonl*")):
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                schemas = {one["function"]["name"]: one["function"] for one in row["tools"]}
                for call in row["calls"]:
                    if call["name"] not in schemas:
                        continue
                    properties = schemas[call["name"]]["parameters"].get("properties", {})
                    arguments = {
                        key: call["arguments"][key]
                        for key in properties
                        if key in call["arguments"]
                        and _fits(call["arguments"][key], properties[key])
                    }
                    yield row["id"], row["tools"], call["name"], arguments


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    """True if the value has the schema's type; booleans are no numbers, null is not an argument."""
    python = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list}
    expected = python.get(schema.get("type", ""), dict)
    return isinstance(value, expected) and (expected is bool or not isinstance(value, bool))
