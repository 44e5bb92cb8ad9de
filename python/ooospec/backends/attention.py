# SPDX-License-Identifier: Apache-2.0
"""Attention of the rows of one launch over paged KV, in a few large operations.

Rows of sequences that share pages (forks of one prefix) form a group: they attend to one set of
keys, the shared ones once, under one mask. Keys in a long run of slots are read through a view, the
rest is gathered.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch

from ooospec.backends.base import Segment
from ooospec.kv import PagePool

LONG_RUN = 128  # slots from which on a run is read through a view of its own


@dataclass
class Keys:
    """The keys of a group in the order its mask has: views (ranges of slots), then gathered slots.

    hidden: bool[rows, keys]; True where a row must not look. None: every row sees every key.
    """

    views: list[tuple[int, int]]
    gathered: torch.Tensor | None
    hidden: torch.Tensor | None

    def pieces(self, cached: torch.Tensor) -> list[torch.Tensor]:
        """Returns the cached [slots, G, D] of these keys as [G, length, D] pieces."""
        found = [cached[start:stop].transpose(0, 1) for start, stop in self.views]
        if self.gathered is not None:
            found.append(cached.index_select(0, self.gathered).transpose(0, 1))
        return found


class Group:
    """Rows [start, stop) of a launch whose sequences share their first page, or one sequence's."""

    def __init__(self, segments: Seq[Segment], start: int) -> None:
        self.segments = segments
        self.pool = segments[0].sequence.pool
        self.start = start
        self.stop = start + sum(len(segment.tokens) for segment in segments)
        self._keys: dict[int | None, Keys] = {}

    def keys(self, window: int | None) -> Keys:
        """Returns the keys that some row sees through a `window` of positions (None: no window)."""
        if window not in self._keys:
            self._keys[window] = self._find_keys(window)
        return self._keys[window]

    def _find_keys(self, window: int | None) -> Keys:
        lowest = min(min(segment.positions) for segment in self.segments)
        first = 0 if window is None else max(0, lowest - window + 1)
        shared = self._num_shared()
        runs: list[tuple[int, int]] = self.segments[0].sequence.runs(first, shared)
        key_positions = [torch.arange(first, max(first, shared))]
        blocks = [_own_keys(segment, max(first, shared)) for segment in self.segments]
        for segment, (positions, _) in zip(self.segments, blocks, strict=True):
            stop = segment.sequence.length + len(segment.tokens)
            runs += segment.sequence.runs(max(first, shared), stop)
            key_positions.append(positions)
        visible = _block_diagonal([block for _, block in blocks])
        shared_part = torch.ones(len(visible), len(key_positions[0]), dtype=torch.bool)
        hidden = ~torch.cat((shared_part, visible), dim=1)
        if window is not None:
            rows = torch.tensor([p for segment in self.segments for p in segment.positions])
            hidden |= torch.cat(key_positions) <= rows[:, None] - window
        return _split_runs(runs, hidden, self.pool.device)

    def _num_shared(self) -> int:
        """Returns how many committed tokens lie in pages that all sequences of the group share."""
        first = self.segments[0].sequence
        shared = min(segment.sequence.length for segment in self.segments)
        if len(self.segments) > 1:
            pages = zip(*(segment.sequence.pages for segment in self.segments), strict=False)
            equal = 0
            for column in pages:
                if any(page != column[0] for page in column):
                    break
                equal += 1
            shared = min(shared, equal * first.pool.page_size)
        return shared


