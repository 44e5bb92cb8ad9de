# SPDX-License-Identifier: Apache-2.0
"""From trees to chains, for targets that verify one draft a request."""

from __future__ import annotations

from ooospec._core import _C


def best_chain(tree: _C.DraftTree, max_tokens: int) -> list[int]:
    """Returns the way down from node 0 on which most tokens are likely to be right.

    Node 0, which is committed, is not part of it. At most `max_tokens` of it; may be empty.
    """
    parents, depths = tree.parents.tolist(), tree.depths.tolist()
    probabilities = tree.probabilities.tolist()  # that the target gets here
    expected = [0.0] * len(parents)  # tokens right on the way to each node
    for node in range(1, len(parents)):
        expected[node] = expected[parents[node]] + probabilities[node]
    fitting = [node for node, depth in enumerate(depths) if depth <= max_tokens]
    node = max(fitting, key=expected.__getitem__)
    tokens = tree.tokens.tolist()
    chain = []
    while node > 0:
        chain.append(tokens[node])
        node = parents[node]
    return chain[::-1]
