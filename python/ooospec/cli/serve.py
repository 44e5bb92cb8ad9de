# SPDX-License-Identifier: Apache-2.0
"""`ooospec serve`: an OpenAI-compatible server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import ooospec.cli.options as opt
from ooospec.cli.address import serve_at, take_address
from ooospec.errors import InvalidRequest, needs_extra

LIMITS = "Limits"


@opt.with_engine_options
def serve(
    target: opt.Target,
    sidecar: opt.Sidecar = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
    model_name: Annotated[
        str | None, typer.Option(help="What clients call the model; its folder's name, or its id.")
    ] = None,
    method: opt.MethodName = "ooo",
    api_keys: Annotated[
        Path | None,
        typer.Option(
            help="File with the keys that clients may use, one a line.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    max_running: Annotated[
        int,
        typer.Option(help="Requests that share a round.", min=1, max=64, rich_help_panel=LIMITS),
    ] = 8,
    max_queue: Annotated[
        int, typer.Option(help="Requests that wait.", min=1, rich_help_panel=LIMITS)
    ] = 256,
    max_seconds: Annotated[
        float, typer.Option(help="From arrival to end.", min=1, rich_help_panel=LIMITS)
    ] = 600.0,
    max_answer_tokens: Annotated[
        int, typer.Option(help="Most of an answer.", min=1, rich_help_panel=LIMITS)
    ] = 16384,
    max_tools: Annotated[
        int, typer.Option(help="Of a request.", min=1, rich_help_panel=LIMITS)
    ] = 512,
    max_body_bytes: Annotated[
        int, typer.Option(help="Of a request.", min=1, rich_help_panel=LIMITS)
    ] = 4 << 20,
    *,
    how: opt.EngineOptions,
) -> None:
    """Serve a model to OpenAI's clients: chat completions with tools, streamed or not.

    ooospec serve --target MODEL --sidecar SMALL_MODEL
    """
    console = Console(stderr=True)
    with needs_extra("serve", "serve"):
        import uvicorn  # noqa: F401

        from ooospec.serve.app import make_app
        from ooospec.serve.limits import Limits
    limits = Limits(
        max_body_bytes=max_body_bytes,
        max_tools=max_tools,
        max_answer_tokens=max_answer_tokens,
        max_queue=max_queue,
        max_seconds=max_seconds,
        max_running=max_running,
    )
    keys = _read_keys(api_keys)
    opt.check_method(method, how)
    address = take_address(host, port)
    name = model_name or (Path(target).name if Path(target).is_dir() else target)
    with opt.open_engine(target, sidecar, how, console) as engine:
        app = make_app(engine, model=name, limits=limits, keys=keys, method=method)
        console.print(f"serving {name} at http://{host}:{port}/v1", highlight=False, markup=False)
        serve_at(address, app)


def _read_keys(file: Path | None) -> list[str]:
    """Returns the keys of a file. Raises InvalidRequest for a file without any."""
    if file is None:
        return []
    try:
        keys = [key for line in file.read_text().splitlines() if (key := line.strip())]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"--api-keys: expected lines of text, got {error}") from error
    if not keys:
        raise InvalidRequest(f"--api-keys: expected at least one key in {file}, got none")
    return keys
