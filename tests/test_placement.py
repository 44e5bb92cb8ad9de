# SPDX-License-Identifier: Apache-2.0
"""A sidecar in a thread or a process: hints arrive, nothing blocks, what goes wrong is a status."""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ooospec import HintKind, HintRing
from ooospec.backends.load import load_backend, wrap_with_adapter
from ooospec.config import EngineConfig
from ooospec.loading import load
from ooospec.sidecar import worker
from ooospec.sidecar.placement import ProcessSidecar, Sidecar, ThreadSidecar, open_sidecar
from ooospec.sidecar.policy import CostCurve, Target
from ooospec.sidecar.worker import SidecarConfig
from tiny_models import tiny_model, tiny_tokenizer
from tiny_sidecar import FUNCTION, HINTS, MESSAGES, TOOLS, trained_model

SECONDS = 60  # a test that waits longer has failed


@pytest.fixture(scope="module")
def model() -> Any:
    return trained_model()


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("sidecar")
    model.save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return str(path)


def config(source: Any, **settings: Any) -> SidecarConfig:
    tokenizer = None if isinstance(source, str) else tiny_tokenizer()
    return SidecarConfig(
        source,
        tokenizer=tokenizer,
        **({"examples": False, "wave": "always", "likely_within": math.inf} | settings),
    )


@pytest.fixture
def thread(model: Any) -> Iterator[ThreadSidecar]:
    sidecar = ThreadSidecar(config(model))
    yield sidecar
    sidecar.close()


def take(ring: HintRing) -> list[tuple[int, HintKind, int, int, str]]:
    found = []
    while (record := ring.try_pop()) is not None:
        found.append((record.request_id, record.kind, record.tool, record.parameter, record.text))
    return found


def check_hints(sidecar: Sidecar, request_id: int) -> None:
    """Asks, and expects every hint that the tiny sidecar has learnt, once."""
    sidecar.ask(request_id, MESSAGES, TOOLS)
    report = sidecar.wait_wave(request_id, SECONDS)
    assert report is not None, sidecar.status
    assert report.outcome == "done"
    hints = take(sidecar.ring)
    assert {request for request, *_ in hints} == {request_id}
    assert hints[0][1:3] == (HintKind.FUNCTION, FUNCTION)
    assert hints[-1][1] == HintKind.END
    assert {(tool, parameter): text for _, _, tool, parameter, text in hints[1:-1]} == HINTS
    assert len(hints) == len(HINTS) + 2


def check_error(
    sidecar: Sidecar, request_id: int, what: str, messages: list[dict[str, Any]] = MESSAGES
) -> None:
    """Asks, and expects one ERROR record that says `what`."""
    sidecar.ask(request_id, messages, TOOLS)
    report = sidecar.wait_wave(request_id, SECONDS)
    assert report is not None, sidecar.status
    assert what in report.outcome
    (record,) = take(sidecar.ring)
    assert record[:2] == (request_id, HintKind.ERROR)
    assert what in record[4]


def open_fds() -> set[str]:
    return {
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if fd.isdigit() and os.path.lexists(f"/proc/self/fd/{fd}")
    }


def wait_gone(pid_fd: int) -> bool:
    """Waits at most five seconds for the process behind `pid_fd` to be gone."""
    poll = select.poll()
    poll.register(pid_fd, select.POLLIN)
    gone = bool(poll.poll(5000))
    os.close(pid_fd)
    return gone


def test_a_thread_sends_every_hint_once(thread: ThreadSidecar) -> None:
    assert thread.wait_ready(0)
    assert thread.status.startswith("ready: Qwen2ForCausalLM")
    for request_id in (1, 2, 2**64 - 1):
        check_hints(thread, request_id)
    assert thread.reports[-1].num_cached_tokens > 0
    assert "last wave done" in thread.status


def test_close_twice_gives_the_model_back(model: Any) -> None:
    before = set(threading.enumerate())
    sidecar = open_sidecar(config(model))
    sidecar.close()
    sidecar.close()
    assert sidecar.status == "closed"
    sidecar.ask(1, MESSAGES, TOOLS)
    assert sidecar.wait_wave(1, 0) is None
    left = {one for one in threading.enumerate() if one.name == "ooospec-sidecar"}
    assert left <= before
    assert model.config._attn_implementation == "sdpa"


