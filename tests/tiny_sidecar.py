# SPDX-License-Identifier: Apache-2.0
"""A request, and a tiny sidecar that was trained on its answers with the prompts of inference."""

from __future__ import annotations

from typing import Any

from ooospec.sidecar.prompt import PromptBuilder
from tiny_models import tiny_tokenizer
from tiny_taught import taught_model

MESSAGES = [{"role": "user", "content": "What is the weather in Zürich, three days?"}]
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "set_alarm",
            "description": "Sets an alarm.",
            "parameters": {
                "type": "object",
                "properties": {
                    "time": {"type": "string"},
                    "repeat": {"type": "boolean"},
                    "label": {"type": "string"},
                },
                "required": ["time", "label"],
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
    (0, 2): None,
    (1, 0): "celsius",
    (1, 1): 3,
    (1, 2): "Zürich",
    (1, 3): None,
}
HINTS = {  # what goes out: not the null of a function that is not chosen
    (0, 0): '"06:30"',
    (0, 1): "true",
    (1, 0): '"celsius"',
    (1, 1): "3",
    (1, 2): '"Zürich"',
    (1, 3): "null",
}


def trained_model() -> Any:
    """Returns a tiny model that answers the slots of the request above with VALUES."""
    builder = PromptBuilder(tiny_tokenizer(), max_tokens=1024, examples=False)
    prompt = builder.build(MESSAGES, TOOLS)
    answers = [(prompt.question, prompt.options[FUNCTION])]
    answers += [
        (slot.question, builder.value_answer(VALUES[slot.tool, slot.parameter]))
        for slot in prompt.slots
    ]
    return taught_model([([*prompt.prefix, *question], answer) for question, answer in answers])
