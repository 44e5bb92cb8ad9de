# SPDX-License-Identifier: Apache-2.0
"""What attention derives from the rows of a round: slots of the tails, pieces of the heads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ooospec import ops
from ooospec.reference import seen_slots_ref
from tree_cases import DEVICE, Case, Shape, Tree, random_tree


def planned(trees: list[Tree], num_heads: int = 4, num_rows: int = 16) -> ops.TreePlan:
    case = Case(Shape(num_heads, 1, 16), trees, num_rows=num_rows)
    plan = case.plan()
    plan.tails.fill_(-7)
    ops.tail_slots(plan)
    return plan


@pytest.mark.parametrize("length", [0, 1, 62, 63, 64, 65, 127, 128, 129, 1000])
def test_the_last_64_positions_are_found(length: int) -> None:
    random = np.random.default_rng(length)
    trees = [random_tree(random, length, 9), random_tree(random, 70, 5)]
    plan = planned(trees)
    rows = plan.rows
    seen = seen_slots_ref(
        rows.positions, rows.mask, rows.sequences, rows.slots, rows.lengths, rows.page_table
    )
    for row, slots in enumerate(seen):
        tail = slots[-64:]
        assert plan.tails[row, 64 - len(tail) :].tolist() == tail.tolist()
        assert (plan.tails[row, : 64 - len(tail)] == -1).all()


def test_a_chain_of_64_rows_uses_every_bit_of_the_mask() -> None:
    plan = planned([Tree(5, list(range(-1, 63)))], num_rows=64)
    assert int(plan.rows.mask[63]) == -1
    assert plan.tails[63].tolist() == plan.rows.slots.tolist()


def pieces(plan: ops.TreePlan) -> list[list[int]]:
    work = plan.work.tolist()
    count = [piece[0] for piece in work].index(0)
    assert len(work) >= count + 512
    assert not any(piece[0] for piece in work[count : count + 512])
    return work[:count]


def check_pieces(plan: ops.TreePlan, tile_rows: int) -> int:
    """Every split of every row is done by one piece, over pages that hold the row's tokens."""
    rows = plan.rows
    sequences, positions = rows.sequences.tolist(), rows.positions.tolist()
    sizes = plan.split_blocks.tolist()
    done: dict[tuple[int, int], int] = {}
    for size, sequence, first, count, split, least, most, _ in pieces(plan):
        assert 1 <= count <= tile_rows
        heads = []
        for row in range(first, first + count):
            head = max(0, positions[row] - 63)
            if sizes[row] == size:
                heads.append(head)
            if sizes[row] == size and split * size * 64 < head:
                done[row, split] = done.get((row, split), 0) + 1
                last = min(-(-head // 64), (split + 1) * size)
                blocks = slice(split * size, last)
                pages = rows.page_table[sequences[row], blocks]
                assert torch.equal(rows.page_table[sequence, blocks], pages)
        assert [least, most] == [min(heads), max(heads)]
        assert most > split * size * 64
    expected = {
        (row, split): 1
        for row, sequence in enumerate(sequences)
        if sequence >= 0
        for split in range(-(-max(0, positions[row] - 63) // (64 * sizes[row])))
    }
    assert done == expected
    return len(pieces(plan))


@pytest.mark.parametrize("num_heads", [1, 7, 16])
def test_heads_are_done_once(num_heads: int) -> None:
    random = np.random.default_rng(num_heads)
    for _ in range(2):
        lengths = random.choice([0, 63, 64, 127, 500, 1080, 1087, 3000, 9000], 5)
        trees = [
            random_tree(random, int(length), int(random.integers(1, 13))) for length in lengths
        ]
        plan = planned(trees, num_heads, num_rows=64)
        check_pieces(plan, plan.tiling.tile_rows)


def test_splits_are_a_function_of_the_position_alone() -> None:
    """Their size never shrinks, needs no more than the room there is, and fills most of it."""
    positions = torch.arange(0, 400_000, 7, dtype=torch.int32, device=DEVICE)
    sizes = []
    for part in positions.split(64)[::400]:
        rows = Case(Shape(1, 1, 16), [Tree(1, [-1])], num_rows=len(part)).rows
        rows.positions, rows.sequences = part.contiguous(), torch.zeros_like(part)
        plan = ops.TreePlan(rows, 1, 1, 16)
        ops.tail_slots(plan)
        sizes += plan.split_blocks.tolist()
        blocks = (part - 63).clamp(min=0).add(63) // 64
        splits = -(-blocks // plan.split_blocks)
        most, few = plan.tiling.max_splits, plan.tiling.few_splits
        assert int(splits.max()) <= most
        assert bool((splits[blocks > most * plan.tiling.enough_blocks] > most // 2).all())
        assert bool((splits[blocks >= few] > few // 2).all())
    assert sizes == sorted(sizes)


def test_sequences_of_one_leader_share_their_pieces() -> None:
    """A family of branches, one that shares nothing, one of another family."""
    random = np.random.default_rng(1)
    shared = [640, 640, 640, 384, 0]
    trees = [Tree(length, [-1, 0]) for length in (700, 720, 1200, 690, 650)]
    case = Case(Shape(4, 1, 16), [*trees, random_tree(random, 300, 3)], num_rows=16)
    for index, count in enumerate(shared):
        case.rows.page_table[index, : count // 64] = case.rows.page_table[0, : count // 64]
    leaders = torch.tensor([0, 0, 0, 0, 0, 5], dtype=torch.int32, device=DEVICE)
    num_shared = torch.tensor([*shared, 300], dtype=torch.int32, device=DEVICE)
    alone = case.plan()
    for counts in (shared, [640, 640, 640, 384, 384], [64 * 9, 640, 640, 640, 640]):
        for index, count in enumerate(counts):
            case.rows.page_table[index, : count // 64] = case.rows.page_table[0, : count // 64]
        num_shared[:5] = torch.tensor(counts, dtype=torch.int32)
        plan = case.plan(leaders, num_shared)
        ops.tail_slots(plan)
        ops.tail_slots(alone)
        count = check_pieces(plan, plan.tiling.tile_rows)
        assert count <= check_pieces(alone, plan.tiling.tile_rows)
    assert count < check_pieces(alone, plan.tiling.tile_rows) * 0.7
