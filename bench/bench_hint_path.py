# SPDX-License-Identifier: Apache-2.0
"""How long a hint takes from the ring of a sidecar in another process to the ring of the engine.

Both ends are the real ones; only the wave is not: records with the time in them come every
millisecond or so, as values do that a sidecar finishes. The clock is that of the machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import tempfile
import time
from typing import Any

from _harness import Report, parse_args, quantile
from ooospec import HintKind
from ooospec.sidecar.listen import Listener
from ooospec.sidecar.remote import RemoteSidecar
from ooospec.sidecar.sockets import bind
from ooospec.sidecar.wave import WaveReport
from ooospec.sidecar.wire import Kind, Message, read_hint
from ooospec.sidecar.worker import SidecarConfig

SECONDS = 60


class Timing(Listener):
    """Answers every request by records that say when they were written."""

    num_records = 50

    def _work(self) -> None:
        rng = random.Random(0)
        self._hear_state("ready: it tells the time", 0)
        while (request := self._worker._inbox.get()) is not None:
            for number in range(self.num_records):
                time.sleep(rng.uniform(0.0005, 0.0015))
                now = str(time.perf_counter_ns())
                self._ring.try_push(request.request_id, HintKind.VALUE, 0, 0, number, now)
            self._hear_report(WaveReport(request.request_id, outcome="done"))


class Timed(RemoteSidecar):
    """Notes how old each hint is once it is in the ring."""

    def __init__(self, config: SidecarConfig) -> None:
        self.ages_us: list[float] = []
        super().__init__(config)

    def _hear(self, message: Message) -> bool:
        taken = super()._hear(message)
        if message.kind is Kind.HINT and (hint := read_hint(message.body)) is not None:
            self.ages_us.append((time.perf_counter_ns() - int(hint.text)) / 1000)
            self.ring.try_pop()
        return taken


def listen(address: str, found: Any) -> None:
    """The other process."""
    listener = Timing(SidecarConfig("none"), bind(address))
    found.send(listener.address)
    listener.run()


def ages(address: str, num_requests: int) -> list[float]:
    """Returns the microseconds that each hint took."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    other = context.Process(target=listen, args=(address, there), daemon=True)
    other.start()
    sidecar = Timed(SidecarConfig(here.recv(), wave="always"))
    if not sidecar.wait_ready(SECONDS):
        raise TimeoutError(f"expected a sidecar within {SECONDS} s, got {sidecar.status}")
    for number in range(1, num_requests + 1):
        sidecar.ask(number, [], [])
        sidecar.wait_wave(number, SECONDS)
    sidecar.close()
    other.terminate()
    other.join()
    return sidecar.ages_us


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=200)
    args = parse_args(__doc__ or "", parser)
    report = Report("hint_path", args)
    with tempfile.TemporaryDirectory() as folder:
        addresses = {"tcp, loopback": "tcp://127.0.0.1:*", "ipc": f"ipc://{folder}/sidecar"}
        for case, address in addresses.items():
            found = ages(address, 4 if args.smoke else args.requests)
            report.add(case, "p50", quantile(found, 0.5), "us")
            report.add(case, "p99", quantile(found, 0.99), "us")
            report.add(case, "arrived", len(found), "hints")
    report.finish()


if __name__ == "__main__":
    main()
