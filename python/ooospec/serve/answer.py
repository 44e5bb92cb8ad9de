# SPDX-License-Identifier: Apache-2.0
"""Answers as OpenAI's clients read them: one completion, or a stream of chunks."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

from ooospec.serve.errors import told
from ooospec.serve.scheduler import Item
from ooospec.serve.turn import Turn

logger = logging.getLogger("ooospec.serve")


class Answer:
    """The answer to one request, under way."""

    def __init__(self, turn: Turn, items: AsyncIterator[Item], model: str) -> None:
        """items: of the engine; who takes the first one hands it to events()."""
        self._turn = turn
        self.items = items
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    async def completion(self) -> dict[str, Any]:
        """Returns the whole answer. Raises what ended it before its time."""
        turn = self._turn
        async for item in self.items:
            turn.read(item)
            if turn.finish_reason is not None:
                break
        choice = {
            "index": 0,
            "message": turn.message,
            "finish_reason": turn.finish_reason,
            "logprobs": None,
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": turn.usage,
        }

    async def events(self, first: Item, *, with_usage: bool) -> AsyncIterator[str]:
        """Yields the server-sent events of the answer.

        first: the first of items, taken already. An error ends the stream with an event of its own.
        """
        turn = self._turn
        yield self._chunk({"role": "assistant", "content": ""})
        try:
            item: Item | None = first
            while item is not None:
                for delta in turn.read(item):
                    yield self._chunk(delta)
                done = turn.finish_reason is not None
                item = None if done else await anext(self.items, None)
        except Exception as error:
            logger.error("a stream ended early: %s", error)
            yield f"data: {json.dumps(told(error).body())}\n\n"
            return
        yield self._chunk({}, turn.finish_reason)
        if with_usage:
            yield self._event({"choices": [], "usage": turn.usage})
        yield "data: [DONE]\n\n"

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return self._event({"choices": [choice]})

    def _event(self, body: dict[str, Any]) -> str:
        chunk = {**self._head, "object": "chat.completion.chunk", **body}
        return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"
