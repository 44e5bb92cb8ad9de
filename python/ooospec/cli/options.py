# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, and the engine that they describe."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console

from ooospec.errors import InvalidRequest
from ooospec.files import check_place
from ooospec.methods import METHODS, methods_with
from ooospec.model_files import cached_folder, located, model_path
from ooospec.shipped import REAL_SIDECAR, REAL_TARGET, about, shipped_folder
from ooospec.sidecar.sockets import is_address

if TYPE_CHECKING:
    from ooospec.engine import Engine


class Placement(StrEnum):
    """Where the sidecar runs."""

    thread = "thread"
    process = "process"


class Wave(StrEnum):
    """Whether the sidecar is asked, and waited for."""

    auto = "auto"
    always = "always"
    wait = "wait"
    never = "never"


class Backend(StrEnum):
    """What runs the target."""

    auto = "auto"
    fused = "fused"
    transformers = "transformers"


MODEL, SAMPLING = "Models", "Sampling"
TABLE_WIDTH = 160

Target = Annotated[
    str, typer.Option("--target", "-t", help="Folder or hub id of the model that answers.")
]
Sidecar = Annotated[
    str | None,
    typer.Option(
        "--sidecar",
        "-s",
        help="Folder or hub id of the model that guesses the call, or tcp://... of one elsewhere.",
    ),
]
Adapter = Annotated[
    Path | None,
    typer.Option(
        help="Folder of a PEFT adapter for the sidecar.",
        exists=True,
        file_okay=False,
        rich_help_panel=MODEL,
    ),
]
PlacementOption = Annotated[
    Placement, typer.Option("--placement", help="Where the sidecar runs.", rich_help_panel=MODEL)
]
WaveOption = Annotated[
    Wave,
    typer.Option(
        "--wave",
        help="Whether the sidecar is asked; wait: and the first round waits for its hints.",
        rich_help_panel=MODEL,
    ),
]
Source = Annotated[
    list[str] | None,
    typer.Option(
        help="A source of drafts of your own, as module:Class; may be repeated.",
        rich_help_panel=MODEL,
    ),
]
DraftModel = Annotated[
    str | None,
    typer.Option(
        help="Folder or hub id of a smaller model of the same tokenizer, for --method draft.",
        rich_help_panel=MODEL,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="Such as cpu or cuda:0; a GPU if there is one.", rich_help_panel=MODEL),
]
Dtype = Annotated[
    str | None,
    typer.Option(help="float32 on a CPU, bfloat16 on a GPU unless told.", rich_help_panel=MODEL),
]
SidecarDevice = Annotated[
    str | None,
    typer.Option(help="The sidecar's, such as cuda:1; as --device.", rich_help_panel=MODEL),
]
SidecarDtype = Annotated[
    str | None, typer.Option(help="The sidecar's; as --dtype.", rich_help_panel=MODEL)
]
SplitDevice = Annotated[
    str | None,
    typer.Option(
        help="Such as cuda:1: also each ooo with a sidecar in a process of its own there, as "
        "'ooo, split'.",
        rich_help_panel=MODEL,
    ),
]
BackendOption = Annotated[
    Backend,
    typer.Option(
        "--backend",
        help="Our own kernels (GPU, half precision), or the model's own modules.",
        rich_help_panel=MODEL,
    ),
]
Requests = Annotated[
    Path | None,
    typer.Option(
        help='File (.jsonl, .jsonl.gz), a request a line: {"messages": [...], "tools": [...]}.',
        exists=True,
        dir_okay=False,
    ),
]
Tools = Annotated[
    Path | None,
    typer.Option(help="JSON file with a list of OpenAI tools.", exists=True, dir_okay=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def place(path: Path | None) -> Path | None:
    """Returns where a command will write, if it can. Raises InvalidRequest."""
    if path is not None:
        check_place(path)
    return path


def folder_place(path: Path) -> Path:
    """Returns the folder that a command will fill, if it can. Raises InvalidRequest."""
    check_place(path, is_folder=True)
    return path


Trace = Annotated[
    Path | None,
    typer.Option(
        help="Write a trace for ui.perfetto.dev to this file.", dir_okay=False, callback=place
    ),
]
MethodName = Annotated[str, typer.Option("--method", help=f"What drafts: {', '.join(METHODS)}.")]
MaxTokens = Annotated[int, typer.Option(help="Most tokens of an answer.", min=1)]


def table_console() -> Console:
    """Returns a console for tables: as wide as the terminal, and wide where there is none."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, TABLE_WIDTH)
    return console


@dataclass(frozen=True)
class EngineOptions:
    """How target and sidecar run."""

    adapter: Adapter = None
    placement: PlacementOption = Placement.thread
    wave: WaveOption = Wave.auto
    source: Source = None
    draft_model: DraftModel = None
    device: Device = None
    dtype: Dtype = None
    sidecar_device: SidecarDevice = None
    sidecar_dtype: SidecarDtype = None
    backend: BackendOption = Backend.auto


def with_engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command each of EngineOptions as an option, in place of its parameter `how`."""
    hints = get_type_hints(EngineOptions, include_extras=True)
    shared = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=hints[option.name],
        )
        for option in fields(EngineOptions)
    ]

    @functools.wraps(command)
    def run(**options: Any) -> None:
        how = EngineOptions(**{option.name: options.pop(option.name) for option in shared})
        command(how=how, **options)

    signature = inspect.signature(command, eval_str=True)
    own = [option for option in signature.parameters.values() if option.name != "how"]
    run.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    return run


