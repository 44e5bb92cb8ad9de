# SPDX-License-Identifier: Apache-2.0
"""The address of a server: taken before anything takes its time, served at until a signal."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from typing import Any

from ooospec.errors import InvalidRequest


def take_address(host: str, port: int) -> socket.socket:
    """Returns a socket with an address, at which nothing is answered yet. Raises InvalidRequest."""
    taken = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((host, port))
    except OSError as error:
        taken.close()
        raise InvalidRequest(
            f"--host, --port: expected a free address of this machine, got {host} and {port} "
            f"({error.strerror or error})"
        ) from error
    return taken


def serve_at(taken: socket.socket, app: Any) -> None:
    """Serves an ASGI application by uvicorn until SIGINT or SIGTERM."""
    import uvicorn

    # uvicorn ends well on it, and raises it again
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with taken, contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[taken])
    if not server.started:
        raise InvalidRequest("server: expected it to start, got the error above")
