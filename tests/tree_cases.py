# SPDX-License-Identifier: Apache-2.0
"""Launches of random trees over paged KV in which everything that must not be read is NaN."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from ooospec import ops

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
# Triton's interpreter takes the bits of bfloat16 for integers.
DTYPE = torch.bfloat16 if ON_GPU else torch.float32
PAGE = 64


@dataclass
class Tree:
    """Rows of one sequence: `length` committed tokens, then rows with parents before children.

    seed: of its queries, keys and values.
    """

    length: int
    parents: list[int]
    seed: int = 0
    pages: list[int] = field(default_factory=list)

    @property
    def depths(self) -> list[int]:
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return depths

    def path(self, row: int) -> list[int]:
        """Returns the rows from the root to `row`."""
        path = [row]
        while self.parents[path[0]] >= 0:
            path.insert(0, self.parents[path[0]])
        return path


def random_tree(random: np.random.Generator, length: int, num_rows: int) -> Tree:
    """Returns a tree of chains that leave each other at random."""
    parents = [-1]
    while len(parents) < num_rows:
        chain = random.random() < 0.7
        parents.append(len(parents) - 1 if chain else int(random.integers(len(parents))))
    return Tree(length, parents, seed=int(random.integers(1 << 30)))


class TreeRows:
    """Rows of trees, then padding up to `num_rows`, as `ops.LaunchRows` has them."""

    def __init__(
        self, trees: list[Tree], num_rows: int, *, spare_slot: int, num_pages: int
    ) -> None:
        positions = np.full(num_rows, 5000, np.int32)
        sequences = np.full(num_rows, -1, np.int32)
        mask = np.zeros(num_rows, np.uint64)
        slots = np.full(num_rows, spare_slot, np.int64)
        table = np.zeros((len(trees), num_pages), np.int32)
        self.first_rows = []
        row = 0
        for index, tree in enumerate(trees):
            self.first_rows.append(row)
            table[index, : len(tree.pages)] = tree.pages
            for i, depth in enumerate(tree.depths):
                behind = tree.length + i
                positions[row] = tree.length + depth
                sequences[row] = index
                slots[row] = tree.pages[behind // PAGE] * PAGE + behind % PAGE
                for above in tree.path(i):
                    mask[row] |= np.uint64(1) << np.uint64(self.first_rows[-1] + above)
                row += 1
        self.num_real = row
        lengths = np.array([tree.length for tree in trees], np.int32)
        self.positions = torch.from_numpy(positions).to(DEVICE)
        self.sequences = torch.from_numpy(sequences).to(DEVICE)
        self.mask = torch.from_numpy(mask.view(np.int64)).to(DEVICE)
        self.slots = torch.from_numpy(slots).to(DEVICE)
        self.lengths = torch.from_numpy(lengths).to(DEVICE)
        self.page_table = torch.from_numpy(table).to(DEVICE)


@dataclass(frozen=True)
class Shape:
    """Heads of a model, and how its attention differs."""

    num_heads: int
    num_kv_heads: int
    dim: int
    window: int | None = None
    softcap: float | None = None


def guarded(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Returns a view into a larger tensor, all of it NaN: strided, with zones around."""
    whole = torch.full((shape[0] + 2, shape[1] + 2, shape[2] + 16), torch.nan, dtype=dtype)
    return whole.to(DEVICE)[1:-1, 1:-1, 8:-8]


