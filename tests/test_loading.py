# SPDX-License-Identifier: Apache-2.0
"""Options of ooospec.load: one that is none is named before anything is loaded."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ooospec.config import EngineConfig
from ooospec.loading import load

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"config": 3}, "config: expected an EngineConfig, got 3"),
    ({"backend": "warp"}, "backend: expected auto, fused or transformers, got 'warp'"),
    ({"placement": "here"}, "placement: expected thread or process, got 'here'"),
    ({"wave": "maybe"}, "wave: expected one of auto, always, wait, never, got 'maybe'"),
    ({"device": "toaster"}, "device: expected one that is here, .*, got 'toaster'"),
    ({"dtype": "int3"}, "dtype: expected a floating point type .*, got 'int3'"),
    ({"adapter": "folder"}, "adapter: expected a sidecar beside 'folder', got none"),
    ({"sidecar": 3}, "sidecar: expected a name, an address or a Sidecar, got 3"),
    (
        {"sidecar": "folder", "sidecar_device": "toaster"},
        "sidecar_device: expected one that is here, .*, got 'toaster'",
    ),
    ({"sources": "module:Class"}, "sources: expected a list, got 'module:Class'"),
    ({"sources": [3]}, "source 3: expected methods begin, propose and commit"),
    ({"sources": ["none:Class"]}, "source: expected an importable module:Class, got 'none:Class'"),
    ({"corpus": "text"}, "corpus: expected a list, got 'text'"),
    ({"corpus": [3]}, r"corpus: expected texts, got \[3\]"),
    ({"cost_model": "yes"}, "cost_model: expected True, False or RoundCosts, got 'yes'"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=lambda one: str(one)[:40])
def test_an_option_that_is_none_is_named_before_anything_is_loaded(
    options: dict[str, Any], message: str
) -> None:
    before = threading.active_count()
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        load("/no/such/model", **options)  # which would be an error too, a later one
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_nodes": 0}, "max_nodes: expected 1 to 64, got 0"),
        ({"max_nodes": "8"}, "max_nodes: expected 1 to 64, got '8'"),
        ({"max_nodes": 2.5}, "max_nodes: expected 1 to 64, got 2.5"),
        ({"cache_tokens": 3}, "cache_tokens: expected at least 16, got 3"),
        ({"cache_tokens": "many"}, "cache_tokens: expected at least 16, got 'many'"),
    ],
)
def test_a_setting_out_of_range_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineConfig(**settings)
