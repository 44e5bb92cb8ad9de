# SPDX-License-Identifier: Apache-2.0
"""Rounds that wait for hints: for the whole wave, never for long, and never in another's way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ooospec
from ooospec import _C
from ooospec.backends.base import Backend
from ooospec.bench.ablations import ChangedSidecar, hints_first
from ooospec.bench.sidecars import RecordedSidecar
from ooospec.costs import RoundCosts
from ooospec.engine import Engine
from ooospec.errors import EngineClosed
from ooospec.hints import HintRouter, HintWait
from ooospec.run import Run
from ooospec.serve.limits import Limits
from ooospec.serve.metrics import Metrics
from ooospec.serve.scheduler import Job, Scheduler
from ooospec.sidecar.policy import EXPECTED_ROUNDS
from tiny_server import ANSWERS, TOOLS, make_engine, user

CALL = {"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}
LATE = 0.2  # seconds
LONG, SHORT = 2.0, 0.05  # seconds that an engine waits at most


class Silent(RecordedSidecar):
    """A sidecar that is ready and says nothing, until end() lets it give up."""

    def __init__(self, status: str = "ready") -> None:
        super().__init__(status=status)
        self.asked: list[int] = []

    def ask(self, request_id: int, *args: Any, **kwargs: Any) -> None:
        self.asked.append(request_id)

    def end(self) -> None:
        """Gives up all that it was asked."""
        for request_id in self.asked:
            assert self.ring.try_push(request_id, _C.HintKind.ERROR, 0, 0, 0, "no idea")


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    engine = make_engine()
    yield engine.backend
    engine.close()


def load(backend: Backend, sidecar: Any, seconds: float = LONG, wave: str = "wait") -> Engine:
    """Returns an engine that waits so long at most."""
    costs = RoundCosts([1e6 * seconds / EXPECTED_ROUNDS] * 7)
    return ooospec.load(backend, sidecar=sidecar, wave=wave, cost_model=costs)  # type: ignore[arg-type]


def begun(engine: Engine, text: str = "Weather?", method: str = "ooo") -> Run:
    """Returns a run of which only the rounds are left."""
    run = engine.run(engine.request(user(text), TOOLS), method)
    run.admit()
    run.begin()
    run.start()
    return run


def wait(run: Run) -> float:
    """Returns the seconds that a run waits for hints."""
    start = time.perf_counter()
    while run.awaits_hints():
        time.sleep(1e-4)
    return time.perf_counter() - start


def finish(engine: Engine, run: Run) -> str:
    while not run.is_over:
        engine.step([run])
    run.close()
    return run.generation().text


async def items_of(job: Job) -> list[Any]:
    return [item async for item in job.items()]


def test_the_first_round_has_the_whole_wave(backend: Backend) -> None:
    asked = user("Weather?"), TOOLS
    guessed = load(backend, None).generate(*asked)
    ready = load(backend, RecordedSidecar([CALL]), wave="always").generate(*asked)
    late = ChangedSidecar(RecordedSidecar([CALL]), delay=LATE)
    engine = load(backend, late)
    found = engine.generate(*asked)
    assert found.text == ready.text == guessed.text == ANSWERS["Weather?"]
    assert found.metrics.num_rounds == ready.metrics.num_rounds < guessed.metrics.num_rounds
    assert found.metrics.rounds[0].num_committed > 8  # of a tree with the hints in it
    late.close()


def test_without_end_the_wait_has_one(backend: Backend) -> None:
    for _ in range(2):  # each request waits for itself
        engine = load(backend, Silent(), SHORT)
        run = begun(engine)
        assert wait(run) >= SHORT
        assert not run.awaits_hints()
        assert finish(engine, run) == ANSWERS["Weather?"]


def test_a_sidecar_that_dies_ends_the_wait(backend: Backend) -> None:
    sidecar = Silent()
    engine = load(backend, sidecar, 600.0)
    run = begun(engine)
    assert run.awaits_hints()
    sidecar.status = "dead: killed"
    assert not run.awaits_hints()
    assert finish(engine, run) == ANSWERS["Weather?"]


def test_an_error_ends_the_wait(backend: Backend) -> None:
    sidecar = Silent()
    engine = load(backend, sidecar)
    run = begun(engine)
    assert run.awaits_hints()
    sidecar.end()
    assert wait(run) < LONG / 2
    assert finish(engine, run) == ANSWERS["Weather?"]


@pytest.mark.parametrize(
    ("status", "wave", "method"),
    [
        ("dead: killed", "wait", "ooo"),
        ("loading", "wait", "ooo"),
        ("ready", "always", "ooo"),
        ("ready", "auto", "ooo"),  # a sidecar that was given has its own ways
        ("ready", "never", "ooo"),
        ("ready", "wait", "toolspec"),
        ("ready", "wait", "ar"),
    ],
)
def test_nobody_waits_for_what_does_not_come(
    backend: Backend, status: str, wave: str, method: str
) -> None:
    sidecar = Silent(status)
    engine = load(backend, sidecar, wave=wave)
    run = begun(engine, method=method)
    assert not run.awaits_hints()
    assert bool(sidecar.asked) == (method == "ooo" and wave != "never")
    assert finish(engine, run) == ANSWERS["Weather?"]


def test_without_a_wave_an_answer_of_one_token_is_not_put_off(backend: Backend) -> None:
    engine = load(backend, Silent(), 60.0)
    start = time.perf_counter()
    assert len(engine.generate(user("Weather?"), TOOLS, max_tokens=1).token_ids) == 1
    assert len(engine.generate(user("Weather?"), []).token_ids) > 1  # no tools: nothing is asked
    assert time.perf_counter() - start < 30.0


def test_the_time_of_a_wait_begins_when_it_does() -> None:
    one = HintWait([], SHORT)
    time.sleep(2 * SHORT)
    assert not one.is_over()
    time.sleep(1.1 * SHORT)
    assert one.is_over()


def test_those_that_wait_hold_nobody_up(backend: Backend) -> None:
    """In a server one answer ends while another one still waits for its hints."""
    sidecar = Silent()
    engine = load(backend, sidecar, 600.0)
    scheduler = Scheduler(engine, Limits(), Metrics())

    async def ask() -> tuple[str, str]:
        waits = Job(engine.run(engine.request(user("Weather?"), TOOLS, max_tokens=80), "ooo"))
        other = Job(engine.run(engine.request(user("Tell me."), TOOLS, max_tokens=80), "toolspec"))
        for job in (waits, other):
            scheduler.submit(job)
        quick = (await asyncio.wait_for(items_of(other), 30))[-1].text
        assert not waits.run.is_over
        assert sidecar.asked == [waits.run.request.request_id]
        sidecar.end()
        return (await asyncio.wait_for(items_of(waits), 30))[-1].text, quick

    assert asyncio.run(ask()) == (ANSWERS["Weather?"], ANSWERS["Tell me."])
    scheduler.close()


def test_who_gives_up_waiting_leaves_the_server_usable(backend: Backend) -> None:
    sidecar = Silent()
    engine = load(backend, sidecar, 600.0)
    scheduler = Scheduler(engine, Limits(), Metrics())

    async def ask(method: str, leave: bool) -> str:
        job = Job(engine.run(engine.request(user("Weather?"), TOOLS), method))
        scheduler.submit(job)
        items = job.items()
        if leave:
            await anext(items)  # the first token
            scheduler.cancel(job)
            return ""
        return str([item async for item in items][-1].text)

    assert asyncio.run(ask("ooo", leave=True)) == ""
    assert asyncio.run(ask("toolspec", leave=False)) == ANSWERS["Weather?"]
    deadline = time.monotonic() + 30
    while scheduler.num_running:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    scheduler.close()
    engine.prefix_cache.clear()
    assert engine.pool.num_free == engine.pool.num_pages


def test_a_wait_that_fails_ends_its_own_request_only(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load(backend, Silent(), 600.0)
    scheduler = Scheduler(engine, Limits(), Metrics())
    working = Run.awaits_hints

    def fails(self: Run) -> bool:
        if self.request.messages[0]["content"] == "Weather?":  # type: ignore[index]
            raise ZeroDivisionError("planted")
        return working(self)

    monkeypatch.setattr(Run, "awaits_hints", fails)

    async def ask(text: str, method: str) -> str:
        job = Job(engine.run(engine.request(user(text), TOOLS, max_tokens=80), method))
        scheduler.submit(job)
        return str([item async for item in job.items()][-1].text)

    async def ask_both() -> list[Any]:
        asked = ask("Weather?", "ooo"), ask("Tell me.", "toolspec")
        return await asyncio.gather(*asked, return_exceptions=True)

    failed, told = asyncio.run(ask_both())
    assert isinstance(failed, ZeroDivisionError)
    assert told == ANSWERS["Tell me."]
    scheduler.close()
    engine.prefix_cache.clear()
    assert engine.pool.num_free == engine.pool.num_pages


def test_an_engine_that_is_closed_ends_a_wait() -> None:
    engine = load(make_engine().backend, Silent(), 600.0)
    steps = engine.stream(user("Weather?"), TOOLS)
    next(steps)  # the first token
    closing = threading.Timer(0.1, engine.close)
    closing.start()
    with pytest.raises(EngineClosed):
        next(steps)
    closing.join()


def test_nobody_looks_for_hints_without_the_lock(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hints that one request finds go to the drafters of others."""
    engine = load(backend, Silent(), SHORT)
    poll, polled = HintRouter.poll, []

    def watched(self: HintRouter) -> None:
        polled.append(engine.lock._is_owned())  # type: ignore[attr-defined]
        poll(self)

    monkeypatch.setattr(HintRouter, "poll", watched)
    engine.generate(user("Weather?"), TOOLS, max_tokens=4)
    assert len(polled) > 3
    assert all(polled)


