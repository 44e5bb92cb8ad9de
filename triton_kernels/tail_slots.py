# SPDX-License-Identifier: Apache-2.0
"""Where the last 64 tokens that a row sees lie; once a round, for all layers.

A row at position p reads [0, p - 63) from its committed sequence, whatever the round: a draft is at
most 63 deep. The last 64 positions, [p - 63, p], are partly committed and partly drafted, and this
op finds their slots, so that attention need not know which is which.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TAIL = 64


@triton.jit(do_not_specialize=["stride_page_row"])
def _tail_slots_kernel(
    positions,
    mask,
    sequences,
    slots,
    lengths,
    page_table,
    out,
    stride_page_row,
    NUM_ROWS: tl.constexpr,
    ROWS: tl.constexpr,
    TAIL: tl.constexpr,
    PAGE: tl.constexpr,
):
    """One program a row. ROWS: NUM_ROWS padded to a power of two."""
    row = tl.program_id(0)
    column = tl.arange(0, TAIL)
    sequence = tl.load(sequences + row)
    found = tl.full([TAIL], -1, tl.int64)
    if sequence >= 0:
        position = tl.load(positions + row) - (TAIL - 1) + column
        length = tl.load(lengths + sequence)
        committed = (position >= 0) & (position < length)
        pages = page_table + sequence.to(tl.int64) * stride_page_row
        page = tl.load(pages + position // PAGE, mask=committed, other=0).to(tl.int64)
        other = tl.arange(0, ROWS)
        ancestor = (tl.load(mask + row) >> other) & 1
        depth = tl.load(positions + other, mask=other < NUM_ROWS, other=-1)
        slot = tl.load(slots + other, mask=other < NUM_ROWS, other=-1)
        here = (ancestor != 0)[None, :] & (depth[None, :] == position[:, None])
        drafted = tl.max(tl.where(here, slot[None, :], -1), axis=1)
        found = tl.where(committed, page * PAGE + position % PAGE, drafted)
        found = tl.where(position >= 0, found, -1)
    tl.store(out + row * TAIL + column, found.to(tl.int32))


def tail_slots(
    positions: torch.Tensor,
    mask: torch.Tensor,
    sequences: torch.Tensor,
    slots: torch.Tensor,
    lengths: torch.Tensor,
    page_table: torch.Tensor,
    out: torch.Tensor,
    *,
    page: int = 64,
) -> None:
    """Writes to out[i, c] the flat slot of position positions[i] - 63 + c as row i sees it.

    positions: int32[N], N <= 64. mask: int64[N]; bit j: row j is row i or its ancestor.
    sequences: int32[N]; sequence slot of the row, -1 for padding.
    slots: int64[N]; flat slot of the row's own key and value.
    lengths: int32[S]; committed tokens. page_table: int32[S, P], rows may be strided.
    out: int32[N, 64], contiguous. -1 where the position is negative, and in padding rows.
    Cost: one launch, nothing allocated.
    """
    num_rows = positions.shape[0]
    _tail_slots_kernel[(num_rows,)](
        positions,
        mask,
        sequences,
        slots,
        lengths,
        page_table,
        out,
        page_table.stride(0),
        NUM_ROWS=num_rows,
        ROWS=triton.next_power_of_2(num_rows),
        TAIL=TAIL,
        PAGE=page,
        num_warps=4,
    )
