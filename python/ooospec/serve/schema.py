# SPDX-License-Identifier: Apache-2.0
"""The chat route in the server's OpenAPI description: what parse_request() takes."""

from __future__ import annotations

from typing import Any

from ooospec.serve.limits import Limits
from ooospec.serve.request import ROLES, ChatRequest

TEXT = {"type": "string"}
CALL = {
    "type": "object",
    "properties": {
        "id": TEXT,
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {"name": TEXT, "arguments": TEXT},
            "required": ["name", "arguments"],
        },
    },
    "required": ["type", "function"],
}
MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "enum": list(ROLES)},
        "content": TEXT,
        "name": TEXT,
        "tool_call_id": TEXT,
        "tool_calls": {"type": "array", "items": CALL},
    },
    "required": ["role", "content"],
    "additionalProperties": False,
}
PARAMETERS = {
    "type": "object",
    "properties": {
        "type": {"const": "object"},
        "properties": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {
                    "type": {"enum": ["string", "integer", "number", "boolean", "array", "object"]},
                    "description": TEXT,
                },
            },
        },
        "required": {"type": "array", "items": TEXT},
    },
}
TOOL = {
    "type": "object",
    "properties": {
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 64},
                "description": TEXT,
                "parameters": PARAMETERS,
            },
            "required": ["name"],
            "additionalProperties": False,
        },
    },
    "required": ["type", "function"],
    "additionalProperties": False,
}
ANSWERS: dict[int | str, dict[str, Any]] = {
    400: {"description": "What is wrong, and with which field."},
    401: {"description": "No key, or a wrong one."},
    404: {"description": "Another model than the one that is served."},
    413: {"description": "Too large a body."},
    429: {"description": "Too many requests wait."},
    503: {"description": "The server is ending."},
    504: {"description": "The request took too long."},
}


def chat_body(model: str, limits: Limits) -> dict[str, Any]:
    """Returns the requestBody of the chat route."""
    schema = ChatRequest.model_json_schema()
    definitions = schema.pop("$defs", {})
    schema = _inlined(schema, definitions)
    fields = schema["properties"]
    fields["model"] = {"type": "string", "enum": [model]}
    fields["messages"] |= {"items": MESSAGE, "maxItems": limits.max_messages}
    fields["tools"] = {"type": "array", "items": TOOL, "minItems": 1, "maxItems": limits.max_tools}
    schema["dependentRequired"] = {"tool_choice": ["tools"], "stream_options": ["stream"]}
    for name in ("max_tokens", "max_completion_tokens"):
        fields[name] = {"type": "integer", "minimum": 1, "maximum": limits.max_answer_tokens}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _inlined(part: Any, definitions: dict[str, Any]) -> Any:
    """Returns a schema with its definitions in place of references to them, none of which is to
    itself.
    """
    if isinstance(part, list):
        return [_inlined(one, definitions) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(definitions[part["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(value, definitions) for name, value in part.items()}
