# SPDX-License-Identifier: Apache-2.0
"""BFCL's Java and JavaScript requests, out of the wheel or folder of the package bfcl_eval."""

from __future__ import annotations

import json
from typing import Any

from ooospec.sets.checks import problems
from ooospec.sets.upstream import Upstream

LANGUAGES = {"java": "java", "javascript": "js"}
FOLDER = "bfcl_eval/data"
TYPES = {
    "dict": "object",
    "HashMap": "object",
    "Array": "array",
    "ArrayList": "array",
    "array": "array",
    "float": "number",
    "double": "number",
    "integer": "integer",
    "long": "integer",
    "boolean": "boolean",
    "Boolean": "boolean",
    "String": "string",
    "char": "string",
    "any": "string",
    "": "string",
}
# A stratified draw of 45 and 23 requests, as many in all as the OoO-Spec paper has; which those
# were is not published.
PAPER_LIKE = {
    "java": (
        "3 6 7 12 13 17 19 23 25 26 27 28 30 35 37 41 42 43 44 45 46 48 51 53 54 56 58 59 "
        "63 66 72 74 75 77 78 81 83 84 86 88 89 90 97 98 99"
    ),
    "javascript": "1 3 5 6 7 10 11 12 13 15 16 22 26 30 31 34 39 42 43 45 46 48 49",
}


def rows(upstream: Upstream) -> list[dict[str, Any]]:
    """Returns the requests in BFCL's order, Java first."""
    found = []
    for language, short in LANGUAGES.items():
        file = f"BFCL_v4_simple_{language}.json"
        asked = _lines(upstream.text(f"{FOLDER}/{file}"))
        answers = {
            one["id"]: one["ground_truth"]
            for one in _lines(upstream.text(f"{FOLDER}/possible_answer/{file}"))
        }
        for number, one in enumerate(asked):
            row = _row(one, answers[one["id"]])
            row["meta"] = {
                "category": f"simple_{language}",
                "lang": short,
                "src_types": _source_types(one["function"]),
                "ge3_params": len(row["calls"][0]["arguments"]) >= 3,
                **problems(row["calls"], row["tools"]),
                "paper_like": str(number) in PAPER_LIKE[language].split(),
            }
            found.append(row)
    return found


def _row(asked: dict[str, Any], answers: list[dict[str, Any]]) -> dict[str, Any]:
    tools = [
        {
            "type": "function",
            "function": {
                "name": function["name"],
                "description": function["description"],
                "parameters": _schema(function["parameters"]),
            },
        }
        for function in asked["function"]
    ]
    return {
        "id": f"bfcl-{asked['id']}",
        "source": "BFCL",
        "split": "eval",
        "messages": asked["question"][0],
        "tools": tools,
        "calls": [
            {"name": name, "arguments": _first_values(values)}
            for answer in answers
            for name, values in answer.items()
        ],
    }


def _schema(given: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": TYPES[given["type"]]}
    schema |= {key: given[key] for key in ("description", "default") if key in given}
    if "properties" in given:
        schema["properties"] = {name: _schema(value) for name, value in given["properties"].items()}
        schema["required"] = given.get("required", [])
    if schema["type"] == "array":
        schema["items"] = _schema(given["items"]) if given.get("items") else {}
    return schema


def _first_values(allowed: dict[str, list[Any]]) -> dict[str, Any]:
    """Returns the first allowed value of each parameter that may not be absent."""
    return {name: _plain(values[0]) for name, values in allowed.items() if "" not in values}


def _plain(value: Any) -> Any:
    """Returns a value whose objects have one value a key, not a list of allowed ones."""
    if isinstance(value, dict):
        return {
            name: _plain(one[0] if isinstance(one, list) else one) for name, one in value.items()
        }
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _source_types(functions: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    return {
        function["name"]: {
            name: value["type"] for name, value in function["parameters"]["properties"].items()
        }
        for function in functions
    }


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]
