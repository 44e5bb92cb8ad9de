# SPDX-License-Identifier: Apache-2.0
"""`ooospec front`: a pass-through proxy that tells a sidecar of chats as they arrive."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from ooospec.cli.address import serve_at, take_address
from ooospec.errors import InvalidRequest, needs_extra


def front(
    upstream: Annotated[str, typer.Option(help="URL of the server, as http://127.0.0.1:8001.")],
    sidecar: Annotated[
        str | None, typer.Option("--sidecar", "-s", help="Address of an `ooospec sidecar`.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
) -> None:
    """Pass requests on to a server that drafts by ooospec, and ask a sidecar as they arrive.

    ooospec front --upstream http://127.0.0.1:8001 --sidecar tcp://127.0.0.1:5600
    """
    if not upstream.startswith(("http://", "https://")):
        raise InvalidRequest(f"--upstream: expected http://HOST:PORT, got {upstream!r}")
    with needs_extra("front", "front"):
        import uvicorn  # noqa: F401

        from ooospec.integrations.vllm.front import make_front
    address = take_address(host, port)
    app = make_front(upstream.rstrip("/"), sidecar)
    console = Console(stderr=True)
    console.print(f"{upstream} at http://{host}:{port}", highlight=False, markup=False)
    serve_at(address, app)
