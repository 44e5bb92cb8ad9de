# SPDX-License-Identifier: Apache-2.0
"""The API server's side of the hints: a dialogue goes to the sidecar when it arrives, and the
request goes on with a note for the worker.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ooospec.draft import request_text
from ooospec.formats import tool_set
from ooospec.integrations.vllm.note import KEY, Note
from ooospec.integrations.vllm.settings import Settings
from ooospec.sidecar.remote import RemoteSidecar
from ooospec.sidecar.worker import SidecarConfig

logger = logging.getLogger("ooospec")

PATH = "/v1/chat/completions"
MAX_BODY_BYTES = 4 << 20  # larger ones pass by unread
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Arrivals:
    """Asks a sidecar about requests as they arrive. Never waits for it."""

    def __init__(self, address: str | None) -> None:
        """address: of a sidecar that listens; None: requests get their note, but no hints."""
        self.sidecar: RemoteSidecar | None = None
        if address is not None:
            self.sidecar = RemoteSidecar(SidecarConfig(address, wave="always"))
        self._numbers = itertools.count(1)

    def note(self, body: bytes) -> tuple[bytes, int]:
        """Returns the body of a request with its note, and under which number the sidecar was
        asked, 0 if it was not. Notes that a client wrote himself go; what is no chat with tools
        stays as it is.
        """
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            return body, 0
        if not isinstance(asked, dict):
            return body, 0
        extra = asked.get("vllm_xargs")
        extra = dict(extra) if isinstance(extra, dict) else {}
        forged = extra.pop(KEY, None) is not None
        note = self._note(asked)
        if note is not None:
            extra[KEY] = note.pack()
        elif not forged:
            return body, 0
        noted = json.dumps({**asked, "vllm_xargs": extra}, ensure_ascii=False).encode()
        return noted, 0 if note is None else note.request

    def _note(self, asked: dict[str, Any]) -> Note | None:
        """Asks the sidecar about a chat that may be answered by calls; None for another one."""
        messages: Any = asked.get("messages")
        tools: Any = asked.get("tools")
        if not messages or not tools or asked.get("tool_choice") == "none":
            return None
        salt = asked.get("cache_salt")
        tenant = salt if isinstance(salt, str) else ""
        try:
            tool_set(tools)
            said = request_text(messages)
        except (TypeError, ValueError, AttributeError, KeyError):
            return None  # the server will say what is wrong with it
        if self.sidecar is None:
            return Note(tools=tools, said=said, tenant=tenant)
        number = next(self._numbers)
        self.sidecar.ask(number, messages, tools, tenant)
        return Note(self.sidecar.session, number, tools, said, tenant)

    def over(self, number: int) -> None:
        """A request is over; its wave need not go on."""
        if number and self.sidecar is not None:
            self.sidecar.cancel(number)

    def close(self) -> None:
        """Ends the connection to the sidecar."""
        if self.sidecar is not None:
            self.sidecar.close()


class Hints:
    """ASGI middleware: `vllm serve --middleware ooospec.integrations.vllm.Hints`."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app
        self._arrivals: Arrivals | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, with its note if it is a chat."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != PATH:
            return await self._app(scope, receive, send)
        if self._arrivals is None:
            settings = Settings.of(scope["app"].state.vllm_config)
            self._arrivals = Arrivals(settings.sidecar)
        read, more = b"", True
        while more and len(read) <= MAX_BODY_BYTES:
            message = await receive()
            if message["type"] != "http.request":  # the client has left
                return None
            read += message.get("body", b"")
            more = bool(message.get("more_body"))
        passes = more or len(read) > MAX_BODY_BYTES
        body, number = (read, 0) if passes else self._arrivals.note(read)
        given = False

        async def receive_noted() -> MutableMapping[str, Any]:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": more}

        length = [(b"content-length", str(len(body)).encode())]
        headers = [one for one in scope["headers"] if more or one[0] != b"content-length"]
        changed = {**scope, "headers": headers if more else headers + length}
        try:
            return await self._app(changed, receive_noted, send)
        finally:
            self._arrivals.over(number)
