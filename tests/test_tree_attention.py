# SPDX-License-Identifier: Apache-2.0
"""Attention of packed rows over paged KV: against float64, and against itself to the bit."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ooospec import ops
from tree_cases import DEVICE, ON_GPU, Case, Shape, Tree, far, random_tree

gpu = pytest.mark.gpu
NUM_ROWS = 64 if ON_GPU else 6

# (query heads, kv heads, head dim) of released models
MODELS = {
    "Qwen2.5-0.5B": Shape(14, 2, 64),
    "Qwen2.5-1.5B": Shape(12, 2, 128),
    "Qwen2.5-3B": Shape(16, 2, 128),
    "Qwen2.5-7B": Shape(28, 4, 128),
    "Qwen2.5-14B": Shape(40, 8, 128),
    "Qwen3-0.6B": Shape(16, 8, 128),
    "Qwen3-8B": Shape(32, 8, 128),
    "Qwen3-32B": Shape(64, 8, 128),
    "Llama-3.2-1B": Shape(32, 8, 64),
    "Llama-3.2-3B": Shape(24, 8, 128),
    "Mistral-7B": Shape(32, 8, 128, window=4096),
    "Gemma-3-1B": Shape(4, 1, 256, window=512),
    "Gemma-2-2B": Shape(8, 4, 256, window=4096, softcap=50.0),
    "Phi-3-mini": Shape(32, 32, 96),
    "Phi-2": Shape(32, 32, 80),
}
SMALL = {
    "group of 1": Shape(2, 2, 64),
    "group of 5": Shape(5, 1, 64),
    "group of 7": Shape(14, 2, 32),
    "group of 16": Shape(16, 1, 64),
    "dim 80": Shape(4, 1, 80),
    "dim 128": Shape(4, 1, 128),
    "dim 256": Shape(2, 1, 256),
    "window": Shape(4, 1, 64, window=150),
    "window within the tail": Shape(4, 1, 64, window=20),
    "window of one": Shape(4, 1, 64, window=1),
    "soft cap": Shape(4, 1, 64, softcap=2.0),
}
SHAPES = MODELS if ON_GPU else SMALL


def check(case: Case) -> None:
    """Compares with the reference; the error of a sum of weights is that of its dtype."""
    got, expected = case.run().double().cpu(), case.run_reference().double().cpu()
    limit = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}[case.q.dtype]
    assert bool(expected.isfinite().all())
    assert float((got - expected).norm() / expected.norm()) < limit
    assert float((got - expected).abs().max()) < 4 * limit


def mixed_trees(seed: int) -> list[Tree]:
    """Trees of several sizes at lengths that are short, odd, and at a border of blocks."""
    random = np.random.default_rng(seed)
    sizes = (20, 1, 30, 5, 3) if ON_GPU else (4, 1, 2)
    lengths = (1500, 0, 128, 63, 700) if ON_GPU else (400, 0, 128)
    return [random_tree(random, *pair) for pair in zip(lengths, sizes, strict=True)]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_rows_of_trees_agree_with_float64(shape: Shape) -> None:
    check(Case(shape, mixed_trees(1)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_other_dtypes(dtype: torch.dtype) -> None:
    check(Case(Shape(4, 2, 64), mixed_trees(2), dtype=dtype))


@gpu
@pytest.mark.parametrize("length", [511, 512, 2048, 8192, 32768])
def test_long_sequences_agree_with_float64(length: int) -> None:
    check(Case(MODELS["Qwen3-8B"], [random_tree(np.random.default_rng(length), length, 64)]))


def nodes(random: np.random.Generator, count: int) -> list[int]:
    """Returns the rows of a tree that are looked at: all of them, or the last and some more."""
    if count <= 4:
        return list(range(count))
    some = min(count, 12 if ON_GPU else 1)
    return sorted({count - 1, *random.choice(count, some, replace=False).tolist()})


def check_paths(case: Case, seed: int, got: torch.Tensor | None = None) -> None:
    """Each row has the bits of the launch in which its ancestors are committed."""
    got = case.run() if got is None else got
    random = np.random.default_rng(seed)
    for tree_idx, (first, tree) in enumerate(zip(case.rows.first_rows, case.trees, strict=True)):
        for row in nodes(random, len(tree.parents)):
            alone = case.commit(tree_idx, row).run()
            assert torch.equal(alone[0], got[first + row]), f"tree {tree_idx}, row {row}"


# Around borders of pages, of the first split, and where splits become larger or more: with 8 splits
# on a GPU behind 4, 8, 12, 16, 32, 40 blocks; with the 4 of these tests on a CPU behind 2, 4, 8, 12
# blocks; and the 63 of the tail.
SHORT = [0, 1, 62, 63, 64, 65, 126, 127, 128, 190]
LONG = [319, 570, 574, 575, 576, 600, 831, 1080, 1087, 1088, 1150, 2105, 2111, 2623]
LONG = LONG if ON_GPU else [310, 319, 575]


@pytest.mark.parametrize("length", [*SHORT[:: 1 if ON_GPU else 4], *LONG])
def test_a_row_has_the_bits_of_its_path_decoded_token_by_token(length: int) -> None:
    """Also over a border: the rows of one tile may differ in their blocks and splits."""
    random = np.random.default_rng(length)
    shape = MODELS["Qwen3-8B"] if ON_GPU else Shape(4, 1, 32)
    check_paths(Case(shape, [random_tree(random, length, NUM_ROWS)]), length)


@gpu
@pytest.mark.parametrize("shape", MODELS.values(), ids=MODELS)
def test_every_configuration_has_the_bits_of_plain_decoding(shape: Shape) -> None:
    random = np.random.default_rng(7)
    for length in (500, 511, 1024, 1087, 2100, 4100):
        length += int(random.integers(-64, 64))
        check_paths(Case(shape, [random_tree(random, length, 64)]), length)
    check_paths(Case(shape, mixed_trees(3)), 3)


@pytest.mark.parametrize("kind", ["window", "window within the tail", "soft cap", "dim 80"])
def test_windows_and_caps_have_the_bits_of_plain_decoding(kind: str) -> None:
    random = np.random.default_rng(5)
    check_paths(Case(SMALL[kind], [random_tree(random, 300, NUM_ROWS)]), 5)


def test_the_deepest_draft_still_finds_all_its_ancestors() -> None:
    """A row 63 deep has all rows, and no committed token, in its tail."""
    chain = Tree(70, list(range(-1, 63)), seed=3)
    case = Case(Shape(1, 1, 16), [chain], num_rows=64)
    assert torch.equal(case.commit(0, 63, num_rows=NUM_ROWS).run()[0], case.run()[63])


def test_pages_rows_and_neighbours_do_not_change_a_bit() -> None:
    """Alone, packed behind strangers, over other pages, with room for more: the same bits."""
    shape = MODELS["Qwen2.5-7B"] if ON_GPU else Shape(7, 1, 32)
    random = np.random.default_rng(11)
    border = 1087 if ON_GPU else 319
    tree = random_tree(random, border - 3, NUM_ROWS // 2)
    others = [
        random_tree(random, size, max(1, NUM_ROWS // 8)) for size in (40, border + 3, 200, 64)
    ]
    expected = Case(shape, [tree]).run()
    assert torch.equal(Case(shape, [tree], seed=1).run(), expected)
    assert torch.equal(Case(shape, [tree], spare_pages=17).run(), expected)
    size = len(tree.parents)
    for before in range(0, len(others) + 1, 1 if ON_GPU else 3):
        case = Case(shape, [*others[:before], tree, *others[before:]], seed=before)
        first = case.rows.first_rows[before]
        assert torch.equal(case.run()[first : first + size], expected)


def test_slots_may_lie_farther_away_than_int32_reaches() -> None:
    tree = random_tree(np.random.default_rng(17), 150, 6)
    case = Case(Shape(2, 1, 32), [tree], dtype=torch.float16)
    expected = case.run()
    case.keys, case.values = far(case.keys), far(case.values)
    assert torch.equal(case.run(), expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the poisoned rows have them
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_what_a_row_does_not_see_may_be_anything(poison: float) -> None:
    random = np.random.default_rng(13)
    trees = [random_tree(random, 200, 4), Tree(150, [-1, 0, 0, 1], seed=14)]
    case = Case(Shape(4, 1, 32), trees)
    expected = case.run()
    path = case.trees[1].path(3)
    hidden = [i for i in range(4) if i not in path]
    assert hidden
    for part in (case.keys, case.values):
        part[case.slots(case.trees[1], [150 + i for i in hidden])] = poison
        part[case.slots(case.trees[0], range(204))] = poison
    case.q[:4] = poison
    case.q[[4 + i for i in hidden]] = poison
    assert torch.equal(case.run()[7], expected[7])


@pytest.mark.parametrize("num_shared", [190, 320])
def test_branches_that_share_a_prefix_read_it_once(num_shared: int) -> None:
    """The bits are those of sequences that share nothing, for any part that is declared shared."""
    shape = MODELS["Qwen3-0.6B"] if ON_GPU else Shape(2, 1, 32)
    random = np.random.default_rng(17)
    lengths = [320 + int(extra) for extra in random.integers(0, 90, 32 if ON_GPU else 5)]
    trees = [Tree(length, [-1], seed=i) for i, length in enumerate(lengths)]
    case = Case(shape, [*trees, random_tree(random, 100, 2)])
    prefix = case.trees[0]
    for index, branch in enumerate(case.trees[1:-1], start=1):
        for part in (case.keys, case.values):
            slots = case.slots(prefix, range(320))
            part[case.slots(branch, range(320))] = part[slots]
        branch.pages[:5] = prefix.pages[:5]
        case.rows.page_table[index, :5] = torch.tensor(prefix.pages[:5])
    expected = case.run()
    leaders = torch.zeros(len(case.trees), dtype=torch.int32, device=DEVICE)
    shared = torch.full_like(leaders, num_shared)
    leaders[-1], shared[-1] = len(case.trees) - 1, 100
    plan = case.plan(leaders, shared)
    assert torch.equal(case.run(plan), expected)
    if num_shared == 320:
        alone = case.plan()
        ops.tail_slots(alone)
        assert int((plan.work[:, 0] > 0).sum()) < int((alone.work[:, 0] > 0).sum())


def test_one_plan_serves_every_round() -> None:
    """The rows' data change, their addresses do not; what an earlier round left is not read."""
    random = np.random.default_rng(19)
    shape = Shape(4, 1, 32)
    long, short = (Case(shape, [random_tree(random, length, 5)]) for length in (500, 90))
    plan = long.plan()
    long.run(plan)
    rows = plan.rows
    for name in ("positions", "sequences", "mask", "slots", "lengths"):
        getattr(rows, name).copy_(getattr(short.rows, name))
    rows.page_table[:, : short.rows.page_table.shape[1]] = short.rows.page_table
    assert torch.equal(short.run(plan), short.run())


