# SPDX-License-Identifier: Apache-2.0
"""Tiny models that were trained until they answer prompts by heart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tiny_models import tiny_model

MAX_STEPS = 300
LEARNT_LOSS = 0.01


def taught_model(answers: Sequence[tuple[Sequence[int], Sequence[int]]], **overrides: Any) -> Any:
    """Returns a model whose greedy continuation of each prompt is its answer.

    answers: (prompt ids, answer ids). overrides: of its configuration.
    """
    model = tiny_model("qwen2", num_hidden_layers=1, initializer_range=0.1, **overrides)
    width = max(len(prompt) + len(answer) for prompt, answer in answers)
    ids = torch.zeros(len(answers), width, dtype=torch.long)
    labels = torch.full_like(ids, -100)
    for row, (prompt, answer) in enumerate(answers):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor([*prompt, *answer])
        labels[row, len(prompt) : end] = ids[row, len(prompt) : end]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model.train()
    for _ in range(MAX_STEPS):
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        if loss.item() < LEARNT_LOSS:
            return model.eval()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    raise AssertionError(f"the tiny model did not learn its answers: loss {loss.item():.3f}")
