# SPDX-License-Identifier: Apache-2.0
"""Real checkpoint, real requests, bfloat16 on a GPU: every method gives the ids of plain decoding.

OOOSPEC_CHECKPOINTS: folder with qwen2.5-coder-0.5b. OOOSPEC_DATA: folder of the request files.
"""

from __future__ import annotations

from typing import Any

import pytest

import ooospec
from equality import Counts
from ooospec.config import EngineConfig
from ooospec.kv import Sequence
from real_requests import FILES, CallsAsHints, RecordedAnswer, folder, requests

pytestmark = [pytest.mark.gpu, pytest.mark.real]

METHODS = ("pld", "toolspec", "ooo")
MAX_TOKENS = 64


class Subject:
    """The fused engine with hints from reference calls, and one that drafts its own answer."""

    def __init__(self) -> None:
        path = folder("OOOSPEC_CHECKPOINTS") / "qwen2.5-coder-0.5b"
        load: dict[str, Any] = {"cost_model": False, "config": EngineConfig(max_nodes=64)}
        self.sidecar = CallsAsHints()
        self.engine = ooospec.load(
            str(path),
            device="cuda",
            dtype="bfloat16",
            backend="fused",
            sidecar=self.sidecar,
            wave="always",
            **load,
        )
        self.recorded = ooospec.load(self.engine.backend, sources=[RecordedAnswer], **load)

    def differing(self, row: dict[str, Any], counts: Counts, **how: Any) -> list[str]:
        """Returns the methods whose answer to a request is not that of plain decoding."""
        request = row["messages"], row["tools"]
        expected = self.engine.generate(*request, method="ar", max_tokens=MAX_TOKENS, **how)
        RecordedAnswer.answer = expected.token_ids
        self.sidecar.calls = row["calls"]
        found = []
        for engine, methods in ((self.engine, METHODS), (self.recorded, ("pld",))):
            for method in methods:
                got = engine.generate(*request, method=method, max_tokens=MAX_TOKENS, **how)
                counts.add(got)
                if got.token_ids != expected.token_ids:
                    found.append(method)
        return found


def test_every_method_equals_plain_decoding_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests, greedy, every fourth sampled; a planted KV error is found."""
    subject, counts = Subject(), Counts()
    rows = [row for file in FILES for row in requests(file)]
    assert len(rows) >= 500
    for number, row in enumerate(rows):
        how = {"temperature": 0.8, "top_p": 0.95, "seed": number} if number % 4 == 3 else {}
        assert subject.differing(row, counts, **how) == [], row["id"]
    print(len(rows), "requests")
    counts.check(20_000, 10_000, 50_000)

    keep = Sequence.keep

    def off_by_one(sequence: Sequence, rows: Any) -> None:
        """Fills the last accepted row with the one before it."""
        keep(sequence, rows)
        if len(rows) > 2:
            slots = sequence.slots(sequence.length - 2, sequence.length)
            for block in sequence.pool.blocks:
                block[:, slots[1]] = block[:, slots[0]]

    monkeypatch.setattr(Sequence, "keep", off_by_one)
    assert any(subject.differing(row, Counts()) for row in rows[:40])
