# SPDX-License-Identifier: Apache-2.0
"""A sidecar elsewhere: hints arrive; whatever else happens to messages costs nothing but hints."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from ooospec import HintKind, HintRecord
from ooospec.backends.load import load_backend
from ooospec.cli.main import run
from ooospec.errors import InvalidRequest
from ooospec.loading import load
from ooospec.sidecar import remote, wire
from ooospec.sidecar.listen import MAX_LIVE_OF_ONE, Listener
from ooospec.sidecar.remote import RemoteSidecar
from ooospec.sidecar.sockets import bind, is_address
from ooospec.sidecar.wire import Kind, Message
from ooospec.sidecar.worker import SidecarConfig
from test_placement import check_hints, take
from tiny_models import tiny_model, tiny_tokenizer
from tiny_sidecar import HINTS, MESSAGES, TOOLS, trained_model
from waiting import wait_for

SECONDS = 60
VALUE = HintKind.VALUE
u16 = st.integers(0, (1 << 16) - 1)
u64 = st.integers(0, (1 << 64) - 1)
hints = st.builds(
    HintRecord,
    u64,
    st.sampled_from(list(HintKind.__members__.values())),
    u16,
    u16,
    u16,
    st.text(max_size=40),
)


@pytest.fixture(scope="module")
def model() -> Any:
    return trained_model()


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/sidecar"


@contextmanager
def listening(model: Any, address: str) -> Iterator[Listener]:
    config = SidecarConfig(
        model, tokenizer=tiny_tokenizer(), examples=False, wave="always", likely_within=math.inf
    )
    listener = Listener(config, bind(address))
    thread = threading.Thread(target=listener.run)
    thread.start()
    try:
        yield listener
    finally:
        listener.close()
        thread.join()


@contextmanager
def connected(address: str) -> Iterator[RemoteSidecar]:
    sidecar = RemoteSidecar(SidecarConfig(address, wave="always"))
    try:
        yield sidecar
    finally:
        sidecar.close()
        sidecar.close()


# --- the format ---------------------------------------------------------------------------------


@given(st.sampled_from(list(Kind)), u64, u64, st.binary(max_size=200))
def test_messages_come_back(kind: Kind, session: int, request: int, body: bytes) -> None:
    message = Message(kind, session, request, body[: wire.MAX_BODY_BYTES[kind]])
    assert wire.parse(wire.pack(message)) == message


def test_a_sidecar_that_does_not_load_ends_and_says_why(tmp_path: Path, place: str) -> None:
    listener = Listener(SidecarConfig(str(tmp_path / "none"), wave="always"), bind(place))
    thread = threading.Thread(target=listener.run, daemon=True)
    thread.start()
    thread.join(SECONDS)  # it returns by itself
    assert not thread.is_alive()
    assert listener.failure.startswith("failed: not loaded: ModelNotFound: model: expected")


@given(st.sampled_from(list(Kind)), st.binary(max_size=40), st.data())
def test_damaged_messages_are_none(kind: Kind, body: bytes, data: st.DataObject) -> None:
    frame = wire.pack(Message(kind, 1, 2, body[: wire.MAX_BODY_BYTES[kind]]))
    at = data.draw(st.integers(0, 8 * len(frame) - 1))
    damaged = bytearray(frame)
    damaged[at // 8] ^= 1 << at % 8
    assert wire.parse(bytes(damaged)) is None
    assert wire.parse(frame[: at // 8]) is None
    assert wire.parse(frame + b"\0") is None


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(junk: bytes) -> None:
    wire.parse(junk)
    for read in (wire.read_ask, wire.read_state, wire.read_hint):
        read(junk)


@given(hints)
def test_hints_come_back(record: HintRecord) -> None:
    hint = wire.read_hint(wire.hint_body(record))
    assert hint == (record.kind, record.call, record.tool, record.parameter, record.text)


def test_bodies_are_bounded() -> None:
    with pytest.raises(ValueError, match="HELLO: expected at most 0 bytes, got 1"):
        wire.pack(Message(Kind.HELLO, 1, 0, b"x"))
    assert wire.read_state(wire.state_body("ü" * 999, 7)) == ("ü" * 512, 7)
    assert len(wire.done_body("x" * 999)) == 512
    assert wire.read_ask(b"[" * 100_000) is None
    assert wire.read_ask(b'{"messages": [], "tools": {}, "tenant": ""}') is None
    assert wire.HEADER_BYTES == 32


# --- the two ends -------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["ipc", "tcp"])
def test_hints_arrive_and_a_sidecar_may_come_back(model: Any, place: str, scheme: str) -> None:
    address = place if scheme == "ipc" else "tcp://127.0.0.1:*"
    with listening(model, address) as listener:
        address = listener.address
        with connected(address) as one, connected(address) as other:
            assert one.wait_ready(SECONDS)
            assert other.wait_ready(SECONDS)
            assert one.status.startswith("ready: Qwen2ForCausalLM")
            check_hints(one, 1)
            check_hints(other, 1)  # the same number, of another engine
            check_hints(one, 2**64 - 1)
    if scheme == "tcp":
        return
    with connected(place) as one:
        assert one.status == "loading"
        one.ask(3, MESSAGES, TOOLS)  # nobody is there: it is gone
        with listening(model, address):
            assert one.wait_ready(SECONDS)
            check_hints(one, 4)
        assert take(one.ring) == []


def test_hints_go_to_whoever_says_hello_for_a_session(model: Any, place: str) -> None:
    """As behind a server whose requests arrive in one process and are decoded in another."""
    with listening(model, place), connected(place) as asking:
        reading = RemoteSidecar(SidecarConfig(place, wave="always"), asking.session)
        assert asking.wait_ready(SECONDS)
        assert reading.wait_ready(SECONDS)
        asking.ask(1, MESSAGES, TOOLS)
        report = asking.wait_wave(1, SECONDS)
        assert report is not None
        assert report.outcome == "done"
        found: list[Any] = []
        wait_for(lambda: found.extend(take(reading.ring)) or len(found) > len(HINTS))
        values = {(tool, parameter) for _, kind, tool, parameter, _ in found if kind == VALUE}
        assert values == set(HINTS)
        reading.close()


def test_who_is_there_is_known_at_once(
    model: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first hello is lost where the connection still takes a moment."""
    monkeypatch.setattr(remote, "HELLO_SECONDS", 1000.0)
    with listening(model, place):
        for _ in range(8):
            with connected(place) as sidecar:
                assert sidecar.wait_ready(SECONDS)


