# SPDX-License-Identifier: Apache-2.0
"""The routes of the server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response, StreamingResponse

from ooospec.engine import Engine
from ooospec.serve.answer import Answer
from ooospec.serve.errors import ApiError, answer_api_error, api_error
from ooospec.serve.limits import Limits
from ooospec.serve.request import parse_request
from ooospec.serve.scheduler import Job, Scheduler
from ooospec.version import VERSION


def make_app(engine: Engine, *, model: str, limits: Limits | None = None) -> FastAPI:
    """Returns the server over `engine`, which stays the caller's.

    model: the name that clients ask for.
    """
    bounds = limits or Limits()
    scheduler = Scheduler(bounds)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(scheduler.close)

    app = FastAPI(title="ooospec", version=VERSION, lifespan=lifespan)
    app.add_exception_handler(ApiError, answer_api_error)
    started = int(time.time())

    @app.get("/health")
    async def health() -> JSONResponse:
        drafting = "off" if engine.drafting is None else engine.drafting.status
        known = {"status": "ok", "model": model, "sidecar": drafting}
        if not scheduler.is_alive:
            return JSONResponse({**known, "status": "stopped"}, 503)
        return JSONResponse(known)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        one = {"id": model, "object": "model", "created": started, "owned_by": "ooospec"}
        return {"object": "list", "data": [one]}

    @app.post("/v1/chat/completions", response_model=None)
    async def chat(request: Request) -> Response:
        asked = parse_request(await request.body(), bounds)
        if asked.model != model:
            message = f"model: expected {model!r}, got {asked.model!r}"
            raise ApiError(404, message, param="model", code="model_not_found")
        try:
            rounds = await run_in_threadpool(
                engine.stream, asked.messages, asked.tools, **asked.sampling()
            )
            job = Job(rounds)
            scheduler.submit(job)
            answer = Answer(asked, job, model)
            if asked.stream:
                return StreamingResponse(answer.events(), media_type="text/event-stream")
            return JSONResponse(await answer.completion())
        except Exception as error:
            told = api_error(error)
            if told is None:
                raise
            raise told from error

    return app
