# SPDX-License-Identifier: Apache-2.0
"""What the engine says, as OpenAI's objects: one completion, or chunks of it."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

from ooospec.engine import Delta, Generation
from ooospec.output import Usage
from ooospec.serve.request import ChatRequest
from ooospec.serve.scheduler import Job


def usage_of(usage: Usage) -> dict[str, Any]:
    """Returns a usage as OpenAI words it."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


class Answer:
    """The answer to one request, under way."""

    def __init__(self, request: ChatRequest, job: Job, model: str) -> None:
        self._request = request
        self._job = job
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    async def completion(self) -> dict[str, Any]:
        """Returns the whole answer."""
        generation: Generation | None = None
        async for item in self._job.items():
            if isinstance(item, Generation):
                generation = item
        assert generation is not None
        message: dict[str, Any] = {"role": "assistant", "content": generation.text}
        if generation.tool_calls:
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": generation.tool_calls,
            }
        choice = {"index": 0, "message": message, "finish_reason": generation.finish_reason}
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": usage_of(generation.usage),
        }

    async def events(self) -> AsyncIterator[str]:
        """Yields the server-sent events of the answer."""
        yield self._chunk({"role": "assistant", "content": ""})
        async for item in self._job.items():
            if isinstance(item, Delta):
                if item.text and not self._request.tools:
                    yield self._chunk({"content": item.text})
                continue
            if item.tool_calls:
                calls = [{"index": i, **call} for i, call in enumerate(item.tool_calls)]
                yield self._chunk({"tool_calls": calls})
            elif self._request.tools and item.text:
                yield self._chunk({"content": item.text})
            yield self._chunk({}, item.finish_reason)
            options = self._request.stream_options
            if options is not None and options.include_usage:
                yield self._event({"choices": [], "usage": usage_of(item.usage)})
        yield "data: [DONE]\n\n"

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return self._event({"choices": [choice]})

    def _event(self, body: dict[str, Any]) -> str:
        chunk = {**self._head, "object": "chat.completion.chunk", **body}
        return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"