def test_silence_is_noted(model: Any, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "AWAY_SECONDS", 0.2)
    monkeypatch.setattr(remote, "HELLO_SECONDS", 0.05)
    with connected(place) as sidecar:
        with listening(model, place):
            assert sidecar.wait_ready(SECONDS)
        wait_for(lambda: sidecar.status.startswith("away: "))
        with listening(model, place):
            wait_for(lambda: sidecar.status.startswith("ready"))
            check_hints(sidecar, 1)


def test_a_hostile_engine_costs_the_others_nothing(model: Any, place: str) -> None:
    rng = random.Random(0)
    context = zmq.Context()
    hostile = context.socket(zmq.DEALER)
    hostile.setsockopt(zmq.LINGER, 0)
    hostile.connect(place)
    with listening(model, place) as listener, connected(place) as honest:
        assert honest.wait_ready(SECONDS)
        frame = wire.pack(Message(Kind.ASK, 1, 2, b'{"messages": 7}'))
        for _ in range(200):
            hostile.send(rng.randbytes(rng.randrange(200)))
            hostile.send(frame[: rng.randrange(len(frame))])
        hostile.send_multipart([b"a", b"b", b"c"])
        hostile.send(wire.pack(Message(Kind.HINT, 1, 2, bytes(8))))
        bad = [[], [7], [{"role": 7}], [{"role": "user", "content": {"x": 1}}], "x"]
        for number in range(MAX_LIVE_OF_ONE + 20):  # and too many at once
            body = wire.ask_body(bad[number % len(bad)], [{"function": 7}], "")  # type: ignore[arg-type]
            hostile.send(wire.pack(Message(Kind.ASK, 1, number, body)))
        hostile.send(wire.pack(Message(Kind.CANCEL, honest.session, 9)))  # of another's
        wait_for(lambda: listener.num_refused > 400)
        check_hints(honest, 9)
    hostile.close()
    context.term()


