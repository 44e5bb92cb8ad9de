# SPDX-License-Identifier: Apache-2.0
"""The routes of the server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from ooospec.engine import Engine
from ooospec.serve.errors import ApiError
from ooospec.serve.limits import Limits
from ooospec.serve.schema import ANSWERS, chat_body
from ooospec.serve.service import Service
from ooospec.version import VERSION


def make_app(
    engine: Engine,
    *,
    model: str,
    limits: Limits | None = None,
    keys: Sequence[str] = (),
    method: str | None = None,
) -> FastAPI:
    """Returns the server over `engine`, which stays the caller's.

    model: the name that clients ask for. keys, method: see Service.
    """
    service = Service(engine, model, limits or Limits(), keys, method)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(service.scheduler.close)

    app = FastAPI(title="ooospec", version=VERSION, lifespan=lifespan)
    app.state.service = service
    app.add_exception_handler(ApiError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_error)
    _add_routes(app, service)
    return app


def _add_routes(app: FastAPI, service: Service) -> None:
    started = int(time.time())

    @app.get("/health")
    async def health() -> JSONResponse:
        """Whether requests are answered, and what becomes of the hints."""
        drafting = service.engine.drafting
        alive = service.scheduler.is_alive
        known = {
            "status": "ok" if alive else "stopped",
            "model": service.model,
            "sidecar": "no sidecar" if drafting is None else drafting.status,
        }
        return JSONResponse(known, 200 if alive else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        """The one model that is served."""
        service.tenant(request)
        one = {"id": service.model, "object": "model", "created": started, "owned_by": "ooospec"}
        return {"object": "list", "data": [one]}

    body = chat_body(service.model, service.limits)

    @app.post(
        "/v1/chat/completions",
        response_model=None,
        responses=ANSWERS,
        openapi_extra={"requestBody": body},
    )
    async def chat(request: Request) -> Response:
        """Answers a dialogue, as OpenAI's chat completions do."""
        return await service.chat(request)


async def _answer_error(_: Request, error: Exception) -> JSONResponse:
    """Tells a client of an error that left a route, or of a route that does not exist."""
    if isinstance(error, HTTPException):
        error = ApiError(error.status_code, str(error.detail))
    assert isinstance(error, ApiError)
    return error.response()
