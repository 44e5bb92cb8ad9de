# SPDX-License-Identifier: Apache-2.0
"""A real Gemma 3 checkpoint by the fused backend, in float32 on a CPU: what Hugging Face answers.

OOOSPEC_CHECKPOINTS: folder with gemma-3-270m. OOOSPEC_DATA: folder of the request files.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import equality
from ooospec import ops
from ooospec.backends.fused import FusedBackend
from ooospec.backends.load import load_backend
from ooospec.engine import Engine
from ooospec.kv import Sequence
from real_requests import folder, requests

pytestmark = pytest.mark.real

NUM_PROMPT_TOKENS = 80  # the last of a request as plain text: there is no chat template
MAX_TOKENS = 6


def prompt(tokenizer: Any) -> list[int]:
    row = requests("eval_apibank", 1)[0]
    said = "\n".join(f"{one['role']}: {one['content']}" for one in row["messages"])
    text = f'{json.dumps(row["tools"])}\n{said}\nassistant: {{"name": "'
    return list(tokenizer(text).input_ids[-NUM_PROMPT_TOKENS:])


def test_answers_and_logits_are_those_of_hugging_face() -> None:
    from transformers import AutoModelForCausalLM

    path = folder("OOOSPEC_CHECKPOINTS") / "gemma-3-270m"
    if not path.is_dir():
        pytest.skip(f"no {path}")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with ops.using("reference"):
        backend = load_backend(path, device="cpu", dtype="float32", backend="fused", chunk=64)
        assert isinstance(backend, FusedBackend)
        ids = prompt(backend.tokenizer)
        inputs = torch.tensor([ids])
        with torch.inference_mode():
            exact = model(inputs).logits[0, -1]
        sequence = Sequence(backend.new_pool(256))
        sequence.reserve(128)
        logits = backend.prefill(sequence, ids)
        assert float((logits - exact).norm() / exact.norm()) < 1e-5
        output = model.generate(
            input_ids=inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=MAX_TOKENS,
            do_sample=False,
            eos_token_id=sorted(backend.eos_ids),
            pad_token_id=0,
        )
        expected = output[0, len(ids) :].tolist()
        counts = equality.Counts()
        kinds = ["right", "shifted"]
        equality.assert_same(Engine(backend), ids, expected, counts, kinds, max_tokens=MAX_TOKENS)
        counts.check(18, 4, 4)
