# SPDX-License-Identifier: Apache-2.0
"""A request, and a tiny sidecar that was trained on its answers with the prompts of inference."""

from __future__ import annotations

from typing import Any

import torch

from ooospec.sidecar.prompt import PromptBuilder
from tiny_models import tiny_model, tiny_tokenizer

MESSAGES = [{"role": "user", "content": "What is the weather in Zürich, three days?"}]
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "set_alarm",
            "description": "Sets an alarm.",
            "parameters": {
                "type": "object",
                "properties": {"time": {"type": "string"}, "repeat": {"type": "boolean"}},
                "required": ["time"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of some days.",
            "parameters": {
                "type": "object",
                "properties": {
                    "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
                    "days": {"type": "integer"},
                    "city": {"type": "string"},
                    "near": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["city", "days"],
            },
        },
    },
    {"type": "function", "function": {"name": "stop"}},
]
FUNCTION = 1
VALUES = {  # (tool, parameter) -> what the sidecar learns to answer
    (0, 0): "06:30",
    (0, 1): True,
    (1, 0): "celsius",
    (1, 1): 3,
    (1, 2): "Zürich",
    (1, 3): None,
}
HINTS = {
    (0, 0): '"06:30"',
    (0, 1): "true",
    (1, 0): '"celsius"',
    (1, 1): "3",
    (1, 2): '"Zürich"',
    (1, 3): "null",
}


def trained_model() -> Any:
    """Returns a tiny model that answers the slots of the request above with VALUES."""
    model = tiny_model("qwen2", num_hidden_layers=1, initializer_range=0.1)
    builder = PromptBuilder(tiny_tokenizer(), max_tokens=1024, examples=False)
    prompt = builder.build(MESSAGES, TOOLS)
    rows = [(prompt.question, prompt.options[FUNCTION])]
    rows += [
        (slot.question, builder.value_answer(VALUES[slot.tool, slot.parameter]))
        for slot in prompt.slots
    ]
    width = max(len(question) + len(answer) for question, answer in rows)
    ids = torch.zeros(len(rows), len(prompt.prefix) + width, dtype=torch.long)
    labels = torch.full_like(ids, -100)
    for i, (question, answer) in enumerate(rows):
        tokens = torch.tensor([*prompt.prefix, *question, *answer])
        ids[i, : len(tokens)] = tokens
        labels[i, len(tokens) - len(answer) : len(tokens)] = tokens[-len(answer) :]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model.train()
    for _ in range(200):
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        if loss.item() < 0.01:
            return model.eval()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    raise AssertionError(f"the tiny sidecar did not learn its answers: loss {loss.item():.3f}")
