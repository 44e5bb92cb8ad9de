# SPDX-License-Identifier: Apache-2.0
"""Real checkpoint, real requests, bfloat16 on a GPU: every method gives the ids of plain decoding.

OOOSPEC_CHECKPOINTS: folder with qwen2.5-coder-0.5b. OOOSPEC_DATA: folder of the request files.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ooospec
from equality import Counts, plant_kv_error
from ooospec.bench.sidecars import RecordedSidecar
from ooospec.config import EngineConfig
from real_requests import FILES, RecordedAnswer, folder, requests

pytestmark = [pytest.mark.gpu, pytest.mark.real]

METHODS = ("pld", "toolspec", "ooo")
MAX_TOKENS = 64


def checkpoint() -> str:
    return str(folder("OOOSPEC_CHECKPOINTS") / "qwen2.5-coder-0.5b")


class Subject:
    """The fused engine with hints from reference calls, and one that drafts its own answer."""

    def __init__(self) -> None:
        load: dict[str, Any] = {"cost_model": False, "config": EngineConfig(max_nodes=64)}
        self.sidecar = RecordedSidecar()
        self.engine = ooospec.load(
            checkpoint(),
            device="cuda",
            dtype="bfloat16",
            backend="fused",
            sidecar=self.sidecar,
            wave="always",
            **load,
        )
        self.recorded = ooospec.load(self.engine.backend, sources=[RecordedAnswer], **load)

    def differing(self, row: dict[str, Any], counts: Counts, **how: Any) -> list[str]:
        """Returns the methods whose answer to a request is not that of plain decoding."""
        request = row["messages"], row["tools"]
        expected = self.engine.generate(*request, method="ar", max_tokens=MAX_TOKENS, **how)
        RecordedAnswer.answer = expected.token_ids
        self.sidecar.calls = row["calls"]
        found = []
        for engine, methods in ((self.engine, METHODS), (self.recorded, ("pld",))):
            for method in methods:
                got = engine.generate(*request, method=method, max_tokens=MAX_TOKENS, **how)
                counts.add(got)
                if got.token_ids != expected.token_ids:
                    found.append(method)
        return found


def test_every_method_equals_plain_decoding_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests, greedy, every fourth sampled; a planted KV error is found."""
    subject, counts = Subject(), Counts()
    rows = [row for file in FILES for row in requests(file)]
    assert len(rows) >= 500
    for number, row in enumerate(rows):
        how = {"temperature": 0.8, "top_p": 0.95, "seed": number} if number % 4 == 3 else {}
        assert subject.differing(row, counts, **how) == [], row["id"]
    print(len(rows), "requests")
    counts.check(20_000, 10_000, 50_000)

    plant_kv_error(monkeypatch)
    assert any(subject.differing(row, Counts()) for row in rows[:40])


@torch.inference_mode()
def test_every_token_is_the_likeliest_in_float32_or_nearly() -> None:
    """200 answers, teacher-forced: a token that is not the likeliest lies no farther below it than
    Hugging Face's own bfloat16 logits lie off there, twice.
    """
    from transformers import AutoModelForCausalLM

    exact, half = (
        AutoModelForCausalLM.from_pretrained(checkpoint(), dtype=dtype).cuda().eval()
        for dtype in (torch.float32, torch.bfloat16)
    )
    engine = ooospec.load(checkpoint(), device="cuda", dtype="bfloat16", backend="fused")
    num_tokens = num_others = 0
    for row in [row for file in FILES for row in requests(file, 67)]:
        prompt_ids = engine.prompt_ids(row["messages"], row["tools"])
        made = engine.generate(row["messages"], row["tools"], method="ar", max_tokens=MAX_TOKENS)
        chosen = torch.tensor(made.token_ids, device="cuda")
        inputs = torch.tensor([prompt_ids + made.token_ids[:-1]], device="cuda")
        near, far = (model(inputs).logits[0, -len(chosen) :].float() for model in (exact, half))
        near, far = near[:, : engine.backend.decodable], far[:, : engine.backend.decodable]
        gap = near.max(dim=1).values - near.gather(1, chosen[:, None])[:, 0]
        assert bool((gap <= 2 * (near - far).abs().max(dim=1).values).all()), row["id"]
        num_tokens += len(chosen)
        num_others += int((gap > 0).sum())
    print(f"{num_tokens} tokens, {num_others} of them only nearly the likeliest")
    assert num_tokens >= 200 * 5
