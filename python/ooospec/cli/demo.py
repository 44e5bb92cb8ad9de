# SPDX-License-Identifier: Apache-2.0
"""`ooospec demo`: a request answered live, next to the same answer by plain decoding."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import ooospec.cli.options as opt
from ooospec.cli.generate import report
from ooospec.cli.requests import gather
from ooospec.cli.samples import FLIGHT, SHORT, request
from ooospec.cli.view import coloured, legend, plot, spans
from ooospec.files import write_text
from ooospec.shipped import REAL_SIDECAR, REAL_TARGET, SIDECAR, TARGET, shipped_folder
from ooospec.source_names import source_name
from ooospec.trace import Recorder, TracedRequest, write_trace

WIDTH = 100


@dataclass
class Shown:
    """An answer as it grows. curve: tokens after each round."""

    method: str
    pieces: Any
    token_ids: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    curve: list[int] = field(default_factory=list)
    text: str = ""
    seconds: float = 0.0
    answer: Any = None

    def take(self, item: Any, seconds: float) -> None:
        """Takes up what a stream gave."""
        self.seconds = seconds
        if hasattr(item, "finish_reason"):
            self.answer, self.text = item, item.text
            return
        self.token_ids += item.token_ids
        self.sources += item.sources
        self.text += item.text
        self.curve.append(len(self.token_ids))

    @property
    def parts(self) -> list[tuple[str, str]]:
        """The text so far, token by token, with the source of each."""
        return list(spans(self.pieces, self.token_ids, self.sources, self.text))

    @property
    def summary(self) -> str:
        """One line of numbers. The first token comes from prefill, not from a round."""
        rounds = max(0, len(self.curve) - 1)
        rate = f"{(len(self.token_ids) - 1) / rounds:.1f}" if rounds else "-"
        numbers = f"{len(self.token_ids):4d} tokens {rounds:4d} rounds {rate:>5} a round"
        return f"{self.method:>8} {numbers} {self.seconds:7.2f} s"


@opt.with_engine_options
def demo(
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help="Folder or hub id of the model that answers."),
    ] = None,
    sidecar: opt.Sidecar = None,
    text: Annotated[str | None, typer.Argument(help="A request; a flight booking if none.")] = None,
    tools: opt.Tools = None,
    requests: opt.Requests = None,
    method: opt.MethodName = "ooo",
    max_tokens: opt.MaxTokens = 256,
    svg: Annotated[
        Path | None,
        typer.Option(help="Write the final view to this file.", dir_okay=False, callback=opt.place),
    ] = None,
    trace: opt.Trace = None,
    as_json: opt.Json = False,
    *,
    how: opt.EngineOptions,
) -> None:
    """Watch a request being answered, each token in the colour of the source that drafted it.

    ooospec demo

    ooospec demo "Weather in Oslo, two days?" --tools tools.json

    ooospec demo --target MODEL --sidecar SMALL_MODEL --svg demo.svg --trace demo.json
    """
    target = target or (REAL_TARGET if shipped_folder(TARGET) is None else TARGET)
    if sidecar is None:
        sidecar = REAL_SIDECAR if shipped_folder(target) is None else SIDECAR
    opt.check_method(method, how)
    console = Console(stderr=as_json)
    if not console.is_terminal:
        console.width = WIDTH
    if text is None and requests is None and tools is None:
        asked = request(SHORT if target == TARGET else FLIGHT)
    else:
        asked = gather(text, requests, tools, limit=1)[0]
    runs: list[Shown] = []
    traced: list[TracedRequest] = []
    question = str(asked["messages"][-1].get("content", ""))
    # A toy's answer would be over before the hints are there.
    wait = (target, sidecar, how.wave) == (TARGET, SIDECAR, opt.Wave.auto)
    opener = opt.open_engine(target, sidecar or None, how, console, wait_for_hints=wait)
    with opener as engine, _live(console, question, runs) as show:
        beside = ("toolspec", "ar") if method == "ooo" else ("ar",)
        for name in (method, *beside):
            run, recorder = Shown(name, engine.tokens.pieces), Recorder(engine.methods[name])  # type: ignore[union-attr]
            runs.append(run)
            _answer(engine, asked, run, recorder, show, max_tokens)
            if trace is not None:
                traced.append(recorder.traced(name, run.answer.metrics))
    equal = all(run.token_ids == runs[-1].token_ids for run in runs)
    ends = _ends(question, runs, equal, console.width)
    if trace is not None:
        write_trace(trace, traced)
    if svg is not None:
        picture = Console(record=True, width=WIDTH, file=io.StringIO())
        picture.print(_ends(question, runs, equal, WIDTH))
        write_text(svg, picture.export_svg(title=f"ooospec demo: {Path(target).name}"))
    if as_json:
        answers = [report(run.method, run.method, run.answer, run.seconds) for run in runs]
        print(json.dumps({"equal": equal, "answers": answers}, ensure_ascii=False))
    else:
        console.print(ends)
    raise typer.Exit(0 if equal else 1)


def _answer(
    engine: Any, asked: Any, run: Shown, method: Recorder, show: Any, max_tokens: int
) -> None:
    """Streams one answer into `run`; each method is a tenant, so none profits from another."""
    start = time.perf_counter()
    stream = engine.stream(
        asked["messages"],
        asked.get("tools"),
        method=method,
        tenant=run.method,
        max_tokens=max_tokens,
    )
    for item in stream:
        run.take(item, time.perf_counter() - start)
        show()


@contextmanager
def _live(console: Console, question: str, runs: list[Shown]) -> Iterator[Any]:
    """Gives a function that shows `runs` as they are now; on a terminal only."""
    if not console.is_terminal:
        yield lambda: None
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield lambda: live.update(view(question, runs, console.width), refresh=True)


def view(question: str, runs: list[Shown], width: int = WIDTH) -> RenderableType:
    """Returns the request, the answer in colours, what they mean, and rounds against tokens."""
    first = runs[0]
    sources = [source_name(source) for source in first.sources]
    styles = ("green", *["cyan"] * (len(runs) - 2), "white dim")
    curves = [(style, run.curve) for style, run in zip(styles, runs, strict=False)]
    numbers = Text("\n".join(run.summary for run in runs))
    left = Group(legend(sources), Text(), numbers)
    side: RenderableType = Group(left, plot(curves))
    if width >= WIDTH:
        side = Table.grid(padding=(0, 2))
        side.add_row(left, plot(curves))
    return Group(
        Panel(Text(question), title="request", title_align="left", border_style="dim"),
        Panel(coloured(first.parts), title=f"answer by {first.method}", title_align="left"),
        side,
    )


def _ends(question: str, runs: list[Shown], equal: bool, width: int) -> RenderableType:
    """Returns the last view with the verified calls and the comparison."""
    drafted, plain = runs[0], runs[-1]
    lines = Text()
    for call in drafted.answer.tool_calls:
        function = call["function"]
        arguments = json.dumps(json.loads(function["arguments"]), ensure_ascii=False)
        lines.append("\nverified call: ", "bold")
        lines.append(f"{function['name']}({arguments})")
    lines.append(f"\n{plain.seconds / drafted.seconds:.2f} times as fast as ar")
    lines.append(
        f"\nequal to ar: {'yes' if equal else 'NO'}", "bold green" if equal else "bold red"
    )
    return Group(view(question, runs, width), lines)
