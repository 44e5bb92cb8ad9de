# SPDX-License-Identifier: Apache-2.0
"""Faults planted on purpose: the equality checks and the shadow check have to find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from equality import Counts, assert_same, make_engine, reference
from ooospec.config import EngineConfig
from ooospec.engine import Engine
from ooospec.errors import ShadowMismatch
from ooospec.kv import Sequence
from tiny_models import FAMILIES

PROMPT = [20 + (7 * i) % 400 for i in range(20)]
Plant = Callable[[pytest.MonkeyPatch, Engine], None]


def no_compaction(patch: pytest.MonkeyPatch, engine: Engine) -> None:
    """D01: accepted rows stay where they were launched."""
    patch.setattr(engine.pool, "copy_slots", lambda sources, targets: None)


def one_row_off(patch: pytest.MonkeyPatch, engine: Engine) -> None:
    """D01: the row beside the accepted one is kept."""
    copy = engine.pool.copy_slots
    patch.setattr(engine.pool, "copy_slots", lambda s, t: copy([slot - 1 for slot in s], t))


def keys_only(patch: pytest.MonkeyPatch, engine: Engine) -> None:
    """D01: values of accepted rows are left behind."""
    copy = engine.pool.copy_slots

    def partial(sources: list[int], targets: list[int]) -> None:
        before = [values.clone() for values in engine.pool.values]
        copy(sources, targets)
        for values, old in zip(engine.pool.values, before, strict=True):
            values.copy_(old)

    patch.setattr(engine.pool, "copy_slots", partial)


def drafted_length(patch: pytest.MonkeyPatch, engine: Engine) -> None:
    """A06, D03: a rejected row stays in the cache."""
    keep = Sequence.keep

    def too_many(self: Sequence, rows: list[int]) -> None:
        num_rows = self.num_rows
        keep(self, rows)
        self.length += num_rows > len(rows)

    patch.setattr(Sequence, "keep", too_many)


def row_as_position(patch: pytest.MonkeyPatch, engine: Engine) -> None:
    """A06: positions count rows, as for a chain, where they should count depth."""
    forward = engine.backend.forward

    def shifted(segments: Any) -> Any:
        for segment in segments:
            length = segment.sequence.length
            segment.positions = range(length, length + len(segment.tokens))
        return forward(segments)

    patch.setattr(engine.backend, "forward", shifted)


def seen_siblings(patch: pytest.MonkeyPatch, engine: Engine) -> None:
    """A row sees all rows before it, not its ancestors only."""
    forward = engine.backend.forward

    def blind(segments: Any) -> Any:
        for segment in segments:
            segment.mask = None
        return forward(segments)

    patch.setattr(engine.backend, "forward", blind)


FAULTS = [no_compaction, one_row_off, keys_only, drafted_length, row_as_position, seen_siblings]


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
@pytest.mark.parametrize("family", ["qwen2", "gemma3"])
def test_equality_finds_a_planted_fault(
    family: str, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = reference(family, PROMPT, max_new_tokens=40)
    engine = make_engine(family)
    plant(monkeypatch, engine)
    with pytest.raises((AssertionError, ValueError)):
        assert_same(engine, PROMPT, expected, Counts(), ["last_sibling"], max_tokens=40)
    monkeypatch.undo()
    assert_same(engine, PROMPT, expected, Counts(), ["last_sibling"], max_tokens=40)


@pytest.mark.parametrize("family", FAMILIES)
def test_shadow_accepts_every_round_of_honest_decoding(family: str) -> None:
    """D03, D05: after each round the cache is what a prefill of the committed tokens gives."""
    engine = make_engine(family, EngineConfig(shadow=True))
    expected = reference(family, PROMPT, max_new_tokens=24)
    kinds = ["last_sibling", "half_right"]
    assert_same(engine, PROMPT, expected, Counts(), kinds, max_tokens=24)


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_shadow_finds_a_planted_fault_in_its_round(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine("gemma3", EngineConfig(shadow=True))
    expected = reference("gemma3", PROMPT, max_new_tokens=20)
    plant(monkeypatch, engine)
    with pytest.raises((ShadowMismatch, ValueError)):
        assert_same(engine, PROMPT, expected, Counts(), ["last_sibling"], max_tokens=20)
