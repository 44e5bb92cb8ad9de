# SPDX-License-Identifier: Apache-2.0
"""What may go wrong between an engine and its sidecar, done on purpose."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable
from typing import Any

READ_BYTES = 1 << 14


class BadRelay:
    """Passes TCP connections on to another port, and spoils some of what passes.

    damage: share of the pieces in which a bit is turned. address: where to connect. num_damaged,
    num_cut: pieces and connections so far.
    """

    def __init__(self, port: int, damage: float, seed: int = 0) -> None:
        self.damage = damage
        self.num_damaged = self.num_cut = 0
        self._to = port
        self._rng = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends all connections; new ones are passed on."""
        with self._lock:
            ended, self._open = self._open, set()
        self.num_cut += len(ended) // 2
        for end in ended:
            _end(end)

    def close(self) -> None:
        """Ends it."""
        _end(self._listening)
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listening.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._to), timeout=5)
                except OSError:  # nobody is there
                    near.close()
                    continue
                far.settimeout(None)
                with self._lock:
                    self._open |= {near, far}
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := bytearray(one.recv(READ_BYTES)):
                if self._rng.random() < self.damage:
                    piece[self._rng.randrange(len(piece))] ^= 1 << self._rng.randrange(8)
                    self.num_damaged += 1
                other.sendall(piece)
        for end in (one, other):
            _end(end)
        with self._lock:
            self._open -= {one, other}


class Restarts:
    """Starts something again and again, and ends it in between, until close().

    start: returns what has a close(). num_started: so far.
    """

    def __init__(self, start: Callable[[], Any], seconds: float, seed: int = 0) -> None:
        """seconds: that it lives, on average, and a third of that until the next."""
        self.num_started = 0
        self._start = start
        self._seconds = seconds
        self._rng = random.Random(seed)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """Ends it. Raises what start() raised."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            running = self._start()
            self.num_started += 1
            self._closing.wait(self._rng.uniform(0.5, 1.5) * self._seconds)
            running.close()
            self._closing.wait(self._rng.uniform(0.5, 1.5) * self._seconds / 3)


def free_port() -> int:
    """Returns a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def resident_bytes() -> int:
    """Returns how much memory this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
