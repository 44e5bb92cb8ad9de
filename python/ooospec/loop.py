# SPDX-License-Identifier: Apache-2.0
"""The loop of one request, the same for all methods: propose, verify, accept, cut, keep, commit."""

from __future__ import annotations

import time
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from ooospec.backends.base import Backend, Segment
from ooospec.kv import Sequence
from ooospec.output import Output
from ooospec.sampling import Chooser, top_ids

TARGET = 0  # source of a token that nobody drafted; see Source in csrc/common/types.h


class Tree(Protocol):
    """A draft tree as arrays of one length. Node 0 is the last committed token; parent < child."""

    @property
    def tokens(self) -> np.ndarray[Any, Any]: ...
    @property
    def parents(self) -> np.ndarray[Any, Any]: ...
    @property
    def sources(self) -> np.ndarray[Any, Any]: ...


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

    def finish(self) -> None:
        """The request is over, whether it ended well or not."""
        ...


@dataclass
class Rows:
    """A draft that may be launched: ids in range, parents before children, no more than fits.

    nodes: index of each row in its tree of num_nodes. mask: bool[n, n], ancestors or self.
    """

    tokens: list[int]
    parents: list[int]
    depths: list[int]
    sources: list[int]
    nodes: list[int]
    num_nodes: int
    mask: torch.Tensor | None

    @classmethod
    def root(cls, token: int) -> Rows:
        """Returns the last committed token alone, as plain decoding launches it."""
        return cls([token], [-1], [0], [TARGET], [0], 1, None)

    @classmethod
    def check(cls, tree: Tree, root: int, *, decodable: int, max_rows: int, max_depth: int) -> Rows:
        """Returns the part of `tree` that may be launched: bad ids go, with what hangs on them.

        Never raises for what a tree holds; a tree with another root goes whole.
        """
        rows = cls.root(root)
        tokens, parents = np.asarray(tree.tokens).tolist(), np.asarray(tree.parents).tolist()
        sources = np.asarray(tree.sources).tolist()
        if not tokens or tokens[0] != root:
            return rows
        row_of = {0: 0}
        for node in range(1, len(tokens)):
            parent = row_of.get(parents[node])
            if parent is None or len(rows.tokens) == max_rows or rows.depths[parent] == max_depth:
                continue
            if not 0 <= tokens[node] < decodable:
                continue
            row_of[node] = len(rows.tokens)
            rows.tokens.append(tokens[node])
            rows.parents.append(parent)
            rows.depths.append(rows.depths[parent] + 1)
            rows.sources.append(sources[node])
            rows.nodes.append(node)
        rows.num_nodes = len(tokens)
        rows.mask = _ancestors(rows.parents)
        return rows

    def top8(self, logits: torch.Tensor) -> np.ndarray[Any, Any]:
        """Returns int32[num_nodes, 8]: ids of the highest of `logits` [rows, V]; -1 for no row."""
        found = np.full((self.num_nodes, 8), -1, dtype=np.int32)
        found[self.nodes] = top_ids(logits, 8).cpu().numpy()
        return found


def _ancestors(parents: Seq[int]) -> torch.Tensor:
    """Returns bool[n, n], [i, j] where j is i or above it; parents come before children."""
    mask = np.eye(len(parents), dtype=bool)
    for row, parent in enumerate(parents):
        if parent >= 0:
            mask[row] |= mask[parent]
    return torch.from_numpy(mask)


@dataclass(frozen=True)
class Round:
    """One pass of the target. Times in seconds of time.perf_counter; num_rows includes the root."""

    start: float
    verify_start: float
    verify_stop: float
    stop: float
    num_rows: int
    num_committed: int


