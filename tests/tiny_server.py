# SPDX-License-Identifier: Apache-2.0
"""A tiny target that was trained to answer some dialogues, and a server over it in this process."""

from __future__ import annotations

import copy
import functools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import openai
import uvicorn

import ooospec
from ooospec.backends.load import load_backend
from ooospec.config import EngineConfig
from ooospec.costs import COST_ROWS, RoundCosts
from ooospec.engine import Engine
from ooospec.formats import render
from ooospec.serve.app import make_app
from ooospec.serve.limits import Limits
from ooospec.serve.service import Service
from tiny_models import tiny_tokenizer
from tiny_taught import taught_model

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            },
        },
    },
    {"type": "function", "function": {"name": "stop"}},
]
WEATHER = '{"city": "Zürich", "days": 3}'
CALL = f'<tool_call>\n{{"name": "get_weather", "arguments": {WEATHER}}}\n</tool_call>'
STOP = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
ANSWERS = {
    "Weather?": CALL,
    "Weather, then stop.": f"Sure.\n{CALL}\n{STOP}",
    "Tell me.": "The quick brown fox naps in the sun until evening comes.",
    "Think.": f"<think>\nThe weather, {STOP}.\n</think>\n\n{CALL}",
    "Unknown.": f'{STOP}\n<tool_call>\n{{"name": "go", "arguments": {{}}}}\n</tool_call>',
}
NO_TOOLS = "I may not <tool_call>call</tool_call> it."  # to "Weather?" without tools
OPENINGS = {  # what a forced call begins with, and what the target adds
    '<tool_call>\n{"name":': ' "get_weather", "arguments": ' + WEATHER + "}\n</tool_call>",
    '<tool_call>\n{"name": "stop", "arguments":': " {}}\n</tool_call>\n" + CALL,
}
CHUNK = 16
US = [300.0, 320.0, 340.0, 360.0, 400.0, 500.0, 700.0]


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def taught(**overrides: Any) -> Any:
    """Returns the model, a copy of its own: an engine that is still open holds another one.

    overrides: of its configuration.
    """
    return copy.deepcopy(_taught(**overrides))


@functools.cache
def _taught(**overrides: Any) -> Any:
    tokenizer = tiny_tokenizer()

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text))

    end = [tokenizer.eos_token_id]
    pairs = [
        (ids(render(tokenizer, user(text), TOOLS)), ids(answer) + end)
        for text, answer in ANSWERS.items()
    ]
    pairs.append((ids(render(tokenizer, user("Weather?"), None)), ids(NO_TOOLS) + end))
    asked = ids(render(tokenizer, user("Weather?"), TOOLS))
    pairs += [(asked + ids(opening), ids(rest) + end) for opening, rest in OPENINGS.items()]
    return taught_model(pairs, **overrides)


def make_engine(config: EngineConfig | None = None, **options: Any) -> Engine:
    backend = load_backend(taught(), tokenizer=tiny_tokenizer(), chunk=CHUNK)
    assert len(US) == len(COST_ROWS)
    return ooospec.load(backend, cost_model=RoundCosts(US), config=config, **options)


class Serving:
    """A server that runs. client: OpenAI's. url: of its root."""

    def __init__(self, service: Service, port: int) -> None:
        self.service = service
        self.url = f"http://127.0.0.1:{port}"
        self.client = self.as_client("none")
        self.http = httpx2.Client(base_url=self.url, timeout=60)

    def as_client(self, key: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=60)

    def ask(self, text: str, **fields: Any) -> Any:
        """Asks for an answer to one of the dialogues."""
        asked = {"model": "tiny", "messages": user(text), "tools": TOOLS, **fields}
        given = {name: value for name, value in asked.items() if value is not None}
        return self.client.chat.completions.create(**given)

    def wait_until_idle(self) -> None:
        """Returns when no request is left. Pages are back then."""
        deadline = time.monotonic() + 60
        scheduler = self.service.scheduler
        while scheduler.num_running or scheduler.num_waiting:
            assert time.monotonic() < deadline
            time.sleep(0.005)


@contextmanager
def serving(engine: Engine, **options: Any) -> Iterator[Serving]:
    """Serves an engine in a thread of this process, on a port of its own; closes it."""
    app = make_app(engine, model="tiny", **options)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_level="warning", lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        found = Serving(app.state.service, listening.getsockname()[1])
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        try:
            yield found
        finally:
            found.client.close()
            found.http.close()
            server.should_exit = True
            thread.join()


def joined(chunks: Any) -> tuple[dict[str, Any], str | None, Any]:
    """Returns the message, finish reason and usage of a stream, having checked its form."""
    message: dict[str, Any] = {"content": None}
    calls: list[dict[str, Any]] = []
    reason, usage = None, None
    for i, chunk in enumerate(chunks):
        if chunk.usage is not None:
            assert chunk.choices == []
            usage = chunk.usage
            continue
        (choice,) = chunk.choices
        delta = choice.delta.model_dump(exclude_unset=True)
        assert reason is None
        reason = choice.finish_reason
        if i == 0:
            assert delta == {"role": "assistant", "content": ""}
            continue
        assert (reason is None) == bool(delta)  # G20: the last one is empty
        for name in ("content", "reasoning_content"):
            if name in delta:
                assert delta[name]
                message[name] = (message.get(name) or "") + delta[name]
        for call in delta.get("tool_calls", []):
            if "id" in call:
                assert call["index"] == len(calls)
                calls.append({"id": call["id"], "type": call["type"], "function": call["function"]})
            else:
                assert call["index"] == len(calls) - 1
                assert set(call["function"]) == {"arguments"}
                calls[-1]["function"]["arguments"] += call["function"]["arguments"]
    return (message | {"tool_calls": calls} if calls else message), reason, usage


def plain(message: Any) -> tuple[Any, Any, list[tuple[str, str]]]:
    """Returns content, thinking and calls of a message, streamed or whole."""
    found = message if isinstance(message, dict) else message.model_dump(exclude_none=True)
    calls = [
        (c["function"]["name"], c["function"]["arguments"]) for c in found.get("tool_calls") or []
    ]
    return found.get("content"), found.get("reasoning_content"), calls


__all__ = ["ANSWERS", "TOOLS", "Limits", "Serving", "joined", "json", "make_engine", "serving"]
