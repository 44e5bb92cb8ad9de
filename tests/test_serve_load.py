# SPDX-License-Identifier: Apache-2.0
"""Many clients at once: every answer is that of `ar` alone, and nothing stays behind.

OOOSPEC_LOAD_REQUESTS: of all clients (64 unless set; 500 is the long run).
"""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import re
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ooospec.bench.faults import BadRelay, Restarts, free_port, resident_bytes
from ooospec.bench.sidecars import RecordedListener
from ooospec.config import EngineConfig
from ooospec.engine import Engine, Run
from ooospec.serve.limits import Limits
from ooospec.serve.metrics import Metrics
from ooospec.serve.scheduler import Job, Scheduler
from tiny_server import ANSWERS, OPENINGS, TOOLS, Serving, joined, make_engine, plain, serving, user

NUM_CLIENTS = 8
NUM_ASKED = int(os.environ.get("OOOSPEC_LOAD_REQUESTS", "64")) // NUM_CLIENTS  # by each
CONFIG = EngineConfig(cache_tokens=8192)
Case = tuple[str, tuple[tuple[str, Any], ...]]


def cases() -> list[Case]:
    """Returns what may be asked: greedy and sampled, cut and whole, calls and prose."""
    sampled = [
        (text, (("temperature", 1.2), ("seed", seed), ("max_tokens", 40)))
        for text in ANSWERS
        for seed in (1, 2)
    ]
    greedy: list[Case] = [(text, (("max_tokens", 90),)) for text in ANSWERS]
    long: Case = ("Tell me.", (("max_tokens", 120), ("ignore_eos", True)))
    return [*sampled, *greedy, long]


def expected_answers() -> dict[Case, Any]:
    """Returns what an engine that runs `ar` writes, one request after the other."""
    engine = make_engine(CONFIG)
    found: dict[Case, Any] = {}
    with serving(engine, method="ar") as alone:
        for case in cases():
            found[case] = ask(alone, case, stream=False)
    return found


def ask(served: Serving, case: Case, *, stream: bool, leave_after: int | None = None) -> Any:
    """Returns what a client sees; None for one that leaves in the middle."""
    text, fields = case
    extra = {name: value for name, value in fields if name == "ignore_eos"}
    plainly = {name: value for name, value in fields if name != "ignore_eos"}
    answer = served.ask(text, stream=stream, extra_body=extra, **plainly)
    if leave_after is not None:
        for _, _chunk in zip(range(leave_after), answer, strict=False):
            pass
        answer.close()
        return None
    if not stream:
        choice = answer.choices[0]
        return plain(choice.message), choice.finish_reason
    message, reason, _ = joined(answer)
    return plain(message), reason


