# SPDX-License-Identifier: Apache-2.0
"""An engine and its sidecar in two network namespaces: loss, delay, damage, a cable that is cut.

Whatever the network does, the tokens are those of `ar` and no round waits. It needs root, for the
namespaces and for the devices whose packets it carries, and is left out elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ooospec.backends.load import load_backend
from ooospec.bench.sidecars import RecordedListener
from ooospec.loading import load
from ooospec.sidecar.remote import RemoteSidecar
from ooospec.sidecar.worker import SidecarConfig
from tiny_models import tiny_tokenizer
from tiny_server import ANSWERS, CHUNK, TOOLS, taught, user
from waiting import wait_for

CALLS = [{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}]
HERE, THERE = "ooospec-a", "ooospec-b"
ADDRESS = "tcp://10.77.0.2:5600"
CLONE_NEWNET, TUNSETIFF = 0x40000000, 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
HINT = 2  # the source
SECONDS = 60
STALL_SECONDS = 0.025  # half of the delay: a round that waited for an answer takes four times that


def run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True, timeout=SECONDS)


def may_make_namespaces() -> bool:
    if os.geteuid() != 0 or not shutil.which("ip") or not os.access("/dev/net/tun", os.W_OK):
        return False
    try:
        run("ip netns add ooospec-try")
        run("ip netns del ooospec-try")
    except (subprocess.CalledProcessError, OSError):
        return False
    return True


pytestmark = pytest.mark.skipif(not may_make_namespaces(), reason="no right to make namespaces")


def inside(namespace: str, make: Callable[[], Any]) -> Any:
    """Returns what `make` makes in a thread that has moved to a namespace; so do the threads and
    the sockets that it starts.
    """
    found: list[Any] = []

    def work() -> None:
        with open(f"/run/netns/{namespace}") as file:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        found.append(make())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(SECONDS)
    (made,) = found
    return made


def open_tun(name: str) -> int:
    """Makes a network device whose packets this process reads and writes."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return fd


class Cable:
    """Carries packets between the namespaces, as badly as it is told to.

    loss, damage: shares of the packets. delay: seconds. cut: nothing passes.
    """

    def __init__(self) -> None:
        self.num_spoilt = 0
        self.mend()
        self._ends = [inside(HERE, lambda: open_tun("oa")), inside(THERE, lambda: open_tun("ob"))]
        self._closing = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def mend(self) -> None:
        self.loss = self.damage = self.delay = 0.0
        self.cut = False

    def close(self) -> None:
        self._closing = True
        self._thread.join()
        for end in self._ends:
            os.close(end)

    def _run(self) -> None:
        rng = random.Random(0)
        waiting: list[tuple[float, int, int, bytes]] = []
        numbers = itertools.count()
        while not self._closing:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, to, packet = heapq.heappop(waiting)
                with contextlib.suppress(OSError):  # the device is down
                    os.write(to, packet)
            left = max(0.0, waiting[0][0] - now) if waiting else 0.05
            for end in select.select(self._ends, [], [], min(left, 0.05))[0]:
                packet = os.read(end, 1 << 16)
                if self.cut or rng.random() < self.loss:
                    self.num_spoilt += 1
                    continue
                if rng.random() < self.damage:
                    at = rng.randrange(len(packet))
                    packet = packet[:at] + bytes([packet[at] ^ 1]) + packet[at + 1 :]
                    self.num_spoilt += 1
                to = self._ends[1 - self._ends.index(end)]
                heapq.heappush(waiting, (now + self.delay, next(numbers), to, packet))


@pytest.fixture(scope="module")
def cable() -> Iterator[Cable]:
    """Two namespaces with a cable between them."""
    for name in (HERE, THERE):
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
        run(f"ip netns add {name}")
    made = Cable()
    for name, device, host in ((HERE, "oa", 1), (THERE, "ob", 2)):
        run(f"ip -n {name} addr add 10.77.0.{host}/24 dev {device}")
        run(f"ip -n {name} link set {device} up")
    yield made
    made.close()
    for name in (HERE, THERE):
        run(f"ip netns del {name}")


NETWORKS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "20 % loss": {"loss": 0.2},
    "50 ms delay": {"delay": 0.05},
    "half of all damaged": {"damage": 0.5},
    "cut": {"cut": True},
}


@pytest.mark.parametrize("network", NETWORKS)
def test_the_network_changes_no_token_and_stops_no_round(cable: Cable, network: str) -> None:
    backend = load_backend(taught(), tokenizer=tiny_tokenizer(), chunk=CHUNK)
    listener = inside(THERE, lambda: RecordedListener(lambda messages: CALLS, ADDRESS))
    sidecar = inside(HERE, lambda: RemoteSidecar(SidecarConfig(ADDRESS, wave="always")))
    engine = load(backend, sidecar=sidecar, cost_model=False)
    wait_for(lambda: sidecar.status.startswith("ready"))
    cable.num_spoilt = 0
    for name, value in NETWORKS[network].items():
        setattr(cable, name, value)
    gaps: list[float] = []
    num_hints = 0
    for text in [*ANSWERS] * 2:
        expected = engine.generate(user(text), TOOLS, method="ar", max_tokens=90)
        got = engine.generate(user(text), TOOLS, method="ooo", max_tokens=90)
        assert got.token_ids == expected.token_ids, (network, text)
        gaps.append(max(got.metrics.gap_seconds, default=0.0))
        num_hints += got.metrics.accepted.get(HINT, 0)
    num_spoilt = cable.num_spoilt
    cable.mend()
    print(
        f"{network}: {num_hints} tokens of hints, {num_spoilt} packets spoilt, gaps at most "
        f"{1e3 * max(gaps):.1f} ms, median {1e3 * sorted(gaps)[len(gaps) // 2]:.2f} ms"
    )
    assert sorted(gaps)[len(gaps) // 2] < STALL_SECONDS
    if network == "as it is":
        assert num_hints > 0
    if network in ("20 % loss", "half of all damaged", "cut"):
        assert num_spoilt > 0
    engine.close()
    listener.close()
