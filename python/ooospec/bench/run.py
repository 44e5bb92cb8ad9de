# SPDX-License-Identifier: Apache-2.0
"""Runs every method on every request of every target, in turns, and checks each answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ooospec
from ooospec._core import _C
from ooospec.bench.calls import call_rounds, rightness
from ooospec.bench.records import Record, RecordFile
from ooospec.bench.sidecars import RecordedSidecar, plain_calls
from ooospec.config import MAX_NODES, EngineConfig
from ooospec.draft import Drafter
from ooospec.engine import Engine, Generation
from ooospec.errors import InvalidRequest
from ooospec.methods import METHODS, Method
from ooospec.source_names import source_name
from ooospec.trace import Recorder, TracedRequest

PLAIN = "ar"
PERFECT = "ooo, perfect hints"
SPLIT = ", split"  # behind the name of a method whose sidecar has a process and a device of its own
WARM_UP = [{"role": "user", "content": "Hi"}]


@dataclass(frozen=True)
class BenchConfig:
    """What is compared.

    methods: names of ooospec.methods, PERFECT, or `ooo, NAME` and `ooo+self, NAME` for each of
    `adapters`, each `ooo` with SPLIT behind it too where there is a split_device; `ar` is always
    there. adapters: folders of adapters of the sidecar by name. split_device: of a second
    sidecar, in a process of its own. warm: prompts are in the prefix cache of all methods; else of
    none. max_nodes: of a tree.
    """

    methods: tuple[str, ...]
    sidecar: str | None = None
    adapters: Mapping[str, str] = field(default_factory=dict)
    wave: str = "auto"
    sources: tuple[str, ...] = ()
    draft_model: str | None = None
    device: str | None = None
    dtype: str | None = None
    sidecar_device: str | None = None
    sidecar_dtype: str | None = None
    split_device: str | None = None
    cost_model: bool = True
    warm: bool = False
    max_tokens: int = 256
    max_nodes: int = MAX_NODES

    def __post_init__(self) -> None:
        """Raises InvalidRequest for a split_device without such a method, and the reverse."""
        if any(name.endswith(SPLIT) for name in self.methods) != (self.split_device is not None):
            raise InvalidRequest(
                f"--split-device: expected one with a method such as 'ooo{SPLIT}', and only then, "
                f"got {self.split_device} with {', '.join(self.methods)}"
            )


class Subjects:
    """One target and all methods on it: one KV cache, a store of drafts for each method."""

    def __init__(
        self,
        target: Any,
        config: BenchConfig,
        progress: bool = False,
        lent: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        """target: as of ooospec.load. lent: sidecars by name of a method, as options of it.

        Raises what ooospec.load raises, and InvalidRequest for a method that cannot be had.
        """
        self.config = config
        how: dict[str, Any] = {
            "device": config.device,
            "dtype": config.dtype,
            "sources": config.sources,
            "config": EngineConfig(max_nodes=config.max_nodes, prefix_cache=config.warm),
            "progress": progress,
        }
        self.engine = ooospec.load(
            target, draft_model=config.draft_model, cost_model=config.cost_model, **how
        )
        drafting: Any = self.engine.drafting
        # The other engines lend their drafters; they run nothing, so their caches are small.
        how["config"] = EngineConfig(prefix_cache=False, cache_tokens=64)
        how["cost_model"] = drafting.costs or False
        asked: dict[str, Any] = {
            "wave": config.wave,
            "sidecar_device": config.sidecar_device,
            "sidecar_dtype": config.sidecar_dtype,
        }
        self.recorded = RecordedSidecar()
        self._lenders: list[Engine] = []
        self._drafting = dict.fromkeys(self.engine.methods, drafting)
        sidecars: dict[str, dict[str, Any]] = {PERFECT: {"sidecar": self.recorded}}
        if config.sidecar is not None:
            sidecars["ooo"] = sidecars["ooo+self"] = {"sidecar": config.sidecar, **asked}
        for name, folder in config.adapters.items():
            adapted = {"sidecar": config.sidecar, "adapter": folder, **asked}
            sidecars[f"ooo, {name}"] = sidecars[f"ooo+self, {name}"] = adapted
        if config.split_device is not None:
            apart = {"placement": "process", "sidecar_device": config.split_device}
            own = {id(how): {**how, **apart} for how in sidecars.values()}  # those that share, too
            named = [name for name in sidecars if name != PERFECT]
            sidecars |= {name + SPLIT: own[id(sidecars[name])] for name in named}
        try:
            self._lend(sidecars | dict(lent or {}), how)
        except BaseException:
            self.close()
            raise

    def _lend(self, sidecars: Mapping[str, dict[str, Any]], how: dict[str, Any]) -> None:
        """Takes methods from engines with sidecars, whose options are theirs and `how`."""
        lenders: dict[int, Engine] = {}  # by the options that they share
        for name, options in sidecars.items():
            if name not in self.config.methods:
                continue
            if id(options) not in lenders:
                lenders[id(options)] = ooospec.load(self.engine.backend, **options, **how)
                self._lenders.append(lenders[id(options)])
            lender = lenders[id(options)]
            self._drafting[name] = lender.drafting
            self.engine.methods[name] = lender.methods[method_of(name)]
            status = self.status[name]
            if status.startswith("failed"):
                raise InvalidRequest(f"{name}: expected a sidecar, got one that {status}")
        for name in self.config.methods:
            if name not in self.engine.methods:
                known = ", ".join(sorted({*self.engine.methods, *sidecars}))
                raise InvalidRequest(f"--method: expected some of {known}, got {name!r}")

    @property
    def status(self) -> dict[str, str]:
        """One line for each sidecar."""
        ours = [name for name in self.config.methods if "ooo" in name and name in self._drafting]
        return {name: self._drafting[name].status for name in ours}

    def warm_up(self) -> None:
        """Lets all code run once; nothing is learnt of calls."""
        for name in self.config.methods:
            self.engine.generate(WARM_UP, method=name, tenant="warm-up", max_tokens=3)

    def run(self, target: str, file: str, row: dict[str, Any], number: int) -> list[Record]:
        """Answers a request by every method, beginning with another one each time."""
        turns = [*self.config.methods]
        first = number % len(turns)
        order = turns[first:] + turns[:first]
        if PERFECT in order:  # it is told what `ar` wrote
            order.remove(PERFECT)
            order.insert(order.index(PLAIN) + 1, PERFECT)
        if self.config.warm:
            self.engine.generate(row["messages"], row.get("tools"), method=PLAIN, max_tokens=1)
        runs: dict[str, Answered] = {}
        for name in order:
            runs[name] = self.answer(row, name)
            if name == PLAIN:
                self.recorded.calls = plain_calls(runs[name].answer)
        assert self.engine.tokens is not None
        pieces = self.engine.tokens.pieces
        return [
            runs[name].record(target, file, row, name, pieces, self.is_equal(name, runs))
            for name in turns
        ]

    def is_equal(self, name: str, runs: Mapping[str, Answered]) -> bool:
        """Returns whether a method's answer is that of `ar`."""
        return runs[name].answer.token_ids == runs[PLAIN].answer.token_ids

    def learn(self, row: dict[str, Any], name: str, token_ids: Seq[int]) -> None:
        """Lets a method's store learn an answer that was made before this run."""
        drafting = self._drafting[name]
        method = METHODS[method_of(name)]
        if method == METHODS[PLAIN]:
            return
        tools = row.get("tools") or []
        drafter = Drafter(
            drafting.text,
            tools,
            Method(**{**vars(method), "draft": False}),
            self.engine.prompt_ids(row["messages"], tools),
            memory=drafting.store.memory(method.name),
        )
        drafter.commit(token_ids)
        drafter.finish()

    def close(self) -> None:
        """Ends sidecars and gives the model back."""
        for lender in self._lenders:
            lender.drafting.close()  # type: ignore[union-attr]
        self.engine.close()

    def _max_tokens(self) -> int:
        """Returns the most tokens of the answer under way."""
        return self.config.max_tokens

    def answer(self, row: dict[str, Any], name: str) -> Answered:
        """Answers a request by one method."""
        recorder = Recorder(self.engine.methods[name])
        arrival = time.perf_counter()
        answer = self.engine.generate(
            row["messages"],
            row.get("tools"),
            method=recorder,
            max_tokens=self._max_tokens(),
        )
        return Answered(arrival, answer, recorder.traced(str(row["id"]), answer.metrics))


