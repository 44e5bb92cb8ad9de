# SPDX-License-Identifier: Apache-2.0
"""From trees to chains, for targets that verify one draft a request."""

from __future__ import annotations

from collections.abc import Sequence

from ooospec._core import _C


def best_path(tree: _C.DraftTree, max_tokens: int) -> list[int]:
    """Returns the nodes of the way down from node 0 on which most tokens are likely to be right.

    Node 0, which is committed, is not one of them. At most `max_tokens`; may be empty.
    """
    parents, depths = tree.parents.tolist(), tree.depths.tolist()
    probabilities = tree.probabilities.tolist()  # that the target gets here
    expected = [0.0] * len(parents)  # tokens right on the way to each node
    for node in range(1, len(parents)):
        expected[node] = expected[parents[node]] + probabilities[node]
    fitting = [node for node, depth in enumerate(depths) if depth <= max_tokens]
    node = max(fitting, key=expected.__getitem__)
    path = []
    while node > 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def best_chain(tree: _C.DraftTree, max_tokens: int) -> list[int]:
    """Returns the tokens of best_path()."""
    found: list[int] = tree.tokens[best_path(tree, max_tokens)].tolist()
    return found


def paying_length(probabilities: Sequence[float], cost_us: Sequence[float]) -> int:
    """Returns how much of a chain gives most tokens for its time; 0 where none of it pays.

    probabilities: float[n], that the target gets to each token. cost_us: float[>= n + 1], time of a
    pass with 0, 1, 2, ... drafted tokens.
    """
    best, length, expected = 1 / cost_us[0], 0, 1.0
    for i, probability in enumerate(probabilities, 1):
        expected += probability
        if expected / cost_us[i] > best:
            best, length = expected / cost_us[i], i
    return length
