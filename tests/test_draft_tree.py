# SPDX-License-Identifier: Apache-2.0
"""The draft tree against a naive one, at every shape, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from ooospec._core import _C

HINT = _C.SOURCES["hint"]
MAX_NODES = _C.DraftTree.MAX_NODES

probability = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1, width=32))
step = st.tuples(st.integers(0, 3), probability)
insertion = st.tuples(st.integers(0, 1023), st.lists(step, max_size=12))


def grow(insertions: list) -> tuple[_C.DraftTree, oracles.NaiveTree]:
    tree, naive = _C.DraftTree(9), oracles.NaiveTree(9)
    for parent, steps in insertions:
        parent %= len(tree)
        path = [token for token, _ in steps]
        probabilities = [p for _, p in steps]
        reached = tree.insert(parent, path, probabilities, HINT)
        assert reached == naive.insert(parent, path, probabilities)
        tree.check()
    return tree, naive


def chain(length: int) -> _C.DraftTree:
    tree = _C.DraftTree(0)
    tree.insert(0, range(1, length + 1), [0.5] * length, HINT)
    return tree


def star(length: int) -> _C.DraftTree:
    tree = _C.DraftTree(0)
    for token in range(1, length + 1):
        tree.insert(0, [token], [0.5], HINT)
    return tree


def comb(length: int) -> _C.DraftTree:
    tree = _C.DraftTree(0)
    spine = 0
    for _ in range(length):
        tree.insert(spine, [2], [0.25], HINT)
        spine = tree.insert(spine, [1], [0.75], HINT)
    return tree


def binary(depth: int) -> _C.DraftTree:
    tree = _C.DraftTree(0)
    for leaf in range(2**depth):
        path = [leaf >> level & 1 for level in reversed(range(depth))]
        tree.insert(0, path, [0.5] * depth, HINT)
    return tree


SHAPES = {
    "root": (chain(0), 1),
    "four siblings": (star(4), 5),
    "chain of four": (chain(4), 5),
    "comb": (comb(6), 13),
    "binary, five deep": (binary(5), 63),
    "as many as a mask has bits": (chain(63), 64),
    "one more than that": (chain(64), 65),
    "hint of 5000 tokens": (chain(5000), 1024),
}


@given(st.lists(insertion, max_size=12))
def test_insert_matches_naive_tree(insertions: list) -> None:
    tree, naive = grow(insertions)
    assert list(zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True)) == naive.nodes
    depths = [len(naive.ancestors(node)) - 1 for node in range(len(tree))]
    assert tree.depths.tolist() == depths
    expected = [naive.probability(node) for node in range(len(tree))]
    np.testing.assert_allclose(tree.probabilities, expected, rtol=1e-5, atol=1e-30)


@given(st.lists(insertion, max_size=12), st.integers(1, MAX_NODES))
def test_prune_keeps_the_likeliest_and_masks_are_ancestors(
    insertions: list, num_nodes: int
) -> None:
    tree, naive = grow(insertions)
    p = tree.probabilities.tolist()
    kept = sorted(sorted(range(len(p)), key=lambda node: (-p[node], node))[:num_nodes])
    tree.prune(num_nodes)
    tree.check()
    assert tree.tokens.tolist() == [naive.nodes[node][1] for node in kept]
    assert tree.probabilities.tolist() == [p[node] for node in kept]
    for i, mask in enumerate(tree.masks.tolist()):
        ancestors = {kept.index(node) for node in naive.ancestors(kept[i])}
        assert {j for j in range(64) if mask >> j & 1} == ancestors


@given(
    st.lists(insertion, max_size=20),
    st.integers(0, 80),
    st.lists(st.floats(1, 1000, width=32), max_size=80),
)
def test_best_size_is_best_over_the_whole_curve(
    insertions: list, budget: int, cost_us: list[float]
) -> None:
    tree, _ = grow(insertions)
    most = min(max(budget, 1), len(tree), MAX_NODES, len(cost_us) or MAX_NODES)
    ranked = sorted(tree.probabilities.tolist(), reverse=True)
    rates = [sum(ranked[:n]) / (cost_us[n - 1] if cost_us else 1) for n in range(1, most + 1)]
    size = tree.best_size(budget, cost_us)
    assert 1 <= size <= most
    assert rates[size - 1] == pytest.approx(max(rates), rel=1e-9)


@given(st.lists(insertion, max_size=12), st.data())
def test_accept_follows_the_choices(insertions: list, data: st.DataObject) -> None:
    tree, naive = grow(insertions)
    choice = st.integers(-2, 3)
    choices = data.draw(st.lists(choice, min_size=len(tree), max_size=len(tree) + 2))
    assert tree.accept(choices) == naive.accept(choices)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_works(shape: str) -> None:
    tree, size = SHAPES[shape]
    assert len(tree) == size
    tree.check()
    tree.prune(MAX_NODES)
    tree.check()
    assert len(tree.masks) == min(size, MAX_NODES)
    assert tree.best_size(0) == 1
    assert tree.best_size(1, [5.0]) == 1
    assert len(tree.accept([1] * len(tree))) <= tree.depths.max()
    tree.prune(1)
    assert tree.masks.tolist() == [1]
    assert tree.accept([1]) == []


def test_a_draft_that_is_right_is_accepted_whole() -> None:
    tree = chain(63)
    assert tree.accept([*range(1, 64), 7]) == list(range(1, 64))


def test_arrays_are_copies() -> None:
    tree = chain(3)
    tokens = tree.tokens
    tokens[:] = 99
    tree.reset(5)
    assert tokens.tolist() == [99] * 4
    assert tree.tokens.tolist() == [5]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t.insert(4, [1], [0.5], HINT), IndexError, r"node in \[0, 4\), got 4"),
        (lambda t: t.insert(-1, [1], [0.5], HINT), IndexError, "got -1"),
        (lambda t: t.insert(0, [1, 2], [0.5], HINT), ValueError, "expected 2"),
        (lambda t: t.insert(0, [-7], [0.5], HINT), ValueError, "got -7"),
        (lambda t: t.insert(0, [1], [1.5], HINT), ValueError, "got 1.5"),
        (lambda t: t.insert(0, [1], [float("nan")], HINT), ValueError, "got nan"),
        (lambda t: t.insert(0, [1], [0.5], 0), ValueError, "got 0"),
        (lambda t: t.insert(0, [1], [0.5], 256), ValueError, "got 256"),
        (lambda t: t.insert(0, [1.5], [0.5], HINT), TypeError, "insert"),
        (lambda t: t.insert(0, [2**31], [0.5], HINT), TypeError, "insert"),
        (lambda t: t.insert(0, ["a"], [0.5], HINT), TypeError, "insert"),
        (lambda t: t.best_size(-1), ValueError, "got -1"),
        (lambda t: t.best_size(4, [0.0]), ValueError, "above 0"),
        (lambda t: t.prune(0), ValueError, "got 0"),
        (lambda t: t.prune(65), ValueError, "got 65"),
        (lambda t: t.accept([1]), ValueError, "expected 4"),
        (lambda t: t.reset(-3), ValueError, "got -3"),
        (lambda t: chain(64).masks, RuntimeError, "at most 64"),
    ],
)
def test_mistakes_raise_and_change_nothing(call, error: type, message: str) -> None:
    tree = chain(3)
    with pytest.raises(error, match=message):
        call(tree)
    assert tree.tokens.tolist() == [0, 1, 2, 3]
    tree.check()
