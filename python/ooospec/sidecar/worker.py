# SPDX-License-Identifier: Apache-2.0
"""What runs in a sidecar's thread or process: it takes requests and writes hints into the ring."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ooospec._core import _C
from ooospec.backends.base import Backend
from ooospec.backends.fused import FusedBackend
from ooospec.backends.load import load_backend
from ooospec.backends.program import on_device
from ooospec.sidecar.graph_wave import GraphWaveRunner
from ooospec.sidecar.policy import CostCurve, Mode, Target, WavePolicy, Work
from ooospec.sidecar.prompt import PromptBuilder, was_trained
from ooospec.sidecar.recorded import ask_key, with_record
from ooospec.sidecar.wave import LIKELY_WITHIN, MAX_TOKENS, NUM_LANES, WaveReport, WaveRunner

logger = logging.getLogger("ooospec.sidecar")

MAX_REASON = 400  # characters of a record that says why
MAX_FAILURES = 3  # waves in a row that may fail before the sidecar gives up
COST_ROWS = (1, 8, 32)


@dataclass(frozen=True)
class SidecarConfig:
    """What a sidecar is and how it runs.

    source: folder or hub id of a Hugging Face causal model; in a thread also a loaded model, with
    its tokenizer; for a RemoteSidecar an address, beside which only `wave` counts.
    placement: a thread of this process, whose launches on a GPU are graphs of lower
    priority than the target's, run without the GIL; or a process of its own. adapter: folder of a
    PEFT adapter made for it. examples: worked examples in the prompt; None: unless there is an
    adapter, or the whole model was trained on these prompts. wave: whether waves start: "auto"
    (where they pay), "always", "wait" (always, and the engine waits for the hints), "never".
    device, dtype: as for a target. num_rows: branches that
    advance together. likely_within: a function is asked about if the log probability of its name is
    at most so much below the best. num_threads: cores for its products on a CPU; None: as torch has
    it. recorded: the call that a request's wave is to say, whatever the model does, by the ask_key
    (sidecar/recorded.py) of the request; None for no call. A wave that has no entry fails.

    Raises ValueError for values out of range.
    """

    source: Any
    tokenizer: Any = None
    adapter: str | None = None
    examples: bool | None = None
    placement: Literal["thread", "process"] = "thread"
    wave: Mode = "auto"
    device: str | None = None
    dtype: str | None = None
    num_rows: int = NUM_LANES
    likely_within: float = LIKELY_WITHIN
    num_threads: int | None = None
    recorded: Mapping[str, Mapping[str, Any] | None] | None = None

    def __post_init__(self) -> None:
        if self.wave not in get_args(Mode):
            known = ", ".join(get_args(Mode))
            raise ValueError(f"wave: expected one of {known}, got {self.wave!r}")
        if self.placement not in ("thread", "process"):
            raise ValueError(f"placement: expected thread or process, got {self.placement!r}")
        named = isinstance(self.source, str) and self.tokenizer is None
        if self.placement == "process" and not named:
            raise ValueError(
                "source: expected a folder or hub id, tokenizer included, for a process of "
                f"its own, got {type(self.source).__name__} and {type(self.tokenizer).__name__}"
            )
        for name in ("num_rows", "num_threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")
        if self.num_threads is not None and self.placement == "thread":
            raise ValueError(
                "num_threads: expected a process of its own, got a thread, which shares the cores "
                "of its process"
            )


@dataclass(frozen=True)
class Ask:
    """A request for a wave; see Sidecar.ask."""

    request_id: int
    messages: Seq[Mapping[str, Any]]
    tools: Seq[Mapping[str, Any]]
    tenant: str = ""


class Worker:
    """Serves requests one after another; the only writer of `ring`.

    What goes wrong never gets out: it becomes a status and an ERROR record.
    """

    def __init__(
        self,
        config: SidecarConfig,
        ring: _C.HintRing,
        tell_state: Callable[[str, int], None],
        tell_report: Callable[[WaveReport], None],
    ) -> None:
        """tell_state: hears each change of state, and the most tokens of a prompt (0: not known).

        tell_report: hears of each wave.
        """
        self._config = config
        self._ring = ring
        self._tell_state = tell_state
        self._tell_report = tell_report
        self._inbox: queue.SimpleQueue[Ask | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pending: dict[int, bool] = {}  # request id -> cancelled
        self._serving: int | None = None  # request id
        self._stopped = threading.Event()
        self._target: Target | None = None
        self._backend: Backend | None = None
        self._runner: WaveRunner | GraphWaveRunner | None = None
        self._policy: WavePolicy | None = None
        self._failure = "not loaded"
        self._num_failures = 0

    def ask(self, request: Ask) -> None:
        """Queues a request. Never blocks; for any thread."""
        with self._lock:
            self._pending[request.request_id] = False
        self._inbox.put(request)

    def cancel(self, request_id: int) -> None:
        """Ends the request's wave before its next launch. Never blocks; for any thread."""
        with self._lock:
            if request_id in self._pending:
                self._pending[request_id] = True
            if request_id == self._serving:
                self._interrupt()

    def set_target(self, target: Target) -> None:
        """Says whom the waves help, which wave="auto" needs to know. For any thread."""
        self._target = target

    def stop(self) -> None:
        """Makes run() return after the launch under way. For any thread."""
        self._stopped.set()
        with self._lock:
            self._interrupt()
        self._inbox.put(None)

    def load(self) -> None:
        """Loads the model. Mutates: the state, which says so if that fails."""
        self._tell_state("loading", 0)
        try:
            with on_device(self._config.device):
                ready = self._open()
        except Exception as error:
            self._unload()
            self._fail("not loaded", error)
            return
        self._tell_state(*ready)

    def _open(self) -> tuple[str, int]:
        """Makes the runner; returns the state and the most tokens of a prompt."""
        config = self._config
        backend = self._backend = load_backend(
            config.source,
            tokenizer=config.tokenizer,
            adapter=config.adapter,
            device=config.device,
            dtype=config.dtype,
            num_sequences=config.num_rows + 1,
        )
        examples = config.examples
        if examples is None:
            examples = config.adapter is None and not was_trained(backend.tokenizer)
        limit = min(backend.context_limit, MAX_TOKENS)
        builder = PromptBuilder(backend.tokenizer, max_tokens=limit, examples=examples)
        how: Any = {"num_rows": config.num_rows, "likely_within": config.likely_within}
        if isinstance(backend, FusedBackend):
            self._runner = GraphWaveRunner(backend, builder, **how)
        else:
            self._runner = WaveRunner(backend, builder, **how)
        costs = None
        if config.wave == "auto":
            costs = CostCurve(COST_ROWS, tuple(backend.measure_costs(COST_ROWS)))
        self._policy = WavePolicy(config.wave, costs, backend.chunk, config.num_rows)
        return f"ready: {backend.description}", limit

    def run(self) -> None:
        """Serves until stop(). Without a model every request is answered by an ERROR record."""
        with on_device(self._config.device if self._backend is not None else None):
            self._run()

    def _run(self) -> None:
        while (request := self._inbox.get()) is not None and not self._stopped.is_set():
            report = WaveReport(request.request_id)
            with self._lock:
                self._serving = request.request_id
            self._serve(request, report)
            with self._lock:
                self._serving = None
                self._pending.pop(request.request_id, None)
            self._tell_report(report)
        self._unload()

    def _serve(self, request: Ask, report: WaveReport) -> None:
        if self._runner is None or self._policy is None:
            self._give_up(request, report, f"sidecar: {self._failure}")
            return
        try:
            builder = self._runner.builder
            prompt = builder.build(request.messages, request.tools)
            if self._config.recorded is not None:
                call = self._config.recorded[ask_key(request.messages, request.tools)]
                prompt = with_record(prompt, builder, call, request.tools)
        except Exception as error:  # this request cannot be asked; the next one may
            self._give_up(request, report, _line(error))
            return
        policy = self._policy
        policy.target = self._target

        def wants(work: Work) -> bool:
            started = policy.wants(work)
            report.work, report.reason = work, policy.reason
            return started

        try:
            self._runner.run(
                prompt,
                self._ring,
                report,
                wants=wants,
                cancelled=lambda: self._is_cancelled(request.request_id),
                tenant=request.tenant,
            )
        except Exception as error:
            self._give_up(request, report, _line(error))
            self._num_failures += 1
            logger.exception("sidecar: a wave failed")
            if self._num_failures == MAX_FAILURES:
                self._unload()
                self._fail(f"{MAX_FAILURES} waves in a row failed", error)
            return
        self._num_failures = 0
        if report.outcome == "skipped":
            self._say_error(request, report.reason)
        if report.outcome == "done" and report.work is not None:
            policy.learn(report.work, (report.stop - report.start) * 1e6)

    def _unload(self) -> None:
        if self._backend is not None:
            self._backend.close()
        self._backend = self._runner = None

    def _interrupt(self) -> None:
        """Ends a wave that does not ask; for whoever holds the lock."""
        if isinstance(self._runner, GraphWaveRunner):
            self._runner.cancel()

    def _is_cancelled(self, request_id: int) -> bool:
        with self._lock:
            return self._pending[request_id] or self._stopped.is_set()

    def _give_up(self, request: Ask, report: WaveReport, why: str) -> None:
        report.outcome = f"failed: {why}"
        report.stop = time.perf_counter()
        self._say_error(request, why)

    def _say_error(self, request: Ask, why: str) -> None:
        """Tells the engine that no hints will come."""
        self._ring.try_push(request.request_id, _C.HintKind.ERROR, 0, 0, 0, why[:MAX_REASON])

    def _fail(self, what: str, error: Exception) -> None:
        self._failure = f"{what}: {_line(error)}"
        logger.error("sidecar: %s; answers come without hints", self._failure)
        self._tell_state(f"failed: {self._failure}", 0)


def _line(error: Exception) -> str:
    """Returns an error as one line that fits into a record."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:MAX_REASON]
