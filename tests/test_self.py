# SPDX-License-Identifier: Apache-2.0
"""Slot branches of the target itself: answers stay exact, values are its own, pages come back."""

from __future__ import annotations

import functools
import itertools
import json
import logging
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import ooospec
from ooospec import _C, ops, self_branches
from ooospec.backends.fused import FusedBackend
from ooospec.backends.load import load_backend
from ooospec.bench.sidecars import RecordedSidecar, plain_calls
from ooospec.config import EngineConfig
from ooospec.costs import RoundCosts
from ooospec.draft import Drafter
from ooospec.engine import Engine, Generation
from ooospec.methods import METHODS
from ooospec.replay import slot_records
from ooospec.run import Request
from ooospec.sampling import SamplingParams
from ooospec.self_branches import SelfBranches
from tiny_caller import PROMPT, TOOLS, caller_text
from tiny_models import FAMILIES, tiny_model, tiny_tokenizer
from tiny_sidecar import MESSAGES
from tiny_taught import taught_model

CHUNK = 32
NUMBERS = itertools.count(1)
OPENING = '<tool_call>\n{"name": "get_weather", "arguments": {"near": ["'
CALLS = [
    ("get_weather", {"unit": "kelvin", "days": 12, "city": "Zürich", "near": ["Paris", "Rome"]}),
    ("set_alarm", {"time": "06:30", "label": "in the sun until evening comes, and then naps"}),
]
HINTED = [{"name": name, "arguments": arguments} for name, arguments in CALLS]


@pytest.fixture(autouse=True)
def references() -> Iterator[None]:
    """On a CPU the references stand for the kernels, which have tests of their own."""
    with ops.using("reference") if not torch.cuda.is_available() else nullcontext():
        yield


