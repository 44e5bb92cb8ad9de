# SPDX-License-Identifier: Apache-2.0
"""Where a sidecar runs: in a thread of this process, or in a process of its own.

Either way its hints arrive in a ring, nothing here blocks, and nothing that happens to the sidecar
raises in the engine: it shows in `status`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import asdict
from typing import Any

from ooospec._core import _C
from ooospec.sidecar.policy import Target, Work
from ooospec.sidecar.wave import Answered, Step, WaveReport
from ooospec.sidecar.worker import Ask, SidecarConfig, Worker

logger = logging.getLogger("ooospec.sidecar")

CLOSE_SECONDS = 10.0  # a thread gets to finish the launch under way
CHILD_SECONDS = 2.0  # a child gets to notice that its socket is closed, then it is killed
_CHILD = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); " + (
    "from ooospec.sidecar.child import main; main(*map(int, sys.argv[2:]))"
)


class Sidecar(ABC):
    """A sidecar of one engine, which is the only reader of `ring`.

    reports: the last waves, oldest first. Its methods may be called from any thread; only close(),
    restart() and those named wait_ ever wait.
    """

    def __init__(self, config: SidecarConfig) -> None:
        self.config = config
        self.reports: deque[WaveReport] = deque(maxlen=256)
        self._changed = threading.Condition()
        self._state = "loading"
        self._context_limit = 0
        self._target: Target | None = None
        self._limits_noted = False
        atexit.register(self.close)

    @property
    @abstractmethod
    def ring(self) -> _C.HintRing:
        """Where its hints arrive. A restarted sidecar has a new one."""

    @property
    def status(self) -> str:
        """One line: loading, ready, failed, dead or closed, and what became of the last wave."""
        with self._changed:
            parts = [self._state]
            if self._state.startswith("ready"):
                parts.append(f"wave={self.config.wave}")
                if self.reports:
                    last = self.reports[-1]
                    parts.append(f"last wave {last.outcome}")
                    if self.config.wave == "auto":
                        parts.append(last.reason)
            return "; ".join(part for part in parts if part)

    def ask(
        self,
        request_id: int,
        messages: Seq[Mapping[str, Any]],
        tools: Seq[Mapping[str, Any]],
        tenant: str = "",
    ) -> None:
        """Starts a wave for a request. Never blocks, never raises for a sidecar that is not there.

        messages, tools: OpenAI JSON. tenant: requests of one tenant may share cached prefixes.
        """
        if self.config.wave != "never":
            self._ask(Ask(request_id, messages, tools, tenant))

    @abstractmethod
    def _ask(self, request: Ask) -> None: ...

    @abstractmethod
    def cancel(self, request_id: int) -> None:
        """Ends the wave of a request, if it still runs or waits. Never blocks."""

    def set_target(self, target: Target) -> None:
        """Says whom the waves help, which wave="auto" needs to know. Never blocks."""
        self._target = target
        self._note_limits()

    @abstractmethod
    def close(self) -> None:
        """Ends the sidecar and gives back what it holds. Safe to call twice."""

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Waits until it is no longer loading; returns whether it is ready."""
        with self._changed:
            self._changed.wait_for(lambda: self._state != "loading", timeout)
            return self._state.startswith("ready")

    def wait_wave(self, request_id: int, timeout: float | None = None) -> WaveReport | None:
        """Waits for the wave of a request and returns its report; None if there will be none."""

        def report() -> WaveReport | None:
            return next((r for r in reversed(self.reports) if r.request_id == request_id), None)

        with self._changed:
            self._changed.wait_for(lambda: report() or self._is_over(), timeout)
            return report()

    def _is_over(self) -> bool:
        return self._state.startswith(("dead", "closed"))

    def _hear_state(self, state: str, context_limit: int) -> None:
        with self._changed:
            if not self._is_over():
                self._state, self._context_limit = state, context_limit
            self._changed.notify_all()
        self._note_limits()

    def _hear_report(self, report: WaveReport) -> None:
        with self._changed:
            self.reports.append(report)
            self._changed.notify_all()

    def _note_limits(self) -> None:
        target, limit = self._target, self._context_limit
        if target is None or self._limits_noted or not 0 < limit < target.context_limit:
            return
        self._limits_noted = True
        logger.warning(
            "of a dialogue above %d tokens (the target takes %d) the sidecar sees only the end",
            limit,
            target.context_limit,
        )


class ThreadSidecar(Sidecar):
    """A sidecar in a daemon thread of this process."""

    def __init__(self, config: SidecarConfig) -> None:
        """Loads the model before it returns, since loading is not safe beside other loading."""
        super().__init__(config)
        self._ring = _C.HintRing()
        self._worker = Worker(config, self._ring, self._hear_state, self._hear_report)
        self._worker.load()
        self._thread = threading.Thread(
            target=self._worker.run, name="ooospec-sidecar", daemon=True
        )
        self._thread.start()

    @property
    def ring(self) -> _C.HintRing:
        return self._ring

    def _ask(self, request: Ask) -> None:
        self._worker.ask(request)

    def cancel(self, request_id: int) -> None:
        self._worker.cancel(request_id)

    def set_target(self, target: Target) -> None:
        super().set_target(target)
        self._worker.set_target(target)

    def close(self) -> None:
        atexit.unregister(self.close)
        self._worker.stop()
        self._thread.join(CLOSE_SECONDS)
        self._hear_state("closed", 0)


