# SPDX-License-Identifier: Apache-2.0
"""Attention of packed rows over the paged cache, and the plan that a round makes for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import torch

from ooospec import reference
from ooospec.config import LAUNCH_ROWS
from ooospec.ops.dispatch import has_kernel, require

BLOCK = 64  # positions that attention takes at once; slots of a page
MAX_DEPTH = 63  # of a draft row below its root; attention looks up so many ancestors


class LaunchRows(Protocol):
    """The packed rows of a launch, as data on the device.

    positions, sequences: int32[N]; mask, slots: int64[N]; lengths: int32[S]; page_table:
    int32[S, P], pages of 64 slots. Rows of a sequence stand together. sequences: row of page_table,
    -1 for padding. Bit j of a row's mask: row j is the row itself or above it. slots: where the
    row's key and value lie. lengths: committed tokens.
    """

    @property
    def positions(self) -> torch.Tensor: ...
    @property
    def sequences(self) -> torch.Tensor: ...
    @property
    def mask(self) -> torch.Tensor: ...
    @property
    def slots(self) -> torch.Tensor: ...
    @property
    def lengths(self) -> torch.Tensor: ...
    @property
    def page_table(self) -> torch.Tensor: ...


class TreePlan:
    """What `tree_attention` derives from the rows of a launch once a round, and its scratch.

    Allocates about 4 * N * H * (D + 2) bytes for each of at most 16 splits; one plan serves all
    layers of a shape.
    """

    def __init__(
        self,
        rows: LaunchRows,
        num_heads: int,
        num_kv_heads: int,
        dim: int,
        *,
        leaders: torch.Tensor | None = None,
        num_shared: torch.Tensor | None = None,
        **tiling: Any,
    ) -> None:
        """Checks the rows' tensors, whose addresses are kept; their data may change every round.

        leaders, num_shared: int32[S], both or neither; the first num_shared[s] tokens of sequence
        s are committed and lie in the same pages as those of sequence leaders[s]. Sequences of one
        leader whose rows stand together read them once.
        tiling: fields of `triton_kernels.tree_attention.Tiling` that differ from the shape's own.
        Raises ValueError for other dtypes, shapes or strides.
        """
        num_rows = len(rows.positions)
        num_sequences, num_pages = rows.page_table.shape
        if (
            not 1 <= num_rows <= LAUNCH_ROWS
            or num_heads % num_kv_heads
            or num_heads > 16 * num_kv_heads
        ):
            raise ValueError(
                f"plan: expected 1 to {LAUNCH_ROWS} rows and 1 to 16 heads a kv head, got "
                f"{num_rows} rows, {num_heads} heads, {num_kv_heads} kv heads"
            )
        for name, tensor in (("positions", rows.positions), ("sequences", rows.sequences)):
            require(name, tensor, torch.int32, num_rows)
        for name, tensor in (("mask", rows.mask), ("slots", rows.slots)):
            require(name, tensor, torch.int64, num_rows)
        require("lengths", rows.lengths, torch.int32, num_sequences)
        require("page_table", rows.page_table, torch.int32, num_sequences, num_pages)
        if (leaders is None) != (num_shared is None):
            raise ValueError("leaders, num_shared: expected both or neither, got one")
        if leaders is not None and num_shared is not None:
            require("leaders", leaders, torch.int32, num_sequences)
            require("num_shared", num_shared, torch.int32, num_sequences)
        self.rows, self.leaders, self.num_shared = rows, leaders, num_shared
        self.shape = num_rows, num_heads, num_kv_heads, dim
        if has_kernel(rows.positions):
            self._allocate(tiling)

    def _allocate(self, changes: dict[str, Any]) -> None:
        from ooospec.triton_kernels import head_work, tree_attention
        from ooospec.triton_kernels.pdl import starts_early

        num_rows, num_heads, num_kv_heads, dim = self.shape
        changes = {"pdl": starts_early(self.rows.positions), **changes}
        if not self.rows.positions.is_cuda:  # interpreted, one program after the other
            changes = {"num_programs": 8, **changes}
        self.tiling = replace(tree_attention.tiling(num_heads, num_kv_heads, dim), **changes)
        splits = self.tiling.max_splits

        def buffer(dtype: torch.dtype, *shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.rows.positions.device)

        self.tails = buffer(torch.int32, num_rows, BLOCK)
        self.split_blocks = buffer(torch.int32, num_rows)
        self.work = buffer(torch.int32, num_rows * splits + head_work.ENDS, 8)
        self.states = buffer(torch.float32, num_rows, num_heads, splits, dim)
        self.maxima = buffer(torch.float32, num_rows, num_heads, splits)
        self.totals = torch.zeros_like(self.maxima)


def tail_slots(plan: TreePlan) -> None:
    """Derives from the rows what `tree_attention` needs; once a round, before the first layer.

    Mutates plan. Cost: two launches.
    """
    rows = plan.rows
    if not has_kernel(rows.positions):
        return  # the reference looks slots up itself
    from ooospec.triton_kernels import head_work, tail_slots

    head_work.head_work(
        rows.positions,
        rows.sequences,
        plan.split_blocks,
        plan.work,
        tile_rows=plan.tiling.tile_rows,
        max_splits=plan.tiling.max_splits,
        few_splits=plan.tiling.few_splits,
        enough_blocks=plan.tiling.enough_blocks,
        leaders=plan.leaders,
        num_shared=plan.num_shared,
    )
    tail_slots.tail_slots(
        rows.positions,
        rows.mask,
        rows.sequences,
        rows.slots,
        rows.lengths,
        rows.page_table,
        plan.tails,
    )


def tree_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    plan: TreePlan,
    out: torch.Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> None:
    """Writes the attention of each row over the committed tokens and its ancestors to `out`.

    q, out: dtype[N, H, D], rows and heads may be strided. keys, values: dtype[slots, G, D], of
    equal strides, those of the rows included. plan: of this shape, after `tail_slots`.
    A row lies at most 63 positions behind the committed tokens; rows of padding get 0.
    window: a row at p sees positions above p - window only. softcap: scores s become
    softcap * tanh(s / softcap).
    Mutates out, the plan's scratch. Raises ValueError for other dtypes, shapes or strides.
    Cost: two launches.
    """
    num_rows, num_heads, num_kv_heads, dim = plan.shape
    _check_attention(q, keys, values, out, num_rows, num_heads, num_kv_heads, dim)
    if has_kernel(q):
        from ooospec.triton_kernels.tree_attention import tree_attention as launch

        launch(
            q,
            keys,
            values,
            plan.rows.positions,
            plan.rows.page_table,
            plan.tails,
            plan.split_blocks,
            plan.work,
            plan.states,
            plan.maxima,
            plan.totals,
            out,
            plan.tiling,
            scale=scale,
            window=window,
            softcap=softcap,
        )
        return
    rows = plan.rows
    seen = reference.seen_slots_ref(
        rows.positions, rows.mask, rows.sequences, rows.slots, rows.lengths, rows.page_table
    )
    out.copy_(
        reference.paged_attention_ref(
            q, keys, values, seen, scaling=scale, window=window, softcap=softcap
        )
    )


def prefill_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    rows: LaunchRows,
    out: torch.Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> None:
    """Writes the causal attention of a chunk of one sequence to `out`; mask and slots are not read.

    As `tree_attention`, except that rows stand at consecutive positions from a border of chunks on,
    padding behind them, and may be more than 64. Cost: one launch.
    """
    num_rows, num_heads, dim = q.shape
    _check_attention(q, keys, values, out, num_rows, num_heads, keys.shape[1], dim)
    require("positions", rows.positions, torch.int32, num_rows)
    require("sequences", rows.sequences, torch.int32, num_rows)
    if has_kernel(q):
        from ooospec.triton_kernels.prefill_attention import prefill_attention as launch

        tensors = (q, keys, values, rows.positions, rows.sequences, rows.page_table, out)
        launch(*tensors, scale=scale, window=window, softcap=softcap)
        return
    stored = torch.full_like(rows.positions, int(rows.positions.max()) + 1)
    seen = reference.seen_slots_ref(
        rows.positions, stored, rows.sequences, stored, stored, rows.page_table
    )
    out.copy_(
        reference.paged_attention_ref(
            q, keys, values, seen, scaling=scale, window=window, softcap=softcap
        )
    )


def _check_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    out: torch.Tensor,
    num_rows: int,
    num_heads: int,
    num_kv_heads: int,
    dim: int,
) -> None:
    require("q", q, q.dtype, num_rows, num_heads, dim)
    require("out", out, q.dtype, num_rows, num_heads, dim)
    for name, tensor in (("keys", keys), ("values", values)):
        require(name, tensor, q.dtype, keys.shape[0], num_kv_heads, dim)
    if keys.stride() != values.stride():
        raise ValueError(
            f"keys, values: expected equal strides, got {keys.stride()} and {values.stride()}"
        )
    if any(stride * q.element_size() % 16 for stride in keys.stride()[:2]):
        raise ValueError(
            f"keys, values: expected slots and heads at multiples of 16 bytes, got {keys.stride()}"
        )
