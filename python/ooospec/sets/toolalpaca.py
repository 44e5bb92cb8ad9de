# SPDX-License-Identifier: Apache-2.0
"""ToolAlpaca's requests, out of a clone of tangqiaoyu/ToolAlpaca."""

from __future__ import annotations

import json
import re
from typing import Any

from ooospec.sets.checks import problems
from ooospec.sets.upstream import Upstream

PARTS = ("simulated", "real")
KEYS = ("access_key", "api_key", "appid")
REDACTED = "YOUR_API_KEY"
KEPT = ("description", "enum", "default", "format", "minimum", "maximum")
DOUBLED_KEY = re.compile(r'("(\w+)": )"\2": ')
PLACEHOLDER = "${"


def rows(upstream: Upstream) -> list[dict[str, Any]]:
    """Returns the requests whose first action is a call of a known function in JSON.

    An action that asks the user back is none; a key of somebody's account is replaced.
    """
    found = []
    for part in PARTS:
        for api_idx, api in enumerate(json.loads(upstream.text(f"data/eval_{part}.json"))):
            tools = _tools(api)
            names = {tool["function"]["name"] for tool in tools}
            pairs = zip(api["Instructions"], api["Golden_Answers"], strict=True)
            for number, (text, actions) in enumerate(pairs):
                arguments, remarks = _arguments(actions[0]["Action_Input"])
                if actions[0]["Action"] not in names or arguments is None:
                    continue
                calls = [{"name": actions[0]["Action"], "arguments": arguments}]
                about = {"set": part, "api": api["Name"], "category": api["Category"]}
                about |= {"gold_calls_total": len(actions), **remarks}
                found.append(
                    {
                        "id": f"toolalpaca-{part}-{api_idx:02}-{number:02}",
                        "source": "ToolAlpaca",
                        "split": "eval",
                        "messages": [{"role": "user", "content": text}],
                        "tools": tools,
                        "calls": calls,
                        "meta": about | problems(calls, tools),
                    }
                )
    return found


def _arguments(text: str) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Returns the arguments of an action, None where they are not JSON, and what to say of them."""
    remarks: dict[str, Any] = {}
    repaired = DOUBLED_KEY.sub(r"\1", text)
    if repaired != text:
        remarks["gold_json_repaired"] = True
    try:
        arguments = json.loads(repaired)
    except json.JSONDecodeError:
        return None, remarks
    if PLACEHOLDER in text:
        remarks["gold_placeholder"] = True
    for key in KEYS:
        if key in arguments:
            arguments[key] = REDACTED
            remarks["redacted"] = key
    return arguments, remarks


def _tools(api: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the functions of an API's OpenAPI document."""
    document = json.loads(api["Documentation"])
    places = api["Function_Projection"]
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": operation.get("summary")
                or operation.get("description")
                or api["Function_Description"][name].strip(),
                "parameters": _parameters(operation, document),
            },
        }
        for name, (path, verb) in places.items()
        for operation in [document["paths"][path][verb]]
    ]


def _parameters(operation: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of an operation: its parameters, then what its body has besides."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for one in operation.get("parameters", []):
        properties[one["name"]] = _schema({**one["schema"], **one}, document)
        if one.get("required"):
            required.append(one["name"])
    contents = operation.get("requestBody", {}).get("content", {})
    for content in list(contents.values())[:1]:
        body = _resolved(content["schema"], document)
        for name, value in body.get("properties", {}).items():
            properties.setdefault(name, _schema(value, document))
        required += [name for name in body.get("required", []) if name not in required]
    return {"type": "object", "properties": properties, "required": required}


def _schema(given: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    given = _resolved(given, document)
    schema: dict[str, Any] = {"type": given.get("type", "string")}
    schema |= {key: given[key] for key in KEPT if key in given}
    if "properties" in given:
        schema["properties"] = {
            name: _schema(value, document) for name, value in given["properties"].items()
        }
        schema["required"] = given.get("required", [])
    if schema["type"] == "array":
        schema["items"] = _schema(given["items"], document) if given.get("items") else {}
    return schema


def _resolved(given: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Returns what a schema means that may be a reference into the document."""
    if "$ref" not in given:
        return given
    target: Any = document
    for key in given["$ref"].removeprefix("#/").split("/"):
        target = target[key]
    return {**target, **{key: value for key, value in given.items() if key != "$ref"}}
