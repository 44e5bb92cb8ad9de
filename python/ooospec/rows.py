# SPDX-License-Identifier: Apache-2.0
"""The rows of a draft tree that a target verifies, and the way its choices take through them."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

TARGET = 0  # source of a token that nobody drafted; see Source in csrc/common/types.h


class Tree(Protocol):
    """A draft tree as arrays of one length. Node 0 is the last committed token; parent < child."""

    @property
    def tokens(self) -> np.ndarray[Any, Any]: ...
    @property
    def parents(self) -> np.ndarray[Any, Any]: ...
    @property
    def sources(self) -> np.ndarray[Any, Any]: ...


@dataclass
class Rows:
    """A draft that may be launched: ids in range, parents before children, no more than fits.

    nodes: index of each row in its tree of num_nodes, 0 where no tree was drafted. masks: bit j of
    row i is set if row j is row i or above it.
    """

    tokens: list[int]
    parents: list[int]
    depths: list[int]
    sources: list[int]
    nodes: list[int]
    masks: list[int]
    num_nodes: int

    @classmethod
    def root(cls, token: int) -> Rows:
        """Returns the last committed token alone, as plain decoding launches it."""
        return cls([token], [-1], [0], [TARGET], [0], [1], 0)

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
            row = row_of[node] = len(rows.tokens)
            rows.tokens.append(tokens[node])
            rows.parents.append(parent)
            rows.depths.append(rows.depths[parent] + 1)
            rows.sources.append(sources[node])
            rows.nodes.append(node)
            rows.masks.append(rows.masks[parent] | 1 << row)
        rows.num_nodes = len(tokens)
        return rows

    def __len__(self) -> int:
        return len(self.tokens)

    def mask(self) -> torch.Tensor | None:
        """Returns bool[n, n] of `masks`; None for the root alone."""
        if len(self.tokens) == 1:
            return None
        columns = np.arange(len(self), dtype=np.uint64)
        bits = np.array(self.masks, dtype=np.uint64)[:, None] >> columns
        return torch.from_numpy((bits & np.uint64(1)).astype(bool))

    def follow(self, choose: Callable[[int, int], int]) -> tuple[list[int], list[int]]:
        """Follows the target's choices from the root; returns the rows passed and all choices.

        choose(row, depth): the token that the target writes after `row`, `depth` below the root.
        """
        children: dict[tuple[int, int], int] = {}
        for row in range(len(self.tokens) - 1, 0, -1):
            children[self.parents[row], self.tokens[row]] = row
        path: list[int] = [0]
        tokens: list[int] = []
        while True:
            tokens.append(choose(path[-1], len(tokens)))
            child = children.get((path[-1], tokens[-1]))
            if child is None:
                return path, tokens
            path.append(child)

    def spread(self, found: Seq[Seq[int]] | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns int32[num_nodes, 8] with found[row] at the row's node; -1 for nodes without."""
        nodes = np.full((self.num_nodes, 8), -1, dtype=np.int32)
        nodes[self.nodes] = found
        return nodes