def said(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns what the sidecar says: the truth, half of it, or something else; calls to prose."""
    text = messages[-1]["content"]
    days = len(text) % 3 + 2  # 3 is right
    weather = {"name": "get_weather", "arguments": {"city": "Zürich", "days": days}}
    return [weather, {"name": "stop", "arguments": {}}]


def test_answers_under_load_are_those_of_ar_alone() -> None:
    """I01, I04, I13, I16, I19, F05, G45: 8 clients, half of them leave now and then in the middle;
    the sidecar is killed and started again all the time, its connections cut, its hints damaged.
    """
    expected = expected_answers()
    port = free_port()
    relay = BadRelay(port, damage=0.1)
    sidecars = Restarts(lambda: RecordedListener(said, f"tcp://127.0.0.1:{port}"), seconds=2.0)
    engine = make_engine(CONFIG, sidecar=relay.address, wave="always")
    wrong: list[Any] = []
    num_compared = 0
    resident: list[int] = []  # when each client has had half of its answers
    with serving(engine) as served:

        def client(number: int) -> None:
            nonlocal num_compared
            rng = random.Random(number)
            for i in range(NUM_ASKED):
                case = rng.choice(list(expected))
                if i == NUM_ASKED // 2:
                    resident.append(resident_bytes())
                leave = rng.randrange(6) if number % 2 and i % 3 == 0 else None
                stream = leave is not None or rng.random() < 0.5
                if rng.random() < 0.05:
                    relay.cut()
                try:
                    got = ask(served, case, stream=stream, leave_after=leave)
                except Exception as error:
                    wrong.append((case, error))
                    continue
                if leave is None:
                    num_compared += 1
                    if got != expected[case]:
                        wrong.append((case, got, expected[case]))

        threads = [threading.Thread(target=client, args=(i,)) for i in range(NUM_CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        served.wait_until_idle()
        page = served.http.get("/metrics").text
    sidecars.close()
    relay.close()
    engine.close()
    grown = (resident_bytes() - max(resident)) / 1e6
    assert not wrong, wrong[:3]
    assert num_compared > NUM_CLIENTS * NUM_ASKED // 2
    rounds, sequences, tokens, answers = (
        sum(map(float, re.findall(rf"^ooospec_{name}_total\S* (\S+)$", page, re.M)))
        for name in ("rounds", "round_sequences", "tokens", "responses")
    )
    print(
        f"{answers:.0f} answers, {num_compared} compared, {sequences / rounds:.1f} sequences a "
        f"round, {(tokens - answers) / sequences:.1f} tokens a sequence and round, "
        f"{sidecars.num_started} sidecars, {relay.num_cut} connections cut, {relay.num_damaged} "
        f"pieces damaged, memory {grown:+.0f} MB in the second half"
    )
    assert sequences / rounds >= 4
    assert (tokens - answers) / sequences >= 3
    assert grown < 64
    engine.prefix_cache.clear()
    assert engine.pool.num_free == engine.pool.num_pages


def started(engine: Engine, texts: list[str], **sampling: Any) -> list[Run]:
    runs = []
    for text in texts:
        run = engine.run(engine.request(user(text), TOOLS, **sampling))
        run.admit()
        run.begin()
        while not run.start_on():
            pass
        runs.append(run)
    return runs


@pytest.mark.parametrize(("num_runs", "shadow"), [(2, False), (5, False), (8, False), (3, True)])
def test_rounds_that_are_shared_give_the_ids_of_ar(num_runs: int, shadow: bool) -> None:
    engine = make_engine(EngineConfig(cache_tokens=8192, shadow=shadow))
    texts = [list(ANSWERS)[i % len(ANSWERS)] for i in range(num_runs)]
    sampling = {"max_tokens": 20 if shadow else 90}
    expected = [
        engine.generate(user(text), TOOLS, method="ar", **sampling).token_ids for text in texts
    ]
    runs = started(engine, texts, **sampling)
    num_rounds = 0
    while going := [run for run in runs if not run.is_over]:
        engine.step(going)
        assert [run.error for run in going] == [None] * len(going)
        num_rounds += 1
    assert [run.generation().token_ids for run in runs] == expected
    assert num_rounds < 0.75 * max(map(len, expected))
    for run in runs:
        run.close()
        run.close()
    engine.prefix_cache.clear()
    assert engine.pool.num_free == engine.pool.num_pages


def test_the_bench_counts_tokens_and_not_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """B13: as many with a token a round as with several."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "bench")
    bench = importlib.import_module("bench_serve")
    engine = make_engine(CONFIG)
    rows = [{"messages": user(text), "tools": TOOLS} for text in ANSWERS]
    alone = [engine.generate(row["messages"], TOOLS, method="ar", max_tokens=90) for row in rows]
    num_rounds = {}
    for method in ("ar", "toolspec"):
        with bench.serving(engine, method) as url:
            _, seconds, num_tokens, _ = bench.run_clients(url, rows, 1, 90)
            page = httpx2.get(url.replace("/v1", "/metrics")).text
        assert len(seconds) == len(rows)
        assert num_tokens == sum(len(answer.token_ids) for answer in alone)
        (rounds,) = re.findall(r"^ooospec_rounds_total (\S+)$", page, re.M)
        num_rounds[method] = float(rounds)
    assert num_rounds["toolspec"] < num_rounds["ar"] / 2


def test_a_forced_call_is_drafted_on_from_its_opening() -> None:
    engine = make_engine(CONFIG)
    opening, rest = next(iter(OPENINGS.items()))
    request = engine.request(user("Weather?"), TOOLS, opening=opening)
    found = []
    for method in ("ar", "toolspec"):
        run = engine.run(request, method)
        run.admit()
        run.begin()
        run.start()
        while not run.is_over:
            engine.step([run])
        found.append(run.generation())
        run.close()
    assert found[0].text == found[1].text == rest
    assert found[1].token_ids == found[0].token_ids
    assert [call["function"]["name"] for call in found[1].tool_calls] == ["get_weather"]
    assert found[1].metrics.num_rounds < found[0].metrics.num_rounds / 3


def test_requests_that_come_together_share_all_their_rounds() -> None:
    """Each has its prompt prefilled a chunk a cycle, so that none waits for the others' rounds."""
    engine, metrics = make_engine(CONFIG), Metrics()
    scheduler = Scheduler(engine, Limits(), metrics)

    async def ask_together() -> list[Any]:
        request = engine.request(user("Tell me."), TOOLS, max_tokens=40)
        jobs = [Job(engine.run(request, "ar")) for _ in range(NUM_CLIENTS)]
        with scheduler._changed:
            for job in jobs:
                scheduler.submit(job)
        return [[item async for item in job.items()][-1].text for job in jobs]

    assert asyncio.run(ask_together()) == [ANSWERS["Tell me."]] * NUM_CLIENTS
    scheduler.close()
    counted = metrics.registry.get_sample_value
    num_rounds = counted("ooospec_rounds_total")
    assert num_rounds
    assert counted("ooospec_round_sequences_total") == NUM_CLIENTS * num_rounds


class Breaks:
    """A source of drafts that fails in the third round of one request."""

    def begin(self, request: Any) -> None:
        self._left = 3 if "stop" in request.messages[-1]["content"] else 10**9

    def propose(self, state: Any, budget: int) -> list[Any]:
        self._left -= 1
        if self._left == 0:
            raise ZeroDivisionError("planted")
        return []

    def commit(self, tokens: Any) -> None:
        pass


def test_a_drafter_that_fails_ends_its_own_request_only() -> None:
    engine = make_engine(CONFIG, sources=[Breaks])
    texts = ["Weather?", "Weather, then stop."]
    runs = started(engine, texts)
    while going := [run for run in runs if not run.is_over and run.error is None]:
        engine.step(going)
    assert isinstance(runs[1].error, ZeroDivisionError)
    assert runs[0].generation().text == ANSWERS["Weather?"]
