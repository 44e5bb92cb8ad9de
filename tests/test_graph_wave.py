# SPDX-License-Identifier: Apache-2.0
"""The wave that the core runs says what the wave in Python says, whatever the rows and pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from ooospec import HintKind, ops
from ooospec._core import _C
from ooospec.backends.fused import FusedBackend
from ooospec.sidecar.graph_wave import GraphWaveRunner
from ooospec.sidecar.prompt import PromptBuilder
from ooospec.sidecar.wave import WaveRunner
from test_wave import num_held, run_wave, string_tools, values, wandering_model
from tiny_models import tiny_tokenizer
from tiny_sidecar import FUNCTION, HINTS, MESSAGES, TOOLS, trained_model

MAX_TOKENS = 12
ON_GPU = torch.cuda.is_available()


@pytest.fixture(autouse=True)
def references() -> Iterator[None]:
    """On a CPU the references stand for the kernels, which have tests of their own."""
    with nullcontext() if ON_GPU else ops.using("reference"):
        yield


def fused(model: Any, chunk: int = 64) -> FusedBackend:
    model = model.to("cuda") if ON_GPU else model
    return FusedBackend(model, tiny_tokenizer(), chunk=chunk, num_sequences=33)


@pytest.fixture(scope="module")
def trained() -> FusedBackend:
    return fused(trained_model())


@pytest.fixture(scope="module")
def wandering() -> FusedBackend:
    return fused(wandering_model("mistral", max_position_embeddings=2048))


def make(kind: Callable[..., Any], backend: FusedBackend, **settings: Any) -> Any:
    limit = backend.context_limit
    builder = PromptBuilder(backend.tokenizer, max_tokens=limit, examples=False)
    return kind(backend, builder, **{"likely_within": math.inf} | settings)


def test_a_trained_sidecar_says_what_it_learnt(trained: FusedBackend) -> None:
    """And in fewer launches than its answers have tokens, where these stand in the prompt."""
    for num_rows in (1, 2, 32):
        runner = make(GraphWaveRunner, trained, num_rows=num_rows)
        prompt = runner.builder.build(MESSAGES, TOOLS)
        one_by_one = run_wave(make(WaveRunner, trained, num_rows=num_rows), prompt)[1]
        assert len(run_wave(runner, prompt)[1].steps) < len(one_by_one.steps)
        runner.prefixes.clear()
        for cached in (0, len(prompt.prefix) // 64 * 64):
            hints, report = run_wave(runner, prompt)
            assert hints[0] == (HintKind.FUNCTION, FUNCTION, 0, "")
            assert hints[-1] == (HintKind.END, 0, 0, "")
            assert values(hints[1:-1]) == HINTS
            assert (report.num_slots, report.num_sent, report.num_unsaid) == (7, 6, 1)
            assert (report.outcome, report.num_cached_tokens) == ("done", cached)
            assert [a.kind for a in report.answers] == ["FUNCTION"] + 7 * ["VALUE"]
            assert max(step.num_rows for step in report.steps) <= 64
        assert num_held(runner) == 0


@pytest.mark.parametrize(("num_tools", "num_rows"), [(2, 32), (2, 5), (4, 32)])
def test_it_says_what_the_wave_in_python_says(
    wandering: FusedBackend, num_tools: int, num_rows: int
) -> None:
    settings: dict[str, Any] = {"num_rows": num_rows, "max_value_tokens": MAX_TOKENS}
    expected_runner = make(WaveRunner, wandering, **settings)
    prompt = expected_runner.builder.build(MESSAGES, string_tools(num_tools, 10))
    expected, told = run_wave(expected_runner, prompt)
    for backend in (wandering, FusedBackend(wandering.model, tiny_tokenizer(), chunk=192)):
        hints, report = run_wave(make(GraphWaveRunner, backend, **settings), prompt)
        assert hints[0] == expected[0]
        assert hints[-1] == expected[-1]
        assert values(hints) == values(expected)
    if num_rows == 32:  # the last one launched questions in parts
        assert 64 < max(s.num_rows for s in report.steps[-(-len(prompt.prefix) // 192) :]) <= 192
    assert len(set(values(hints).values())) >= 2, "the model says too little to compare"
    assert (report.num_sent, report.num_invalid) == (told.num_sent, told.num_invalid)
    if num_rows < 10 * num_tools:  # the likeliest function first
        first = [a.tool for a in report.answers[1 : 1 + num_rows // 2]]
        assert set(first) <= {hints[0][1], *[a.tool for a in told.answers[1 : 1 + num_rows]]}


@pytest.mark.parametrize("num_rows", [1, 32])
def test_functions_that_are_unlikely_are_not_asked_about(
    trained: FusedBackend, num_rows: int
) -> None:
    runner = make(GraphWaveRunner, trained, num_rows=num_rows, likely_within=7.0)
    hints, report = run_wave(runner, runner.builder.build(MESSAGES, TOOLS))
    assert values(hints) == {slot: text for slot, text in HINTS.items() if slot[0] == FUNCTION}
    assert hints[-1] == (HintKind.END, 0, 0, "")
    assert (report.num_slots, report.num_sent, report.num_unsaid) == (7, 4, 3)
    assert num_held(runner) == 0


def test_slots_wait_for_rows_by_the_likelihood_of_their_function(trained: FusedBackend) -> None:
    runner = make(GraphWaveRunner, trained, num_rows=1)
    hints, _ = run_wave(runner, runner.builder.build(MESSAGES, TOOLS))
    order = [(tool, parameter) for kind, tool, parameter, _ in hints if kind == HintKind.VALUE]
    assert order == [(1, 1), (1, 2), (1, 0), (1, 3), (0, 0), (0, 1)]


def test_names_longer_than_a_launch_and_more_than_fit_one(trained: FusedBackend) -> None:
    runner = make(GraphWaveRunner, trained)
    tools = [{"function": {"name": name * 90}} for name in ("x1", "y2", "z3")]
    prompt = runner.builder.build(MESSAGES, tools)
    assert len(prompt.options[0]) > 64
    hints, report = run_wave(runner, prompt)
    assert [kind for kind, *_ in hints] == [HintKind.FUNCTION, HintKind.END]
    assert report.outcome == "done"
    tools = string_tools(40, 0)
    expected, _ = run_wave(make(WaveRunner, trained), runner.builder.build(MESSAGES, tools))
    hints, _ = run_wave(runner, runner.builder.build(MESSAGES, tools))
    assert hints == expected


def test_no_more_slots_than_can_be_asked(trained: FusedBackend) -> None:
    runner = make(GraphWaveRunner, trained, max_value_tokens=1)
    prompt = runner.builder.build(MESSAGES, TOOLS)
    slots = [replace(prompt.slots[0], parameter=i) for i in range(300)]
    hints, report = run_wave(runner, replace(prompt, slots=slots))
    assert report.num_slots == 300
    assert len(report.answers) == 1 + _C.Wave.MAX_SLOTS
    assert hints[-1][0] == HintKind.ERROR


class Launches:
    """Acts at the n-th launch of a backend."""

    def __init__(self, backend: FusedBackend, monkeypatch: Any) -> None:
        self.act: Callable[[], None] = lambda: None
        self.left = 0
        for name in ("step", "chunk"):
            monkeypatch.setattr(backend.packed, name, self._wrap(getattr(backend.packed, name)))

    def _wrap(self, run: Callable[..., None]) -> Callable[..., None]:
        def wrapped(*arguments: Any) -> None:
            self.left -= 1
            if self.left == 0:
                self.act()
            run(*arguments)

        return wrapped


@pytest.mark.skipif(ON_GPU, reason="a graph does not enter Python")
def test_an_error_or_an_end_at_any_launch_leaves_no_page_held(
    trained: FusedBackend, monkeypatch: Any
) -> None:
    runner = make(GraphWaveRunner, trained)
    prompt = runner.builder.build(MESSAGES, TOOLS)
    _, whole = run_wave(runner, prompt)
    launches = Launches(trained, monkeypatch)

    def fail() -> None:
        raise MemoryError("no memory left")

    for at in range(1, len(whole.steps) + 1, 3):
        runner.prefixes.clear()
        launches.act, launches.left = fail, at
        with pytest.raises(MemoryError, match="no memory left"):
            run_wave(runner, prompt)
        assert num_held(runner) == 0
        launches.act, launches.left = runner.cancel, at
        hints, report = run_wave(runner, prompt)
        if at < len(whole.steps):
            assert (report.outcome, len(report.steps)) == ("cancelled", at)
            assert HintKind.END not in {kind for kind, *_ in hints}
        assert num_held(runner) == 0
    launches.left = 0
    assert values(run_wave(runner, prompt)[0]) == HINTS


def test_a_wave_that_is_not_wanted_or_over_computes_nothing(trained: FusedBackend) -> None:
    runner = make(GraphWaveRunner, trained)
    prompt = runner.builder.build(MESSAGES, TOOLS)
    for settings, outcome in (
        ({"wants": lambda work: False}, "skipped"),
        ({"cancelled": lambda: True}, "cancelled"),
    ):
        hints, report = run_wave(runner, prompt, **settings)
        assert (hints, report.outcome, report.steps) == ([], outcome, [])
        assert num_held(runner) == 0


def test_few_pages_mean_fewer_lanes_and_the_same_hints(trained: FusedBackend) -> None:
    runner = make(GraphWaveRunner, trained)
    prompt = runner.builder.build(MESSAGES, TOOLS)
    num_prefix = -(-(len(prompt.prefix) + 64) // 64)
    held = runner.pool.allocate(runner.pool.num_free - num_prefix - 4)
    hints, _ = run_wave(runner, prompt)
    assert values(hints) == HINTS
    runner.pool.release(held)
    assert num_held(runner) == 0


def test_a_model_without_usable_logits_fails(wandering: FusedBackend) -> None:
    runner = make(GraphWaveRunner, wandering)
    prompt = runner.builder.build(MESSAGES, TOOLS)
    head = wandering.weights.head
    kept = head.clone()
    try:
        head.fill_(torch.nan)
        with pytest.raises(RuntimeError, match="no usable logits"):
            run_wave(runner, prompt)
    finally:
        head.copy_(kept)
    assert num_held(runner) == 0


def test_counts_out_of_range_are_refused(trained: FusedBackend) -> None:
    for settings in ({"num_rows": 0}, {"num_rows": 64}, {"max_value_tokens": 0}):
        with pytest.raises(ValueError, match="1 to 63 rows"):
            make(GraphWaveRunner, trained, **settings)


def test_what_does_not_fit_is_refused() -> None:
    chunk, rows = arrays(8, 1), arrays(8, 3)
    with pytest.raises(ValueError, match="num_lanes: expected 1 to 2, got 3"):
        core_wave(chunk, rows | {"fork_targets": torch.zeros(3, dtype=torch.int64).numpy()}, 3)
    with pytest.raises(ValueError, match="tokens: expected 8 numbers of 4 bytes"):
        core_wave(chunk, rows | {"tokens": torch.zeros(8, dtype=torch.int64).numpy()}, 2)
    wave = core_wave(chunk, rows, 2)
    good: dict[str, Any] = {
        "request_id": 1,
        "prefix": [1, 2],
        "num_cached": 0,
        "question": [3],
        "options": [(0, [4])],
        "slots": [_C.WaveSlot(0, 0, True, [5, 6], _C.ValueSchema("{}"))],
        "prefix_pages": [0, 1, 2],
        "lane_pages": [3],
        "pages_per_lane": 1,
    }
    for change, words in (
        ({"prefix": []}, "prefix: expected 1 to"),
        ({"num_cached": 2}, "num_cached: expected less than 2, got 2"),
        ({"question": []}, "question: expected 1 to 7 tokens, got 0"),
        ({"question": [1] * 8}, "question: expected 1 to 7 tokens, got 8"),
        ({"options": []}, "options: expected at least one"),
        ({"options": [(0, [])]}, "option: expected at least one token"),
        ({"lane_pages": []}, "lane_pages: expected pages for at least one lane"),
        ({"slots": [_C.WaveSlot(0, 0, True, [5, 6, 7], _C.ValueSchema("{}"))]}, "slot: expected"),
    ):
        with pytest.raises(ValueError, match=words):
            wave.run(_C.WaveRequest(**good | change), _C.HintRing())
    assert wave.run(_C.WaveRequest(**good), _C.HintRing()).num_invalid == 1
    with pytest.raises(ValueError, match="schema: expected a JSON object"):
        _C.ValueSchema("[]")


def arrays(num_rows: int, num_sequences: int) -> dict[str, Any]:
    int64s = {"mask": num_rows, "slots": num_rows, "fork_source": 1, "fork_targets": 2}
    int32s = {"tokens": num_rows, "positions": num_rows, "sequences": num_rows}
    int32s |= {
        "lengths": num_sequences,
        "choices": num_rows,
        "wanted": num_rows,
        "pair_rows": 4,
        "pair_tokens": 4,
    }
    found = {name: torch.zeros(size, dtype=torch.int64).numpy() for name, size in int64s.items()}
    found |= {name: torch.zeros(n, dtype=torch.int32).numpy() for name, n in int32s.items()}
    return (
        found
        | {"fork_count": torch.zeros(1, dtype=torch.int32).numpy()}
        | {"scores": torch.zeros(4).numpy()}
    )


def core_wave(chunk: dict[str, Any], rows: dict[str, Any], num_lanes: int) -> _C.Wave:
    return _C.Wave(
        vocab=_C.Vocab([b"a"] * 9),
        eos_ids=[8],
        max_value_tokens=2,
        num_lanes=num_lanes,
        likely_within=7.0,
        chunk=chunk,
        rows=rows,
        asks=[],
        spare_slot=0,
        page_size=6,
        launcher=lambda program: None,
    )
