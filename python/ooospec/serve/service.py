# SPDX-License-Identifier: Apache-2.0
"""What the routes do: one engine, its queue, and who may use it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from fastapi import Request as HttpRequest
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response, StreamingResponse

from ooospec._core import _C
from ooospec.engine import Engine, Request
from ooospec.formats import opens_thinking, tool_set
from ooospec.serve.answer import Answer
from ooospec.serve.choice import Choice
from ooospec.serve.errors import ApiError, told
from ooospec.serve.limits import Limits
from ooospec.serve.metrics import Metrics
from ooospec.serve.request import ChatRequest, parse_request
from ooospec.serve.scheduler import Job, Scheduler
from ooospec.serve.turn import Turn
from ooospec.target_text import call_styles

logger = logging.getLogger("ooospec.serve")
CLOSED_REQUEST = 499  # nobody waits for the answer


class Service:
    """Serves chat completions of one engine, which stays the caller's."""

    def __init__(
        self, engine: Engine, model: str, limits: Limits, keys: Sequence[str], method: str | None
    ) -> None:
        """keys: of clients; none: anybody may ask. What is learnt and cached for one key is never
        used for another. method: as of Engine.generate.
        """
        self.engine = engine
        self.model = model
        self.limits = limits
        self.metrics = Metrics()
        self.scheduler = Scheduler(engine, limits, self.metrics)
        self._method = method
        self._tenants = {_digest(key): f"key-{_digest(key).hex()[:16]}" for key in keys}
        self._style: _C.CallStyle = call_styles(engine.backend.tokenizer)[0].style
        self.metrics.watch("waiting", "Requests in the queue.", lambda: self.scheduler.num_waiting)
        self.metrics.watch("running", "Requests that run.", lambda: self.scheduler.num_running)
        self.metrics.watch("pages_free", "Free KV pages.", lambda: engine.pool.num_free)

    def tenant(self, http: HttpRequest) -> str:
        """Returns whose caches a request may use. Raises ApiError for a key that is not known."""
        if not self._tenants:
            return ""
        scheme, _, key = http.headers.get("authorization", "").partition(" ")
        tenant = self._tenants.get(_digest(key.strip()))
        if scheme.lower() != "bearer" or tenant is None:
            message = "authorization: expected a known API key, got none or another"
            raise ApiError(401, message, code="invalid_api_key")
        return tenant

    async def chat(self, http: HttpRequest) -> Response:
        """Answers /v1/chat/completions."""
        try:
            response = await self._chat(http)
        except Exception as error:
            found = told(error)
            if found.status >= 500:
                logger.error("a request failed", exc_info=error)
            response = found.response()
        self.metrics.responded(response.status_code)
        return response

    async def _chat(self, http: HttpRequest) -> Response:
        tenant = self.tenant(http)
        body = await self._body(http)
        asked, choice, request = await run_in_threadpool(self._prepare, body, tenant)
        run = self.engine.run(request, self._method)
        job = Job(run)
        pieces = self.engine.pieces
        assert pieces is not None  # there are messages, so there is a tokenizer
        answer = Answer(Turn(run, choice, pieces), job.items(), self.model)
        self.scheduler.submit(job)
        if not asked.stream:
            return await self._whole(http, job, answer)
        try:
            first = await anext(answer.items)
        except BaseException:
            self.scheduler.cancel(job)
            raise
        options = asked.stream_options
        events = answer.events(first, with_usage=options is not None and options.include_usage)
        return StreamingResponse(self._until_closed(job, events), media_type="text/event-stream")

    async def _whole(self, http: HttpRequest, job: Job, answer: Answer) -> Response:
        """Waits for the whole answer, or until the client goes away."""
        completion = asyncio.ensure_future(answer.completion())
        gone = asyncio.ensure_future(_disconnected(http))
        try:
            await asyncio.wait({completion, gone}, return_when=asyncio.FIRST_COMPLETED)
            if completion.done():
                return JSONResponse(completion.result())
            return Response(status_code=CLOSED_REQUEST)
        finally:
            completion.cancel()
            gone.cancel()
            self.scheduler.cancel(job)

    async def _until_closed(self, job: Job, events: AsyncIterator[str]) -> AsyncIterator[str]:
        """Yields `events`; however that ends, the job ends with it."""
        try:
            async for event in events:
                yield event
        finally:
            self.scheduler.cancel(job)

    async def _body(self, http: HttpRequest) -> bytes:
        """Returns the body of a request. Raises ApiError for one that is too large or too slow."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.max_seconds):
                async for piece in http.stream():
                    body += piece
                    if len(body) > self.limits.max_body_bytes:
                        most = self.limits.max_body_bytes
                        message = f"body: expected at most {most} bytes, got more"
                        raise ApiError(413, message, code="body_too_large")
        except TimeoutError as error:
            message = f"body: expected all of it within {self.limits.max_seconds:g} seconds, got "
            message += f"{len(body)} bytes"
            raise ApiError(408, message, code="timeout") from error
        return bytes(body)

    def _prepare(self, body: bytes, tenant: str) -> tuple[ChatRequest, Choice, Request]:
        """Checks a request and makes its prompt. Raises ApiError and InvalidRequest."""
        asked = parse_request(body, self.limits)
        if asked.model != self.model:
            message = f"model: expected {self.model!r}, got {asked.model!r:.80}"
            raise ApiError(404, message, param="model", code="model_not_found")
        choice = Choice.of(asked)
        try:
            tool_set(asked.tools or [])
        except ValueError as error:
            message = f"tools: {str(error).removeprefix('tools: ')}"
            raise ApiError(400, message, param="tools") from error
        prompt = self.engine.prompt(asked.messages, choice.tools)
        opening = choice.opening(self._style, opens_thinking(prompt))
        request = self.engine.request(
            asked.messages,
            choice.tools,
            prompt=prompt,
            tenant=tenant,
            opening=opening,
            **asked.sampling(),
        )
        most = self.limits.max_answer_tokens
        if self.engine.answer_limit(request) > most:  # by default: it asked for no number
            request = replace(request, params=replace(request.params, max_tokens=most))
        return asked, choice, request


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()


async def _disconnected(http: HttpRequest) -> None:
    """Returns when the client has gone."""
    while (await http.receive())["type"] != "http.disconnect":
        pass