@contextmanager
def open_engine(
    target: str,
    sidecar: str | None,
    how: EngineOptions,
    console: Console,
    *,
    wait_for_hints: bool = False,
) -> Iterator[Engine]:
    """Gives the engine of these options, having said on `console` what it loads; closes it.

    wait_for_hints: a request's first round waits for all hints, however long. Raises OoospecError
    for what cannot be loaded.
    """
    with (
        _spare_threads(target, sidecar, how.draft_model),
        _opened(target, sidecar, how, console, wait_for_hints) as engine,
    ):
        yield engine


@contextmanager
def _opened(
    target: str, sidecar: str | None, how: EngineOptions, console: Console, wait_for_hints: bool
) -> Iterator[Engine]:
    from ooospec.loading import load
    from ooospec.sidecar.placement import open_sidecar
    from ooospec.sidecar.ready import ReadySidecar
    from ooospec.sidecar.worker import SidecarConfig

    announce("target", target, console)
    if sidecar is not None:
        announce("sidecar", sidecar, console)
    elif how.adapter is not None:
        raise InvalidRequest("--adapter: expected a --sidecar that it belongs to, got none")
    adapter = None if how.adapter is None else str(how.adapter)
    running: Any = sidecar
    try:
        if sidecar is not None and wait_for_hints:
            config = SidecarConfig(
                sidecar,
                adapter=adapter,
                placement=how.placement.value,
                wave="always",
                device=how.sidecar_device or how.device,
                dtype=how.sidecar_dtype or how.dtype,
            )
            running = ReadySidecar(open_sidecar(config))
        engine = load(
            target,
            sidecar=running,
            adapter=adapter if running is sidecar else None,
            placement=how.placement.value,
            wave=how.wave.value,
            sources=how.source or (),
            draft_model=how.draft_model,
            device=how.device,
            dtype=how.dtype,
            sidecar_device=how.sidecar_device,
            sidecar_dtype=how.sidecar_dtype,
            backend=how.backend.value,
            progress=console.is_terminal,
        )
    except BaseException as error:
        if running is not sidecar:
            running.close()
        if type(error) in (ValueError, TypeError, RuntimeError):  # of an option or a device
            raise InvalidRequest(str(error)) from error
        raise
    try:
        known = [f"target: {engine.backend.description}; level: {engine.backend.level}"]
        if sidecar is not None and engine.drafting is not None:
            known.append(f"sidecar: {engine.drafting.status}")
        console.print("\n".join(known), highlight=False, markup=False, style="dim")
        yield engine
    finally:
        engine.close()


@contextmanager
def _spare_threads(*models: str | None) -> Iterator[None]:
    """Runs this process on one thread where its models are toys, unless OMP_NUM_THREADS is set.

    Their products are too small for a second one, which spins while it waits: 200 tokens of plain
    decoding take 0.7 to 0.9 s with either, but two such commands at once on two cores 3.5 to 42 s
    with two threads each, and 0.8 to 1.8 s with one. A prompt of 120 tokens takes 12 ms, not 8.
    """
    import torch

    toys = all(model is None or shipped_folder(model) is not None for model in models)
    before = torch.get_num_threads()
    if toys and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_method(method: str, how: EngineOptions) -> None:
    """Raises InvalidRequest for a method that the engine of these options will not have."""
    if method == "draft" and how.draft_model is None:
        raise InvalidRequest("--method draft: expected a --draft-model, got none")
    known = methods_with(draft_model=how.draft_model is not None)
    if method not in known:
        raise InvalidRequest(f"--method: expected {', '.join(known)}, got {method!r}")


def announce(role: str, model: str, console: Console) -> None:
    """Says on `console` what is loaded and, for a model that is not here yet, what that takes.

    Raises ModelNotFound.
    """
    plain: Any = {"highlight": False, "markup": False, "soft_wrap": True}
    if role == "sidecar" and is_address(model):
        console.print(f"{role}: {model} (elsewhere)", **plain)
        return
    shipped = shipped_folder(model)
    if shipped is not None:
        real = f"; for a real one: --target {REAL_TARGET} --sidecar {REAL_SIDECAR}"
        hint = real if role == "target" else ""
        console.print(f"{role}: {model} ({about(shipped)}{hint})", **plain)
        return
    folder = Path(model_path(model, role))
    if folder.is_dir():
        size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        console.print(f"{role}: {model} ({size / 1e9:.1f} GB)", **plain)
        return
    if cached_folder(model) is not None:
        console.print(f"{role}: {model} (in the cache)", **plain)
        return
    located(model, role)  # raises where it is nowhere
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HTTPError  # type: ignore[attr-defined]

    try:
        files = HfApi().model_info(model, files_metadata=True).siblings
    except (HfHubHTTPError, HTTPError, OSError):  # it was there a moment ago
        console.print(f"{role}: {model}, a download", **plain)
        return
    size = sum(file.size or 0 for file in files or () if file.rfilename.endswith(".safetensors"))
    console.print(
        f"{role}: {model}, a download of {size / 1e9:.1f} GB: about {size / 10e6 / 60:.0f} minutes"
        " at 10 MB/s, once",
        **plain,
    )
