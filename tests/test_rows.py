# SPDX-License-Identifier: Apache-2.0
"""What of a draft tree is launched: the quick way against the careful one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ooospec import DraftTree
from ooospec.rows import Rows

ROOT = 7


@dataclass
class Copy:
    """The arrays of a tree, without its class: the careful way reads them."""

    tokens: np.ndarray
    parents: np.ndarray
    sources: np.ndarray


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    tree = DraftTree(draw(st.sampled_from([ROOT, ROOT + 1])))
    for _ in range(draw(st.integers(0, 8))):
        path = draw(st.lists(st.integers(0, 30), max_size=12))
        tree.insert(draw(st.integers(0, len(tree) - 1)), path, [0.5] * len(path), 2)
    tree.prune(draw(st.integers(1, 64)))
    return tree


@given(trees(), st.integers(8, 32), st.integers(1, 64), st.integers(0, 12))
def test_both_ways_launch_the_same(
    tree: DraftTree, decodable: int, max_rows: int, max_depth: int
) -> None:
    room = {"decodable": decodable, "max_rows": max_rows, "max_depth": max_depth}
    quick = Rows.check(tree, ROOT, **room)
    careful = Rows.check(Copy(tree.tokens, tree.parents, tree.sources), ROOT, **room)
    assert quick.num_nodes == careful.num_nodes
    for name in ("tokens", "parents", "depths", "sources", "masks", "nodes"):
        expected, column = getattr(careful, name), getattr(quick, name)
        assert column.dtype == expected.dtype
        np.testing.assert_array_equal(column, expected, err_msg=name)
    mask = quick.mask()
    for row, parent in enumerate(quick.parents.tolist()):
        above = {row} if parent < 0 else {row} | set(mask[parent].nonzero()[:, 0].tolist())
        assert mask is None or set(mask[row].nonzero()[:, 0].tolist()) == above
    assert len(quick) <= max_rows
    assert quick.depths.max() <= max_depth
    assert quick.tokens.max() < max(decodable, ROOT + 1)
