# SPDX-License-Identifier: Apache-2.0
"""Slot branches of the target itself: values that it writes beside the call that they belong to.

Behind the head of a call (wrapper, function, opening of the arguments) a sequence leaves the answer
for each parameter: it is given the key, in the target's own style, and decodes the value in rows
that the main tree can spare. A finished value is a hint like any other: it is drafted, and the
target verifies it in its place.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np

from ooospec._core import _C
from ooospec.backends.base import Ask, Verdict
from ooospec.config import MAX_NODES
from ooospec.draft import Drafter, DraftTree
from ooospec.errors import OutOfPages
from ooospec.kv import Sequence
from ooospec.rows import Rows
from ooospec.sampling import Chooser, SamplingParams

logger = logging.getLogger("ooospec")

BRANCH_NODES = 12  # of a branch's tree
MIN_GAIN = 0.05  # of a node of a branch that is worth a row
GAIN = 0.5  # of a drafted token of a branch, against one of the answer
OWN_GAIN = 1.0  # and of a round of a branch: a value that is known saves the answer a round or two

OPEN, DONE = _C.SlotBranch.State.OPEN, _C.SlotBranch.State.DONE
FAILED = _C.SlotBranch.State.FAILED


@dataclass
class _Branch:
    """A branch under way. given: tokens to be launched before the root of its next tree."""

    core: _C.SlotBranch
    given: list[int]
    sequence: Sequence | None = None


@dataclass
class Ride:
    """What branches did in a request. num_rows: of all rounds, those of keys included.

    values: (call, tool, parameter, JSON) of each that came to its end.
    """

    num_opened: int = 0
    num_rows: int = 0
    values: list[tuple[int, int, int, str]] = field(default_factory=list)


class SelfBranches:
    """The branches of one request. Whatever fails in them ends them, and nothing else.

    Not thread-safe. Pages are taken when a branch first runs, and given back when it ends.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.ride = Ride()
        self.max_riders = 0
        self._drafter = drafter
        self._trunk: Sequence | None = None
        self._num_before = 0
        self._chooser = Chooser(SamplingParams(seed=0), 1, ())
        self._decodable = 1
        self._asked: set[tuple[int, int, int]] = set()
        self._branches: list[_Branch] = []
        self._riding: list[tuple[_Branch, Ask]] = []

    def begin(self, trunk: Sequence, num_before: int, decodable: int) -> None:
        """Branches leave `trunk`, whose first `num_before` tokens come before the answer."""
        self._trunk = trunk
        self._num_before = num_before
        self._decodable = decodable
        self._chooser = Chooser(SamplingParams(seed=0), decodable, ())

    @property
    def num_rows(self) -> int:
        """Rows that ride in the next round."""
        return sum(len(ask.rows) for _, ask in self._riding)

    def share(self, tree: DraftTree, budget: int) -> None:
        """Plans who rides beside `tree`, which gives up nodes that are worth less. Mutates: it."""
        self._riding = []
        if self._trunk is None:
            return
        try:
            self._close([one for one in self._branches if not self._drafter.core.awaits(one.core)])
            self._open()
            if self._branches:
                self._plan(tree, budget)
        except Exception:
            logger.exception("branches of a request end")
            self.close()

    def riders(self) -> list[Ask]:
        """Returns who rides in this round."""
        return [ask for _, ask in self._riding]

    def take(self, verdicts: Seq[Verdict | RuntimeError]) -> None:
        """Takes up what became of the riders; a value that is complete becomes a hint."""
        riding, self._riding = self._riding, []
        try:
            for (one, ask), verdict in zip(riding, verdicts, strict=True):
                if isinstance(verdict, RuntimeError):
                    self._close([one])
                else:
                    self._follow(one, ask, verdict)
        except Exception:
            logger.exception("branches of a request end")
            self.close()

    def close(self) -> None:
        """Ends all branches and gives their pages back. Safe to call twice."""
        self._close(self._branches)
        self._trunk = None
        self._riding = []

    def _open(self) -> None:
        """Makes the branches of a call whose head is new."""
        core = self._drafter.core
        head = core.head
        if head is None:
            return
        for parameter in core.open_parameters:
            if (*head, parameter) in self._asked:
                continue
            self._asked.add((*head, parameter))
            branch = core.branch(parameter)
            if branch is not None and branch.state == OPEN:
                self._branches.append(_Branch(branch, branch.fed[:-1]))
                self._drafter.branches.append(branch)

    def _plan(self, tree: DraftTree, budget: int) -> None:
        """Takes branches along, one by one, while that gains more tokens in a time."""
        costs = self._drafter.costs_us
        chances = np.sort(tree.probabilities[1:])[::-1].cumsum()
        num_main, num_riding, gained = len(tree), 0, 0.0

        def rate(num_main: int, num_riding: int, gained: float) -> float:
            expected = 1.0 + (float(chances[num_main - 2]) if num_main > 1 else 0.0) + gained
            return expected / (1.0 if costs is None else costs[num_main + num_riding - 1])

        best = rate(num_main, 0, 0.0)
        for one in self._branches:
            if len(self._riding) == self.max_riders:
                break
            draft = one.core.propose(MAX_NODES)
            likely = np.sort(draft.probabilities[1:])[::-1][: BRANCH_NODES - 1] * GAIN
            likely = likely[likely >= MIN_GAIN]
            num_rows = num_riding + len(one.given) + 1 + len(likely)
            left = min(num_main, budget - num_rows)
            if left < 1:
                continue
            gain = gained + OWN_GAIN + float(likely.sum())
            now = rate(left, num_rows, gain)
            if now <= best or not self._fork(one):
                continue
            assert one.sequence is not None
            draft.prune(1 + len(likely))
            rows = Rows.behind(one.given, draft, decodable=self._decodable)
            ask = Ask(one.sequence, rows, self._chooser, 0, False, len(one.given))
            self._riding.append((one, ask))
            num_main, num_riding, gained, best = left, num_rows, gain, now
        if num_main < len(tree):
            tree.prune(num_main)
        self.ride.num_rows += num_riding

    def _fork(self, one: _Branch) -> bool:
        """Gives a branch its pages. Returns False where there are none."""
        if one.sequence is not None:
            return True
        assert self._trunk is not None
        length = self._num_before + one.core.num_tokens
        room = length + len(one.given) + _C.SlotBranch.MAX_TOKENS + BRANCH_NODES
        try:
            one.sequence = self._trunk.fork(room, length)
        except OutOfPages:
            return False
        self.ride.num_opened += 1
        return True

    def _follow(self, one: _Branch, ask: Ask, verdict: Verdict) -> None:
        """Takes a branch as far as its draft was right, and a token on."""
        one.given = []
        state = one.core.commit(verdict.tokens)
        if state == OPEN and verdict.compacted:
            ask.sequence.keep_first(len(verdict.path))
        elif state == OPEN:
            ask.sequence.keep(verdict.path)
        else:
            self._close([one])
        if state != FAILED:
            self._drafter.core.take_value(one.core)
        if state == DONE:
            slot = one.core.call, one.core.tool, one.core.parameter
            self.ride.values.append((*slot, one.core.value))

    def _close(self, branches: Seq[_Branch]) -> None:
        """Ends branches and gives their pages back."""
        for one in list(branches):
            if one.sequence is not None:
                one.sequence.release()
            if one in self._branches:
                self._branches.remove(one)
                self._drafter.branches.remove(one.core)