# --- the caller's mistakes ------------------------------------------------------------------------


def plan_of(case: Case, **changed: object) -> ops.TreePlan:
    rows = SimpleNamespace(**{**vars(case.rows), **changed})
    return ops.TreePlan(rows, 4, 2, 32)


def test_a_plan_says_what_is_wrong_with_its_rows() -> None:
    case = Case(Shape(4, 2, 32), [Tree(10, [-1])])
    with pytest.raises(ValueError, match=r"positions: expected torch\.int32"):
        plan_of(case, positions=case.rows.positions.long())
    with pytest.raises(ValueError, match=r"mask: expected torch\.int64"):
        plan_of(case, mask=case.rows.mask[:-1])
    with pytest.raises(ValueError, match="page_table: expected"):
        plan_of(case, page_table=case.rows.page_table.long())
    with pytest.raises(ValueError, match="1 to 64 rows"):
        plan_of(case, positions=torch.zeros(65, dtype=torch.int32))
    with pytest.raises(ValueError, match="leaders, num_shared: expected both or neither"):
        ops.TreePlan(case.rows, 4, 2, 32, leaders=case.rows.lengths)
    with pytest.raises(ValueError, match="1 to 16 heads a kv head"):
        ops.TreePlan(case.rows, 17, 1, 32)


