# SPDX-License-Identifier: Apache-2.0
"""The engine against Hugging Face `generate`, on tiny random models of each family."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ooospec.backends.load import load_backend
from ooospec.engine import Engine
from tiny_models import FAMILIES, tiny_model, tiny_tokenizer


def reference(model: Any, prompt_ids: list[int], **settings: Any) -> list[int]:
    """Returns the ids that Hugging Face generates, end of sequence included."""
    inputs = torch.tensor([prompt_ids])
    output = model.generate(
        inputs, attention_mask=torch.ones_like(inputs), do_sample=False, **settings
    )
    return output[0, len(prompt_ids) :].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_decoding_equals_generate(family: str) -> None:
    prompt_ids = list(range(20, 70))
    expected = reference(tiny_model(family), prompt_ids, max_new_tokens=60)
    engine = Engine(load_backend(tiny_model(family), tokenizer=tiny_tokenizer(), chunk=16))
    assert engine.generate_ids(prompt_ids, max_tokens=60).token_ids == expected
