# SPDX-License-Identifier: Apache-2.0
"""A front: passes everything on to a server, and tells a sidecar of each chat as it arrives.

For servers that run ooospec's proposer and take no middleware. What goes through stays byte for
byte as it is, but for the note in the body of a chat with tools; answers are streamed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from anyio import CancelScope
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from ooospec.integrations.vllm.arrival import MAX_BODY_BYTES, PATH, Arrivals
from ooospec.version import VERSION

HTTP_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
# What belongs to one connection, not to the message (RFC 9110, 7.6.1), and what the client sets.
HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te"),
        *("trailer", "transfer-encoding", "upgrade", "host", "content-length"),
    }
)
Headers = list[tuple[bytes, bytes]]


def make_front(
    upstream: str,
    sidecar: str | None,
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    seconds: float = 600.0,
) -> FastAPI:
    """Returns a front before the server at the URL `upstream`.

    sidecar: address of one that listens; None: no hints, and the note says so. max_body_bytes:
    larger requests are refused. seconds: between two parts of an answer.
    """
    arrivals = Arrivals(sidecar)
    client = httpx2.AsyncClient(
        base_url=upstream,
        timeout=httpx2.Timeout(seconds, connect=10.0),
        limits=httpx2.Limits(max_connections=None),
        follow_redirects=False,
        trust_env=False,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await client.aclose()
        arrivals.close()

    app = FastAPI(title="ooospec front", version=VERSION, lifespan=lifespan, openapi_url=None)

    @app.api_route("/{path:path}", methods=HTTP_METHODS, response_model=None)
    async def pass_on(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > max_body_bytes:
                return _error(413, f"body: expected at most {max_body_bytes} bytes, got more")
        number = 0
        if request.method == "POST" and request.url.path == PATH:
            body, number = arrivals.note(body)
        url = httpx2.URL(path=request.url.path, query=request.url.query.encode())
        asked = client.build_request(
            request.method, url, headers=_kept(request.headers.raw), content=body
        )
        try:
            answer = await client.send(asked, stream=True)
        except httpx2.HTTPError as error:
            arrivals.over(number)
            return _error(502, f"upstream: expected an answer from {upstream}, got {error!r}")

        async def parts() -> AsyncIterator[bytes]:
            try:
                async for part in answer.aiter_raw():
                    yield part
            finally:  # also when the client has left, which cancels this
                arrivals.over(number)
                with CancelScope(shield=True):
                    await answer.aclose()

        passed = StreamingResponse(parts(), answer.status_code)
        passed.raw_headers = _kept(answer.headers.raw)
        return passed

    return app


def _kept(headers: Headers) -> Headers:
    return [(name, value) for name, value in headers if name.decode().lower() not in HOP_BY_HOP]


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "front", "code": status}}, status)