@dataclass
class Metrics:
    """What a request took. Tokens behind the end of the answer are not committed and not accepted.

    prefill_start: in seconds of time.perf_counter.
    accepted, rejected: launched draft nodes by the number of their source. The first token comes
        from prefill, not from a round.
    """

    prefill_start: float = 0.0
    prefill_seconds: float = 0.0
    rounds: list[Round] = field(default_factory=list)
    accepted: dict[int, int] = field(default_factory=dict)
    rejected: dict[int, int] = field(default_factory=dict)

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
    def verify_seconds(self) -> float:
        return sum(one.verify_stop - one.verify_start for one in self.rounds)

    @property
    def host_seconds(self) -> float:
        return sum(one.stop - one.start for one in self.rounds) - self.verify_seconds


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
    ) -> None:
        self.backend = backend
        self.sequence = sequence
        self.output = output
        self.metrics = Metrics()
        self.sources: list[int] = []
        self._chooser = chooser
        self._drafter = drafter
        self._max_nodes = max_nodes

    def start(self, prompt_ids: Seq[int]) -> None:
        """Prefills what of the prompt is not cached and commits the first token of the answer."""
        start = time.perf_counter()
        logits = self.backend.prefill(self.sequence, prompt_ids[self.sequence.length :])
        token = self._chooser.choose(logits, 0)
        self.metrics.prefill_start = start
        self.metrics.prefill_seconds = time.perf_counter() - start
        self._commit([token], [TARGET])

    def step(self) -> None:
        """Runs one round. Mutates: sequence, output, sources, metrics."""
        start = time.perf_counter()
        rows = self._propose()
        length = self.sequence.length
        positions = [length + depth for depth in rows.depths]
        verify_start = time.perf_counter()
        segment = Segment(self.sequence, rows.tokens, positions, rows.mask)
        logits = self.backend.forward([segment])[0]
        path, tokens = self._accept(rows, logits)
        verify_stop = time.perf_counter()
        drafted = [rows.sources[node] for node in path[1:]]
        top8 = None
        if rows.mask is not None and self._drafter is not None and self._drafter.wants_top8:
            top8 = rows.top8(logits[:, : self.backend.decodable])
        num_taken = self._commit(tokens, [*drafted, TARGET], top8)
        self.sequence.keep(path[:num_taken])
        self._count(rows, path[1 : num_taken + 1])
        stop = time.perf_counter()
        self.metrics.rounds.append(
            Round(start, verify_start, verify_stop, stop, len(rows.tokens), num_taken)
        )

    def _propose(self) -> Rows:
        root = self.output.token_ids[-1]
        budget = min(self._max_nodes, self.sequence.capacity - self.sequence.length)
        max_depth = self.output.num_left - 1  # after it comes the last token there may be
        if self._drafter is None or budget == 1 or max_depth == 0:
            return Rows.root(root)
        tree = self._drafter.propose(budget)
        return Rows.check(
            tree, root, decodable=self.backend.decodable, max_rows=budget, max_depth=max_depth
        )

    def _accept(self, rows: Rows, logits: torch.Tensor) -> tuple[list[int], list[int]]:
        """Follows the target's choices from the root; returns the rows passed and all choices."""
        children: dict[tuple[int, int], int] = {}
        for row in range(len(rows.tokens) - 1, 0, -1):
            children[rows.parents[row], rows.tokens[row]] = row
        first = len(self.output.token_ids)
        path: list[int] = [0]
        tokens: list[int] = []
        while True:
            tokens.append(self._chooser.choose(logits[path[-1]], first + len(tokens)))
            child = children.get((path[-1], tokens[-1]))
            if child is None:
                return path, tokens
            path.append(child)

    def _commit(
        self, tokens: list[int], sources: list[int], top8: np.ndarray[Any, Any] | None = None
    ) -> int:
        """Cuts `tokens`, tells the drafter what is left of them, and returns how many that are."""
        num_taken = self.output.add(tokens)
        self.sources += sources[:num_taken]
        if self._drafter is not None:
            self._drafter.commit(tokens[:num_taken], top8)
        return num_taken

    def _count(self, rows: Rows, accepted: list[int]) -> None:
        taken = set(accepted)
        for row in range(1, len(rows.tokens)):
            counts = self.metrics.accepted if row in taken else self.metrics.rejected
            counts[rows.sources[row]] = counts.get(rows.sources[row], 0) + 1