def test_attention_says_what_is_wrong_with_its_tensors() -> None:
    case = Case(Shape(4, 2, 32), [Tree(10, [-1])])
    plan = case.plan()
    tensors = {"q": case.q, "keys": case.keys, "values": case.values, "plan": plan, "out": case.out}
    ops.tail_slots(plan)
    ops.tree_attention(**tensors, scale=1.0)
    with pytest.raises(ValueError, match="q: expected"):
        ops.tree_attention(**{**tensors, "q": case.q[:, :2]}, scale=1.0)
    with pytest.raises(ValueError, match="out: expected"):
        ops.tree_attention(**{**tensors, "out": case.out.double()}, scale=1.0)
    with pytest.raises(ValueError, match="expected equal strides"):
        ops.tree_attention(**{**tensors, "values": case.values.contiguous()}, scale=1.0)
    uneven = torch.zeros(len(case.keys), 2, 33, dtype=case.q.dtype, device=DEVICE)[..., :32]
    with pytest.raises(ValueError, match="expected slots and heads at multiples of 16 bytes"):
        ops.tree_attention(**{**tensors, "keys": uneven, "values": uneven}, scale=1.0)


def test_the_reference_is_what_runs_without_a_kernel() -> None:
    case = Case(replace(SMALL["window"], window=70), [Tree(100, [-1, 0, 0])])
    with ops.using("reference"):
        assert torch.equal(case.run(), case.run_reference())
