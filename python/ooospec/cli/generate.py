# SPDX-License-Identifier: Apache-2.0
"""`ooospec generate`: answers to requests, streamed."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console

import ooospec.cli.options as opt
from ooospec.cli.requests import gather
from ooospec.source_names import source_name
from ooospec.trace import Recorder, TracedRequest, write_trace


@opt.with_engine_options
def generate(
    target: opt.Target,
    text: Annotated[str | None, typer.Argument(help='The request; "-": standard input.')] = None,
    sidecar: opt.Sidecar = None,
    tools: opt.Tools = None,
    requests: opt.Requests = None,
    limit: Annotated[int | None, typer.Option(help="Only so many requests.", min=1)] = None,
    system: Annotated[str | None, typer.Option(help="Text of a system message.")] = None,
    method: opt.MethodName = "ooo",
    as_json: opt.Json = False,
    trace: opt.Trace = None,
    max_tokens: opt.MaxTokens = 512,
    min_tokens: Annotated[
        int, typer.Option(help="No end before so many.", min=0, rich_help_panel=opt.SAMPLING)
    ] = 0,
    temperature: Annotated[
        float, typer.Option(help="0 is greedy.", min=0, rich_help_panel=opt.SAMPLING)
    ] = 0.0,
    top_k: Annotated[
        int, typer.Option(help="Of the k likeliest only.", min=0, rich_help_panel=opt.SAMPLING)
    ] = 0,
    top_p: Annotated[
        float, typer.Option(help="Of the likeliest that reach p.", rich_help_panel=opt.SAMPLING)
    ] = 1.0,
    seed: Annotated[
        int | None,
        typer.Option(help="The same seed, the same tokens.", rich_help_panel=opt.SAMPLING),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(help="End before this text; may be repeated.", rich_help_panel=opt.SAMPLING),
    ] = None,
    *,
    how: opt.EngineOptions,
) -> None:
    """Answer requests; the answer is that of the target alone, whatever the method.

    ooospec generate "Weather in Oslo?" --target Qwen/Qwen2.5-Coder-1.5B-Instruct --tools tools.json

    ooospec generate --requests requests.jsonl --target MODEL --sidecar SMALL_MODEL --json
    """
    from ooospec.sampling import SamplingParams

    console = Console(stderr=True)
    asked = gather(text, requests, tools, system=system, limit=limit)
    sampling: dict[str, Any] = {
        "max_tokens": max_tokens,
        "min_tokens": min_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "stop": tuple(stop or ()),
    }
    opt.check_method(method, how)
    SamplingParams(**sampling)  # refused now, not once the models are there
    traced: list[TracedRequest] = []
    with opt.open_engine(target, sidecar, how, console) as engine:
        make = engine.methods[method]
        for request in asked:
            recorder = Recorder(make)
            start = time.perf_counter()
            answer = _answer(engine, request, recorder, echo=not as_json, **sampling)
            seconds = time.perf_counter() - start
            name = str(request["id"])
            if trace is not None:
                traced.append(recorder.traced(name, answer.metrics))
            if as_json:
                print(
                    json.dumps(report(name, method, answer, seconds), ensure_ascii=False),
                    flush=True,
                )
            else:
                console.print(f"[dim]{summary(answer, seconds)}[/dim]", highlight=False)
    if trace is not None:
        write_trace(trace, traced)


def _answer(engine: Any, request: Any, method: Recorder, *, echo: bool, **sampling: Any) -> Any:
    """Runs one request, printing its text as it comes; returns the Generation."""
    stream = engine.stream(request["messages"], request.get("tools"), method=method, **sampling)
    item = None
    for item in stream:
        if echo and hasattr(item, "finish_reason"):
            print()
        elif echo:
            sys.stdout.write(item.text)
            sys.stdout.flush()
    return item


def summary(answer: Any, seconds: float) -> str:
    """Returns one line on what an answer took."""
    metrics = answer.metrics
    return (
        f"{len(answer.token_ids)} tokens in {metrics.num_rounds} rounds"
        f" ({metrics.tokens_per_round:.1f} a round), {seconds:.2f} s, end: {answer.finish_reason}"
    )


def report(name: str, method: str, answer: Any, seconds: float) -> dict[str, Any]:
    """Returns an answer as JSON for machines; counts by source are by its name."""
    metrics = answer.metrics
    return {
        "id": name,
        "method": method,
        "text": answer.text,
        "tool_calls": answer.tool_calls,
        "finish_reason": answer.finish_reason,
        "usage": asdict(answer.usage),
        "token_ids": answer.token_ids,
        "sources": [source_name(source) for source in answer.sources],
        "seconds": seconds,
        "prefill_seconds": metrics.prefill_seconds,
        "num_rounds": metrics.num_rounds,
        "tokens_per_round": metrics.tokens_per_round,
        "accepted": {source_name(key): count for key, count in metrics.accepted.items()},
        "rejected": {source_name(key): count for key, count in metrics.rejected.items()},
    }
