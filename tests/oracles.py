# SPDX-License-Identifier: Apache-2.0
"""Brute-force versions of what the core does fast; slow, short and obviously right."""

from __future__ import annotations

from collections.abc import Sequence


class NaiveTree:
    """A draft tree as a list of (parent, token), looked through from the start each time."""

    def __init__(self, root: int) -> None:
        self.nodes = [(-1, root)]
        self.edges = [1.0]

    def insert(self, parent: int, path: Sequence[int], probabilities: Sequence[float]) -> int:
        for token, probability in zip(path, probabilities, strict=True):
            if (parent, token) in self.nodes:
                node = self.nodes.index((parent, token))
                self.edges[node] = 1 - (1 - self.edges[node]) * (1 - probability)
            elif len(self.nodes) == 1024:
                break
            else:
                node = len(self.nodes)
                self.nodes.append((parent, token))
                self.edges.append(probability)
            parent = node
        return parent

    def ancestors(self, node: int) -> list[int]:
        """Returns node, its parent, ..., the root."""
        path = []
        while node >= 0:
            path.append(node)
            node = self.nodes[node][0]
        return path

    def probability(self, node: int) -> float:
        product = 1.0
        for ancestor in self.ancestors(node):
            product *= self.edges[ancestor]
        return product

    def accept(self, choices: Sequence[int]) -> list[int]:
        path: list[int] = []
        node = 0
        while (node, choices[node]) in self.nodes:
            node = self.nodes.index((node, choices[node]))
            path.append(node)
        return path
