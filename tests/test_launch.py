# SPDX-License-Identifier: Apache-2.0
"""What the sequences of a launch have in common: found from their pages, and read once."""

from __future__ import annotations

import pytest
import torch

from ooospec import ops
from ooospec.backends.launch import Launch
from ooospec.kv import LayerShape, PagePool, Sequence

HEADS, KV_HEADS, DIM = 4, 2, 32
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def new_launch(num_pages: int = 40) -> Launch:
    shape = LayerShape(KV_HEADS, DIM, DIM)
    pool = PagePool(
        [shape], num_pages, page_size=ops.BLOCK, dtype=torch.float32, device=torch.device(DEVICE)
    )
    return Launch(pool, 64, num_sequences=6, max_tokens=1024)


def of_length(launch: Launch, length: int) -> Sequence:
    sequence = Sequence(launch.pool)
    sequence.reserve(length + 64)
    sequence.length = length
    return sequence


def add(launch: Launch, *sequences: Sequence) -> tuple[list[int], list[int]]:
    """Starts a launch with two rows of each; returns leaders and pages shared with them."""
    launch.begin()
    for one in sequences:
        launch.add(one, [1, 2], [one.length, one.length + 1], [-1, 0], [1, 3])
    launch.copy_in()
    count = len(sequences)
    pages = launch.num_shared[:count] // ops.BLOCK
    return launch.leaders[:count].tolist(), pages.tolist()


def test_forks_are_led_by_the_first_of_their_neighbours() -> None:
    launch = new_launch()
    main, other = of_length(launch, 200), of_length(launch, 300)
    forks = [main.fork(264), main.fork(264, length=130)]
    assert add(launch, main, *forks, other) == ([0, 0, 0, 3], [5, 3, 2, 6])
    assert add(launch, main, *forks, other) == ([0, 0, 0, 3], [5, 3, 2, 6])
    # Others at the same places; what stands apart from its family begins one of its own.
    assert add(launch, other, main, other, forks[0]) == ([0, 1, 2, 3], [6, 5, 6, 5])
    assert add(launch, forks[1], main, forks[0]) == ([0, 0, 0], [5, 2, 2])
    main.reserve(main.capacity + 1)  # its page table grows
    assert add(launch, main, forks[0]) == ([0, 0], [6, 3])
    forks[0].release()
    again = of_length(launch, 200)  # takes the pages that the fork had to itself
    assert add(launch, main, again) == ([0, 1], [6, 5])


def test_a_prefix_of_the_cache_is_a_family() -> None:
    launch = new_launch()
    first = of_length(launch, 256)
    second, third = (Sequence(launch.pool) for _ in range(2))
    for one, count in ((second, 3), (third, 1)):
        one.share(first.pages[:count])
        one.reserve(512)
    assert add(launch, second, third, first) == ([0, 0, 0], [8, 1, 3])


@pytest.mark.parametrize("is_right", [True, False], ids=["families", "a wrong family"])
def test_a_launch_of_families_has_the_bits_of_one_without(is_right: bool) -> None:
    launch = new_launch()
    generator = torch.Generator(DEVICE).manual_seed(1)
    for block in launch.pool.blocks:
        block.normal_(generator=generator)
    main, other = of_length(launch, 600), of_length(launch, 580)
    forks = [main.fork(664), main.fork(664, length=590), main.fork(664, length=400)]
    add(launch, main, *forks, other)
    q = torch.randn(64, HEADS, DIM, device=DEVICE, generator=generator)

    def attend(**family: torch.Tensor) -> tuple[torch.Tensor, int]:
        plan = ops.TreePlan(launch, HEADS, KV_HEADS, DIM, **family)
        ops.tail_slots(plan)
        out = torch.zeros_like(q)
        keys, values = launch.pool.keys[0], launch.pool.values[0]
        ops.tree_attention(q, keys, values, plan, out, DIM**-0.5)
        return out[:10], int((plan.work[:, 0] > 0).sum())

    alone, num_alone = attend()
    if not is_right:  # the last shares nothing
        launch.leaders.zero_()
        launch.num_shared.fill_(512)
    out, num_pieces = attend(leaders=launch.leaders, num_shared=launch.num_shared)
    assert torch.equal(out, alone) == is_right
    assert num_pieces < num_alone