def test_wave_never_asks_nothing(model: Any) -> None:
    sidecar = open_sidecar(config(model, wave="never"))
    sidecar.ask(1, MESSAGES, TOOLS)
    sidecar.close()
    assert not sidecar.reports
    assert take(sidecar.ring) == []


class Gate:
    """Holds every forward pass of a model from the `first` on, until it is opened."""

    def __init__(self, model: Any, first: int = 0) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self._calls = 0
        self._first = first
        self._hook = model.register_forward_pre_hook(self._wait, with_kwargs=True)

    def _wait(self, module: Any, args: Any, kwargs: Any) -> None:
        self._calls += 1
        if self._calls > self._first:
            self.reached.set()
            assert self.opened.wait(SECONDS)

    def open(self) -> None:
        self.opened.set()
        self._hook.remove()


def check_answer(sidecar: Sidecar) -> str:
    """Expects an engine beside `sidecar` to answer as without one; returns the engine's status."""
    backend = load_backend(tiny_model("llama"), tokenizer=tiny_tokenizer())
    engine = load(backend, sidecar=sidecar, cost_model=False)
    expected = engine.generate(MESSAGES, TOOLS, method="ar", max_tokens=24)
    assert engine.generate(MESSAGES, TOOLS, method="ooo", max_tokens=24).text == expected.text
    assert engine.drafting is not None
    return engine.drafting.status


def test_i13_an_engine_does_not_wait_for_a_sidecar_that_hangs(
    thread: ThreadSidecar, model: Any
) -> None:
    gate = Gate(model)
    check_answer(thread)
    assert gate.reached.wait(SECONDS)  # its wave has begun, and has not got on
    assert not thread.reports
    gate.open()


def test_i13_a_sidecar_that_hangs_blocks_nobody(thread: ThreadSidecar, model: Any) -> None:
    gate = Gate(model, first=1)
    thread.ask(1, MESSAGES, TOOLS)
    assert gate.reached.wait(SECONDS)
    # The sidecar hangs in the middle of a wave; everything the engine calls returns.
    for request_id in range(2, 50):
        thread.ask(request_id, MESSAGES, TOOLS)
        thread.cancel(request_id)
    assert take(thread.ring) == []
    assert thread.status.startswith("ready")
    thread.cancel(1)
    gate.open()
    assert thread.wait_wave(49, SECONDS) is not None
    assert {report.outcome for report in thread.reports} == {"cancelled"}
    assert take(thread.ring) == []


def test_i14_hints_are_the_same_after_a_hundred_cancelled_waves(
    thread: ThreadSidecar, model: Any
) -> None:
    for request_id in range(100):
        gate = Gate(model, first=request_id % 5)
        thread.ask(request_id, MESSAGES, TOOLS)
        assert gate.reached.wait(SECONDS)
        thread.cancel(request_id)
        gate.open()
        report = thread.wait_wave(request_id, SECONDS)
        assert report is not None
        assert report.outcome == "cancelled"
    take(thread.ring)
    check_hints(thread, 1000)


def test_i11_no_memory_at_the_first_use(thread: ThreadSidecar, model: Any) -> None:
    def fail(module: Any, args: Any, kwargs: Any) -> None:
        raise MemoryError("no memory left")

    hook = model.register_forward_pre_hook(fail, with_kwargs=True)
    check_error(thread, 1, "MemoryError: no memory left")
    assert "last wave failed: MemoryError" in thread.status
    hook.remove()
    check_hints(thread, 2)


