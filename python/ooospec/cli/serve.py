# SPDX-License-Identifier: Apache-2.0
"""`ooospec serve`: an OpenAI-compatible server."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import ooospec.cli.options as opt
from ooospec.errors import InvalidRequest


@opt.with_engine_options
def serve(
    target: opt.Target,
    sidecar: opt.Sidecar = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 8000,
    model_name: Annotated[
        str | None, typer.Option(help="What clients call the model; its folder or id.")
    ] = None,
    *,
    how: opt.EngineOptions,
) -> None:
    """Serve a model to OpenAI's clients: chat completions with tools, streamed or not.

    ooospec serve --target MODEL --sidecar SMALL_MODEL
    """
    console = Console(stderr=True)
    try:
        import uvicorn

        from ooospec.serve.app import make_app
    except ImportError as error:
        raise InvalidRequest(
            f"serve: expected the extra `serve` (pip install 'ooospec[serve]'), got none: {error}"
        ) from error
    name = model_name or (Path(target).name if Path(target).is_dir() else target)
    with opt.open_engine(target, sidecar, how, console) as engine:
        app = make_app(engine, model=name)
        console.print(f"serving {name} at http://{host}:{port}/v1", highlight=False, markup=False)
        # uvicorn ends well on it, and raises it again
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        uvicorn.run(app, host=host, port=port, log_level="warning")