def test_a_hostile_sidecar_says_nothing(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Junk, other sessions, doubles, kinds that do not come here: what is right is taken, once a
    copy; the rest is counted.
    """
    monkeypatch.setattr(remote, "AWAY_SECONDS", 0.5)
    rng = random.Random(0)
    context = zmq.Context()
    hostile = context.socket(zmq.ROUTER)
    hostile.setsockopt(zmq.LINGER, 0)
    hostile.bind(place)
    with connected(place) as sidecar:
        identity, hello = hostile.recv_multipart()
        said = wire.parse(hello)
        assert said == Message(Kind.HELLO, sidecar.session)

        def send(message: Message | bytes) -> None:
            frame = message if isinstance(message, bytes) else wire.pack(message)
            hostile.send_multipart([identity, frame])

        body = wire.hint_body(HintRecord(1, HintKind.VALUE, 0, 0, 0, '"x"'))
        for _ in range(100):
            send(rng.randbytes(rng.randrange(100)))
        send(Message(Kind.HINT, sidecar.session ^ 1, 1, body))
        send(Message(Kind.HINT, sidecar.session, 1, body[:3]))
        send(Message(Kind.HINT, sidecar.session, 1, b"\xff" * 12))
        send(Message(Kind.ASK, sidecar.session, 1, b"{}"))
        hostile.send_multipart([identity, b"two", b"frames"])
        send(Message(Kind.HINT, sidecar.session, 1, body))
        send(Message(Kind.HINT, sidecar.session, 1, body))
        send(Message(Kind.STATE, sidecar.session, 0, wire.state_body("ready: here", 9)))
        assert sidecar.wait_ready(SECONDS)
        assert take(sidecar.ring) == [(1, HintKind.VALUE, 0, 0, '"x"')] * 2
        assert sidecar.num_refused == 105
        while hostile.poll(0):
            hostile.recv_multipart()
        send(bytes(1 << 20))  # too large: the connection ends, and is made anew
        wait_for(lambda: hostile.poll(100) and hostile.recv_multipart()[0] != identity)
        sidecar.ask(5, [{"role": object()}], TOOLS)  # type: ignore[list-item]
        report = sidecar.wait_wave(5, SECONDS)
        assert report is not None
        assert report.outcome.startswith("failed: ")
    hostile.close()
    context.term()


def test_an_engine_writes_the_same_whatever_becomes_of_its_sidecar(model: Any, place: str) -> None:
    backend = load_backend(tiny_model("qwen2"), tokenizer=tiny_tokenizer(), chunk=16)
    alone = load(backend, cost_model=False)
    expected = alone.generate(MESSAGES, TOOLS, method="ar", max_tokens=24).token_ids
    engine = load(backend, sidecar=place, wave="always", cost_model=False)
    assert engine.drafting is not None

    def answer() -> list[int]:
        return engine.generate(MESSAGES, TOOLS, method="ooo", max_tokens=24).token_ids

    assert answer() == expected  # nobody is there
    with listening(model, place):
        wait_for(lambda: engine.drafting.status.startswith("ready"))
        for _ in range(3):
            assert answer() == expected
    assert answer() == expected
    engine.close()


def test_addresses() -> None:
    assert is_address("tcp://127.0.0.1:5600")
    assert is_address("ipc:///tmp/x")
    assert not is_address("Qwen/Qwen3-0.6B")
    with pytest.raises(InvalidRequest, match="sidecar: expected an address tcp://HOST:PORT"):
        RemoteSidecar(SidecarConfig("tcp://nonsense"))
    with pytest.raises(InvalidRequest, match="--listen: expected a free address"):
        bind("tcp://nonsense")
    with pytest.raises(InvalidRequest, match="--listen: expected a free address"):
        bind("here")


def test_an_address_is_checked_before_anything_is_looked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["sidecar", "--sidecar", "org/model", "--listen", "tcp://nonsense"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("ooospec: --listen: expected a free address")
