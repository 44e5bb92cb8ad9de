# SPDX-License-Identifier: Apache-2.0
"""Method `draft`: a smaller model drafts, the answer stays the target's."""

from __future__ import annotations

from typing import Any

import pytest

import ooospec
from ooospec.backends.load import load_backend
from ooospec.draft_model import DraftModel, DraftModelSource
from ooospec.sources import SourceRequest, SourceState
from tiny_models import tiny_model, tiny_tokenizer

CHAT = [{"role": "user", "content": "The quick brown fox jumps"}]


def backend(seed: int = 0, **overrides: Any) -> Any:
    return load_backend(
        tiny_model("qwen2", seed=seed, **overrides), tokenizer=tiny_tokenizer(), chunk=16
    )


def draft(target: Any, small: Any, **options: Any) -> Any:
    engine = ooospec.load(target, draft_model=small, cost_model=False)
    plain = engine.generate(CHAT, method="ar", **options)
    answer = engine.generate(CHAT, method="draft", **options)
    assert answer.token_ids == plain.token_ids
    again = engine.generate(CHAT, method="draft", **options)
    assert again.token_ids == plain.token_ids
    assert engine.drafting.draft_model.pool.num_free == engine.drafting.draft_model.pool.num_pages
    return answer.metrics


def test_the_target_itself_as_its_draft_model_is_always_right() -> None:
    metrics = draft(backend(), backend(), max_tokens=60)
    assert metrics.tokens_per_round > 8


def test_another_model_drafts_what_may_be_wrong() -> None:
    metrics = draft(backend(), backend(seed=1), max_tokens=40)
    assert sum(metrics.rejected.values()) > 20
    draft(backend(), backend(seed=1), max_tokens=40, temperature=1.0, seed=3)


def test_a_text_without_room_is_not_drafted() -> None:
    small = backend(max_position_embeddings=48)
    draft(backend(), small, max_tokens=60)
    source = DraftModelSource(DraftModel(small, tiny_tokenizer()))
    source.begin(SourceRequest(list(range(60)), [], [], tiny_tokenizer()))
    assert not source.propose(SourceState([], []), 8)
    source.close()


def test_another_tokenizer_is_refused_and_without_a_model_there_is_no_method() -> None:
    class Other:
        def get_vocab(self) -> dict[str, int]:
            return {"a": 0}

    with pytest.raises(ValueError, match="target's tokenizer of 1 tokens, got one of 452 tokens"):
        DraftModel(backend(), Other())
    engine = ooospec.load(backend(), cost_model=False)
    with pytest.raises(ooospec.errors.InvalidRequest, match="expected one of ar, ooo, "):
        engine.generate(CHAT, method="draft")
