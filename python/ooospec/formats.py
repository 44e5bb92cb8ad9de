# SPDX-License-Identifier: Apache-2.0
"""Messages and tools as OpenAI writes them, made ready for a chat template."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from functools import lru_cache
from typing import Any

from ooospec._core import _C
from ooospec.errors import InvalidRequest

Message = dict[str, Any]
Tool = dict[str, Any]

MAX_DEPTH = 64  # of lists and objects in tools; templates write them by recursion
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)  # never looks at a byte twice
_BRACKETS = re.compile(rb"[\[\]{}]")


def render(tokenizer: Any, messages: Seq[Message], tools: Seq[Tool] | None) -> str:
    """Returns the prompt that the tokenizer's chat template makes of a dialogue.

    Raises InvalidRequest for messages that are not valid or not Unicode, or where there is no chat
    template.
    """
    import jinja2

    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        raise InvalidRequest("messages: expected a tokenizer with a chat template, got none")
    try:
        text = tokenizer.apply_chat_template(
            normalise_messages(messages),
            tools=list(tools) if tools else None,
            add_generation_prompt=True,
            tokenize=False,
        )
    except InvalidRequest:
        raise
    except (jinja2.TemplateError, TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"messages: the chat template refused them: {error}") from error
    return unicode(str(text), "messages")


def unicode(text: str, name: str) -> str:
    """Returns `text`. Raises InvalidRequest where it has half of a surrogate pair: no bytes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{name}: expected Unicode text, got half of a surrogate pair, "
            f"{text[error.start : error.end]!r:.20}"
        ) from error
    return text


def opens_thinking(prompt: str) -> bool:
    """Returns whether an answer to a rendered prompt begins inside <think>."""
    return prompt.rstrip().endswith("<think>")


def normalise_messages(messages: Seq[Message]) -> list[Message]:
    """Returns messages as templates want them: call arguments as objects, no content as "".

    Arguments that are no JSON object are kept as they are. Raises InvalidRequest; `messages` is not
    changed.
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Seq) or not messages:
        got = "none" if not messages else type(messages).__name__
        raise InvalidRequest(f"messages: expected a list of at least one message, got {got}")
    result = []
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise InvalidRequest(
                f"messages[{i}]: expected an object with a role, got {message!r:.80}"
            )
        message = copy.deepcopy(message)
        content = message.get("content")
        if content is None:
            message["content"] = ""
        elif isinstance(content, list):
            message["content"] = _join_parts(content, i)
        elif not isinstance(content, str):
            raise InvalidRequest(f"messages[{i}].content: expected text, got {content!r:.80}")
        for call in _list_of_calls(message.get("tool_calls") or [], i):
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                raise InvalidRequest(
                    f"messages[{i}].tool_calls: expected a function with a name, got {call!r:.80}"
                )
            function["arguments"] = _decode_arguments(function.get("arguments"))
        if not message.get("tool_calls"):
            message.pop("tool_calls", None)
        result.append(message)
    return result


def _list_of_calls(calls: Any, i: int) -> list[Any]:
    if not isinstance(calls, list):
        raise InvalidRequest(f"messages[{i}].tool_calls: expected a list, got {calls!r:.80}")
    return calls


def tools_as_json(tools: Seq[Tool | Callable[..., Any]] | None) -> list[Tool] | None:
    """Returns tools as OpenAI JSON; typed Python functions become it by types and docstring.

    Raises InvalidRequest for a tool without a name, and for a function without types or
    descriptions.
    """
    if tools is None:
        return None
    if isinstance(tools, str | bytes | dict) or not isinstance(tools, Iterable):
        raise InvalidRequest(f"tools: expected a list, got {type(tools).__name__}")
    return [_tool_as_json(tool, i) for i, tool in enumerate(tools)] or None


def _tool_as_json(tool: Tool | Callable[..., Any], i: int) -> Tool:
    if callable(tool):
        from transformers.utils import get_json_schema
        from transformers.utils.chat_template_utils import (
            DocstringParsingException,
            TypeHintParsingException,
        )

        try:
            return dict(get_json_schema(tool))
        except (
            DocstringParsingException,
            TypeHintParsingException,
            NameError,  # a type that is not there
            TypeError,
            ValueError,  # no signature
        ) as error:
            raise InvalidRequest(f"tools[{i}]: {error}") from error
    if isinstance(tool, dict) and "function" not in tool and "name" in tool:
        tool = {"type": "function", "function": tool}
    function = tool.get("function") if isinstance(tool, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"tools[{i}]: expected a function with a name, got {tool!r:.80}")
    return tool


def function_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the function of an OpenAI tool; a bare function is its own."""
    function: Mapping[str, Any] = tool.get("function", tool)
    return function


def parameters(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the top-level parameters of a tool or a function: their schemas by name."""
    return (function_of(tool).get("parameters") or {}).get("properties") or {}


def required(tool: Mapping[str, Any]) -> Seq[str]:
    """Returns the parameters that a call of a tool or a function must have."""
    return (function_of(tool).get("parameters") or {}).get("required") or ()


def tool_set(tools: Seq[Tool]) -> _C.ToolSet:
    """Returns the tools of a request as the core reads them; a repeated list costs a look-up.

    Raises ValueError for a list that is not valid.
    """
    return _parse_tools(json.dumps(list(tools)))


@lru_cache(maxsize=256)
def _parse_tools(tools_json: str) -> _C.ToolSet:
    depth = nesting(tools_json.encode())
    if depth > MAX_DEPTH:
        raise ValueError(
            f"tools: expected at most {MAX_DEPTH} nested lists and objects, got {depth}"
        )
    return _C.ToolSet(tools_json)


def nesting(body: bytes) -> int:
    """Returns how deep lists and objects nest in a JSON text."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def check_tools(tools: Seq[Tool] | None) -> None:
    """Raises InvalidRequest for tools that are no JSON, or whose names or parameters are none."""
    try:
        tool_set(tools or [])
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"tools: {str(error).removeprefix('tools: ')}") from error


def answer_calls(text: str, tools: Seq[Tool] | None) -> list[dict[str, Any]]:
    """Returns the calls in an answer as OpenAI tool calls, in order: ids count from call_0, the
    arguments are the target's own text. A name that no tool has, and broken JSON, make no call.
    """
    if not tools:
        return []
    calls = [call for call in _C.parse_calls(text, tool_set(tools)) if call.tool >= 0]
    return [
        {
            "id": f"call_{i}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for i, call in enumerate(calls)
    ]


def _join_parts(parts: list[Any], i: int) -> str:
    """Returns the text of content in parts."""
    for part in parts:
        if (
            not isinstance(part, dict)
            or part.get("type") != "text"
            or not isinstance(part.get("text"), str)
        ):
            raise InvalidRequest(
                f"messages[{i}].content: expected parts of text only, got {part!r:.80}"
            )
    return "".join(part["text"] for part in parts)


def _decode_arguments(arguments: Any) -> Any:
    """Returns the object that a JSON string of arguments holds, once decoded; {} for nothing."""
    if arguments is None or arguments == "":
        return {}
    if isinstance(arguments, str):
        try:
            decoded = json.loads(arguments)
        except (ValueError, RecursionError):  # no JSON, or none that Python reads
            return arguments
        return decoded if isinstance(decoded, dict) else arguments
    return arguments
