# SPDX-License-Identifier: Apache-2.0
"""The rows of a launch as kernels read them: buffers of fixed shape and address, filled anew."""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import torch

from ooospec import ops
from ooospec._core import _C
from ooospec.kv import PagePool, Sequence
from ooospec.rows import Rows
from ooospec.sampling import Chooser

Ints = Seq[int] | np.ndarray[Any, Any]
_Bound = tuple[list[int], int]  # a page table that was sent, and its length then


class Launch:
    """`num_rows` rows over at most `num_sequences` sequences of one pool.

    tokens, positions, parents, sequences: int32[N]; mask, slots: int64[N]; lengths: int32[S];
    page_table: int32[S, P]; last_row: int32[1], the row whose logits a prefill wants.
    sampling: how each row chooses. no_eos: int32[N], 1 where no end of sequence may be chosen.
    leaders, num_shared: int32[S], see ops.TreePlan: forks, and sequences that begin with the same
    cached prefix, read it once where their rows stand together.
    A row's parent is a row of this launch, or -1 where that is committed. Bit j of a row's mask:
    row j is the row itself or above it. Padding has sequence -1; its KV goes to the spare page.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    parents: torch.Tensor
    sequences: torch.Tensor
    mask: torch.Tensor
    slots: torch.Tensor
    lengths: torch.Tensor
    leaders: torch.Tensor
    num_shared: torch.Tensor
    last_row: torch.Tensor
    no_eos: torch.Tensor

    def __init__(
        self, pool: PagePool, num_rows: int, *, num_sequences: int, max_tokens: int
    ) -> None:
        """max_tokens: most tokens and rows that a sequence may hold."""
        device, on_gpu = pool.device, pool.device.type == "cuda"
        self.pool = pool
        self.num_rows = num_rows
        fields: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
            "mask": (torch.int64, (num_rows,)),
            "slots": (torch.int64, (num_rows,)),
            "key": (torch.int64, (num_rows,)),
            "top_p": (torch.float64, (num_rows,)),
            "temperature": (torch.float64, (num_rows,)),
            "tokens": (torch.int32, (num_rows,)),
            "positions": (torch.int32, (num_rows,)),
            "parents": (torch.int32, (num_rows,)),
            "sequences": (torch.int32, (num_rows,)),
            "lengths": (torch.int32, (num_sequences,)),
            "leaders": (torch.int32, (num_sequences,)),
            "num_shared": (torch.int32, (num_sequences,)),
            "last_row": (torch.int32, (1,)),
            "no_eos": (torch.int32, (num_rows,)),
            "top_k": (torch.int32, (num_rows,)),
            "index": (torch.int32, (num_rows,)),
        }
        num_bytes = sum(dtype.itemsize * math.prod(shape) for dtype, shape in fields.values())
        self._host = torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=on_gpu)
        self._device = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
        host: dict[str, np.ndarray] = {}
        views: dict[str, torch.Tensor] = {}
        start = 0
        for name, (dtype, shape) in fields.items():
            stop = start + dtype.itemsize * math.prod(shape)
            host[name] = self._host[start:stop].view(dtype).view(shape).numpy()
            views[name] = self._device[start:stop].view(dtype).view(shape)
            start = stop
        self.sampling = ops.RowSampling(
            **{name: views.pop(name) for name in ("temperature", "top_k", "top_p", "key", "index")}
        )
        vars(self).update(views)
        num_pages = -(-max_tokens // pool.page_size)
        self._host_table = torch.zeros(
            (num_sequences, num_pages), dtype=torch.int32, pin_memory=on_gpu
        )
        self.page_table = torch.zeros_like(self._host_table, device=device)
        self._num_sequences = 0
        self._bound: list[_Bound | None] = [None] * num_sequences
        self._led_by: list[_Bound | None] = [None] * num_sequences
        self._leaders, self._num_shared = host.pop("leaders"), host.pop("num_shared")
        self._last_row = host.pop("last_row")
        unsigned = {name: host[name].view(np.uint64) for name in ("mask", "key")}
        self._rows = _C.LaunchRows(
            host | unsigned, spare_slot=pool.spare_slot, page_size=pool.page_size
        )

    def begin(self) -> None:
        """Forgets the rows of the last launch."""
        self._rows.begin()
        self._num_sequences = 0

    def add(
        self,
        sequence: Sequence,
        tokens: Ints,
        positions: Ints,
        parents: Ints,
        masks: Ints,
        *,
        length: int | None = None,
    ) -> range:
        """Adds rows of a sequence; returns which rows of the launch they are.

        parents, masks: of row i in terms of these rows, -1 and no bit for what is committed.
        length: tokens that count as committed; None: those of the sequence.
        Raises ValueError if rows or sequences are too many.
        """
        length = sequence.length if length is None else length
        count = len(tokens)
        runs = sequence.runs(length, length + count)
        first = self._rows.add(tokens, positions, parents, masks, runs, length)
        self._bind(sequence.pages)
        return range(first, first + count)

    def add_draft(
        self, sequence: Sequence, rows: Rows, chooser: Chooser, place: int, *, anew: bool = False
    ) -> int:
        """Adds a draft behind a sequence; returns the first of its rows. What comes after its root
        has place `place` of the answer. Raises ValueError likewise.

        anew: as begin() does, forgets the rows of the last launch before.
        """
        length = sequence.length
        runs = sequence.runs(length, length + len(rows))
        if anew:
            self._num_sequences = 0
        first: int = self._rows.add_draft(rows.core, runs, length, place, chooser.core, anew)
        self._bind(sequence.pages)
        return first

    def set_last_row(self, row: int) -> None:
        """Names the row whose logits are wanted."""
        self._last_row[0] = row

    def copy_in(self) -> None:
        """Sends what add() wrote to the device; part of a round's graph."""
        self._device.copy_(self._host, non_blocking=True)

    def _bind(self, pages: list[int]) -> None:
        """Sends the page table of the sequence added last if it is not there yet, and finds out
        what it shares with those before it.
        """
        index = self._num_sequences
        self._num_sequences += 1
        bound = self._bound[index]
        if bound is None or bound[0] is not pages or bound[1] != len(pages):
            self._bound[index] = bound = pages, len(pages)
            self._led_by[index] = None
            table = self._host_table[index]
            table[: len(pages)] = torch.tensor(pages, dtype=torch.int32)
            self.page_table[index].copy_(table, non_blocking=True)
        leader = int(self._leaders[index - 1]) if index else 0
        before = self._bound[leader]
        assert before is not None
        if self._led_by[index] is before:
            return
        self._led_by[index] = before
        num_shared = _num_alike(pages, before[0])
        if not num_shared:
            leader, num_shared = index, len(pages)
        self._leaders[index] = leader
        self._num_shared[index] = num_shared * self.pool.page_size


def _num_alike(pages: Seq[int], others: Seq[int]) -> int:
    """Returns how many pages two sequences have in common at their begin."""
    for number, (page, other) in enumerate(zip(pages, others, strict=False)):
        if page != other:
            return number
    return min(len(pages), len(others))
