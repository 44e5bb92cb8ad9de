# SPDX-License-Identifier: Apache-2.0
"""The front passes everything on as it is, but for the note of a chat with tools."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

from ooospec.bench.sidecars import RecordedListener
from ooospec.cli.main import run
from ooospec.integrations.vllm.front import make_front
from ooospec.integrations.vllm.note import Note
from tiny_server import TOOLS, user
from waiting import wait_for

PATH = "/v1/chat/completions"


@contextmanager
def listening(app: Any) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


class Upstream:
    """Remembers what it was asked; answers with it, or streams until the client leaves."""

    def __init__(self) -> None:
        self.app = FastAPI()
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.num_left = 0

        @self.app.api_route("/{path:path}", methods=["GET", "POST", "DELETE"])
        async def answer(request: Request) -> Response:
            body = await request.body()
            self.asked.append((request.method, str(request.url), dict(request.headers), body))
            if request.url.path == "/endless":
                return StreamingResponse(self.parts())
            headers = {"x-mine": "yes", "content-type": "text/odd"}
            return Response(body, 418 if request.url.path == "/teapot" else 200, headers)

    async def parts(self) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"part"
                await asyncio.sleep(0.01)
        finally:
            self.num_left += 1


def test_everything_passes_and_chats_get_their_note() -> None:
    upstream, listener = Upstream(), RecordedListener(lambda messages: [])
    with (
        listening(upstream.app) as behind,
        listening(make_front(behind, listener.address, max_body_bytes=10_000)) as url,
        httpx2.Client(base_url=url, timeout=60) as client,
    ):
        got = client.post("/teapot?a=1&b=%20", content=b"\xff\0", headers={"x-key": "k"})
        assert (got.status_code, got.content, got.headers["x-mine"]) == (418, b"\xff\0", "yes")
        assert got.headers["content-type"] == "text/odd"
        method, asked_url, headers, body = upstream.asked.pop()
        assert (method, asked_url, body) == ("POST", f"{behind}/teapot?a=1&b=%20", b"\xff\0")
        assert headers["x-key"] == "k"
        assert client.delete("/v1/models").status_code == 200
        assert upstream.asked.pop()[0] == "DELETE"

        sent = {"model": "m", "messages": user("Weather?"), "tools": TOOLS, "stream": True}
        client.post(PATH, json=sent)
        noted = json.loads(upstream.asked.pop()[3])
        note = Note.read(noted.pop("vllm_xargs"))
        assert noted == sent
        assert note is not None
        assert (note.request, note.tools, note.said) == (1, TOOLS, "Weather?")
        wait_for(lambda: listener.num_asked == 1)

        assert client.post("/x", content=bytes(20_000)).status_code == 413
        with client.stream("GET", "/endless") as endless:
            for _, part in zip(range(3), endless.iter_raw(), strict=False):
                assert part.startswith(b"part")
        wait_for(lambda: upstream.num_left)
    listener.close()


def test_an_upstream_that_is_gone() -> None:
    with (
        listening(make_front("http://127.0.0.1:9", None)) as url,
        httpx2.Client(base_url=url, timeout=60) as client,
    ):
        answer = client.get("/health")
        assert answer.status_code == 502
        assert "upstream: expected an answer" in answer.json()["error"]["message"]


def test_a_bad_url_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["front", "--upstream", "here"]) == 2
    assert "--upstream: expected http://HOST:PORT, got 'here'" in capsys.readouterr().err