class ProcessSidecar(Sidecar):
    """A sidecar in a process of its own, started by exec, never by fork alone.

    The child dies with this process: by the kernel's parent-death signal where there is one, and
    because its end of the socket closes. If it dies, that is the status; restart() starts another.
    """

    def __init__(self, config: SidecarConfig) -> None:
        super().__init__(config)
        self._link = _Link(self)

    @property
    def ring(self) -> _C.HintRing:
        return self._link.ring

    @property
    def pid(self) -> int | None:
        """Process id of the child, once it is started."""
        return self._link.pid

    def _ask(self, request: Ask) -> None:
        self._link.send("ask", vars(request))

    def cancel(self, request_id: int) -> None:
        self._link.send("cancel", request_id)

    def set_target(self, target: Target) -> None:
        super().set_target(target)
        self._link.send("target", asdict(target))

    def restart(self) -> None:
        """Ends the child, if it still runs, and starts another with a new ring."""
        self._link.close()
        with self._changed:
            self._state = "loading"
            self._link = _Link(self)
        if self._target is not None:
            self._link.send("target", asdict(self._target))

    def close(self) -> None:
        atexit.unregister(self.close)
        self._link.close()
        self._hear_state("closed", 0)


class _Link:
    """One child: its ring, its socket, and the two threads that talk to it."""

    def __init__(self, sidecar: ProcessSidecar) -> None:
        self.ring = _C.HintRing(shared=True)
        self.pid: int | None = None
        self._owner = os.getpid()
        self._sidecar = sidecar
        self._socket, self._child_socket = socket.socketpair()
        self._outbox: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
        self._closing = False
        self.send("config", asdict(sidecar.config))
        self._threads = [
            threading.Thread(target=target, name=f"ooospec-sidecar-{name}", daemon=True)
            for name, target in (("watch", self._watch), ("send", self._write))
        ]
        for thread in self._threads:
            thread.start()

    def send(self, kind: str, content: Any) -> None:
        """Queues a message to the child. Never blocks."""
        self._outbox.put((kind, content))

    def close(self) -> None:
        """Ends the child and waits for it. Safe to call twice."""
        self._closing = True
        self._outbox.put(None)
        if os.getpid() == self._owner:  # a fork that ends would take the child from its parent
            with contextlib.suppress(OSError):  # the child may be gone already
                self._socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._socket.close()
        self.ring = _C.HintRing(_C.HintRing.RECORD_BYTES * 2)  # gives the shared memory back

    def _write(self) -> None:
        while (message := self._outbox.get()) is not None:
            try:
                line = json.dumps(message).encode() + b"\n"
            except (TypeError, ValueError, RecursionError) as error:  # a request that is no JSON
                report = WaveReport(message[1]["request_id"], outcome=f"failed: {error}")
                self._sidecar._hear_report(report)
                continue
            try:
                self._socket.sendall(line)
            except OSError:
                return  # the child is gone, which _watch sees

    def _watch(self) -> None:
        """Starts the child and lives as long as it does: its parent-death signal is tied to us."""
        try:
            child = self._start()
        except OSError as error:
            self._sidecar._hear_state(f"failed: not started: {error}", 0)
            return
        finally:
            self._child_socket.close()
        self.pid = child.pid
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    self._hear(*json.loads(line))
        except OSError:
            pass  # reset by a child that died
        try:
            code = child.wait(CHILD_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        self._outbox.put(None)
        if not self._closing:
            self._sidecar._hear_state(f"dead: {_how_it_ended(code)}", 0)

    def _start(self) -> subprocess.Popen[bytes]:
        fds = (self._child_socket.fileno(), self.ring.fd)
        arguments = [json.dumps(sys.path), *map(str, (*fds, os.getpid()))]
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _CHILD, *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=fds,
        )

    def _hear(self, kind: str, content: Any) -> None:
        if kind == "state":
            self._sidecar._hear_state(*content)
        else:
            work = content.pop("work")
            steps = [Step(**step) for step in content.pop("steps")]
            answers = [Answered(**answer) for answer in content.pop("answers")]
            done = Work(**work) if work else None
            self._sidecar._hear_report(
                WaveReport(**content, steps=steps, answers=answers, work=done)
            )


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"the process ended with status {code}"
    return f"the process was killed by {signal.Signals(-code).name}"


def open_sidecar(config: SidecarConfig) -> Sidecar:
    """Starts a sidecar. What fails then, and later, shows in its status: nothing is raised."""
    return ThreadSidecar(config) if config.placement == "thread" else ProcessSidecar(config)