def _own_keys(segment: Segment, start: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns position[keys] and visible[rows, keys] of a segment's keys behind `start`."""
    length, num_rows = segment.sequence.length, len(segment.tokens)
    positions = torch.cat((torch.arange(start, length), torch.tensor(list(segment.positions))))
    mask = segment.mask
    if mask is None:
        mask = torch.ones(num_rows, num_rows, dtype=torch.bool).tril()
    committed = torch.ones(num_rows, max(0, length - start), dtype=torch.bool)
    return positions, torch.cat((committed, mask.cpu()), dim=1)


def _block_diagonal(blocks: Seq[torch.Tensor]) -> torch.Tensor:
    """Returns bool[sum of rows, sum of columns] with `blocks` on its diagonal."""
    if len(blocks) == 1:
        return blocks[0]
    size = [sum(block.shape[axis] for block in blocks) for axis in (0, 1)]
    joined = torch.zeros(size[0], size[1], dtype=torch.bool)
    row = column = 0
    for block in blocks:
        joined[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return joined


def _split_runs(runs: Seq[tuple[int, int]], hidden: torch.Tensor, device: torch.device) -> Keys:
    """Orders keys by how they are read, and the columns of `hidden` [rows, keys] alike."""
    merged: list[tuple[int, int]] = []
    for run in runs:
        if merged and merged[-1][1] == run[0]:
            merged[-1] = (merged[-1][0], run[1])
        else:
            merged.append(run)
    views: list[tuple[int, int]] = []
    slots: list[int] = []
    view_columns: list[int] = []
    other_columns: list[int] = []
    column = 0
    for start, stop in merged:
        columns = range(column, column := column + stop - start)
        if len(merged) == 1 or stop - start >= LONG_RUN:
            views.append((start, stop))
            view_columns += columns
        else:
            slots += range(start, stop)
            other_columns += columns
    gathered = torch.tensor(slots, device=device) if slots else None
    if not bool(hidden.any()):
        return Keys(views, gathered, None)
    if views and slots:
        hidden = hidden[:, view_columns + other_columns]
    return Keys(views, gathered, hidden.to(device))


@dataclass
class Launch:
    """What the attention of every layer needs to know of a launch.

    groups: in row order. stores: (pool, slots, first row) of each segment's rows. num_rows: padding
    included.
    """

    groups: list[Group]
    stores: list[tuple[PagePool, slice | torch.Tensor, int, int]]
    num_rows: int

    @staticmethod
    def order(segments: Seq[Segment]) -> list[int]:
        """Returns the indices of `segments` such that those of one group stand together."""
        first: dict[tuple[int, int], int] = {}
        for i, segment in enumerate(segments):
            first.setdefault(_group_key(segment), i)
        return sorted(range(len(segments)), key=lambda i: first[_group_key(segments[i])])

    @classmethod
    def plan(cls, segments: Seq[Segment], num_rows: int) -> Launch:
        """Plans a launch over `segments`, ordered as by order(), padded to `num_rows` rows.

        Raises ValueError if a segment's rows do not fit into what its sequence has reserved.
        """
        groups: list[Group] = []
        stores: list[tuple[PagePool, slice | torch.Tensor, int, int]] = []
        members: list[Segment] = []
        start = row = 0
        for i, segment in enumerate(segments):
            stop = row + len(segment.tokens)
            stores.append((segment.sequence.pool, _store_slots(segment), row, stop))
            members.append(segment)
            row = stop
            if i + 1 == len(segments) or _group_key(segments[i + 1]) != _group_key(segment):
                groups.append(Group(members, start))
                members, start = [], row
        return cls(groups, stores, num_rows)


def _group_key(segment: Segment) -> tuple[int, int]:
    return id(segment.sequence.pool), segment.sequence.pages[0]


def _store_slots(segment: Segment) -> slice | torch.Tensor:
    sequence, num_rows = segment.sequence, len(segment.tokens)
    stop = sequence.length + num_rows
    if num_rows < 1 or stop > sequence.capacity:
        raise ValueError(
            f"launch: expected 1 to {sequence.capacity - sequence.length} rows behind "
            f"{sequence.length} committed tokens, got {num_rows}"
        )
    runs = sequence.runs(sequence.length, stop)
    if len(runs) == 1:
        return slice(*runs[0])
    return torch.tensor(sequence.slots(sequence.length, stop), device=sequence.pool.device)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    launch: Launch,
    layer_idx: int,
    *,
    scaling: float,
    window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Stores the rows' keys and values, then lets every row attend to what it may see.

    query: [H, N, D]; key, value: [G, N, D]; the rows of the launch. Returns [N, H, D of value], 0
    for padding rows.
    Mutates: the pools of the launch.
    """
    for pool, slots, start, stop in launch.stores:
        pool.keys[layer_idx][slots] = key[:, start:stop].transpose(0, 1)
        pool.values[layer_idx][slots] = value[:, start:stop].transpose(0, 1)
    outputs = []
    for group in launch.groups:
        keys = group.keys(window)
        output = attend_pieces(
            query[:, group.start : group.stop],
            keys.pieces(group.pool.keys[layer_idx]),
            keys.pieces(group.pool.values[layer_idx]),
            keys.hidden,
            scaling=scaling,
            softcap=softcap,
        )
        outputs.append(output)
    num_padding = launch.num_rows - launch.groups[-1].stop
    if num_padding:
        outputs.append(outputs[0].new_zeros(num_padding, *outputs[0].shape[1:]))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def attend_pieces(
    query: torch.Tensor,
    keys: Seq[torch.Tensor],
    values: Seq[torch.Tensor],
    hidden: torch.Tensor | None,
    *,
    scaling: float,
    softcap: float | None = None,
) -> torch.Tensor:
    """Softmax attention with grouped heads over keys that lie in several pieces.

    query: [H, N, D]; keys, values: [G, K_i, D] each; hidden: bool[N, sum K_i] or None. Returns [N,
    H, D of values].
    Numeric notes: products in the dtype of `query`, softmax in float32.
    """
    num_heads, num_rows, _ = query.shape
    num_kv_heads = keys[0].shape[0]
    grouped = (query * scaling).reshape(num_kv_heads, -1, query.shape[-1])
    parts = [torch.bmm(grouped, piece.transpose(1, 2)) for piece in keys]
    scores = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
    scores = scores.float()
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if hidden is not None:
        scores.view(num_kv_heads, -1, num_rows, scores.shape[-1]).masked_fill_(hidden, -torch.inf)
    weights = torch.softmax(scores, dim=-1).to(query.dtype)
    output: torch.Tensor | None = None
    start = 0
    for piece in values:
        stop = start + piece.shape[1]
        part = torch.bmm(weights[..., start:stop], piece)
        output = part if output is None else output + part
        start = stop
    assert output is not None
    return output.view(num_heads, num_rows, -1).transpose(0, 1)