def far(part: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Returns a copy of a tensor whose upper half of entries along `dim` lies more than 2**31
    elements behind the first. Of its memory, only what the entries take is touched.
    """
    step = -(-(1 << 31) // (part.shape[dim] // 2) // 64) * 64
    strides = list(part.contiguous().stride())
    strides[dim] = step
    whole = torch.empty((part.shape[dim] + 1) * step, dtype=part.dtype, device=part.device)
    copy = whole.as_strided(part.shape, strides)
    copy.copy_(part)
    return copy


class Case:
    """Trees with random queries, keys and values over shuffled pages; all else is NaN."""

    def __init__(
        self,
        shape: Shape,
        trees: list[Tree],
        *,
        num_rows: int = 64 if ON_GPU else 8,
        spare_pages: int = 0,
        dtype: torch.dtype = DTYPE,
        seed: int = 0,
    ) -> None:
        self.shape = shape
        self.trees = [replace(tree, pages=[]) for tree in trees]
        need = [-(-(tree.length + len(tree.parents)) // PAGE) for tree in trees]
        num_pages = sum(need) + 1 + spare_pages
        free = np.random.default_rng(seed).permutation(num_pages - 1).tolist()
        for tree, count in zip(self.trees, need, strict=True):
            tree.pages = [free.pop() for _ in range(count)]
        size = (num_pages * PAGE, shape.num_kv_heads, shape.dim)
        self.keys, self.values = guarded(size, dtype), guarded(size, dtype)
        self.q = guarded((num_rows, shape.num_heads, shape.dim), dtype)
        self.out = guarded((num_rows, shape.num_heads, shape.dim), dtype)
        self.rows = TreeRows(
            self.trees,
            num_rows,
            spare_slot=(num_pages - 1) * PAGE,
            num_pages=max(need) + spare_pages,
        )
        for first, tree in zip(self.rows.first_rows, self.trees, strict=True):
            self._fill(first, tree)

    def _fill(self, first: int, tree: Tree) -> None:
        count = len(tree.parents)
        slots = self.slots(tree, range(tree.length + count))
        generator = torch.Generator().manual_seed(tree.seed)
        for part in (self.keys, self.values):
            numbers = torch.randn((tree.length + count, *part.shape[1:]), generator=generator)
            part[slots] = numbers.to(DEVICE, part.dtype)
        numbers = torch.randn((count, *self.q.shape[1:]), generator=generator)
        self.q[first : first + count] = numbers.to(DEVICE, self.q.dtype)

    def slots(self, tree: Tree, behind: range | list[int]) -> torch.Tensor:
        """Returns the flat slots of tokens and, behind them, rows of a tree."""
        flat = [tree.pages[i // PAGE] * PAGE + i % PAGE for i in behind]
        return torch.tensor(flat, device=DEVICE)

    def plan(
        self, leaders: torch.Tensor | None = None, num_shared: torch.Tensor | None = None
    ) -> ops.TreePlan:
        """Returns a plan whose scratch is NaN. On a CPU it has few splits, which saves time."""
        shape = (self.shape.num_heads, self.shape.num_kv_heads, self.shape.dim)
        few = {} if ON_GPU else {"max_splits": 4, "few_splits": 2, "enough_blocks": 2}
        plan = ops.TreePlan(self.rows, *shape, leaders=leaders, num_shared=num_shared, **few)
        for name in ("states", "maxima", "totals"):
            if hasattr(plan, name):  # without a kernel there is none
                getattr(plan, name).fill_(torch.nan)
        return plan

    def run(self, plan: ops.TreePlan | None = None) -> torch.Tensor:
        """Returns what tree_attention writes for the rows, having looked at what else it wrote."""
        plan = plan or self.plan()
        self.out.fill_(torch.nan)
        ops.tail_slots(plan)
        options = {"window": self.shape.window, "softcap": self.shape.softcap}
        scale = self.shape.dim**-0.5
        ops.tree_attention(self.q, self.keys, self.values, plan, self.out, scale, **options)
        count = self.rows.num_real
        assert bool((self.out[count:] == 0).all())
        whole = self.out._base
        assert whole is not None
        assert whole.isfinite().sum() == self.out.isfinite().sum()
        return self.out[:count].clone()

    def run_reference(self) -> torch.Tensor:
        """Returns the same in float64, on the CPU."""
        with ops.using("reference"):
            return self.run()

    def commit(self, tree_idx: int, row: int, num_rows: int | None = None) -> Case:
        """Returns the launch in which `row` stands alone behind its committed ancestors."""
        tree = self.trees[tree_idx]
        path = tree.path(row)
        length = tree.length + len(path) - 1
        alone = Case(
            self.shape,
            [Tree(length, [-1])],
            num_rows=num_rows or len(self.q),
            dtype=self.q.dtype,
            seed=row,
        )
        slots = self.slots(tree, [*range(tree.length), *(tree.length + i for i in path)])
        targets = alone.slots(alone.trees[0], range(length + 1))
        alone.keys[targets], alone.values[targets] = self.keys[slots], self.values[slots]
        alone.q[0] = self.q[self.rows.first_rows[tree_idx] + row]
        return alone
