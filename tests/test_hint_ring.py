# SPDX-License-Identifier: Apache-2.0
"""The hint ring between real processes, against a model, and against memory that somebody ruins."""

from __future__ import annotations

import json
import mmap
import os
import random
import select
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ooospec import HintKind, HintRecord, HintRing

ROOT = Path(__file__).parent.parent

# A child that writes `count` records into the ring behind fd `argv[1]`; record i says text_of(i).
WRITER = """
import sys, time
from ooospec import HintKind, HintRing
ring, count, retry = HintRing.attach(int(sys.argv[1])), int(sys.argv[2]), sys.argv[3] == "retry"
for i in range(count):
    text = "é" * (i % 40)
    while not ring.try_push(i // 20, HintKind.VALUE, i % 7, i % 65536, i % 3, text) and retry:
        time.sleep(0)
"""

READER = """
import sys
from ooospec import HintRing
ring = HintRing.attach(int(sys.argv[1]))
while True:
    ring.try_pop()
"""


@contextmanager
def running(script: str, ring: HintRing, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", script, str(ring.fd), *map(str, arguments)]
    child = subprocess.Popen(command, pass_fds=[ring.fd])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def fields(record: HintRecord) -> tuple[object, ...]:
    return (record.request_id, record.kind, record.call, record.tool, record.parameter, record.text)


def expected(i: int) -> tuple[object, ...]:
    return (i // 20, HintKind.VALUE, i % 7, i % 65536, i % 3, "é" * (i % 40))


def open_fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_nothing_is_lost_between_processes_through_a_tiny_ring() -> None:
    ring = HintRing(256, shared=True)
    with running(WRITER, ring, 20_000, "retry") as child:
        for i in range(20_000):
            while (record := ring.try_pop()) is None:
                assert child.poll() in (None, 0)
            assert fields(record) == expected(i)
        assert child.wait() == 0
    assert ring.try_pop() is None
    assert ring.torn == 0


def test_slow_reader_gets_the_oldest_and_the_drops_are_counted() -> None:
    ring = HintRing(1024, shared=True)
    with running(WRITER, ring, 1000, "drop") as child:
        assert child.wait() == 0
    records = []
    while (record := ring.try_pop()) is not None:
        records.append(record)
    assert [fields(record) for record in records[:13]] == [expected(i) for i in range(13)]
    assert [record.sequence for record in records[:13]] == list(range(13))
    assert ring.dropped == 1000 - len(records) > 900
    assert ring.torn == 0


def test_a_killed_writer_leaves_whole_records_and_nothing_else_behind() -> None:
    fds, names = open_fds(), set(os.listdir("/dev/shm"))
    ring = HintRing(4096, shared=True)
    num_seen = 0
    with running(WRITER, ring, 10**9, "retry") as child:
        while num_seen < 2000:
            assert child.poll() is None
            num_seen += ring.try_pop() is not None
    while (record := ring.try_pop()) is not None:
        assert fields(record) == expected(num_seen)
        num_seen += 1
    assert ring.torn == 0
    del ring
    assert open_fds() <= fds  # others may go meanwhile
    assert set(os.listdir("/dev/shm")) == names


def test_a_killed_reader_leaves_nothing_behind_and_the_writer_drops() -> None:
    fds, names = open_fds(), set(os.listdir("/dev/shm"))
    ring = HintRing(4096, shared=True)
    num_pushed = 0
    with running(READER, ring) as child:
        while num_pushed < 2000:  # the ring holds 128: the reader takes
            assert child.poll() is None
            num_pushed += ring.try_push(num_pushed, HintKind.END, 0, 0, 0)
    assert sum(ring.try_push(i, HintKind.END, 0, 0, 0) for i in range(1000)) <= 128
    del ring
    assert open_fds() <= fds  # others may go meanwhile
    assert set(os.listdir("/dev/shm")) == names


def test_a_child_that_attaches_and_exits_takes_nothing_along() -> None:
    ring = HintRing(1024, shared=True)
    for i in range(5):
        assert ring.try_push(i, HintKind.END, 0, 0, 0)
        with running(WRITER, ring, 0, "drop") as child:
            assert child.wait() == 0
        record = ring.try_pop()
        assert record is not None
        assert record.request_id == i


@pytest.mark.slow
def test_bench_finds_nothing_lost_or_torn(tmp_path: Path) -> None:
    """Ten million records between two processes, and a thousand killed writers."""
    rows_file = tmp_path / "rows.json"
    command = [sys.executable, ROOT / "bench" / "bench_hint_ring.py", "--json", rows_file]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows = {(row["case"], row["metric"]): row["value"] for row in json.loads(rows_file.read_text())}
    stream, kill = "writer and reader in two processes", "writer killed at a random moment"
    assert rows[stream, "records"] == 10_000_000
    assert rows[kill, "killed"] == 1000
    assert rows[kill, "records"] > 1000
    faults = {key: value for key, value in rows.items() if key[1] in ("lost", "wrong", "torn")}
    assert len(faults) == 5
    assert not any(faults.values()), faults


class RingAgainstDeque(RuleBasedStateMachine):
    """Any sequence of calls, at both ends of shared memory, against a deque with the same caps."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = HintRing(1 << 13, shared=True)
        self.reader = HintRing.attach(self.writer.fd)
        self.waiting: deque[tuple[object, ...]] = deque()
        self.used_bytes = 0
        self.request_bytes: Counter[int] = Counter()
        self.num_pushed = 0
        self.num_dropped = 0

    @staticmethod
    def size(text: str) -> int:
        return HintRing.RECORD_BYTES + (len(text.encode()) + 7) // 8 * 8

    @rule(
        request_id=st.sampled_from([0, 1, 2**64 - 1]),
        kind=st.sampled_from(list(HintKind.__members__.values())),
        call=st.integers(0, 65535),
        tool=st.sampled_from([0, 1, HintRecord.NO_TOOL]),
        text=st.one_of(st.text(max_size=99), st.integers(0, 4200).map(lambda n: "x" * n)),
    )
    def push(self, request_id: int, kind: HintKind, call: int, tool: int, text: str) -> None:
        size = self.size(text)
        fits = (
            len(text.encode()) <= HintRecord.MAX_TEXT_BYTES
            and self.used_bytes + size <= self.writer.capacity_bytes
            and self.request_bytes[request_id] + size <= HintRing.MAX_REQUEST_BYTES
        )
        assert self.writer.try_push(request_id, kind, call, tool, 3, text) == fits
        if fits:
            self.waiting.append((self.num_pushed, request_id, kind, call, tool, 3, text))
            self.used_bytes += size
            self.request_bytes[request_id] += size
        self.num_pushed += 1
        self.num_dropped += not fits

    @rule()
    def pop(self) -> None:
        record = self.reader.try_pop()
        if not self.waiting:
            assert record is None
            return
        assert record is not None
        assert (record.sequence, *fields(record)) == self.waiting.popleft()
        self.used_bytes -= self.size(record.text)

    @precondition(lambda self: not self.waiting)
    @rule(request_id=st.sampled_from([0, 1]), num_records=st.integers(1, 70))
    def use_up_a_request(self, request_id: int, num_records: int) -> None:
        for _ in range(num_records):
            self.push(request_id, HintKind.VALUE, 0, 0, "y" * HintRecord.MAX_TEXT_BYTES)
            if self.waiting:
                self.pop()

    @rule()
    def attach_another_reader(self) -> None:
        self.reader = HintRing.attach(self.writer.fd)

    @invariant()
    def counters(self) -> None:
        assert (self.reader.dropped, self.reader.torn) == (self.num_dropped, 0)


TestRingAgainstDeque = RingAgainstDeque.TestCase
TestRingAgainstDeque.settings = settings(max_examples=40, stateful_step_count=40)


@pytest.mark.parametrize("seed", range(20))
def test_ruined_memory_costs_hints_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    ring = HintRing(2048, shared=True)
    reader = HintRing.attach(ring.fd)
    with mmap.mmap(ring.fd, 0) as memory:
        for i in range(300):
            ring.try_push(i, HintKind.VALUE, 0, 0, 0, "a" * chance.randrange(200))
            start = chance.randrange(len(memory))
            length = min(chance.choice([1, 8, 500, len(memory)]), len(memory) - start)
            memory[start : start + length] = chance.randbytes(length)
            record = reader.try_pop()
            assert record is None or set(record.text) <= {"a"}
        memory[:8] = b"not ring"
        with pytest.raises(ValueError, match="expected magic"):
            HintRing.attach(ring.fd)


def test_text_that_is_not_utf8_is_shown_with_replacement_characters() -> None:
    """Such a record has a right checksum: it was written by somebody else's code, not torn."""
    ring = HintRing(1024, shared=True)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        ring.try_push(0, HintKind.VALUE, 0, 0, 0, "\ud800")
    assert ring.try_push(0, HintKind.VALUE, 0, 0, 0, b"\xff{\xc3")  # type: ignore[arg-type]
    record = ring.try_pop()
    assert record is not None
    assert record.text == "\ufffd{\ufffd"


def test_defaults_and_repr() -> None:
    ring = HintRing()
    assert ring.capacity_bytes == 1 << 20
    assert ring.try_push(7, HintKind.END, 0, 0, 0)
    record = HintRecord(7, HintKind.FUNCTION, 0, HintRecord.NO_TOOL, 0)
    assert fields(record) == (7, HintKind.FUNCTION, 0, 65535, 0, "")
    assert repr(ring.try_pop()) == (
        "HintRecord(request_id=7, kind=END, call=0, tool=0, parameter=0, text='')"
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: HintRing(63), ValueError, r"capacity_bytes in \[64, 1073741824\], got 63"),
        (lambda: HintRing(2**30 + 1), ValueError, "got 1073741825"),
        (lambda: HintRing().fd, ValueError, "shared=True, got a private one"),
        (lambda: HintRing.attach(-1), OSError, "descriptor"),
        (lambda: HintRing().try_push(0, HintKind.END, -1, 0, 0), ValueError, "call: .* got -1"),
        (lambda: HintRing().try_push(0, HintKind.END, 0, 65536, 0), ValueError, "tool: .* 65536"),
        (lambda: HintRing().try_push(0, HintKind.END, 0, 0, -9), ValueError, "parameter: .* -9"),
        (lambda: HintRing().try_push(0, HintKind(9), 0, 0, 0), ValueError, "HintKind, got 9"),
        (lambda: HintRing().try_push(-1, HintKind.END, 0, 0, 0), TypeError, "incompatible"),
        (lambda: HintRecord(0, HintKind.END, 0, 0, 0, "x" * 4097), ValueError, "4096.* got 4097"),
        (lambda: HintRecord(0, HintKind.END, 0, 0, 70000), ValueError, "parameter: .* 70000"),
        (lambda: HintRecord(0, HintKind(0), 0, 0, 0), ValueError, "HintKind, got 0"),
    ],
)
def test_bad_arguments(call: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()  # type: ignore[operator]


def test_attach_refuses_other_files(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+b") as file:
        file.write(bytes(4096))
        file.flush()
        fds = open_fds()
        with pytest.raises(ValueError, match="another file, of 4096 bytes"):
            HintRing.attach(file.fileno())
        assert open_fds() <= fds  # others may go meanwhile


def test_a_reader_may_sleep_until_it_is_woken() -> None:
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    ring = HintRing()
    ring.try_push(1, HintKind.END, 0, 0, 0)
    ring.wake_by(wake)
    assert not select.select([woken], [], [], 0)[0]
    for count in range(1, 10_000):  # more than the pipe holds
        if not ring.try_push(count, HintKind.VALUE, 0, 0, 0, "7"):
            break
    assert len(os.read(woken, 8)) == 8
    ring.wake_by(-1)
    while select.select([woken], [], [], 0)[0]:
        os.read(woken, 1 << 16)
    ring.try_pop()
    assert ring.try_push(1, HintKind.END, 0, 0, 0)
    assert not select.select([woken], [], [], 0)[0]
    os.close(woken)
    os.close(wake)
