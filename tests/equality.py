# SPDX-License-Identifier: Apache-2.0
"""Runs hostile drafts and counts what was compared, so that an equality test cannot pass on
nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import hostile
from ooospec.backends.load import load_backend
from ooospec.config import EngineConfig
from ooospec.engine import Engine, Generation
from ooospec.kv import Sequence
from tiny_models import tiny_model, tiny_tokenizer

CHUNK = 16


def make_engine(family: str, config: EngineConfig | None = None, **overrides: Any) -> Engine:
    """Returns an engine on a fresh tiny model; see tiny_model()."""
    model = tiny_model(family, **overrides)
    return Engine(load_backend(model, tokenizer=tiny_tokenizer(), chunk=CHUNK), config=config)


def plant_kv_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every sequence fill the last row that it commits with the one before it, whoever moved
    the rows.
    """

    def planted(keep: Callable[[Sequence, Any], None]) -> Callable[[Sequence, Any], None]:
        def off_by_one(sequence: Sequence, rows: Any) -> None:
            length = sequence.length
            keep(sequence, rows)
            if sequence.length > length + 2:
                slots = sequence.slots(sequence.length - 2, sequence.length)
                for block in sequence.pool.blocks:
                    block[:, slots[1]] = block[:, slots[0]]

        return off_by_one

    monkeypatch.setattr(Sequence, "keep", planted(Sequence.keep))
    monkeypatch.setattr(Sequence, "keep_first", planted(Sequence.keep_first))


@functools.cache
def stock_model(family: str) -> Any:
    return tiny_model(family)


def reference(family: str, prompt: list[int], **settings: Any) -> list[int]:
    """Returns the ids that Hugging Face `generate` gives greedily, end of sequence included."""
    inputs = torch.tensor([prompt])
    output = stock_model(family).generate(
        inputs, attention_mask=torch.ones_like(inputs), do_sample=False, **settings
    )
    return output[0, len(prompt) :].tolist()


@dataclass
class Counts:
    """tokens: compared with a reference. accepted, rejected: draft nodes that ran."""

    tokens: int = 0
    accepted: int = 0
    rejected: int = 0

    def add(self, generation: Generation) -> None:
        self.tokens += len(generation.token_ids)
        self.accepted += sum(generation.metrics.accepted.values())
        self.rejected += sum(generation.metrics.rejected.values())

    def check(self, tokens: int, accepted: int, rejected: int) -> None:
        """Prints the counts; fails below the given ones."""
        print(f"{self.tokens} tokens, {self.accepted} nodes accepted, {self.rejected} rejected")
        assert self.tokens >= tokens
        assert self.accepted >= accepted
        assert self.rejected >= rejected


def drafting(script: Callable[..., Any], answer: list[int], engine: Engine) -> Callable[..., Any]:
    """Returns the method that drafts by `script`, which knows the answer."""
    eos = min(engine.backend.eos_ids)

    def method(request: Any) -> hostile.ScriptedDrafter:
        return hostile.ScriptedDrafter(
            script, request.prompt_ids, answer, engine.backend.decodable, eos
        )

    return method


def assert_same(
    engine: Engine,
    prompt: list[int],
    expected: list[int],
    counts: Counts,
    kinds: list[str] | None = None,
    answer: list[int] | None = None,
    **sampling: Any,
) -> None:
    """Asserts that drafts of `kinds` (None: all) give `expected`, its text, reason and usage.

    answer: what the drafts are made from; `expected`, or more where that was cut. Counts what ran.
    """
    plain = engine.generate_ids(prompt, **sampling)
    assert plain.token_ids == expected, f"plain decoding: {plain.token_ids} for {expected}"
    counts.add(plain)
    num_free = engine.pool.num_free
    for kind in kinds or list(hostile.HOSTILE):
        method = drafting(hostile.HOSTILE[kind], answer or expected, engine)
        got = engine.generate_ids(prompt, method=method, **sampling)
        case = f"{kind} after a prompt of {len(prompt)}"
        assert got.token_ids == expected, f"{case}: {got.token_ids} for {expected}"
        assert got.text == plain.text, case
        assert got.finish_reason == plain.finish_reason, case
        assert got.usage.completion_tokens == len(expected) == len(got.sources), case
        assert got.metrics.num_committed == len(expected) - 1, case
        assert engine.pool.num_free == num_free, f"{case} leaks pages"
        counts.add(got)
