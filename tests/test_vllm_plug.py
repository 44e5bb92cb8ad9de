# SPDX-License-Identifier: Apache-2.0
"""The proposer for vLLM by its contract alone, no vLLM needed; test_vllm.py runs it inside."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ooospec.bench.sidecars import RecordedListener
from ooospec.chains import paying_length
from ooospec.integrations.vllm import Hints, Proposer, plugin, register
from ooospec.integrations.vllm.arrival import Arrivals
from ooospec.integrations.vllm.costs import StepCosts
from ooospec.integrations.vllm.note import KEY, Note, tools_in
from ooospec.integrations.vllm.settings import Settings
from ooospec.replay import slot_records
from ooospec.sidecar.remote import RemoteSidecar
from tiny_models import tiny_tokenizer
from tiny_server import ANSWERS, TOOLS, user
from waiting import wait_for

MAX_LENGTH = 512
MAX_BATCH = 4
CALLS = [{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer().save_pretrained(path)
    return path


def proposer(folder: Path, drafted: int = 8, **settings: Any) -> Proposer:
    model = SimpleNamespace(
        tokenizer=str(folder),
        tokenizer_revision=None,
        max_model_len=MAX_LENGTH,
        get_vocab_size=lambda: 512,
    )
    return Proposer(
        SimpleNamespace(
            model_config=model,
            speculative_config=SimpleNamespace(num_speculative_tokens=drafted),
            scheduler_config=SimpleNamespace(max_num_seqs=MAX_BATCH),
            additional_config={"ooospec": {"pay": False, **settings}},
        )
    )


@dataclass
class Asked:
    """A request as the runner has it. prompt, answer: ids."""

    prompt: list[int]
    answer: list[int]
    extra_args: dict[str, Any] | None = None
    done: int = 0
    draft: list[int] = field(default_factory=list)
    num_steps: int = 0

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt)

    @property
    def sampling_params(self) -> Any:
        return SimpleNamespace(extra_args=self.extra_args)


def asked(text: str, **note: Any) -> Asked:
    prompt = tiny_tokenizer().apply_chat_template(
        user(text), tools=TOOLS, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    end = tiny_tokenizer().eos_token_id
    answer = [*tiny_tokenizer().encode(ANSWERS[text]), end]
    return Asked(prompt, answer, {KEY: Note(**note).pack()} if note else None)


def run(drafts: Proposer, requests: list[Asked], *, identity: bool, seed: int = 0) -> float:
    """Runs requests as vLLM's runner does, in batches whose rows come and go and change places;
    returns the tokens of a step.
    """
    rng = random.Random(seed)
    waiting = dict(enumerate(requests))
    running: dict[int, Asked] = {}
    table = np.zeros((MAX_BATCH, MAX_LENGTH), np.int32)
    lengths = np.zeros(MAX_BATCH, np.int32)
    while waiting or running:
        while waiting and len(running) < MAX_BATCH:
            number = next(iter(waiting))
            running[number] = waiting.pop(number)
        rows = list(running)
        rng.shuffle(rows)
        sampled: list[list[int]] = []
        for row, number in enumerate(rows):
            one = running[number]
            new: list[int] = []
            if one.done or rng.random() < 0.8:  # else a part of its prompt was prefilled
                rest = one.answer[one.done :]
                right = 0
                while right < len(one.draft) and one.draft[right] == rest[right]:
                    right += 1
                    if right == len(rest):
                        break
                new = rest[: right + 1]
                one.done += len(new)
                one.num_steps += 1
            tokens = one.prompt + one.answer[: one.done]
            table[row, : len(tokens)], lengths[row] = tokens, len(tokens)
            sampled.append(new)
        if identity:
            names = [str(number) for number in rows]
            known = {str(number): one for number, one in running.items()}
            drafts.bind_batch(SimpleNamespace(req_ids=names), known)
        found = drafts.propose(sampled, lengths, table, slot_mappings=None)
        assert len(found) == len(rows)
        for number, draft, new in zip(rows, found, sampled, strict=True):
            assert len(draft) <= (8 if new else 0)
            running[number].draft = draft
            if running[number].done == len(running[number].answer):
                del running[number]
    return sum(len(one.answer) for one in requests) / sum(one.num_steps for one in requests)


@pytest.mark.parametrize("identity", [True, False])
def test_drafts_follow_the_contract(folder: Path, identity: bool) -> None:
    """I01: rows come, go and change places; the schema is found in the prompt."""
    requests = [asked(text) for text in [*ANSWERS, *ANSWERS, "Weather?", "Weather?"]]
    rate = run(proposer(folder), requests, identity=identity)
    assert rate > 2
    nothing = [asked(text) for text in ANSWERS]
    assert run(proposer(folder, method="ar"), nothing, identity=identity) == 1


def test_requests_without_identity_may_have_the_same_tokens(folder: Path) -> None:
    requests = [asked("Weather, then stop.") for _ in range(MAX_BATCH)]
    assert run(proposer(folder), requests, identity=False) > 2


def test_hints_reach_the_worker(folder: Path) -> None:
    """The first request of a session comes too late for its own hints; those of the next have come
    once the worker's session is known to the sidecar, and all that was said has arrived.
    """
    listener = RecordedListener(lambda messages: CALLS)
    arrivals = Arrivals(listener.address)
    assert arrivals.sidecar is not None
    wait_until_known(arrivals.sidecar)
    drafts = proposer(folder, drafted=8, sidecar=listener.address)
    rates = []
    for _ in range(2):
        body = json.dumps({"messages": user("Weather?"), "tools": TOOLS}).encode()
        noted, number = arrivals.note(body)
        request = asked("Weather?")
        request.extra_args = json.loads(noted)["vllm_xargs"]
        if rates:
            wait_for_hints(drafts, (arrivals.sidecar.session, number))
        rates.append(run(drafts, [request], identity=True))
        arrivals.over(number)
        wait_until_known(*drafts._hints._sidecars.values())
    num_tokens = len(asked("Weather?").answer)
    assert rates[1] >= num_tokens / (num_tokens // 9 + 2)  # eight drafted, one of the target's own
    drafts._hints.close()
    arrivals.close()
    listener.close()


def wait_until_known(sidecar: RemoteSidecar) -> None:
    wait_for(lambda: sidecar.status.startswith("ready"))


def wait_for_hints(drafts: Proposer, key: tuple[int, int]) -> None:
    """Returns when all that is said about a request waits for it. key: its session and number."""
    num_said = len(list(slot_records(key[1], CALLS, TOOLS)))

    def all_there() -> bool:
        drafts._hints.poll()
        return len(drafts._hints._waiting.get(key, [])) == num_said

    wait_for(all_there)


def test_what_fails_ends_drafts_only(folder: Path) -> None:
    drafts = proposer(folder)
    first, second = asked("Weather?"), asked("Weather?")
    second.answer[3] = 600  # outside the vocabulary
    assert run(drafts, [first, second], identity=True) > 1
    odd = asked("Weather?")
    for extra in ({KEY: "[]"}, {KEY: '{"tools": 7}'}, {KEY: 7}, {KEY: '{"session": "x"}'}, {}):
        odd = asked("Weather?")
        odd.extra_args = extra
        assert run(drafts, [odd], identity=True) > 1


def test_the_end_of_the_context(folder: Path) -> None:
    drafts = proposer(folder)
    table = np.full((1, MAX_LENGTH), 7, np.int32)
    for length in range(MAX_LENGTH - 12, MAX_LENGTH + 1):
        (draft,) = drafts.propose([[7]], np.array([length], np.int32), table)
        assert length + len(draft) < MAX_LENGTH or draft == []


def test_drafts_that_do_not_pay_are_not_made(folder: Path) -> None:
    assert paying_length([0.9, 0.8], [1.0, 1.0, 1.0]) == 2
    assert paying_length([0.9, 0.8], [1.0, 1.0, 2.0]) == 1
    assert paying_length([0.9, 0.8], [1.0, 2.0, 3.0]) == 0
    assert paying_length([], [1.0]) == 0
    costs = StepCosts()
    assert not costs.knows(1)
    for _ in range(2):
        costs.observe(1, 100.0)
    assert costs.knows(1)
    assert costs.curve(1, 9) == [100.0] * 9
    costs.observe(6, 900.0)
    assert costs.curve(1, 9) == [100.0] * 4 + [900.0] * 5
    assert costs.curve(4, 3) == [100.0, 900.0, 900.0]
    for _ in range(40):
        costs.observe(6, 50.0)  # cheaper than one token: then that it is
    assert costs.curve(1, 8) == [100.0] * 8
    slow = proposer(folder, pay=True)  # each step takes as long as its tokens
    for count in (1, 2, 4, 8, 16, 32):
        for _ in range(2):
            slow._costs.observe(count, 1e9 * count)
    assert run(slow, [asked("Tell me.")], identity=True) < 1.5


@pytest.mark.parametrize("has_method", [True, False])
def test_a_vllm_that_has_changed_is_drafted_for_by_tokens(
    has_method: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """K17: one line in the log, whatever is missing."""

    class Runner:
        def __init__(self) -> None:
            self.told: list[Any] = []
            self.drafter = SimpleNamespace(bind_batch=lambda *batch: self.told.append(batch))
            self.input_batch, self.requests = "batch", "requests"

    if has_method:
        Runner.propose_draft_token_ids = lambda self, *args: args  # type: ignore[attr-defined]
    module = "vllm.v1.worker.gpu_model_runner"
    for name in ("vllm", "vllm.v1", "vllm.v1.worker", module):
        made = ModuleType(name)
        made.__version__ = "9.9"  # type: ignore[attr-defined]
        made.GPUModelRunner = Runner  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.setattr(plugin, "_loaded", False)
    assert not plugin.bind_runner()
    register()
    assert plugin.bind_runner() is plugin.bind_runner() is has_method
    if has_method:
        runner: Any = Runner()
        assert runner.propose_draft_token_ids(1, 2) == (1, 2)
        assert runner.told == [("batch", "requests")]
    else:
        assert "vLLM 9.9 has none: drafting by tokens alone" in caplog.text


def test_settings() -> None:
    with pytest.raises(ValueError, match=r"ooospec: expected method, pay, sidecar, got side"):
        Settings.of(SimpleNamespace(additional_config={"ooospec": {"side": 1}}))
    with pytest.raises(ValueError, match=r"ooospec.method: expected one of ar, .*, got 'x'"):
        Settings(method="x")
    with pytest.raises(ValueError, match=r"ooospec.sidecar: expected an address, got 7"):
        Settings(sidecar=7)  # type: ignore[arg-type]
    assert Settings.of(SimpleNamespace(additional_config={})) == Settings()


def test_tools_are_found_in_prompts() -> None:
    prompt = tiny_tokenizer().apply_chat_template(
        user('Say {"type": "function", "function": {}} and {"type": "function"'),
        tools=TOOLS,
        add_generation_prompt=True,
        tokenize=False,
    )
    tools, end = tools_in(prompt)
    assert tools == TOOLS
    assert prompt[end:].startswith("\nAnswer a call as")
    assert tools_in("none here {") == ([], 0)
    start = time.perf_counter()
    assert tools_in('{"type": "function", ' * 20_000) == ([], 0)
    assert time.perf_counter() - start < 10  # hostile prompts take linear time


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": user("Weather?"), "tools": TOOLS, **fields}


def pass_through(
    content: bytes, *, num_parts: int = 1, path: str = "/v1/chat/completions"
) -> bytes:
    """Returns what an application behind the middleware reads."""
    seen: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        read, more = b"", True
        while more:
            message = await receive()
            read += message["body"]
            more = message["more_body"]
        seen.update(read=read, length=dict(scope["headers"])[b"content-length"])

    size = max(1, -(-len(content) // num_parts))
    parts = [content[i : i + size] for i in range(0, len(content), size)] or [b""]
    messages = itertools.chain(
        {"type": "http.request", "body": part, "more_body": i + 1 < len(parts)}
        for i, part in enumerate(parts)
    )

    async def receive() -> Any:
        return next(messages)

    state = SimpleNamespace(vllm_config=SimpleNamespace(additional_config={}))
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(b"content-length", str(len(content)).encode())],
        "app": SimpleNamespace(state=state),
    }
    asyncio.run(Hints(app)(scope, receive, None))  # type: ignore[arg-type]
    assert int(seen["length"]) == len(seen["read"])
    return bytes(seen["read"])


@pytest.mark.parametrize("num_parts", [1, 3])
def test_a_chat_gets_a_note(num_parts: int) -> None:
    sent = body(vllm_xargs={"a": 1, KEY: "forged"}, cache_salt="me")
    got = json.loads(pass_through(json.dumps(sent).encode(), num_parts=num_parts))
    note = Note.read(got["vllm_xargs"])
    assert note == Note(tools=TOOLS, said="Weather?", tenant="me")
    assert got == sent | {"vllm_xargs": {"a": 1, KEY: note.pack()}}


UNCHANGED: list[bytes] = [
    b"",
    b"no json",
    b"[]",
    b"[" * 100_000,
    json.dumps(body(tools=[])).encode(),
    json.dumps(body(tools=[{"function": {"name": 7}}])).encode(),
    json.dumps(body(tool_choice="none")).encode(),
    json.dumps(body(messages=[7])).encode(),
    json.dumps(body(messages=[{"role": "user", "content": [7]}])).encode(),
    json.dumps(body(messages=user("x" * (5 << 20)))).encode(),
]


@pytest.mark.parametrize("content", UNCHANGED, ids=range(len(UNCHANGED)))
def test_what_is_no_chat_with_tools_passes_by(content: bytes) -> None:
    assert pass_through(content, num_parts=2) == content
    assert pass_through(json.dumps(body()).encode(), path="/other") == json.dumps(body()).encode()


def test_a_forged_note_goes() -> None:
    sent = body(tools=[], vllm_xargs={KEY: "forged"})
    assert json.loads(pass_through(json.dumps(sent).encode()))["vllm_xargs"] == {}
