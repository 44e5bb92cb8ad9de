# SPDX-License-Identifier: Apache-2.0
"""The rows of a draft tree that a target verifies, and the way its choices take through them."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ooospec._core import _C

TARGET = 0  # source of a token that nobody drafted; see Source in csrc/common/types.h


class Tree(Protocol):
    """A draft tree as arrays of one length. Node 0 is the last committed token; parent < child."""

    @property
    def tokens(self) -> np.ndarray[Any, Any]: ...
    @property
    def parents(self) -> np.ndarray[Any, Any]: ...
    @property
    def sources(self) -> np.ndarray[Any, Any]: ...


class Rows:
    """A draft that may be launched: ids in range, parents before children, no more than fits.

    core: the columns. tokens, parents, depths: int32[n]; sources: uint8[n]; the root is row 0, its
    parent -1.
    masks: uint64[n]; bit j of row i is set if row j is row i or above it.
    nodes: int32[n], index of each row in its tree of num_nodes; that is 0 where nobody drafted.
    """

    __slots__ = ("_num_rows", "core", "num_nodes")

    def __init__(self, core: _C.DraftRows) -> None:
        self.core = core
        self._num_rows = len(core)
        self.num_nodes: int = core.num_nodes

    @classmethod
    def root(cls, token: int) -> Rows:
        """Returns the last committed token alone, as plain decoding launches it."""
        return cls(_C.DraftRows.root(token))

    @classmethod
    def of(
        cls,
        tokens: Seq[int],
        parents: Seq[int],
        depths: Seq[int],
        sources: Seq[int],
        masks: Seq[int],
        nodes: Seq[int],
        num_nodes: int,
    ) -> Rows:
        """Returns the rows of these columns. Raises ValueError unless they have one length."""
        return cls(_C.DraftRows(tokens, parents, depths, sources, masks, nodes, num_nodes))

    @classmethod
    def behind(cls, given: Seq[int], tree: _C.DraftTree, *, decodable: int) -> Rows:
        """Returns a tree behind a chain of `given` tokens; of a tree with bad ids the root alone.

        Raises ValueError for more rows than a launch has.
        """
        if int(tree.tokens.max()) >= decodable:
            tree.prune(1)
        return cls(_C.DraftRows.behind(given, tree))

    @classmethod
    def check(cls, tree: Tree, root: int, *, decodable: int, max_rows: int, max_depth: int) -> Rows:
        """Returns the part of `tree` that may be launched: bad ids go, with what hangs on them.

        Never raises for what a tree holds; a tree with another root goes whole.
        """
        if isinstance(tree, _C.DraftTree):
            core = _C.DraftRows.of_tree(tree, root, decodable, max_rows, max_depth)
            if core is not None:
                return cls(core)
        return cls._pick(tree, root, decodable=decodable, max_rows=max_rows, max_depth=max_depth)

    @classmethod
    def _pick(cls, tree: Tree, root: int, *, decodable: int, max_rows: int, max_depth: int) -> Rows:
        """check() for a tree of which something may have to go, or that is not one."""
        tree_tokens, tree_parents = (
            np.asarray(tree.tokens).tolist(),
            np.asarray(tree.parents).tolist(),
        )
        tree_sources = np.asarray(tree.sources).tolist()
        if not tree_tokens or tree_tokens[0] != root:
            return cls.root(root)
        tokens, parents, depths, sources, masks, nodes = [root], [-1], [0], [TARGET], [1], [0]
        row_of = {0: 0}
        for node in range(1, len(tree_tokens)):
            parent = row_of.get(tree_parents[node])
            if parent is None or len(tokens) == max_rows or depths[parent] == max_depth:
                continue
            if not 0 <= tree_tokens[node] < decodable:
                continue
            row = row_of[node] = len(tokens)
            tokens.append(tree_tokens[node])
            parents.append(parent)
            depths.append(depths[parent] + 1)
            sources.append(tree_sources[node])
            masks.append(masks[parent] | 1 << row)
            nodes.append(node)
        return cls.of(tokens, parents, depths, sources, masks, nodes, len(tree_tokens))

    def __len__(self) -> int:
        return self._num_rows

    @property
    def tokens(self) -> npt.NDArray[np.int32]:
        return self.core.tokens

    @property
    def parents(self) -> npt.NDArray[np.int32]:
        return self.core.parents

    @property
    def depths(self) -> npt.NDArray[np.int32]:
        return self.core.depths

    @property
    def sources(self) -> npt.NDArray[np.uint8]:
        return self.core.sources

    @property
    def masks(self) -> npt.NDArray[np.uint64]:
        return self.core.masks

    @property
    def nodes(self) -> npt.NDArray[np.int32]:
        return self.core.nodes

    def mask(self) -> torch.Tensor | None:
        """Returns bool[n, n] of `masks`; None for the root alone."""
        if len(self) == 1:
            return None
        bits = self.masks[:, None] >> np.arange(len(self), dtype=np.uint64)
        return torch.from_numpy((bits & np.uint64(1)).astype(bool))

    def follow(
        self, choose: Callable[[int, int], int], num_given: int = 0
    ) -> tuple[list[int], list[int]]:
        """Follows the target's choices from the root; returns the rows passed and all choices.

        choose(row, depth): the token that the target writes after `row`, `depth` below the root.
        num_given: rows before the root that are passed, whatever the target would write.
        """
        drafted, parents = self.tokens.tolist(), self.parents.tolist()
        children: dict[tuple[int, int], int] = {}
        for row in range(len(drafted) - 1, 0, -1):
            children[parents[row], drafted[row]] = row
        path: list[int] = list(range(num_given + 1))
        tokens: list[int] = []
        while True:
            tokens.append(choose(path[-1], len(tokens)))
            child = children.get((path[-1], tokens[-1]))
            if child is None:
                return path, tokens
            path.append(child)

    def spread(self, found: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Returns int32[num_nodes, 8] with found[row] at the row's node; -1 for nodes without."""
        if len(self) == self.num_nodes:
            return found
        nodes = np.full((self.num_nodes, 8), -1, dtype=np.int32)
        nodes[self.nodes] = found
        return nodes
