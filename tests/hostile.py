# SPDX-License-Identifier: Apache-2.0
"""Drafters that do their worst, and a few that do their best, to find out whether drafts matter."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ooospec._core import _C

SOURCE = _C.SOURCES["external"]
BUDGET = 8  # tokens of an ordinary draft


@dataclass
class PlainTree:
    """Arrays that no DraftTree would hold: bad ids, more nodes than asked for."""

    tokens: np.ndarray
    parents: np.ndarray
    sources: np.ndarray

    @classmethod
    def chain(cls, tokens: Sequence[int]) -> PlainTree:
        size = len(tokens)
        return cls(np.array(tokens), np.arange(size) - 1, np.full(size, SOURCE))


@dataclass
class ScriptedDrafter:
    """Draws each draft from `script(drafter, budget)`, which knows the whole answer in advance."""

    script: Callable[[ScriptedDrafter, int], Any]
    prompt: list[int]
    answer: list[int]
    vocab: int
    eos: int
    seed: int = 0
    committed: list[int] = field(default_factory=list)
    num_proposals: int = 0
    finished: int = 0
    wants_top8: bool = False

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    @property
    def root(self) -> int:
        return self.committed[-1]

    @property
    def rest(self) -> list[int]:
        """What the answer goes on with after the committed tokens."""
        return self.answer[len(self.committed) :]

    def propose(self, budget: int) -> Any:
        self.num_proposals += 1
        return self.script(self, budget)

    def commit(self, tokens: Sequence[int], top8: Any = None) -> None:
        self.committed += tokens

    def prepare(self) -> None:
        pass

    def finish(self) -> None:
        self.finished += 1

    def tree(self, paths: Sequence[Sequence[int]], num_nodes: int = 64) -> Any:
        tree = _C.DraftTree(self.root)
        for path in paths:
            if path:
                tree.insert(0, list(path), [0.9] * len(path), SOURCE)
        tree.prune(min(num_nodes, len(tree)))
        return tree

    def noise(self, size: int) -> list[int]:
        return [self.random.randrange(self.vocab) for _ in range(size)]


def right(d: ScriptedDrafter, budget: int) -> Any:
    return d.tree([d.rest[:BUDGET]], budget)


def half_right(d: ScriptedDrafter, budget: int) -> Any:
    return d.tree([d.rest[:3] + d.noise(5)], budget)


def shifted(d: ScriptedDrafter, budget: int) -> Any:
    return d.tree([d.rest[1 : BUDGET + 1]], budget)


def wrong_one(d: ScriptedDrafter, budget: int) -> Any:
    """One token, always another than the target's."""
    return d.tree([[(token + 1) % d.vocab for token in d.rest[:1]]], budget)


def noise(d: ScriptedDrafter, budget: int) -> Any:
    return d.tree([d.noise(BUDGET) for _ in range(3)], budget)


def all_eos(d: ScriptedDrafter, budget: int) -> Any:
    return d.tree([[d.eos] * BUDGET, [*d.rest[:2], d.eos, *d.rest[2:4]]], budget)


def special(d: ScriptedDrafter, budget: int) -> Any:
    """Ids of specials in the middle of the right tokens, as text copied from a chat would hold."""
    return d.tree([[0] * 4, [1, *d.rest[:3]], [*d.rest[:1], 1, 2, 0]], budget)


def out_of_range(d: ScriptedDrafter, budget: int) -> Any:
    kind = d.num_proposals % 3
    if kind == 0:
        return PlainTree.chain([d.root, *d.rest[:2], d.vocab, *d.rest[2:4]])
    if kind == 1:
        return PlainTree.chain([d.root, -1, *d.rest[:3]])
    return d.tree([[2**31 - 1, 5], d.rest[:4]], budget)


def too_long(d: ScriptedDrafter, budget: int) -> Any:
    if d.num_proposals % 2:
        return PlainTree.chain([d.root, *(d.rest + d.noise(5000))[:5000]])
    return d.tree([d.rest + d.noise(1000)], 64)


def empty(d: ScriptedDrafter, budget: int) -> Any:
    return d.tree([], budget) if d.num_proposals % 2 else PlainTree.chain([])


def wrong_root(d: ScriptedDrafter, budget: int) -> Any:
    return PlainTree.chain([(d.root + 1) % d.vocab, *d.rest[:4]])


def last_sibling(d: ScriptedDrafter, budget: int) -> Any:
    """Three wrong siblings before the right one at every level: what is accepted lies scattered."""
    tokens, parents, parent = [d.root], [-1], 0
    for token in d.rest[:BUDGET]:
        siblings = [t for t in d.noise(3) if t != token]
        tokens += [*siblings, token]
        parents += [parent] * (len(siblings) + 1)
        parent = len(tokens) - 1
    return PlainTree(np.array(tokens), np.array(parents), np.full(len(tokens), SOURCE))


def siblings(d: ScriptedDrafter, budget: int) -> Any:
    """A tree of depth one."""
    return d.tree([[token] for token in {*d.noise(6), *d.rest[:1]}], budget)


def binary(d: ScriptedDrafter, budget: int) -> Any:
    """A full binary tree of depth five, the right path in it where it is."""
    paths = [[]]
    for level in range(5):
        good = d.rest[level : level + 1] or [0]
        paths = [[*path, token] for path in paths for token in (*d.noise(1), *good)]
    return d.tree(paths, 64)


def changing(d: ScriptedDrafter, budget: int) -> Any:
    return d.random.choice([right, shifted, noise, all_eos, empty, last_sibling])(d, budget)


HOSTILE = {
    script.__name__: script
    for script in (
        right,
        half_right,
        shifted,
        wrong_one,
        noise,
        all_eos,
        special,
        out_of_range,
        too_long,
        empty,
        wrong_root,
        last_sibling,
        siblings,
        binary,
        changing,
    )
}
