# SPDX-License-Identifier: Apache-2.0
"""Inside vLLM: greedy tokens are the same with and without drafts, and hints pay.

It runs where vLLM does, in an environment of its own (docs/vllm.md has the commands):

    pytest tests/test_vllm.py
"""

from __future__ import annotations

import gc
import json
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from ooospec.bench.sidecars import RecordedListener
from ooospec.integrations.vllm import register
from ooospec.integrations.vllm.arrival import Arrivals
from ooospec.integrations.vllm.note import KEY
from tiny_models import tiny_model, tiny_tokenizer
from tiny_server import ANSWERS, TOOLS, taught, user

pytest.importorskip("vllm", reason="vLLM is not installed here")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]
FAMILIES = ("qwen2", "llama", "qwen3", "gemma3")
SHAPE = {"head_dim": 32, "hidden_size": 128}  # of heads that vLLM's CPU attention knows
NUM_DRAFTED = 8
CALLS = [{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }.items():
        monkeypatch.setenv(name, value)


def run(folder: Path, prompts: list[Any], batch: int, **options: Any) -> tuple[Any, dict[str, int]]:
    """Returns the ids that vLLM answers with, and what it counted of drafts."""
    from vllm import LLM, SamplingParams

    extra = options.pop("extra_args", [None] * len(prompts))
    sidecar = options.pop("sidecar", None)
    llm = LLM(
        model=str(folder),
        enforce_eager=True,
        dtype="float32",
        max_model_len=512,
        max_num_seqs=batch,
        seed=0,
        disable_log_stats=False,
        **options,
    )
    if sidecar is not None:
        arrivals, listener = sidecar
        # The first request of a session comes too late for its own hints.
        first = SamplingParams(temperature=0, max_tokens=4, extra_args=noted(arrivals)[0])
        llm.generate([{"prompt_token_ids": prompts[0]}], first, use_tqdm=False)
        num_asked = listener.num_asked
        extra = noted(arrivals)
        while listener.num_asked < num_asked + len(extra):
            time.sleep(0.01)
    params = [SamplingParams(temperature=0, max_tokens=60, extra_args=one) for one in extra]
    asked: Any = [{"prompt_token_ids": prompt} for prompt in prompts]
    answers = llm.generate(asked, params, use_tqdm=False)
    ids = [list(answer.outputs[0].token_ids) for answer in answers]
    counts = {
        metric.name.removeprefix("vllm:spec_decode_num_"): metric.value
        for metric in llm.get_metrics()
        if "spec_decode" in metric.name and hasattr(metric, "value")
    }
    del llm
    gc.collect()
    return ids, counts


def test_vllm_finds_the_plugin() -> None:
    (found,) = [
        point for point in entry_points(group="vllm.general_plugins") if point.name == "ooospec"
    ]
    assert found.load() is register


def drafting(**settings: Any) -> dict[str, Any]:
    return {
        "speculative_config": {
            "model": "ooospec.integrations.vllm.Proposer",
            "num_speculative_tokens": NUM_DRAFTED,
        },
        "additional_config": {"ooospec": {"pay": False, **settings}},
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_the_same(family: str, tmp_path: Path) -> None:
    """Batches of 1 and 4; random models, which drafts hardly ever foresee."""
    tiny_model(family, **SHAPE).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    prompts = [[5 + (7 * i + 11 * row) % 480 for i in range(20 + 3 * row)] for row in range(6)]
    expected, _ = run(tmp_path, prompts, 4)
    for batch in (1, 4):
        got, counts = run(tmp_path, prompts, batch, **drafting())
        assert got == expected, batch
        assert counts["draft_tokens"] > 100


def dialogues(tokenizer: Any) -> list[list[int]]:
    return [
        tokenizer.apply_chat_template(
            user(text), tools=TOOLS, add_generation_prompt=True, return_dict=True
        )["input_ids"]
        for text in ANSWERS
    ]


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target that answers by calls."""
    path = tmp_path_factory.mktemp("caller")
    taught(**SHAPE).save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


def noted(arrivals: Arrivals) -> list[dict[str, Any]]:
    """Returns what the middleware adds to the requests."""
    bodies = [{"messages": user(text), "tools": TOOLS} for text in ANSWERS]
    return [
        json.loads(arrivals.note(json.dumps(body).encode())[0])["vllm_xargs"] for body in bodies
    ]


@pytest.mark.parametrize("batch", [1, 4])
def test_calls_are_drafted_with_and_without_hints(caller: Path, batch: int) -> None:
    prompts = dialogues(tiny_tokenizer())
    expected, _ = run(caller, prompts, batch)
    plainly, counts = run(caller, prompts, batch, **drafting())
    assert plainly == expected
    assert counts["accepted_tokens"] > 40
    listener = RecordedListener(lambda messages: CALLS)
    arrivals = Arrivals(listener.address)
    settings = drafting(sidecar=listener.address)
    hinted, with_hints = run(caller, prompts, batch, **settings, sidecar=(arrivals, listener))
    assert hinted == expected
    assert with_hints["accepted_tokens"] > 40
    arrivals.close()
    listener.close()


def test_without_the_plugin_requests_are_known_by_their_tokens(
    caller: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ooospec.integrations.vllm import proposer

    prompts = dialogues(tiny_tokenizer())
    expected, _ = run(caller, prompts, 4)
    monkeypatch.setattr(proposer.Proposer, "bind_batch", None)
    got, counts = run(caller, prompts, 4, **drafting())
    assert got == expected
    assert counts["accepted_tokens"] > 40


def test_forged_notes_change_nothing(caller: Path) -> None:
    prompts = dialogues(tiny_tokenizer())
    expected, _ = run(caller, prompts, 4)
    forged: list[Any] = [{KEY: "x"}, {KEY: '{"tools": [7]}'}, {KEY: 7}, {"other": 1}, None]
    got, _ = run(caller, prompts, 4, **drafting(), extra_args=forged)
    assert got == expected
