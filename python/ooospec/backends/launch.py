# SPDX-License-Identifier: Apache-2.0
"""The rows of a launch as kernels read them: buffers of fixed shape and address, filled anew."""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import torch

from ooospec import ops
from ooospec.kv import PagePool, Sequence
from ooospec.sampling import Chooser

Ints = Seq[int] | np.ndarray[Any, Any]


class Launch:
    """`num_rows` rows over at most `num_sequences` sequences of one pool.

    tokens, positions, parents, sequences: int32[N]; mask, slots: int64[N]; lengths: int32[S];
    page_table: int32[S, P]; last_row: int32[1], the row whose logits a prefill wants.
    sampling: how each row chooses. no_eos: int32[N], 1 where no end of sequence may be chosen.
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
            "last_row": (torch.int32, (1,)),
            "no_eos": (torch.int32, (num_rows,)),
            "top_k": (torch.int32, (num_rows,)),
            "index": (torch.int32, (num_rows,)),
        }
        num_bytes = sum(dtype.itemsize * math.prod(shape) for dtype, shape in fields.values())
        self._host = torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=on_gpu)
        self._device = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
        self._fill: dict[str, np.ndarray] = {}
        views: dict[str, torch.Tensor] = {}
        start = 0
        for name, (dtype, shape) in fields.items():
            stop = start + dtype.itemsize * math.prod(shape)
            self._fill[name] = self._host[start:stop].view(dtype).view(shape).numpy()
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
        self._bound: list[tuple[list[int], int] | None] = [None] * num_sequences
        self._counted = np.arange(num_rows)
        self._spare_slots = pool.spare_slot + self._counted % pool.page_size
        self._num_used = self._num_sequences = 0

    def begin(self) -> None:
        """Forgets the rows of the last launch."""
        fill = self._fill
        fill["sequences"][:] = -1
        fill["parents"][:] = -1
        fill["tokens"][:] = 0
        fill["positions"][:] = 0
        fill["mask"][:] = 0
        fill["slots"][:] = self._spare_slots
        fill["lengths"][:] = 0
        self._num_used = self._num_sequences = 0

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
        first, count = self._num_used, len(tokens)
        length = sequence.length if length is None else length
        index = self._num_sequences
        if first + count > self.num_rows or index == len(self._bound):
            raise ValueError(
                f"launch: expected at most {self.num_rows} rows of {len(self._bound)} sequences, "
                f"got {first + count} rows, {index + 1} sequences"
            )
        rows = range(first, first + count)
        part = slice(first, first + count)
        fill = self._fill
        fill["tokens"][part] = tokens
        fill["positions"][part] = positions
        if first == 0:
            fill["parents"][part] = parents
            fill["mask"].view(np.uint64)[part] = masks
        else:
            own = np.asarray(parents, dtype=np.int32)
            fill["parents"][part] = np.where(own >= 0, own + first, -1)
            bits = np.asarray(masks, dtype=np.uint64) << np.uint64(first)
            fill["mask"].view(np.uint64)[part] = bits
        row = first
        for start, stop in sequence.runs(length, length + count):
            fill["slots"][row : row + stop - start] = self._counted[: stop - start]
            fill["slots"][row : row + stop - start] += start
            row += stop - start
        fill["sequences"][part] = index
        fill["lengths"][index] = length
        self._bind(index, sequence.pages)
        self._num_used += count
        self._num_sequences += 1
        return rows

    def choose(self, rows: range, depths: Ints, chooser: Chooser, index: int) -> None:
        """Says how rows choose what comes after them: place `index` of the answer, plus depth."""
        part, fill, params = slice(rows.start, rows.stop), self._fill, chooser.params
        places = fill["index"][part]
        places[:] = depths
        places += index
        fill["no_eos"][part] = places < params.min_tokens
        if params.temperature == 0:
            return
        fill["temperature"][part] = params.temperature
        fill["top_k"][part] = params.top_k
        fill["top_p"][part] = params.top_p
        fill["key"].view(np.uint64)[part] = chooser.key

    def set_last_row(self, row: int) -> None:
        """Names the row whose logits are wanted."""
        self._fill["last_row"][0] = row

    def copy_in(self) -> None:
        """Sends what add() wrote to the device; part of a round's graph."""
        self._device.copy_(self._host, non_blocking=True)

    def _bind(self, index: int, pages: list[int]) -> None:
        """Sends the page table of a sequence if it is not there yet."""
        bound = self._bound[index]
        if bound is not None and bound[0] is pages and bound[1] == len(pages):
            return
        self._bound[index] = pages, len(pages)
        table = self._host_table[index]
        table[: len(pages)] = torch.tensor(pages, dtype=torch.int32)
        self.page_table[index].copy_(table, non_blocking=True)
