# SPDX-License-Identifier: Apache-2.0
"""`ooospec serve` as its clients see it: a server process, and OpenAI's own client."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tiny_models import tiny_model, tiny_tokenizer

USER = [{"role": "user", "content": "What is the weather in Zürich?"}]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """OpenAI's client of a server process on a tiny random model."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model("qwen2").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    port = free_port()
    command = [sys.executable, "-m", "ooospec", "serve", "-t", str(folder), "--port", str(port)]
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}) as server:
        found = openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=60
        )
        wait_until_it_answers(found, server)
        yield found
        found.close()
        server.terminate()
        assert server.wait(20) == 0


def wait_until_it_answers(client: openai.OpenAI, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            client.models.list()
            return
        except openai.APIConnectionError:
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(**{"model": "tiny", "messages": USER, **fields})


def test_the_model_has_the_name_of_its_folder(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_streamed_and_whole_answers_are_one(client: openai.OpenAI) -> None:
    whole = ask(client, max_tokens=24)
    assert whole.usage.completion_tokens == 24
    assert whole.choices[0].finish_reason == "length"
    chunks = list(ask(client, max_tokens=24, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == 24


def test_an_unknown_field_is_refused_by_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, logprobs=True)
    assert refused.value.param == "logprobs"
    with pytest.raises(openai.NotFoundError):
        ask(client, model="other")
