# SPDX-License-Identifier: Apache-2.0
"""The process of a sidecar; started by placement, and not meant to be started otherwise."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import threading
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ooospec.sidecar.wave import WaveReport
    from ooospec.sidecar.worker import Worker

_PR_SET_PDEATHSIG = 1


def main(socket_fd: int, ring_fd: int, parent_pid: int) -> None:
    """Serves the parent behind `socket_fd` until it closes it or dies; hints go to the ring.

    Messages are JSON lines [kind, content]: config, target, ask and cancel to here; state and
    report from here.
    """
    _die_with_parent(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which will close us
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # stdout is the parent's answer
    import torch  # takes seconds, in which the parent may die

    from ooospec._core import _C
    from ooospec.backends.load import find_device
    from ooospec.sidecar.near import stay_near
    from ooospec.sidecar.worker import SidecarConfig, Worker

    link = socket.socket(fileno=socket_fd)
    lines = link.makefile("rb")
    first = lines.readline()
    if not first:  # closed before we were up
        return
    config = SidecarConfig(**json.loads(first)[1])
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    with contextlib.suppress(ValueError, RuntimeError):  # of a device, which load() will meet too
        stay_near(find_device(config.device))
    lock = threading.Lock()

    def tell(kind: str, content: Any) -> None:
        with lock:
            link.sendall(json.dumps([kind, content]).encode() + b"\n")

    def tell_report(report: WaveReport) -> None:
        tell("report", asdict(report))

    ring = _C.HintRing.attach(ring_fd)
    os.close(ring_fd)
    worker = Worker(config, ring, lambda *state: tell("state", state), tell_report)
    threading.Thread(target=_read, args=(lines, worker), daemon=True).start()
    worker.load()
    worker.run()


def _read(lines: IO[bytes], worker: Worker) -> None:
    """Hands the parent's messages to the worker; ends the process when they end."""
    from ooospec.sidecar.policy import CostCurve, Target
    from ooospec.sidecar.worker import Ask

    try:
        for line in lines:
            kind, content = json.loads(line)
            if kind == "ask":
                worker.ask(Ask(**content))
            elif kind == "cancel":
                worker.cancel(content)
            else:
                costs = CostCurve(*map(tuple, content.pop("costs").values()))
                worker.set_target(Target(costs, **content))
    except OSError:
        pass  # the parent died with messages under way
    os._exit(0)  # a wave under way is of no use to anyone


def _die_with_parent(parent_pid: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before we asked
        os._exit(0)
