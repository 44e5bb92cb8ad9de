# SPDX-License-Identifier: Apache-2.0
"""`ooospec sidecar`: a sidecar for engines in other processes, or on other machines."""

from __future__ import annotations

import logging
import signal
from typing import Annotated

import typer
from rich.console import Console

import ooospec.cli.options as opt
from ooospec.errors import ModelNotFound


def sidecar(
    model: Annotated[
        str,
        typer.Option(
            "--sidecar", "-s", help="Folder or hub id of the model that guesses the call."
        ),
    ],
    listen: Annotated[
        str, typer.Option(help="tcp://HOST:PORT or ipc://PATH.")
    ] = "tcp://127.0.0.1:5600",
    adapter: opt.Adapter = None,
    device: opt.Device = None,
    dtype: opt.Dtype = None,
) -> None:
    """Run a sidecar by itself; engines find it by its address.

    ooospec sidecar --sidecar SMALL_MODEL --listen tcp://127.0.0.1:5600

    ooospec serve --target MODEL --sidecar tcp://127.0.0.1:5600

    Whoever reaches the address may ask, unencrypted: beyond loopback, use a network you trust.
    """
    from ooospec.sidecar.sockets import bind

    console = Console(stderr=True)
    bound = bind(listen)  # before anything takes its time
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    opt.announce("sidecar", model, console)
    from ooospec.sidecar.listen import Listener
    from ooospec.sidecar.worker import SidecarConfig

    config = SidecarConfig(
        model,
        adapter=None if adapter is None else str(adapter),
        wave="always",
        device=device,
        dtype=dtype,
    )
    listener = Listener(config, bound)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: listener.close())
    console.print(f"listening at {listener.address}", highlight=False, markup=False)
    listener.run()
    if listener.failure:
        raise ModelNotFound(f"sidecar: {listener.failure}")
