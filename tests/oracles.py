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


class NaiveIndex:
    """Documents in a list; every question is answered by counting in all of them."""

    def __init__(self) -> None:
        self.documents: list[list[int]] = [[]]

    def ends(self, context: Sequence[int]) -> list[tuple[int, int]]:
        """Returns (document, place behind) of each occurrence."""
        length = len(context)
        return [
            (i, end)
            for i, document in enumerate(self.documents)
            for end in range(length, len(document) + 1)
            if document[end - length : end] == list(context)
        ]

    def followers(self, context: Sequence[int]) -> dict[int, int]:
        """Returns how often each token followed."""
        counts: dict[int, int] = {}
        for i, end in self.ends(context):
            for token in self.documents[i][end : end + 1]:
                counts[token] = counts.get(token, 0) + 1
        return counts

    def longest(self, text: Sequence[int]) -> int:
        """Returns the length of the longest suffix that occurs."""
        return max(n for n in range(len(text) + 1) if n == 0 or self.ends(text[-n:]))

    def tail(self) -> int:
        """Returns the length of the open document's longest suffix that ends elsewhere too."""
        text = self.documents[-1]
        return max(n for n in range(len(text) + 1) if n == 0 or len(self.ends(text[-n:])) > 1)

    def branches(self, text: Sequence[int], longest: int) -> list[tuple[int, int, float]]:
        """Returns (match length, times seen, probability) of each first token, best first."""
        found = []
        known: set[int] = set()
        left = 1.0
        num_ends = 0
        for length in range(longest, 0, -1):
            if len(self.ends(text[-length:])) == num_ends:
                continue  # occurs where the longer one does
            num_ends = len(self.ends(text[-length:]))
            counts = self.followers(text[-length:])
            num_places = 1 + sum(counts.values())
            for token in sorted(counts.keys() - known, key=lambda token: -counts[token]):
                found.append((length, counts[token], left * counts[token] / num_places))
            known |= counts.keys()
            left /= num_places
        return found
