# SPDX-License-Identifier: Apache-2.0
"""Sidecars that say less, later or something else."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ooospec import ops
from ooospec._core import _C
from ooospec.bench.ablations import FUNCTION, VALUE, ChangedSidecar, less_accurate, only
from ooospec.bench.replayed import ReplaySubjects
from ooospec.bench.run import BenchConfig
from ooospec.bench.sidecars import RecordedSidecar
from test_replay_bench import ROWS, TINY, TOOLS
from tiny_models import tiny_tokenizer

END = _C.HintKind.END
CALL = {"name": "get_weather", "arguments": {"city": "Oslo", "days": 3, "unit": "C"}}


@pytest.fixture(autouse=True)
def references() -> Iterator[None]:
    """The references stand for the kernels, which have tests of their own."""
    with ops.using("reference"):
        yield


def heard(sidecar: Any, count: int, seconds: float = 10.0) -> list[tuple[_C.HintKind, float]]:
    """Asks, and returns `count` records with the seconds after which each came."""
    start, found = time.perf_counter(), []
    sidecar.ask(1, [], TOOLS)
    while len(found) < count and time.perf_counter() < start + seconds:
        record = sidecar.ring.try_pop()
        if record is not None:
            found.append((record.kind, time.perf_counter() - start))
    sidecar.close()
    return found


def test_records_can_be_left_out_and_late() -> None:
    kinds = [kind for kind, _ in heard(ChangedSidecar(RecordedSidecar([CALL])), 5)]
    assert kinds == [FUNCTION, VALUE, VALUE, VALUE, END]
    some = ChangedSidecar(RecordedSidecar([CALL]), change=only(FUNCTION, END))
    assert [kind for kind, _ in heard(some, 2)] == [FUNCTION, END]
    late = heard(ChangedSidecar(RecordedSidecar([CALL]), delay=0.1), 5)
    assert len(late) == 5
    assert all(seconds >= 0.1 for _, seconds in late)


def test_records_can_wait_for_the_last() -> None:
    class Halting(RecordedSidecar):
        """Says all but the end."""

        def ask(self, request_id: int, *rest: Any, **more: Any) -> None:
            self.ring.try_push(request_id, FUNCTION, 0, 0, 0, "")
            self.ring.try_push(request_id, VALUE, 0, 0, 0, '"Oslo"')

    assert heard(ChangedSidecar(Halting(), at_once=True), 1, seconds=0.2) == []
    assert len(heard(ChangedSidecar(RecordedSidecar([CALL]), at_once=True), 5)) == 5


def test_wrong_values_stay_wrong_at_lower_accuracy() -> None:
    assert less_accurate(None, 0.5, "a") is None
    assert less_accurate(CALL, 1.0, "a") == CALL
    none = less_accurate(CALL, 0.0, "a")
    assert none is not None
    assert not none["arguments"].items() & CALL["arguments"].items()  # type: ignore[attr-defined]
    assert [type(one) for one in none["arguments"].values()] == [str, int, str]
    for key in "abcdef":
        right = [
            {name for name, one in less_accurate(CALL, share, key)["arguments"].items()
             if one == CALL["arguments"][name]}  # type: ignore[index]
            for share in (0.0, 0.25, 0.5, 0.75, 1.0)
        ]  # fmt: skip
        assert all(one <= other for one, other in itertools.pairwise(right))


@pytest.mark.parametrize("before", ["rounds", "prefill"])
def test_a_method_can_wait_for_the_whole_wave_and_have_small_trees(
    before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wave = "wait" if before == "rounds" else "always"
    config = BenchConfig(("ar", "ooo"), device="cpu", wave=wave, cost_model=False, max_nodes=4)
    how: Any = {"rows": ROWS, "sidecar": (TINY, tiny_tokenizer()), "num_lanes": 1}
    how["prefill_waits"] = before == "prefill"
    monkeypatch.setattr("ooospec.drafting.WAIT_SECONDS", 60.0)  # a wave on a CPU is slow
    subjects = ReplaySubjects(TINY, tiny_tokenizer(), config, **how)
    plain, ooo = subjects.run("t", "f", ROWS[1], 0)
    subjects.close()
    assert plain.equal
    assert ooo.equal
    assert ooo.rounds[0][0] >= ooo.hints[-1]
    assert (ooo.first - ooo.prefill >= ooo.hints[-1]) == (before == "prefill")
    assert max(one[4] for one in ooo.rounds) <= 4
