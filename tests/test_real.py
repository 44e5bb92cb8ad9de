# SPDX-License-Identifier: Apache-2.0
"""Real checkpoints and requests: every method gives the ids of Hugging Face `generate`.

OOOSPEC_CHECKPOINTS: folder with qwen2.5-coder-0.5b. OOOSPEC_DATA: folder of the request files.
OOOSPEC_REAL_ROWS: rows of each file (1 unless set; 20 is the whole run, an hour or more; `-k` and a
file's name runs one of them). OOOSPEC_REAL_MODEL: another folder in it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import ooospec
from ooospec.bench.sidecars import RecordedSidecar
from ooospec.config import EngineConfig
from real_requests import FILES, RecordedAnswer, folder, requests

pytestmark = pytest.mark.real

METHODS = ("ar", "pld", "toolspec", "ooo")
MAX_TOKENS = 48
NUM_ROWS = int(os.environ.get("OOOSPEC_REAL_ROWS", "1"))
WHOLE_RUN = 20  # rows of each file
# What a whole run must have compared, accepted and rejected; a shorter one, and each file, in
# proportion.
LEAST = {"tokens": 5_000, "accepted": 1_000, "rejected": 3_000}


def hugging_face(model: Any, prompt_ids: list[int], eos_ids: frozenset[int]) -> list[int]:
    ids = torch.tensor([prompt_ids])
    answer = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=MAX_TOKENS,
        do_sample=False,
        repetition_penalty=1.0,
        eos_token_id=sorted(eos_ids),
        pad_token_id=0,
    )
    return answer[0, len(prompt_ids) :].tolist()


@dataclass
class Subject:
    """One model: Hugging Face's own, and engines with hints and with the recorded answer."""

    model: Any
    engine: Any
    recorded: Any
    sidecar: RecordedSidecar


@pytest.fixture(scope="module")
def subject() -> Subject:
    from transformers import AutoModelForCausalLM

    path = folder("OOOSPEC_CHECKPOINTS") / os.environ.get(
        "OOOSPEC_REAL_MODEL", "qwen2.5-coder-0.5b"
    )
    load: dict[str, Any] = {
        "device": "cpu",
        "dtype": "float32",
        "cost_model": False,  # drafts are tried, whether or not they pay on this machine
        "config": EngineConfig(max_nodes=16),
    }
    sidecar = RecordedSidecar()
    engine = ooospec.load(str(path), sidecar=sidecar, wave="always", **load)
    recorded = ooospec.load(engine.backend, sources=[RecordedAnswer], **load)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return Subject(model, engine, recorded, sidecar)


@pytest.mark.parametrize("file", FILES)
def test_every_method_equals_hugging_face(file: str, subject: Subject) -> None:
    """A01: float32, real model, real requests, every method, with the recorded answer drafted and
    hints that are partly wrong.
    """
    engine = subject.engine
    counts = dict.fromkeys(LEAST, 0)
    for row in requests(file, NUM_ROWS):
        prompt_ids = engine.prompt_ids(row["messages"], row["tools"])
        expected = hugging_face(subject.model, prompt_ids, engine.backend.eos_ids)
        RecordedAnswer.answer = expected
        subject.sidecar.calls = row["calls"]
        for which, methods in ((engine, METHODS), (subject.recorded, ("pld",))):
            for method in methods:
                answer = which.generate(
                    row["messages"], row["tools"], method=method, max_tokens=MAX_TOKENS
                )
                assert answer.token_ids == expected, (row["id"], method)
                counts["tokens"] += len(answer.token_ids)
                counts["accepted"] += sum(answer.metrics.accepted.values())
                counts["rejected"] += sum(answer.metrics.rejected.values())
        print(f"{row['id']}: equal; so far", ", ".join(f"{n} {k}" for k, n in counts.items()))
    for name, least in LEAST.items():
        part = -(-least * NUM_ROWS // (WHOLE_RUN * len(FILES)))
        assert counts[name] >= part, (name, counts)
