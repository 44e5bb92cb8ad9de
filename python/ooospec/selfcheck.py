# SPDX-License-Identifier: Apache-2.0
"""Proof that every method writes what `ar` writes, on this machine and with this model."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ooospec._core import _C
from ooospec.backends.base import Backend
from ooospec.engine import Engine, Generation, MakeDrafter, Request
from ooospec.kv import Sequence
from ooospec.loop import Drafter
from ooospec.trace import Recorder

NUM_REPLAYED = 12  # tokens of a replayed draft
WRONG_EVERY = 7  # replayed tokens, of which one is wrong


@dataclass(frozen=True)
class Difference:
    """The first token that differs. position: in the answer. expected: of `ar`; -1: its answer had
    ended. gap: the target's logit of `expected` less that of `got`; None where one of them ended.
    """

    request: str
    position: int
    expected: int
    got: int
    gap: float | None


@dataclass
class MethodReport:
    """One method against `ar` over all requests. differences: one a request that differs."""

    method: str
    num_requests: int = 0
    num_tokens: int = 0
    num_rounds: int = 0
    num_accepted: int = 0
    num_rejected: int = 0
    seconds: float = 0.0
    differences: list[Difference] = field(default_factory=list)

    def add(self, generation: Generation, seconds: float) -> None:
        """Counts an answer."""
        metrics = generation.metrics
        self.num_requests += 1
        self.num_tokens += len(generation.token_ids)
        self.num_rounds += metrics.num_rounds
        self.num_accepted += sum(metrics.accepted.values())
        self.num_rejected += sum(metrics.rejected.values())
        self.seconds += seconds


def selfcheck(
    engine: Engine,
    requests: Seq[dict[str, Any]],
    methods: Seq[str] | None = None,
    *,
    on_answer: Callable[[str, str], None] = lambda request, method: None,
    **sampling: Any,
) -> list[MethodReport]:
    """Answers every request by `ar` and by each method, and compares token for token.

    requests: objects with messages, and id and tools if there are any. methods: None: all of the
    engine. Besides them comes "replay", which drafts the answer of `ar` itself with a wrong token
    here and there, so that acceptance and rejection are both put to the test on any model.
    on_answer: called with (request, method) before each answer. sampling: as of Engine.generate.
    Returns the report of each method, `ar` first. Raises what Engine.generate raises.
    """
    names = [name for name in (methods or engine.methods) if name != "ar"]
    reports = {name: MethodReport(name) for name in ("ar", *names, "replay")}

    def answer(request: dict[str, Any], name: str, method: MakeDrafter) -> Generation:
        on_answer(str(request.get("id", "request")), name)
        start = time.perf_counter()
        made = engine.generate(request["messages"], request.get("tools"), method=method, **sampling)
        reports[name].add(made, time.perf_counter() - start)
        return made

    for request in requests:
        recorder = Recorder(engine.methods["ar"])
        expected = answer(request, "ar", recorder)
        assert recorder.request is not None
        prompt_ids = recorder.request.prompt_ids
        replay = _Replay(expected.token_ids, engine.backend.decodable)
        makers = {name: engine.methods[name] for name in names} | {"replay": replay.begin}
        for name, method in makers.items():
            got = answer(request, name, method)
            difference = first_difference(expected.token_ids, got.token_ids)
            if difference is not None:
                position, one, other = difference
                gap = logit_gap(engine, prompt_ids + expected.token_ids[:position], one, other)
                where = str(request.get("id", "request"))
                reports[name].differences.append(Difference(where, position, one, other, gap))
    return list(reports.values())


def level_after(backend: Backend, equal: bool, has_bits: bool) -> str:
    """Returns how exact `backend` is known to be after a check.

    equal: nothing differed. has_bits: logits were compared bit by bit too. What is known of it
    beforehand (tests against Hugging Face, rows that are not independent) is not made less.
    """
    if not equal:
        return "not exact: answers or logits differ from plain decoding"
    if has_bits and backend.is_canonical:
        return "bit-exact"
    return "self-checked" if backend.level == "not checked" else backend.level


def first_difference(expected: Seq[int], got: Seq[int]) -> tuple[int, int, int] | None:
    """Returns (position, expected, got) of the first difference, -1 for an answer that ended."""
    for position in range(max(len(expected), len(got))):
        pair = [ids[position] if position < len(ids) else -1 for ids in (expected, got)]
        if pair[0] != pair[1]:
            return position, pair[0], pair[1]
    return None


def logit_gap(engine: Engine, tokens: Seq[int], first: int, second: int) -> float | None:
    """Returns by how much the target prefers `first` to `second` after `tokens`, by a prefill."""
    if min(first, second) < 0:
        return None
    sequence = Sequence(engine.backend.new_pool(len(tokens)))
    sequence.reserve(len(tokens))
    logits = engine.backend.prefill(sequence, tokens)
    return float(logits[first] - logits[second])


class _Replay:
    """Drafts a known answer, with every few tokens one that is wrong."""

    wants_top8 = False

    def __init__(self, answer: Seq[int], decodable: int) -> None:
        self._answer = list(answer)
        self._decodable = decodable
        self._committed: list[int] = []

    def begin(self, request: Request) -> Drafter:
        self._committed = []
        return self

    def propose(self, budget: int) -> _C.DraftTree:
        start = len(self._committed)
        stop = min(start + NUM_REPLAYED, start + budget - 1, len(self._answer))
        draft = [
            (self._answer[i] + (i % WRONG_EVERY == 0)) % self._decodable for i in range(start, stop)
        ]
        tree = _C.DraftTree(self._committed[-1])
        if draft:
            tree.insert(0, draft, [0.9] * len(draft), _C.SOURCES["external"])
        return tree

    def commit(self, tokens: Seq[int], top8: np.ndarray[Any, Any] | None = None) -> None:
        self._committed += tokens

    def prepare(self) -> None:
        pass

    def finish(self) -> None:
        pass