@pytest.mark.parametrize("runs", [True, False])
def test_trials_learn_of_waves_that_ran(backend: Backend, runs: bool) -> None:
    """A sidecar may say at once that a wave does not pay: the answer had no hints, whatever way."""
    sidecar = RecordedSidecar([CALL]) if runs else Declines()
    costs = RoundCosts([1e6 * SHORT / EXPECTED_ROUNDS] * 7)
    engine = ooospec.load(backend, sidecar=sidecar, cost_model=costs)
    engine.drafting.wave = "auto"  # type: ignore[union-attr]
    for _ in range(3):
        assert finish(engine, begun(engine)) == ANSWERS["Weather?"]
    said = engine.drafting.status  # type: ignore[union-attr]
    assert all(way in said for way in ("always", "wait", "never")) == runs
    assert ("none yet" in said) != runs


class Declines(Silent):
    """A sidecar that gives each request up as it is asked."""

    def ask(self, request_id: int, *args: Any, **kwargs: Any) -> None:
        assert self.ring.try_push(request_id, _C.HintKind.ERROR, 0, 0, 0, "does not pay")


def test_a_prefill_that_waits_for_hints_says_that_none_came(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wave that began and did not end is none that was waited for."""
    monkeypatch.setattr("ooospec.bench.ablations.WAVE_SECONDS", SHORT)
    sidecar = Silent()
    engine = load(backend, sidecar, wave="always")
    request = engine.request(user("Weather?"), TOOLS)
    function = _C.HintKind.FUNCTION
    assert sidecar.ring.try_push(request.request_id, function, 0, 0, 0, "get_weather")
    with pytest.raises(TimeoutError, match="expected the end of a wave within"):
        hints_first(engine.methods["ooo"])(request)
    assert not engine.drafting.router._live  # type: ignore[union-attr]
