# SPDX-License-Identifier: Apache-2.0
"""The paged KV cache: a pool of pages, the sequences that hold them, and shared prefixes.

Slot s of a page table's page p lies at flat slot `p * page_size + s`. The token at position t of a
sequence lies in slot t of its page table; the rows of the last launch lie in the slots behind
`length`, in row order.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ooospec.config import PAGE_SIZE
from ooospec.errors import OutOfPages


@dataclass(frozen=True)
class LayerShape:
    """What a layer caches for a token: `num_heads` keys and values of so many numbers each."""

    num_heads: int
    key_dim: int
    value_dim: int


class PagePool:
    """Pages of all layers, with reference counts. Page i of every layer belongs to the same tokens.

    keys[l], values[l]: dtype[(num_pages + 1) * page_size, G, D], views by flat slot of layer l. The
    last page is nobody's: what must be written somewhere goes to its slots, from spare_slot on.
    blocks: dtype[layers of one shape, slots, G, D], what holds them. programs: by backend, what it
    runs on these pages: graphs hold their addresses, and go when the pages go.
    """

    def __init__(
        self,
        layers: Seq[LayerShape],
        num_pages: int,
        *,
        page_size: int = PAGE_SIZE,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """Allocates `num_pages` pages. On a CPU memory is touched only when it is written.

        Raises ValueError for no layers or counts below one.
        """
        if not layers or num_pages < 1 or page_size < 1:
            raise ValueError(
                "pool: expected at least one layer, page and slot, got "
                f"{len(layers)} layers, {num_pages} pages of {page_size} slots"
            )
        self.num_pages = num_pages
        self.page_size = page_size
        self.dtype = dtype
        self.device = torch.device(device)
        self.keys: list[torch.Tensor] = [torch.empty(0)] * len(layers)
        self.values: list[torch.Tensor] = [torch.empty(0)] * len(layers)
        self.blocks: list[torch.Tensor] = []
        for shape in dict.fromkeys(layers):
            members = [i for i, layer in enumerate(layers) if layer == shape]
            for side, dim in ((self.keys, shape.key_dim), (self.values, shape.value_dim)):
                size = (len(members), (num_pages + 1) * page_size, shape.num_heads, dim)
                block = torch.empty(size, dtype=dtype, device=self.device)
                self.blocks.append(block)
                for row, layer_idx in enumerate(members):
                    side[layer_idx] = block[row]
        self.programs: dict[Any, Any] = {}
        self._num_refs = np.zeros(num_pages, dtype=np.int32)

    @property
    def num_layers(self) -> int:
        return len(self.keys)

    @property
    def num_free(self) -> int:
        """Pages that nobody holds."""
        return int((self._num_refs == 0).sum())

    @property
    def spare_slot(self) -> int:
        """The first of page_size slots that no sequence ever holds."""
        return self.num_pages * self.page_size

    def num_refs(self, page: int) -> int:
        """Returns how many sequences and prefixes hold `page`."""
        return int(self._num_refs[page])

    def allocate(self, num_pages: int, after: int | None = None) -> list[int]:
        """Takes `num_pages` free pages, in one run of consecutive pages where there is one.

        after: a page; the run right behind it is preferred, so that a sequence that grows stays
        contiguous.
        Raises OutOfPages, taking nothing, if fewer are free.
        """
        free = np.flatnonzero(self._num_refs == 0)
        if len(free) < num_pages:
            raise OutOfPages(
                f"KV cache: expected {num_pages} free pages, got {len(free)} of {self.num_pages}"
            )
        pages = _best_run(free, num_pages, after)
        self._num_refs[pages] = 1
        return [int(page) for page in pages]

    def retain(self, pages: Seq[int]) -> None:
        """Adds a reference to each of `pages`, which must be held already."""
        for page in pages:
            assert self._num_refs[page] > 0, f"page {page} is not held"
            self._num_refs[page] += 1

    def release(self, pages: Seq[int]) -> None:
        """Drops a reference to each of `pages`; those that nobody holds become free."""
        for page in pages:
            assert self._num_refs[page] > 0, f"page {page} is not held"
            self._num_refs[page] -= 1

    def copy_slots(self, sources: Seq[int], targets: Seq[int]) -> None:
        """Copies flat slots `sources` to `targets` in all layers; they may overlap."""
        source_idx = torch.tensor(sources, dtype=torch.long, device=self.device)
        target_idx = torch.tensor(targets, dtype=torch.long, device=self.device)
        for block in self.blocks:
            block[:, target_idx] = block[:, source_idx]

    def copy_run(self, source: int, target: int, count: int) -> None:
        """Copies `count` flat slots from `source` on to those from `target` on, which do not
        overlap, in all layers. Cost: two launches for each shape of layer, nothing sent.
        """
        for block in self.blocks:
            block[:, target : target + count] = block[:, source : source + count]


def _best_run(free: np.ndarray, num_pages: int, after: int | None) -> np.ndarray:
    """Returns `num_pages` of the sorted `free`: behind `after`, the tightest run, or any."""
    if num_pages == 0:
        return free[:0]
    borders = np.flatnonzero(np.diff(free) != 1) + 1
    starts = np.concatenate(([0], borders))
    lengths = np.diff(np.concatenate((starts, [len(free)])))
    fits = lengths >= num_pages
    if after is not None:
        behind = np.searchsorted(free, after + 1)
        if behind + num_pages <= len(free) and free[behind + num_pages - 1] == after + num_pages:
            return free[behind : behind + num_pages]
    if not fits.any():
        return free[:num_pages]
    start = starts[fits][np.argmin(lengths[fits])]
    return free[start : start + num_pages]


class Sequence:
    """The cached tokens of one sequence of a target or sidecar.

    length: committed tokens. pages: its page table. num_rows: rows of its last launch, in the slots
    behind `length`.
    """

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.pages: list[int] = []
        self.length = 0
        self.num_rows = 0
        self._runs: list[
            tuple[int, int]
        ] = []  # (first flat slot, slots) of each run of consecutive pages

    @property
    def capacity(self) -> int:
        """Slots of its pages: most tokens and rows that it can hold."""
        return len(self.pages) * self.pool.page_size

    def reserve(self, num_tokens: int) -> None:
        """Makes room for `num_tokens` tokens in all. Raises OutOfPages, changing nothing."""
        missing = -(-num_tokens // self.pool.page_size) - len(self.pages)
        if missing > 0:
            self._append(self.pool.allocate(missing, after=self.pages[-1] if self.pages else None))

    def share(self, pages: Seq[int]) -> None:
        """Starts an empty sequence with full, committed `pages` of another."""
        assert not self.pages, "only an empty sequence can start from shared pages"
        self.pool.retain(pages)
        self._append(list(pages))
        self.length = self.capacity

    def fork(self, num_tokens: int = 0, length: int | None = None) -> Sequence:
        """Returns a sequence with the same committed tokens and room for `num_tokens` in all.

        length: of these tokens the first ones, if not all.

        Full pages are shared, the last partial one is copied; rows of the last launch are not part
        of it.
        Raises OutOfPages, leaving nothing held, if there is no room.
        """
        page_size = self.pool.page_size
        length = self.length if length is None else length
        assert 0 <= length <= self.length, f"{length} of {self.length} tokens"
        num_full = length // page_size
        child = Sequence(self.pool)
        try:
            child.share(self.pages[:num_full])
            child.reserve(max(num_tokens, length))
        except OutOfPages:
            child.release()
            raise
        if length % page_size:
            source, target = (one.pages[num_full] * page_size for one in (self, child))
            self.pool.copy_run(source, target, length % page_size)
            child.length = length
        return child

    def keep(self, rows: Seq[int]) -> None:
        """Commits `rows` of the last launch, in order; the other rows are gone.

        rows: strictly ascending, in [0, num_rows). Mutates: length, and the pool where rows have to
        move.
        Raises IndexError for other rows.
        """
        previous = -1
        for row in rows:
            if not previous < row < self.num_rows:
                raise IndexError(
                    f"keep: expected ascending rows in [0, {self.num_rows}), got {list(rows)}"
                )
            previous = row
        start = self.length
        moved = [(row, i) for i, row in enumerate(rows) if row != i]
        if moved:
            slots = self.slots(start, start + self.num_rows)
            self.pool.copy_slots([slots[row] for row, _ in moved], [slots[i] for _, i in moved])
        self.length = start + len(rows)
        self.num_rows = 0

    def keep_first(self, num_rows: int) -> None:
        """Commits the first rows of the last launch, as keep(range(num_rows)) does."""
        assert 0 <= num_rows <= self.num_rows, f"{num_rows} of {self.num_rows} rows"
        self.length += num_rows
        self.num_rows = 0

    def release(self) -> None:
        """Gives all pages back; the sequence is empty again. Safe to call twice."""
        pages, self.pages, self._runs = self.pages, [], []
        self.length = self.num_rows = 0
        self.pool.release(pages)

    def runs(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Returns the flat slots of tokens [start, stop) as half-open ranges, in order."""
        if self._runs and stop <= self._runs[0][1]:  # most sequences are one run
            first = self._runs[0][0]
            return [(first + start, first + stop)] if start < stop else []
        found: list[tuple[int, int]] = []
        position = 0
        for first, count in self._runs:
            low, high = max(start, position), min(stop, position + count)
            if low < high:
                found.append((first + low - position, first + high - position))
            position += count
        return found

    def slots(self, start: int, stop: int) -> list[int]:
        """Returns the flat slot of each token in [start, stop)."""
        return [slot for first, last in self.runs(start, stop) for slot in range(first, last)]

    def _append(self, pages: list[int]) -> None:
        self.pages += pages
        page_size = self.pool.page_size
        for page in pages:
            first = page * page_size
            if self._runs and sum(self._runs[-1]) == first:
                self._runs[-1] = (self._runs[-1][0], self._runs[-1][1] + page_size)
            else:
                self._runs.append((first, page_size))