@dataclass(frozen=True)
class Answered:
    """An answer as it came."""

    arrival: float
    answer: Generation
    traced: TracedRequest

    def record(
        self,
        target: str,
        file: str,
        row: dict[str, Any],
        method: str,
        pieces: Seq[bytes],
        equal: bool,
    ) -> Record:
        """Returns what is kept of it."""
        metrics, usage = self.answer.metrics, self.answer.usage
        first = metrics.prefill_start + metrics.prefill_seconds - self.arrival
        rounds = [
            [*(round(moment - self.arrival, 7) for moment in one[:4]), *one[4:]]
            for one in metrics.rounds
        ]
        counted = call_rounds(pieces, row.get("tools") or [], self.answer)
        right = rightness(self.answer, row)
        wave = self.traced.wave
        if wave is not None and wave.outcome == "skipped":
            wave = None
        hints = [one for one in self.traced.arrivals if one.kind != _C.HintKind.ERROR]
        return Record(
            target=target,
            file=file,
            request=str(row["id"]),
            method=method,
            token_ids=self.answer.token_ids,
            equal=equal,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            prefill=metrics.prefill_seconds,
            first=first,
            last=rounds[-1][3] if rounds else first,
            verify=sum(one.verify_stop - one.verify_start for one in metrics.rounds),
            rounds=rounds,
            accepted=_named(metrics.accepted),
            rejected=_named(metrics.rejected),
            call_tokens=None if counted is None else counted.num_tokens,
            call_rounds=None if counted is None else counted.num_rounds,
            parses=None if right is None else right.parses,
            function=None if right is None else right.function,
            arguments=None if right is None else [right.num_right, right.num_arguments],
            wave=None if wave is None else [wave.start - self.arrival, wave.stop - self.arrival],
            hints=[one.time - self.arrival for one in hints],
            ages=hint_ages(self.traced),
        )


