# SPDX-License-Identifier: Apache-2.0
"""What reference calls break of their tools' schemas; evaluation rows keep them and say so."""

from __future__ import annotations

from typing import Any

KINDS = ("type_mismatch", "enum_mismatch", "missing_required", "gold_problems")
TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "array": list,
    "object": dict,
}


def problems(calls: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Returns lists of `tool.parameter` by kind of mismatch, and the calls' `gold_problems`; a kind
    without any is left out.
    """
    functions = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for call in calls:
        name, given = call["name"], call["arguments"]
        if name not in functions:
            found["gold_problems"].append("call_not_in_tools")
            continue
        schema = functions[name]
        for parameter, value in given.items():
            known = schema["properties"].get(parameter)
            if known is None:
                found["gold_problems"] = ["argument_not_in_schema"]
            elif not _fits(value, known):
                found["type_mismatch"].append(f"{name}.{parameter}")
            elif "enum" in known and value not in known["enum"]:
                found["enum_mismatch"].append(f"{name}.{parameter}")
        missing = [one for one in schema["required"] if one not in given]
        found["missing_required"] += [f"{name}.{one}" for one in missing]
    return {kind: names for kind, names in found.items() if names}


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    """Returns whether a value and all inside it have the types that the schema names."""
    wanted = schema.get("type")
    if wanted is None:
        return True
    if isinstance(value, bool) and wanted != "boolean":
        return False
    if not isinstance(value, TYPES[wanted]):
        return False
    if isinstance(value, list):
        return all(_fits(one, schema.get("items") or {}) for one in value)
    if isinstance(value, dict):
        known = schema.get("properties") or {}
        return all(_fits(one, known.get(name, {})) for name, one in value.items())
    return True