class PrefixCache:
    """KV of whole prefill chunks of earlier prompts, found by tokens and tenant; an LRU cache.

    Only pages that prefill wrote may be inserted: KV written by a round depends on how its rows
    were cut.
    """

    def __init__(self, pool: PagePool, chunk: int) -> None:
        """chunk: tokens of a prefill chunk; ValueError unless that is whole pages."""
        if chunk < 1 or chunk % pool.page_size:
            raise ValueError(
                f"prefix cache: expected chunks of whole {pool.page_size}-slot pages, got {chunk}"
            )
        self.pool = pool
        self.chunk = chunk
        self._entries: OrderedDict[bytes, list[int]] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._entries)

    def attach(self, sequence: Sequence, tokens: Seq[int], tenant: str = "") -> int:
        """Starts `sequence` with the longest cached prefix of `tokens`; returns its length.

        At least one token is left to prefill, so that there are logits to go on from. Mutates:
        sequence.
        """
        pages: list[int] = []
        found: list[bytes] = []
        for key in self._keys(tokens[:-1], tenant):
            if key not in self._entries:
                break
            found.append(key)
            pages += self._entries[key]
        for key in reversed(found):  # a chunk is never less recent than those that need it
            self._entries.move_to_end(key)
        sequence.share(pages)
        return sequence.length

    def insert(self, sequence: Sequence, tokens: Seq[int], tenant: str = "") -> None:
        """Remembers the whole chunks of the prompt `tokens`, as prefill wrote them."""
        per_chunk = self.chunk // self.pool.page_size
        keys = list(self._keys(tokens, tenant))
        for i in reversed(range(len(keys))):
            if keys[i] not in self._entries:
                pages = sequence.pages[i * per_chunk : (i + 1) * per_chunk]
                self.pool.retain(pages)
                self._entries[keys[i]] = pages
            self._entries.move_to_end(keys[i])

    def evict(self, num_free: int) -> None:
        """Forgets prefixes, least recent first, until `num_free` pages are free or none is left."""
        while self._entries and self.pool.num_free < num_free:
            self.pool.release(self._entries.popitem(last=False)[1])

    def clear(self) -> None:
        """Forgets everything."""
        self.evict(self.pool.num_pages + 1)

    def _keys(self, tokens: Seq[int], tenant: str) -> Iterator[bytes]:
        """Yields a key for each whole chunk of `tokens`, standing for all tokens up to its end."""
        key = hashlib.blake2b(tenant.encode(errors="surrogatepass"), digest_size=32).digest()
        for start in range(0, len(tokens) - self.chunk + 1, self.chunk):
            chunk = np.asarray(tokens[start : start + self.chunk], dtype=np.int64)
            key = hashlib.blake2b(key + chunk.tobytes(), digest_size=32).digest()
            yield key
