# SPDX-License-Identifier: Apache-2.0
"""The prompt of a wave: a shared prefix, and a question for each slot. For inference and training.

The prefix holds worked examples, the numbered tools and the dialogue, and ends where the answer of
the sidecar begins. A branch is the prefix, a question, and the answer to it:

    function: get_weather⏎            (or `none`)
    get_weather.city: "Paris"⏎        (compact JSON, or `null` where the call leaves it out)
    call: get_weather {"city": "Paris"}⏎    (whole; an auxiliary of training, never asked in a wave)

Prefix, questions and answers are tokenised apart and joined as tokens, so that their borders are
the same in training, in a packed wave and for a slot run alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ooospec._core import _C
from ooospec.errors import InvalidRequest, PromptTooLong
from ooospec.formats import function_of, parameters, required
from ooospec.sidecar.examples import EXAMPLES, TOOLS
from ooospec.tokens import TokenTable

Message = Mapping[str, Any]
Tool = Mapping[str, Any]

NONE = "none"
TRAINED = "trained_on_waves"  # in tokenizer_config.json of a model that was
MIN_DIALOGUE_TOKENS = 64  # of the end of a dialogue; tools are shortened before it gets less
_INSTRUCTIONS = (
    "Read the tools and the dialogue. Fill in the form for the next tool call: which function is "
    "called, and the value of each parameter as JSON, or null if the dialogue does not give it."
)
_BODY = "[the body of the prompt]"


@dataclass(frozen=True)
class Slot:
    """A parameter to ask for. tool, parameter: numbers in the request's lists; question: tokens.

    recorded: tokens that count as the answer, whatever the model says; see sidecar/recorded.py.
    """

    tool: int
    parameter: int
    required: bool
    schema: Mapping[str, Any]
    question: tuple[int, ...]
    recorded: tuple[int, ...] = ()


@dataclass(frozen=True)
class WavePrompt:
    """What a wave runs on. Tokens throughout.

    question: asks for the function. options: answer -> tokens, for each tool number asked about,
    and None for no call. slots: in schema order. num_cut: dialogue tokens that found no room.
    recorded: one answer that counts as the likeliest, whatever the model says, or none.
    """

    prefix: tuple[int, ...]
    question: tuple[int, ...]
    options: dict[int | None, tuple[int, ...]]
    slots: tuple[Slot, ...]
    num_cut: int
    recorded: tuple[int | None, ...] = ()


class PromptBuilder:
    """Builds the prompts of one sidecar model. Deterministic; safe to use from several threads."""

    def __init__(
        self, tokenizer: Any, *, max_tokens: int, max_answer_tokens: int = 48, examples: bool = True
    ) -> None:
        """tokenizer: Hugging Face tokenizer; without a chat template the prompt is plain text.

        max_tokens: most tokens of a branch, answer included: the context of the model, or less.
        max_answer_tokens: kept free for an answer. examples: show worked examples, which models
        that were not trained on these prompts need. Raises UnsupportedModel; see TokenTable.
        """
        self._table = TokenTable(tokenizer)
        self._table.drafting_encoders(_C.Vocab(self._table.pieces))  # a hint waits for a prompt
        self._max_tokens = max_tokens
        self._max_answer_tokens = max_answer_tokens
        head, tail = _chat_frame(tokenizer)
        intro = f"{_INSTRUCTIONS}\n{_examples_text() if examples else ''}\n"
        self._head = self._table.encode(f"{head}{intro}# Tools\n")
        self._middle = self._table.encode("\n# Dialogue\n")
        self._tail = self._table.encode(f"\n\n# Form{tail}")
        self._encode = lru_cache(maxsize=4096)(lambda text: tuple(self._table.encode(text)))

    def build(self, messages: Seq[Message], tools: Seq[Tool]) -> WavePrompt:
        """Returns the prompt of a request.

        messages, tools: OpenAI JSON. What is too long is shortened in this order: the front of the
        dialogue down to its last MIN_DIALOGUE_TOKENS, the descriptions of the tools, then the tools
        that share the fewest words with the end of the dialogue (they are not asked about).
        Raises InvalidRequest for no tools, PromptTooLong if not even one fits.
        """
        if not tools:
            raise InvalidRequest("sidecar prompt: expected at least one tool, got none")
        functions = [function_of(tool) for tool in tools]
        texts = [_message_text(message) for message in messages]
        dialogue = self._table.encode("\n".join(texts))
        question = self._encode("function:")
        slots = [
            self._slot(function, tool, parameter)
            for tool, function in enumerate(functions)
            for parameter in range(len(parameters(function)))
        ]
        answers = [self._encode(f" {_name(function)}\n") for function in functions]
        branches = [len(question) + len(answer) for answer in answers]
        branches += [len(slot.question) + self._max_answer_tokens for slot in slots]
        frame = len(self._head) + len(self._middle) + len(self._tail)
        room = self._max_tokens - frame - max(branches)
        least = min(len(dialogue), MIN_DIALOGUE_TOKENS)
        kept = self._fit_tools(functions, room - least, texts[-1:])
        if not kept:
            raise PromptTooLong(
                "sidecar prompt: expected room for a tool and the end of the dialogue, got "
                f"{max(0, room)} of {self._max_tokens} tokens"
            )
        tool_tokens = [token for tool in sorted(kept) for token in kept[tool]]
        num_cut = max(0, len(dialogue) - (room - len(tool_tokens)))
        prefix = self._head + tool_tokens + self._middle + dialogue[num_cut:] + self._tail
        options: dict[int | None, tuple[int, ...]] = {i: answers[i] for i in sorted(kept)}
        return WavePrompt(
            prefix=tuple(prefix),
            question=question,
            options=options | {None: self._encode(f" {NONE}\n")},
            slots=tuple(slot for slot in slots if slot.tool in kept),
            num_cut=num_cut,
        )

    def value_answer(self, value: Any) -> tuple[int, ...]:
        """Returns the tokens that answer a slot's question with the JSON value `value`."""
        return self._encode(f" {_to_json(value)}\n")

    @property
    def pieces(self) -> list[bytes]:
        """The bytes of each token."""
        return self._table.pieces

    def call_row(self, name: str, arguments: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
        """Returns question and answer of the whole call, which training asks for besides."""
        return self._encode("call:"), tuple(self._table.encode(f" {name} {_to_json(arguments)}\n"))

    def decode(self, tokens: Seq[int]) -> bytes:
        """Returns the bytes of `tokens`."""
        return self._table.decode_bytes(list(tokens))

    def _slot(self, function: Mapping[str, Any], tool: int, parameter: int) -> Slot:
        key, schema = list(parameters(function).items())[parameter]
        return Slot(
            tool,
            parameter,
            key in required(function),
            schema if isinstance(schema, Mapping) else {},
            self._encode(f"{_name(function)}.{key}:"),
        )

    def _fit_tools(
        self, functions: Seq[Mapping[str, Any]], room: int, end: Seq[str]
    ) -> dict[int, tuple[int, ...]]:
        """Returns the tokens of each tool that gets into `room` tokens, by its number."""
        for brief in (False, True):
            texts = [f"{_tool_text(i, tool, brief)}\n" for i, tool in enumerate(functions, 1)]
            tokens = [self._encode(text) for text in texts]
            if sum(map(len, tokens)) <= room:
                return dict(enumerate(tokens))
        wanted = words(" ".join(end))
        likeness = [len(wanted & words(_tool_text(0, function))) for function in functions]
        kept: dict[int, tuple[int, ...]] = {}
        for i in sorted(range(len(functions)), key=lambda i: (-likeness[i], i)):
            if len(tokens[i]) <= room:
                kept[i] = tokens[i]
                room -= len(tokens[i])
        return kept


def was_trained(tokenizer: Any) -> bool:
    """Returns whether a tokenizer's settings say that its model was trained on these prompts."""
    return bool(getattr(tokenizer, "init_kwargs", {}).get(TRAINED))


def _chat_frame(tokenizer: Any) -> tuple[str, str]:
    """Returns what the chat template puts before and behind the one message of a prompt."""
    if getattr(tokenizer, "chat_template", None):
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": _BODY}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
        if text.count(_BODY) == 1:
            head, tail = text.split(_BODY)
            return head, tail
    bos = tokenizer.bos_token if tokenizer("")["input_ids"] else ""
    return bos or "", "\n"


def _examples_text() -> str:
    parts = ["", "# Example tools", *(_tool_text(i, tool) for i, tool in enumerate(TOOLS, 1))]
    for user, function, values in EXAMPLES:
        parts += ["# Example dialogue", f"user: {user}", "# Example form", f"function: {function}"]
        parts += [f"{function}.{key}: {_to_json(value)}" for key, value in values.items()]
        parts.append("")
    return "\n".join(parts)


def _tool_text(number: int, function: Mapping[str, Any], brief: bool = False) -> str:
    """Returns the lines that present a tool. brief: without descriptions."""
    lines = [f"{number}. {_name(function)}"]
    if not brief and function.get("description"):
        lines[0] += f": {function['description']}"
    for key, schema in parameters(function).items():
        schema = schema if isinstance(schema, Mapping) else {}
        kind = _type_text(schema) + ("" if key in required(function) else ", optional")
        lines.append(f"   {key} ({kind})")
        if not brief and schema.get("description"):
            lines[-1] += f": {schema['description']}"
    return "\n".join(lines)


def _type_text(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(map(_to_json, schema["enum"]))
    if "const" in schema:
        return _to_json(schema["const"])
    kind = schema.get("type", "any")
    text = kind if isinstance(kind, str) else " or ".join(map(str, kind))
    items = schema.get("items")
    if text == "array" and isinstance(items, Mapping) and items.get("type"):
        text += f" of {items['type']}"
    return text


def _message_text(message: Message) -> str:
    """Returns a message as text: who, then what; earlier calls as `name {arguments}`."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(part.get("text", "") for part in content)
    calls = [call.get("function", call) for call in message.get("tool_calls") or ()]
    lines = [content] if content or not calls else []
    for call in calls:
        arguments = call.get("arguments", "")
        written = arguments if isinstance(arguments, str) else _to_json(arguments)
        lines.append(f"{call['name']} {written}")
    return f"{message['role']}: " + "\n".join(lines)


def _name(function: Mapping[str, Any]) -> str:
    return str(function["name"])


def words(text: str) -> set[str]:
    """Returns the words of a text in lower case; humps and underlines part them too."""
    return {word.lower() for word in re.findall(r"[^\W_]+?(?=[A-Z_\W]|$)", text)}


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
