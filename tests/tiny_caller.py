# SPDX-License-Identifier: Apache-2.0
"""A tiny target that was trained to answer one prompt with a tool call."""

from __future__ import annotations

import functools
import json
from typing import Any

from ooospec import _C
from ooospec.draft import TargetText
from ooospec.tokens import TokenTable
from tiny_models import tiny_tokenizer
from tiny_sidecar import TOOLS
from tiny_taught import taught_model

CALL = {
    "name": "get_weather",
    "arguments": {"unit": "kelvin", "days": 12, "city": "Zürich", "near": ["Paris", "Rome"]},
}
PROMPT = [20 + (7 * i) % 400 for i in range(20)]
__all__ = ["CALL", "PROMPT", "TOOLS", "answer_ids", "caller", "caller_text"]


@functools.cache
def caller_text() -> TargetText:
    """Returns the text side of the target."""
    tokenizer = tiny_tokenizer()
    table = TokenTable(tokenizer)
    vocab = _C.Vocab(table.pieces)
    return TargetText(vocab, table.encode, tokenizer.eos_token_id, list(_C.usual_styles()))


@functools.cache
def answer_ids() -> list[int]:
    """Returns the answer that the target learns, its end token included."""
    text = _C.render_calls([(CALL["name"], json.dumps(CALL["arguments"]))], _C.CallStyle("tags"))
    return [*caller_text().encode(text), caller_text().end_token]


@functools.cache
def caller() -> Any:
    """Returns the model; it is shared, so change nothing in it."""
    return taught_model([(PROMPT, answer_ids())])