def answer_text() -> str:
    calls = [(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in CALLS]
    return _C.render_calls(calls, _C.CallStyle("tags"))


def branch_of(tokens: list[int], call: int, parameter: int, method: str = "self") -> Any:
    """Returns a branch of the first tokens of an answer behind the head of `call`."""
    drafter = Drafter(caller_text(), TOOLS, METHODS[method], PROMPT)
    for token in tokens:
        drafter.commit([token])
        if drafter.core.head is not None and drafter.core.head[0] == call:
            return drafter.core.branch(parameter)
    raise AssertionError("no such call")


@functools.cache
def writer() -> Any:
    """Returns a target that writes two calls, and each of their values when it is asked alone."""
    text, end = caller_text(), caller_text().end_token
    answer = text.encode(answer_text())
    taught = [(PROMPT, [*answer, end])]
    for call, (name, arguments) in enumerate(CALLS):
        head = answer_text()[: answer_text().index("{", answer_text().index(name)) + 1]
        for key, value in arguments.items():
            branch = branch_of(answer, call, names(name).index(key))
            alone = f'{head}"{key}": {json.dumps(value, ensure_ascii=False)}, "'
            before = [*answer[: branch.num_tokens], *branch.fed]
            begun = b"".join(text.vocab.bytes(token) for token in before).decode()
            assert alone.startswith(begun)
            assert begun.endswith(f'"{key}":')
            taught.append(([*PROMPT, *before], text.encode(alone[len(begun) :])))
    return taught_model(taught)


def names(tool: str) -> list[str]:
    """Returns the parameters of a tool."""
    known = {one["function"]["name"]: one["function"] for one in TOOLS}
    return list(known[tool]["parameters"]["properties"])


def load(backend: Any, **options: Any) -> Engine:
    shadow = options.pop("shadow", True)
    return ooospec.load(backend, cost_model=False, config=EngineConfig(shadow=shadow), **options)


def request_of(opening: str = "", **sampling: Any) -> Request:
    """Returns a request of few tokens, whose answer is made to begin with `opening`."""
    begun = caller_text().encode(opening)
    params = SamplingParams(**sampling).seeded()
    return Request(
        next(NUMBERS), [*PROMPT, *begun], params, MESSAGES, TOOLS, "", opening, len(begun)
    )


def run(
    engine: Engine, method: str, opening: str = "", **sampling: Any
) -> tuple[Generation, SelfBranches | None]:
    """Runs a request; returns its branches too."""
    one = engine.run(request_of(opening, **sampling), method)
    branches: SelfBranches | None = None
    for item in engine._rounds(one):
        branches = getattr(one._drafter, "self_branches", branches)
        found = item
    assert isinstance(found, Generation)
    return found, branches


def drafted(branch: Any) -> str:
    """Returns what a branch drafts, all paths one behind the other."""
    tokens = branch.propose(64).tokens.tolist()
    return b"".join(caller_text().vocab.bytes(token) for token in tokens).decode(errors="replace")


def all_pages_are_free(engine: Engine) -> bool:
    engine.prefix_cache.clear()
    return engine.pool.num_free == engine.pool.num_pages


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_of_random_models_stay_exact(family: str) -> None:
    """Inside a list that was begun for it a random model writes what no schema knows, and so it
    does in branches.
    """
    backend: Any = load_backend(tiny_model(family), tokenizer=tiny_tokenizer(), chunk=CHUNK)
    check_exactness(load(backend), family, max_tokens=16)


@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
def test_answers_of_the_fused_backend_stay_exact(family: str) -> None:
    engine = load(FusedBackend(tiny_model(family), tiny_tokenizer(), chunk=64), shadow=False)
    check_exactness(engine, family, max_tokens=5)


def check_exactness(engine: Engine, family: str, max_tokens: int) -> None:
    num_opened = 0
    sampled = [{"temperature": 0.8, "seed": seed} for seed in range(2)]
    for settings in ({}, {"temperature": 1.5, "top_k": 9, "seed": 1}, *sampled):
        how = {"opening": OPENING, "max_tokens": max_tokens, "ignore_eos": True, **settings}
        plain, _ = run(engine, "ar", **how)
        found, branches = run(engine, "self", **how)
        assert found.token_ids == plain.token_ids
        assert branches is not None
        num_opened += branches.ride.num_opened
    assert num_opened >= 3
    assert all_pages_are_free(engine)


@pytest.fixture(scope="module")
def engine() -> Engine:
    backend = load_backend(writer(), tokenizer=tiny_tokenizer(), chunk=CHUNK)
    return load(backend, shadow=False)


def test_values_are_those_that_the_target_writes_in_sequence(engine: Engine) -> None:
    """Two calls, the parameters of each asked alone: its values are there before it writes them."""
    plain, _ = run(engine, "ar", max_tokens=200)
    assert plain.text == answer_text()
    guessed, _ = run(engine, "toolspec", max_tokens=200)
    found, branches = run(engine, "self", max_tokens=200)
    assert found.token_ids == guessed.token_ids == plain.token_ids
    assert branches is not None
    for call, tool, parameter, value in branches.ride.values:
        name, arguments = CALLS[call]
        assert TOOLS[tool]["function"]["name"] == name
        key = names(name)[parameter]
        assert key not in arguments or json.loads(value) == arguments[key]
    assert len(branches.ride.values) >= 5
    assert found.metrics.num_rounds < guessed.metrics.num_rounds
    assert all_pages_are_free(engine)


def test_a_hint_that_is_there_drafts_the_branch() -> None:
    """Before the branch begins, and while it runs."""
    answer = caller_text().encode(answer_text())
    for early in (True, False):
        drafter = Drafter(caller_text(), TOOLS, METHODS["ooo+self"], PROMPT)
        records = [one for one in slot_records(1, HINTED, TOOLS) if one.kind == _C.HintKind.VALUE]
        for record in records if early else ():
            assert drafter.offer_hint(record)
        while drafter.core.head is None:
            drafter.commit([answer[len(drafter.answer)]])
        branch = drafter.core.branch(2)
        assert branch is not None
        drafter.branches.append(branch)
        assert early or "Zürich" not in drafted(branch)
        for record in records if not early else ():
            assert drafter.offer_hint(record)
        assert "Zürich" in drafted(branch)


def test_a_sidecar_and_branches_go_together(engine: Engine) -> None:
    sidecar = RecordedSidecar()
    hinted = load(engine.backend, sidecar=sidecar, wave="always", shadow=False)
    plain, _ = run(engine, "ar", max_tokens=200)
    sidecar.calls = plain_calls(plain)
    found, branches = run(hinted, "ooo+self", max_tokens=200)
    assert found.token_ids == plain.token_ids
    assert branches is not None
    assert branches.ride.num_opened > 0
    guessed, _ = run(engine, "toolspec", max_tokens=200)
    assert found.metrics.num_rounds < guessed.metrics.num_rounds
    assert all_pages_are_free(hinted)


@pytest.mark.parametrize("broken", ["_open", "_plan", "_follow"])
def test_a_branch_that_fails_harms_nothing(
    engine: Engine, broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain, _ = run(engine, "ar", max_tokens=80)
    calls = itertools.count()
    working = getattr(SelfBranches, broken)

    def fails(self: SelfBranches, *args: Any) -> Any:
        if next(calls) == 1:
            raise ValueError("planted")
        return working(self, *args)

    monkeypatch.setattr(SelfBranches, broken, fails)
    monkeypatch.setattr(logging.getLogger("ooospec"), "propagate", True)
    with caplog.at_level(logging.ERROR, logger="ooospec"):
        found, _ = run(engine, "self", max_tokens=80)
    assert found.token_ids == plain.token_ids
    assert "planted" in caplog.text
    assert all_pages_are_free(engine)


def test_where_pages_are_short_there_are_no_branches(engine: Engine) -> None:
    plain, _ = run(engine, "ar", max_tokens=60)
    small = EngineConfig(cache_tokens=len(PROMPT) + 60)
    tight = ooospec.load(engine.backend, cost_model=False, config=small)
    found, branches = run(tight, "self", max_tokens=60)
    assert found.token_ids == plain.token_ids
    assert branches is not None
    assert branches.ride.num_opened == 0
    assert all_pages_are_free(tight)


def test_where_rows_cost_much_there_are_no_branches(engine: Engine) -> None:
    """As on a CPU: the time of a round grows with its rows."""
    steep = RoundCosts([100.0 * 1.8**size for size in range(7)])
    priced = ooospec.load(engine.backend, cost_model=steep, config=EngineConfig())
    plain, _ = run(engine, "ar", max_tokens=60)
    found, branches = run(priced, "self", max_tokens=60)
    assert found.token_ids == plain.token_ids
    assert branches is not None
    assert branches.ride.num_rows == 0


def test_requests_share_rounds_with_their_branches(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_branches, "OWN_GAIN", 8.0)  # they ride, whatever that displaces
    plain, _ = run(engine, "ar", max_tokens=80)
    runs = [engine.run(request_of(max_tokens=80), name) for name in ("self", "self")]
    for one in runs:
        one.admit()
        one.begin()
        one.start()
    num_rows = 0
    while live := [one for one in runs if not one.is_over]:
        engine.step(live)
        num_rows += sum(one.loop.metrics.rounds[-1].num_branch_rows for one in live)
    for one in runs:
        assert one.error is None
        assert one.generation().token_ids == plain.token_ids
        one.close()
    assert num_rows > 0
    assert all_pages_are_free(engine)


@pytest.mark.parametrize("num_rounds", [1, 2, 4])
def test_a_request_that_is_given_up_leaves_no_page_behind(engine: Engine, num_rounds: int) -> None:
    rounds = engine._rounds(engine.run(request_of(max_tokens=80), "self"))
    for _ in range(num_rounds):
        next(rounds)
    assert engine.pool.num_free < engine.pool.num_pages
    rounds.close()
    assert all_pages_are_free(engine)


def test_many_requests_end_as_they_should_and_leave_no_page_behind(engine: Engine) -> None:
    """Stop strings, short answers and sampling, one after the other."""
    fast = ooospec.load(engine.backend, cost_model=False, config=EngineConfig())
    stops: list[dict[str, Any]] = [
        {"stop": ("Paris",)},
        {"max_tokens": 23},
        {"min_tokens": 90},
        {"temperature": 1.2, "seed": 5},
    ]
    for i in range(8):
        settings = {"max_tokens": 110, **stops[i % len(stops)]}
        plain, _ = run(fast, "ar", **settings)
        found, _ = run(fast, "self", **settings)
        assert found.token_ids == plain.token_ids
        assert (found.text, found.finish_reason) == (plain.text, plain.finish_reason)
    assert all_pages_are_free(fast)
