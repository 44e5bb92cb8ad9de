# SPDX-License-Identifier: Apache-2.0
"""A tiny target that knows the answer to one request by heart, for benches that only show that they
run.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ooospec import CallStyle, render_calls
from ooospec.formats import render
from ooospec.tokens import TokenTable

MAX_STEPS = 400
LEARNT_LOSS = 0.01


def teach(folder: str, row: dict[str, Any]) -> None:
    """Trains the model in `folder` until it answers `row` by its reference calls; saves it there.

    Raises RuntimeError if it does not learn them.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    table = TokenTable(tokenizer)
    calls = [(call["name"], json.dumps(call["arguments"])) for call in row["calls"]]
    answer = [*table.encode(render_calls(calls, CallStyle("tags"))), tokenizer.eos_token_id]
    ids = torch.tensor([[*table.encode(render(tokenizer, row["messages"], row["tools"])), *answer]])
    labels = ids.clone()
    labels[:, : -len(answer)] = -100
    model = AutoModelForCausalLM.from_pretrained(folder).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(MAX_STEPS):
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        if loss.item() < LEARNT_LOSS:
            model.save_pretrained(folder)
            return
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    raise RuntimeError(f"the tiny target did not learn its answer: loss {loss.item():.3f}")
