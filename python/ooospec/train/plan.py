# SPDX-License-Identifier: Apache-2.0
"""The order of a training run, and what it will take. A function of settings and data alone."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from ooospec.train.branches import PAD_TO, num_laid_out, separate
from ooospec.train.config import TrainConfig
from ooospec.train.rows import Example

GIB = 1 << 30


def epoch_steps(num_examples: int, epoch: int, config: TrainConfig) -> list[list[int]]:
    """Returns the numbers of the requests of each step of an epoch (counted from 0)."""
    order = list(range(num_examples))
    random.Random(f"{config.seed} {epoch}").shuffle(order)
    return [order[i : i + config.step_requests] for i in range(0, len(order), config.step_requests)]


def passes(examples: Seq[Example], pass_tokens: int, *, shared: bool) -> list[list[Example]]:
    """Returns the requests, or their rows one by one, in forward passes of at most `pass_tokens`
    tokens with padding, longest first; one that is longer goes alone.
    """
    parts = list(examples)
    if not shared:
        parts = [part for example in examples for part in separate(example)]
    parts.sort(key=num_laid_out, reverse=True)
    found: list[list[Example]] = []
    for part in parts:
        if not found or (len(found[-1]) + 1) * padded_tokens(found[-1][:1]) > pass_tokens:
            found.append([])
        found[-1].append(part)
    return found


def padded_tokens(examples: Seq[Example]) -> int:
    """Returns the tokens that a forward pass computes for `examples`."""
    return len(examples) * -(-max(map(num_laid_out, examples)) // PAD_TO) * PAD_TO


def learning_rate(step: int, num_steps: int, config: TrainConfig) -> float:
    """Returns the rate of a step (counted from 0): up in a line, then down as a cosine to zero."""
    num_warm = max(1, round(config.warmup * num_steps))
    if step < num_warm:
        return config.learning_rate * (step + 1) / num_warm
    done = (step - num_warm) / max(1, num_steps - num_warm)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


@dataclass(frozen=True)
class Estimate:
    """What a run will take, about. num_tokens: computed in an epoch, padding included.

    memory_bytes: weights, adapter with its optimizer, and what the largest pass keeps.
    """

    num_steps: int
    num_passes: int
    num_tokens: int
    largest_pass: int
    memory_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.num_steps} steps of {self.num_passes} passes and {self.num_tokens / 1e6:.2f} M "
            f"tokens, the largest pass {self.largest_pass} tokens, about "
            f"{self.memory_bytes / GIB:.1f} GiB of memory"
        )


def estimate(
    model: Any, examples: Seq[Example], config: TrainConfig, *, shared: bool, half: bool
) -> Estimate:
    """Returns what all epochs take. half: whether products are in half precision."""
    num_steps = num_passes = num_tokens = largest = num_answers = 0
    for epoch in range(config.epochs):
        for step in epoch_steps(len(examples), epoch, config):
            num_steps += 1
            for one in passes([examples[i] for i in step], config.pass_tokens, shared=shared):
                size = padded_tokens(one)
                num_passes += 1
                num_tokens += size
                largest = max(largest, size)
                answers = sum(len(row.answer) for example in one for row in example.rows)
                num_answers = max(num_answers, answers)
    memory = memory_bytes(model, largest, num_answers, config, half=half)
    return Estimate(num_steps, num_passes, num_tokens, largest, memory)


def memory_bytes(
    model: Any, num_tokens: int, num_answers: int, config: TrainConfig, *, half: bool
) -> int:
    """Returns the bytes of weights, adapter (with gradient and two moments), and of one pass: per
    layer some 16 vectors of the hidden and 5 of the inner size a token, or its input alone where
    layers are computed again; logits of the answers with their gradients.
    """
    text = getattr(model.config, "get_text_config", lambda: model.config)()
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    item = 2 if half else 4
    inner = int(getattr(text, "intermediate_size", None) or 4 * text.hidden_size)
    layer = num_tokens * item * (16 * text.hidden_size + 5 * inner)
    layers = text.num_hidden_layers * layer
    if config.gradient_checkpointing:
        layers = layer + text.num_hidden_layers * num_tokens * item * text.hidden_size
    logits = num_answers * text.vocab_size * (item + 3 * 4)
    return int(weights + trained * 12 + layers + logits)
