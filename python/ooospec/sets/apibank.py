# SPDX-License-Identifier: Apache-2.0
"""API-Bank's requests, out of a clone of hemingkx/ToolSpec."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from ooospec.sets.checks import problems
from ooospec.sets.upstream import Upstream

FOLDER = "data/API-Bank"
TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "list(str)": "array",
}
# `1. Name: X`, its description, its parameters; level 3 says `1. X: description` instead.
TOOL = re.compile(
    r"^\d+\. (?:Name: (?P<name>\S+)\nDescription: |(?P<short>\w+): )(?P<description>.*)\n"
    r"Parameters: (?P<parameters>\{.*\})$",
    re.MULTILINE,
)
TURN = re.compile(r"<(user|response|tool_call|obs)>(.*?)</\1>", re.DOTALL)


def rows(upstream: Upstream) -> list[dict[str, Any]]:
    """Returns the requests of levels 1 to 3 in the order of their files."""
    found = []
    for level in (1, 2, 3):
        asked = json.loads(upstream.text(f"{FOLDER}/level-{level}-api_processed.json"))
        for number, one in enumerate(asked):
            tools = _tools(one["system"])
            answers = one["answer"] if isinstance(one["answer"], list) else [one["answer"]]
            calls = [{"name": call["name"], "arguments": call["parameters"]} for call in answers]
            found.append(
                {
                    "id": f"apibank-l{level}-{number:04}",
                    "source": "API-Bank",
                    "split": "eval",
                    "messages": [{"role": "user", "content": one["user"]}],
                    "tools": tools,
                    "calls": calls,
                    "meta": {"level": level, "other": one["other"], **problems(calls, tools)},
                    "system_prompt": one["system"],
                    "messages_unrolled": _turns(one["user"]),
                }
            )
    return found


def _tools(system: str) -> list[dict[str, Any]]:
    """Returns the tools that a system text lists. All parameters not called optional are required:
    the text has no list of those that are.
    """
    found = []
    for match in TOOL.finditer(system):
        properties = {}
        required = []
        for name, given in ast.literal_eval(match["parameters"]).items():
            kind = TYPES[given["type"]]
            properties[name] = {"type": kind, "description": given["description"]}
            if kind == "array":
                items = {"type": "string"} if given["type"] == "list(str)" else {}
                properties[name]["items"] = items
            if not given["description"].startswith("[Optional]"):
                required.append(name)
        function = {
            "name": match["name"] or match["short"],
            "description": match["description"],
            "parameters": {"type": "object", "properties": properties, "required": required},
        }
        found.append({"type": "function", "function": function})
    return found


def _turns(text: str) -> list[dict[str, Any]]:
    """Returns the dialogue that a text tells as messages; neighbours of one role become one."""
    turns: list[dict[str, Any]] = []
    num_calls = 0
    for kind, content in TURN.findall(text):
        content = content.strip()
        last: dict[str, Any] = turns[-1] if turns else {"role": None}
        if kind == "user":
            if last["role"] == "user":
                last["content"] += "\n\n" + content
            else:
                turns.append({"role": "user", "content": content})
        elif kind == "response":
            if last["role"] == "assistant" and "tool_calls" not in last:
                last["content"] += "\n" + content
            else:
                turns.append({"role": "assistant", "content": content})
        elif kind == "tool_call":
            if last["role"] != "assistant":
                last = {"role": "assistant", "content": ""}
                turns.append(last)
            for line in content.splitlines():
                call = json.loads(line)
                arguments = json.dumps(call["parameters"], ensure_ascii=False)
                last.setdefault("tool_calls", []).append(
                    {
                        "id": f"call_{num_calls}",
                        "type": "function",
                        "function": {"name": call["name"], "arguments": arguments},
                    }
                )
                num_calls += 1
        else:
            turns.append(
                {"role": "tool", "content": content, "tool_call_id": f"call_{num_calls - 1}"}
            )
    return turns
