# SPDX-License-Identifier: Apache-2.0
"""How a target reads and writes text, by its Hugging Face tokenizer."""

from __future__ import annotations

import logging
from typing import Any

from jinja2.exceptions import TemplateError

from ooospec._core import _C
from ooospec.backends.base import Backend
from ooospec.draft import TargetText
from ooospec.formats import tool_set
from ooospec.tokens import TokenTable

logger = logging.getLogger("ooospec")

PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "A tool.",
        "parameters": {
            "type": "object",
            "properties": {"first": {"type": "string"}, "second": {"type": "integer"}},
            "required": ["first", "second"],
        },
    },
}
PROBE_CALL = {"name": "probe_tool", "arguments": {"first": "a b", "second": 12}}
TEMPLATE_SHARE = 0.6  # of the first answers' calls are thought to be written as the template shows


def call_styles(tokenizer: Any) -> list[_C.StyleGuess]:
    """Returns how a target may write calls, likeliest first: as its chat template renders a call,
    then the usual ways.
    """
    usual = _C.usual_styles()
    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        return usual
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Call it."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": PROBE_CALL}],
        },
    ]
    try:
        text = tokenizer.apply_chat_template(messages, tools=[PROBE_TOOL], tokenize=False)
        asked = tokenizer.apply_chat_template(
            messages[:1], tools=[PROBE_TOOL], tokenize=False, add_generation_prompt=True
        )
        answer = (
            text[len(asked) :]
            if text.startswith(asked)
            else text[text.rfind(messages[0]["content"]) :]
        )
        style = _C.CallStyle.from_text(answer, tool_set([PROBE_TOOL]))
    except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
        logger.info("the chat template shows no tool call (%s)", error)
        return usual
    rest = [
        _C.StyleGuess(guess.style, guess.probability * (1 - TEMPLATE_SHARE))
        for guess in usual
        if guess.style != style
    ]
    return [_C.StyleGuess(style, TEMPLATE_SHARE), *rest]


def target_text(
    tokenizer: Any,
    *,
    table: TokenTable | None = None,
    end_token: int | None = None,
    num_ids: int = 0,
) -> TargetText:
    """Returns how a target reads and writes text, by its Hugging Face tokenizer.

    table: of the tokenizer, where somebody has made it. end_token: id that ends an answer, -1 for
    none; None: the tokenizer's own. num_ids: those below it may be committed too; one that is not
    in the tokenizer has no bytes. Raises UnsupportedModel as TokenTable does.
    """
    if table is None:
        table = TokenTable(tokenizer)
    if end_token is None:
        end_token = -1 if tokenizer.eos_token_id is None else int(tokenizer.eos_token_id)
    vocab = _C.Vocab([*table.pieces, *[b""] * (num_ids - len(table.pieces))])
    encode, spell = table.drafting_encoders(vocab)
    return TargetText(vocab, encode, end_token, call_styles(tokenizer), tokenizer, spell)


def end_token(backend: Backend) -> int:
    """Returns the id that ends an answer: the tokenizer's own if it is one of several, -1 if there
    is none.
    """
    own = getattr(backend.tokenizer, "eos_token_id", None)
    if own in backend.eos_ids:
        return int(own)
    return min(backend.eos_ids, default=-1)
