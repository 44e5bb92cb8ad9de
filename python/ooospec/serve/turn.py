# SPDX-License-Identifier: Apache-2.0
"""What the engine says of one request, read into OpenAI's deltas."""

from __future__ import annotations

import codecs
import secrets
from collections.abc import Sequence
from typing import Any, Literal

from ooospec._core import _C
from ooospec.engine import Delta, Generation, Run
from ooospec.formats import tool_set
from ooospec.serve.choice import Choice, WithoutMarkers
from ooospec.serve.scheduler import Item, TimeUp

FinishReason = Literal["stop", "length", "tool_calls"]


class Turn:
    """The answer to one request as it grows; the deltas, joined, do not depend on the rounds.

    finish_reason: None while it goes on. "tool_calls": it came to its end by itself, or to the last
    call that was asked for, and its calls are complete.
    """

    def __init__(self, run: Run, choice: Choice, pieces: Sequence[bytes]) -> None:
        """pieces: bytes of each token."""
        self.finish_reason: FinishReason | None = None
        self.message: dict[str, Any] = {"role": "assistant", "content": None}
        self._run = run
        self._choice = choice
        self._pieces = pieces
        self._token_ids: list[int] = []
        self._num_calls = 0
        self._last_is_cut = False
        self._cut_at: int | None = None
        self._filter = WithoutMarkers() if choice.hides_markers else None
        tools = tool_set(choice.tools) if choice.tools else None
        self._reader = _C.AnswerReader(tools, run.request.thinking)
        self._reader.feed(run.request.opening)  # of which nothing is certain yet
        self._opening_bytes = self._reader.num_bytes

    @property
    def usage(self) -> dict[str, Any]:
        """What the request took, as OpenAI words it."""
        num_prompt, num_answer = len(self._run.request.prompt_ids), self._num_tokens()
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_answer,
            "total_tokens": num_prompt + num_answer,
            "prompt_tokens_details": {"cached_tokens": self._run.cached_tokens},
        }

    def read(self, item: Item) -> list[dict[str, Any]]:
        """Returns the deltas that `item` brings. Mutates: message, and finish_reason at the end."""
        deltas: list[dict[str, Any]] = []
        if self.finish_reason is not None:
            return deltas
        if isinstance(item, Delta):
            self._token_ids += item.token_ids
            parts = self._reader.feed(item.text)
        else:
            parts = self._reader.finish()
        for part in parts:
            self._read_part(part, deltas)
            if self._cut_at is not None:
                self.finish_reason = "tool_calls"
                return deltas
        if not isinstance(item, Delta):
            if self._filter is not None:
                self._add_text("content", self._filter.finish(), deltas)
            self._finish(item)
        return deltas

    def _read_part(self, part: _C.AnswerPart, deltas: list[dict[str, Any]]) -> None:
        if part.part == "content":
            text = part.text if self._filter is None else self._filter.feed(part.text)
            self._add_text("content", text, deltas)
        elif part.part == "thinking":
            self._add_text("reasoning_content", part.text, deltas)
        elif part.part == "call":
            function = {"name": part.text, "arguments": ""}
            call = {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}
            calls = self.message.setdefault("tool_calls", [])
            deltas.append({"tool_calls": [{"index": len(calls), **call, "function": {**function}}]})
            calls.append(call)
        elif part.part == "arguments":
            calls = self.message["tool_calls"]
            calls[-1]["function"]["arguments"] += part.text
            delta = {"index": len(calls) - 1, "function": {"arguments": part.text}}
            deltas.append({"tool_calls": [delta]})
        else:
            self._last_is_cut = part.part == "call_cut"
            self._num_calls += part.part == "call_end"
            if self._num_calls == self._choice.max_calls:
                self._cut_at = part.end

    def _add_text(self, name: str, text: str, deltas: list[dict[str, Any]]) -> None:
        if text:
            self.message[name] = (self.message.get(name) or "") + text
            deltas.append({name: text})

    def _finish(self, item: Generation | TimeUp) -> None:
        if isinstance(item, TimeUp) or item.finish_reason == "length":
            self.finish_reason = "length"
        else:
            complete = self._num_calls > 0 and not self._last_is_cut
            self.finish_reason = "tool_calls" if complete else "stop"

    def _num_tokens(self) -> int:
        """Returns the tokens of the answer: to the one that ended the last call asked for."""
        if self._cut_at is None:
            return len(self._token_ids)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        num_left = self._cut_at - self._opening_bytes
        for count, token in enumerate(self._token_ids, 1):
            piece = self._pieces[token] if token < len(self._pieces) else b""
            num_left -= len(decoder.decode(piece).encode())
            if num_left <= 0:
                return count
        return len(self._token_ids)