def test_i12_a_sidecar_that_keeps_failing_is_given_up(
    model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    thread = ThreadSidecar(config(model))

    def fail(module: Any, args: Any, kwargs: Any) -> None:
        raise RuntimeError("wrong shape")

    hook = model.register_forward_pre_hook(fail, with_kwargs=True)
    for request_id in range(worker.MAX_FAILURES):
        assert thread.status.startswith("ready")
        check_error(thread, request_id, "RuntimeError: wrong shape")
    check_error(thread, 99, "3 waves in a row failed")
    assert thread.status == "failed: 3 waves in a row failed: RuntimeError: wrong shape"
    assert "answers come without hints" in caplog.text
    hook.remove()
    thread.close()


@pytest.mark.parametrize("error", [MemoryError("no memory left"), RuntimeError("broken file")])
def test_i11_i15_a_sidecar_that_does_not_load_says_so(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load(*args: Any, **settings: Any) -> Any:
        raise error

    monkeypatch.setattr(worker, "load_backend", load)
    sidecar = open_sidecar(config("anything"))
    assert not sidecar.wait_ready(0)
    assert sidecar.status == f"failed: not loaded: {type(error).__name__}: {error}"
    assert "answers come without hints" in caplog.text
    check_error(sidecar, 1, f"not loaded: {type(error).__name__}")
    assert check_answer(sidecar) == sidecar.status
    sidecar.close()


def test_c02_a_request_that_does_not_fit_is_not_asked(caplog: pytest.LogCaptureFixture) -> None:
    sidecar = open_sidecar(config(tiny_model("qwen2", max_position_embeddings=128)))
    for request_id in range(worker.MAX_FAILURES + 1):
        check_error(sidecar, request_id, "PromptTooLong")
    assert sidecar.status.startswith("ready")
    sidecar.close()


def test_c02_the_end_of_a_long_dialogue_is_used(thread: ThreadSidecar) -> None:
    messages = [{"role": "user", "content": "lorem ipsum " * 2000}, *MESSAGES]
    thread.ask(1, messages, TOOLS)
    report = thread.wait_wave(1, SECONDS)
    assert report is not None
    assert report.outcome == "done"
    assert report.num_cut_tokens > 2000
    assert report.num_prompt_tokens < 1024


def test_c06_a_smaller_context_than_the_targets_is_logged_once(
    thread: ThreadSidecar, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            thread.set_target(Target(CostCurve((1,), (1.0,)), 64, 1024, 0.0))
            assert not caplog.records
        for _ in range(2):
            thread.set_target(Target(CostCurve((1,), (1.0,)), 64, 4096, 0.0))
    (record,) = caplog.records
    assert "above 1024 tokens (the target takes 4096)" in record.getMessage()


def test_a_device_that_is_not_there_is_a_status(model: Any) -> None:
    sidecar = ThreadSidecar(config(model, device="cuda:99"))
    assert not sidecar.wait_ready(30)
    assert sidecar.status.startswith("failed: not loaded")
    sidecar.ask(1, MESSAGES, TOOLS)
    report = sidecar.wait_wave(1, 30)
    assert report is not None
    assert report.outcome.startswith("failed")
    sidecar.close()


def test_a_request_of_the_wrong_shape_fails_alone(thread: ThreadSidecar) -> None:
    for request_id in range(worker.MAX_FAILURES + 1):
        check_error(thread, request_id, "KeyError: 'role'", [{"content": "Who says this?"}])
    check_hints(thread, 99)


def test_auto_starts_a_wave_where_it_pays(model: Any) -> None:
    sidecar = open_sidecar(config(model, wave="auto"))

    def outcome(request_id: int) -> str:
        sidecar.ask(request_id, MESSAGES, TOOLS)
        report = sidecar.wait_wave(request_id, SECONDS)
        assert report is not None
        return report.outcome

    assert outcome(1) == "skipped"
    assert "costs of the target are not known" in sidecar.status
    said = sidecar.ring.try_pop()  # so that nobody waits for it
    assert said is not None
    assert (said.request_id, said.kind) == (1, HintKind.ERROR)
    assert said.text == "costs of the target are not known"
    slow, fast = CostCurve((1, 64), (60e6, 60e6)), CostCurve((1, 64), (1.0, 1.0))
    sidecar.set_target(Target(slow, 64, 1024, shared=1.0))
    assert outcome(2) == "done"
    sidecar.set_target(Target(fast, 64, 1024, shared=1.0))
    assert outcome(3) == "skipped"
    assert "a wave takes" in sidecar.status
    sidecar.close()


def test_an_adapter_is_applied_and_one_of_another_base_is_refused(
    folder: str, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    bases = {"right": tiny_model("qwen2", num_hidden_layers=1), "wrong": tiny_model("qwen2")}
    for name, base in bases.items():
        wrap_with_adapter(base, lora).save_pretrained(tmp_path / name)
    sidecar = open_sidecar(config(folder, adapter=str(tmp_path / "right"), examples=None))
    assert sidecar.wait_ready(0), sidecar.status
    sidecar.close()
    sidecar = open_sidecar(config(folder, adapter=str(tmp_path / "wrong")))
    assert sidecar.status.startswith("failed: not loaded: AdapterMismatch: adapter: made for")
    sidecar.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"wave": "maybe"}, "wave: expected one of auto, always, wait, never, got 'maybe'"),
        ({"placement": "cloud"}, "placement: expected thread or process, got 'cloud'"),
        ({"num_rows": 0}, "num_rows: expected at least 1, got 0"),
        ({"num_threads": 2}, "num_threads: expected a process of its own"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SidecarConfig("anything", **settings)


def test_a_process_needs_a_name_to_load_from(model: Any) -> None:
    with pytest.raises(ValueError, match="expected a folder or hub id"):
        SidecarConfig(model, placement="process")


def test_a_process_that_is_killed_is_a_status_and_can_be_restarted(folder: str) -> None:
    fds = open_fds()
    sidecar = open_sidecar(config(folder, placement="process", num_threads=1))
    assert isinstance(sidecar, ProcessSidecar)
    assert sidecar.wait_ready(SECONDS), sidecar.status
    check_hints(sidecar, 1)
    # Killed in the middle of a wave: stopped first, so that the wave cannot end before.
    first_ring, pid = sidecar.ring, sidecar.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    sidecar.ask(2, MESSAGES, TOOLS)
    check_answer(sidecar)
    os.kill(pid, signal.SIGKILL)
    assert sidecar.wait_wave(2, SECONDS) is None
    assert sidecar.status == "dead: the process was killed by SIGKILL"
    assert check_answer(sidecar) == sidecar.status
    sidecar.ask(3, MESSAGES, TOOLS)
    sidecar.cancel(3)
    assert take(sidecar.ring) == []
    sidecar.restart()
    assert sidecar.ring is not first_ring
    assert sidecar.wait_ready(SECONDS), sidecar.status
    check_hints(sidecar, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # to fork beside threads
        fork = os.fork()
    if fork == 0:  # as atexit does in a fork that ends: the child is its parent's
        sidecar.close()
        os._exit(0)
    os.waitpid(fork, 0)
    check_hints(sidecar, 5)
    pid_fd = os.pidfd_open(sidecar.pid or 0)
    sidecar.close()
    assert wait_gone(pid_fd)
    assert sidecar.status == "closed"
    del first_ring, sidecar
    assert open_fds() <= fds


PARENT = """
import sys
from ooospec.sidecar.placement import ProcessSidecar
from ooospec.sidecar.worker import SidecarConfig
config = SidecarConfig(sys.argv[1], placement="process", wave="always")
ready = ProcessSidecar(config)
assert ready.wait_ready(), ready.status
loading = ProcessSidecar(config)
while loading.pid is None:
    pass
print(ready.pid, loading.pid, flush=True)
sys.stdin.read()
"""


def test_k14_a_process_dies_with_its_parent(folder: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert parent.stdout is not None
    ready, loading = map(int, parent.stdout.readline().split())
    pid_fds = [os.pidfd_open(pid) for pid in (ready, loading)]
    os.kill(ready, signal.SIGSTOP)  # it cannot notice anything itself: the kernel has to end it
    parent.kill()
    assert [wait_gone(pid_fd) for pid_fd in pid_fds] == [True, True]
    parent.communicate()


@pytest.mark.parametrize("placement", ["thread", "process"])
def test_a_load_that_fails_leaves_no_sidecar(folder: str, placement: Any) -> None:
    """Nobody would close it: neither a child nor a thread of it stays."""
    target = load_backend(tiny_model("qwen2"), tokenizer=tiny_tokenizer(), chunk=16)
    before = set(threading.enumerate())
    options: list[dict[str, Any]] = [
        {"draft_model": os.path.join(folder, "nowhere")},
        {"corpus": [3]},
        {"config": EngineConfig(cache_tokens=1 << 60)},
    ]
    for wrong in options:
        with pytest.raises((OSError, RuntimeError, TypeError)):
            load(target, sidecar=folder, placement=placement, cost_model=False, **wrong)
        assert set(threading.enumerate()) == before


def test_a_process_that_does_not_load_says_so_and_answers(tmp_path: Path) -> None:
    sidecar = open_sidecar(config(str(tmp_path / "nowhere"), placement="process"))
    check_error(sidecar, 1, "not loaded: ModelNotFound")
    assert sidecar.status.startswith("failed: not loaded: ModelNotFound")
    sidecar.close()
