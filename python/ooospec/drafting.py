# SPDX-License-Identifier: Apache-2.0
"""What drafts for the requests of an engine: a drafter each, its hints and the clock of rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ooospec._core import _C
from ooospec.costs import RoundClock, RoundCosts
from ooospec.draft import Drafter, DraftStore, DraftTree, TargetText
from ooospec.draft_model import DraftModel, DraftModelSource
from ooospec.engine import Request
from ooospec.hints import HintArrival, HintRouter, HintWait
from ooospec.methods import METHODS, Method, methods_with
from ooospec.self_branches import SelfBranches
from ooospec.sidecar.policy import EXPECTED_ROUNDS, Mode
from ooospec.sources import Source
from ooospec.wave_trials import Trial, WaveTrials

WAIT_SECONDS = 0.1  # for hints, at most, where the time of rounds is not known


@dataclass
class RequestDrafter:
    """A drafter that looks for hints before each proposal and clocks the rounds; what the engine
    runs.
    """

    drafter: Drafter
    request_id: int
    router: HintRouter | None
    clock: RoundClock | None = None
    arrivals: list[HintArrival] = field(default_factory=list)
    trial: Trial | None = None
    wait: HintWait | None = None
    costs_version: int = 0  # of those that the drafter knows
    self_branches: SelfBranches | None = field(init=False)

    def __post_init__(self) -> None:
        self.self_branches = SelfBranches(self.drafter) if self.drafter.method.branches else None

    def propose(self, budget: int) -> DraftTree:
        """See Drafter.propose."""
        if self.router is not None:
            self.router.poll()
        tree, branches = self.drafter.propose(budget), self.self_branches
        if branches is not None:
            branches.share(tree, budget)
        if self.clock is not None:
            num_rows = len(tree) + (0 if branches is None else branches.num_rows)
            self.clock.proposed(self.request_id, num_rows)
        return tree

    def commit(self, tokens: Sequence[int], top8: npt.NDArray[np.int32] | None = None) -> None:
        """See Drafter.commit."""
        if self.clock is not None:
            self.clock.committed()
        if self.trial is not None:
            self.trial.committed(len(tokens))
        self.drafter.commit(tokens, top8)

    def prepare(self) -> None:
        """See Drafter.prepare; with the hints that have arrived."""
        if self.router is not None:
            self.router.poll()
        if self.clock is not None:
            self.clock.settle()
            version = self.clock.costs.version
            if version != self.costs_version:
                self.drafter.set_costs(self.clock.costs.curve())
                self.costs_version = version
        self.drafter.prepare()

    def awaits_hints(self) -> bool:
        """Returns whether the first round is better put off: the wave is under way. What has
        arrived of it is written and tokenised meanwhile. Cost: of prepare(), where there is news.
        Mutates: `wait`, which begins with the first question and is None once it is over.
        """
        if self.wait is None:
            return False
        assert self.router is not None  # else there is nothing to wait for
        num_before = len(self.arrivals)
        self.router.poll()
        if len(self.arrivals) > num_before:
            self.drafter.prepare()
        if self.wait.is_over() or not is_ready(self.router):
            self.wait = None
        return self.wait is not None

    @property
    def wants_top8(self) -> bool:
        """See Drafter.wants_top8."""
        return self.drafter.wants_top8

    def finish(self) -> None:
        """Ends the request: no more hints, and its answer is learnt. Its time is not, where the
        sidecar said at once that there will be no wave.
        """
        if self.router is not None:
            self.router.poll()
            self.router.close(self.request_id)
        had_its_way = not self.arrivals or self.arrivals[0].kind != _C.HintKind.ERROR
        if self.clock is not None:
            self.clock.closed(self.request_id)
            if self.trial is not None and had_its_way:
                self.trial.finish(self.clock.costs.measured()[0] / 1e6)
        self.drafter.finish()


@dataclass
class Drafting:
    """Makes the drafters of an engine's requests.

    text: the target's text side. store: what outlives a request.
    costs: of rounds by their rows; None: rows are free (every tree is as large as it may be).
    sources: classes of sources from outside; each joins every method but `ar`.
    router: of the sidecar's hints, or None. draft_model: of method `draft`, or None.
    wave: as of SidecarConfig; "auto" learns from answers, for each method, what pays, and is
        "always" without costs.
    """

    text: TargetText
    store: DraftStore
    costs: RoundCosts | None = None
    sources: Sequence[type] = ()
    router: HintRouter | None = None
    draft_model: DraftModel | None = None
    wave: Mode = "always"

    def __post_init__(self) -> None:
        self._clock = None if self.costs is None else RoundClock(self.costs)
        self._trials: dict[str, WaveTrials] = {}

    @property
    def status(self) -> str:
        """One line: what becomes of the hints."""
        if self.router is None:
            return "no sidecar"
        tried = (f"{name}: {trials}" for name, trials in self._trials.items())
        return "; ".join([self.router.sidecar.status, *tried])

    def close(self) -> None:
        """Ends the sidecar and the draft model. Safe to call twice."""
        if self.router is not None:
            self.router.sidecar.close()
        if self.draft_model is not None:
            self.draft_model.backend.close()

    def methods(self) -> dict[str, Callable[[Request], RequestDrafter | None]]:
        """Returns what makes the drafter of a request, by the names of ooospec.methods."""
        known = methods_with(draft_model=self.draft_model is not None)
        return {name: self.method(one) for name, one in known.items()}

    def method(self, method: Method) -> Callable[[Request], RequestDrafter | None]:
        """Returns what makes the drafter of a request by `method`; see Engine.methods."""

        def make(request: Request) -> RequestDrafter | None:
            if method == METHODS["ar"]:
                return None
            return self._drafter(method, request)

        return make

    def _drafter(self, method: Method, request: Request) -> RequestDrafter:
        sources: list[Source] = [source() for source in self.sources]
        if method.draft:
            assert self.draft_model is not None  # else the engine has no such method
            sources.append(DraftModelSource(self.draft_model))
        drafter = Drafter(
            self.text,
            request.tools or [],
            method,
            request.prompt_ids,
            memory=self.store.memory(method.name, request.tenant),
            costs_us=None if self.costs is None else self.costs.curve(),
            sources=sources,
            messages=request.messages or [],
            num_opening=request.num_opening,
            thinking=request.thinking,
        )
        asks = (
            self.router is not None
            and method.hint
            and bool(request.tools)
            and bool(request.messages)
        )
        may_wait = asks and is_ready(self.router)
        trial = self._trial(method, request) if may_wait else None
        way = self.wave if trial is None else trial.way
        if not asks or way == "never":
            return RequestDrafter(drafter, request.request_id, None, self._clock, trial=trial)
        assert self.router is not None
        assert request.messages is not None
        arrivals = self.router.open(request.request_id, drafter)
        self.router.sidecar.ask(
            request.request_id, request.messages, request.tools or [], request.tenant
        )
        wait = None
        if way == "wait" and may_wait:
            wait = HintWait(arrivals, self._most_seconds())
        return RequestDrafter(
            drafter, request.request_id, self.router, self._clock, arrivals, trial, wait
        )

    def _most_seconds(self) -> float:
        """Returns how long hints are waited for at most: all rounds of a call without hints."""
        if self.costs is None:
            return WAIT_SECONDS
        return EXPECTED_ROUNDS * self.costs.measured()[0] / 1e6

    def _trial(self, method: Method, request: Request) -> Trial | None:
        if self.wave != "auto" or self.costs is None:
            return None
        trials = self._trials.setdefault(method.name, WaveTrials())
        return Trial(trials, len(request.prompt_ids))


def is_ready(router: HintRouter | None) -> bool:
    """Returns whether there is a sidecar of which hints can come."""
    return router is not None and str(router.sidecar.status).startswith("ready")
