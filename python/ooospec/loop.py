# SPDX-License-Identifier: Apache-2.0
"""The loop of one request, the same for all methods: propose, verify, accept, cut, keep, commit."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from ooospec.backends.base import Ask, Backend, Verdict
from ooospec.kv import Sequence
from ooospec.output import Output
from ooospec.rows import TARGET, Rows, Tree
from ooospec.sampling import Chooser
from ooospec.self_branches import Ride, SelfBranches


class Drafter(Protocol):
    """Drafts for one request. Whatever it proposes, the answer stays the same."""

    @property
    def wants_top8(self) -> bool:
        """Whether commit() is to be given the likeliest successors of the nodes."""
        ...

    def propose(self, budget: int) -> Tree:
        """Returns a tree of at most `budget` nodes below the last committed token."""
        ...

    def commit(self, tokens: Seq[int], top8: np.ndarray[Any, Any] | None = None) -> None:
        """Hears of the tokens that the target committed, each once and in order.

        top8: int32[nodes of the last tree, 8], the ids with the highest logits, -1 for nodes that
            did not run; None where no tree ran (the first token follows the prompt).
        """
        ...

    def prepare(self) -> None:
        """May do now what can be done before commit(): the target runs."""
        ...

    def finish(self) -> None:
        """The request is over, whether it ended well or not."""
        ...


class Round(NamedTuple):
    """One pass of the target. Times in seconds of time.perf_counter; num_rows includes the root,
    num_branch_rows are those of branches beside it.

    verify_start, verify_stop: when the rows were on their way to the device, and when the host knew
    that it was done with them.
    """

    start: float
    verify_start: float
    verify_stop: float
    stop: float
    num_rows: int
    num_committed: int
    num_branch_rows: int = 0


@dataclass
class Metrics:
    """What a request took. Tokens behind the end of the answer are not committed and not accepted.

    prefill_start: in seconds of time.perf_counter.
    accepted, rejected: launched draft nodes by the number of their source. The first token comes
        from prefill, not from a round.
    branches: what the target's own branches did, where the method has any.
    """

    prefill_start: float = 0.0
    prefill_seconds: float = 0.0
    rounds: list[Round] = field(default_factory=list)
    accepted: dict[int, int] = field(default_factory=dict)
    rejected: dict[int, int] = field(default_factory=dict)
    branches: Ride | None = None

    @property
    def num_rounds(self) -> int:
        return len(self.rounds)

    @property
    def num_committed(self) -> int:
        return sum(one.num_committed for one in self.rounds)

    @property
    def tokens_per_round(self) -> float:
        return self.num_committed / max(1, self.num_rounds)

    @property
    def gap_seconds(self) -> list[float]:
        """How long the device waited for the host before each round but the first."""
        pairs = itertools.pairwise(self.rounds)
        return [after.verify_start - before.verify_stop for before, after in pairs]


class _Uncounted(NamedTuple):
    """A round of which sources and metrics are to hear: no launch waits for them."""

    rows: Rows
    verdict: Verdict
    num_taken: int
    num_branch_rows: int
    start: float
    stop: float


class Loop:
    """One admitted request: its sequence, its answer and its drafter."""

    def __init__(
        self,
        backend: Backend,
        sequence: Sequence,
        chooser: Chooser,
        output: Output,
        drafter: Drafter | None,
        max_nodes: int,
        branches: SelfBranches | None = None,
    ) -> None:
        self.backend = backend
        self.sequence = sequence
        self.output = output
        self._metrics = Metrics()
        self._sources: list[int] = []
        self._chooser = chooser
        self._drafter = drafter
        self._wants_top8 = drafter is not None and drafter.wants_top8
        self._max_nodes = max_nodes
        self._branches = branches
        if branches is not None:
            self._metrics.branches = branches.ride
        self._uncounted: _Uncounted | None = None

    @property
    def sources(self) -> list[int]:
        """Who drafted each token of the answer."""
        self._count()
        return self._sources

    @property
    def metrics(self) -> Metrics:
        """What the request took so far."""
        self._count()
        return self._metrics

    def start(self, prompt_ids: Seq[int]) -> None:
        """Prefills what of the prompt is not cached and commits the first token of the answer."""
        self._prefill(prompt_ids[self.sequence.length :])

    def start_on(self, prompt_ids: Seq[int]) -> bool:
        """Does one chunk of what start() does; returns whether that was the last."""
        rest = prompt_ids[self.sequence.length :]
        room = self.backend.chunk - self.sequence.length % self.backend.chunk
        if len(rest) <= room:
            self._prefill(rest)
            return True
        start = time.perf_counter()
        self.backend.prefill(self.sequence, rest[:room])
        self._count_prefill(start)
        return False

    def _prefill(self, tokens: Seq[int]) -> None:
        """Prefills the end of the prompt and commits the first token of the answer."""
        start = time.perf_counter()
        logits = self.backend.prefill(self.sequence, tokens)
        self.meanwhile()
        token = self._chooser.choose(logits, 0)
        self._count_prefill(start)
        self._commit([token])
        self._sources = [TARGET]

    def _count_prefill(self, start: float) -> None:
        self._metrics.prefill_start = self._metrics.prefill_start or start
        self._metrics.prefill_seconds += time.perf_counter() - start

    def step(self) -> None:
        """Runs one round alone. Mutates: sequence, output, sources, metrics."""
        start = time.perf_counter()
        own, *riders = self.ask(self._max_nodes, self.backend.num_sequences - 1)
        verdict = self.backend.verify(
            own.sequence,
            own.rows,
            own.chooser,
            own.place,
            top8=own.top8,
            meanwhile=self.meanwhile,
            riders=riders,
        )
        self.take(own.rows, verdict, start)

    def ask(self, budget: int, max_riders: int) -> list[Ask]:
        """Returns what the next round is to verify, of the answer and of at most `max_riders`
        beside it: at most `budget` rows in all.
        """
        if self._branches is not None:
            self._branches.max_riders = max_riders
        rows = self._propose(budget)
        top8 = self._wants_top8 and rows.num_nodes > 0
        ask = Ask(self.sequence, rows, self._chooser, len(self.output.token_ids), top8)
        return [ask] if self._branches is None else [ask, *self._branches.riders()]

    def take(self, rows: Rows, verdict: Verdict, start: float) -> None:
        """Takes up what became of the answer's rows. start: of the round, as in Round."""
        top8 = verdict.top8
        num_taken = self._commit(verdict.tokens, None if top8 is None else rows.spread(top8))
        if verdict.compacted:
            self.sequence.keep_first(num_taken)
        else:
            self.sequence.keep(verdict.path[:num_taken])
        num_branch_rows = 0
        if self._branches is not None:
            num_branch_rows = self._branches.num_rows
            self._branches.take(verdict.riders)
        stop = time.perf_counter()
        if self._uncounted is not None:  # nobody called meanwhile()
            self._count()
        self._uncounted = _Uncounted(rows, verdict, num_taken, num_branch_rows, start, stop)
        if self.output.finish_reason is not None:
            self._count()
            self.close()

    def close(self) -> None:
        """Ends what rides beside the answer. Safe to call twice."""
        if self._branches is not None:
            self._branches.close()

    def _propose(self, budget: int) -> Rows:
        root = self.output.token_ids[-1]
        budget = min(budget, self._max_nodes, self.sequence.capacity - self.sequence.length)
        max_depth = self.output.num_left - 1  # after it comes the last token there may be
        if self._drafter is None or budget == 1 or max_depth == 0:
            return Rows.root(root)
        tree = self._drafter.propose(budget)
        return Rows.check(
            tree, root, decodable=self.backend.decodable, max_rows=budget, max_depth=max_depth
        )

    def _commit(self, tokens: list[int], top8: np.ndarray[Any, Any] | None = None) -> int:
        """Cuts `tokens`, tells the drafter what is left of them, and returns how many that are."""
        num_taken = self.output.add(tokens)
        if self._drafter is not None:
            self._drafter.commit(tokens[:num_taken], top8)
        return num_taken

    def meanwhile(self) -> None:
        """Does what need not be done between two rounds; the target runs."""
        self._count()
        if self._drafter is not None:
            self._drafter.prepare()

    def _count(self) -> None:
        """Takes the last round into sources and metrics."""
        if self._uncounted is None:
            return
        last, self._uncounted = self._uncounted, None
        rows, verdict, num_taken = last.rows, last.verdict, last.num_taken
        path, metrics = verdict.path, self._metrics
        times = last.start, verdict.launched, verdict.seen, last.stop
        metrics.rounds.append(Round(*times, len(rows), num_taken, last.num_branch_rows))
        self._sources += [*rows.core.sources_of(path[1:]), TARGET][:num_taken]
        taken = np.bincount(rows.sources[path[1 : num_taken + 1]])
        launched = np.bincount(rows.sources[1:], minlength=len(taken))
        for source in launched.nonzero()[0].tolist():
            num_accepted = int(taken[source]) if source < len(taken) else 0
            for counts, number in (
                (metrics.accepted, num_accepted),
                (metrics.rejected, int(launched[source]) - num_accepted),
            ):
                if number:
                    counts[source] = counts.get(source, 0) + number