def hint_ages(traced: TracedRequest) -> list[float]:
    """Returns the seconds between a hint's being written and its being there for a draft, of those
    that the report of the wave names.
    """
    if traced.wave is None:
        return []
    written = {(one.kind, one.tool, one.parameter): one.time for one in traced.wave.answers}
    arrived = [(one.time, (one.kind.name, one.tool, one.parameter)) for one in traced.arrivals]
    return [time - written[slot] for time, slot in arrived if slot in written]


def _named(counts: Mapping[int, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for source, count in counts.items():
        found[source_name(source)] = found.get(source_name(source), 0) + count
    return found


def run_bench(
    targets: Seq[str],
    files: Mapping[str, Seq[dict[str, Any]]],
    config: BenchConfig,
    kept: RecordFile,
    *,
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[list[Record]]:
    """Yields the records of each request as it is done; those that `kept` has are not run again.

    files: requests by name of their file. say: hears of what is loaded.
    """
    for target in targets:
        name = Path(target).name
        if all(len(kept.done(name, file)) == len(rows) for file, rows in files.items()):
            continue
        yield from run_target(Subjects(target, config, progress), name, files, kept, say)


def run_target(
    subjects: Subjects,
    name: str,
    files: Mapping[str, Seq[dict[str, Any]]],
    kept: RecordFile,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[list[Record]]:
    """Yields the records of one target called `name`, whose subjects are closed then; see
    run_bench.
    """
    try:
        say(f"{name}: {subjects.engine.backend.description}")
        subjects.warm_up()
        number = 0
        for file, rows in files.items():
            done = kept.done(name, file)
            for row in rows:
                number += 1
                before = done.get(str(row["id"]))
                if before is not None:
                    for record in before:
                        subjects.learn(row, record.method, record.token_ids)
                    continue
                records = subjects.run(name, file, row, number)
                kept.add(records)
                yield records
        for method, status in subjects.status.items():
            say(f"{name}, {method}: {status}")
    finally:
        subjects.close()


def method_of(name: str) -> str:
    """Returns the method of ooospec.methods that a method of a bench runs."""
    own = name.partition(", ")[0]
    return own if own in METHODS else "ooo"
