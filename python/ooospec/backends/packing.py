# SPDX-License-Identifier: Apache-2.0
"""Rows of any number of sequences, cut into launches of a fixed size."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from ooospec.backends.base import Segment


@dataclass(frozen=True)
class Piece:
    """Rows [start, stop) of a segment in one launch; the rows before them count as committed.

    parents, masks: of each row in terms of the piece. wanted: rows of it whose logits are wanted.
    """

    segment_idx: int
    start: int
    stop: int
    parents: list[int]
    masks: list[int]
    wanted: range


def pack(segments: Seq[Segment], num_rows: int, num_sequences: int) -> Iterator[list[Piece]]:
    """Yields the pieces of each launch of at most `num_rows` rows and `num_sequences` sequences.

    A chain is cut where a launch is full; a tree stays whole. Raises ValueError for a tree that is
    larger than a launch.
    """
    launch: list[Piece] = []
    room = num_rows
    for segment_idx, segment in enumerate(segments):
        count = len(segment.tokens)
        if segment.mask is not None and count > num_rows:
            raise ValueError(f"launch: expected a tree of at most {num_rows} rows, got {count}")
        start = 0
        while start < count:
            whole = segment.mask is not None and count > room
            if room == 0 or whole or len(launch) == num_sequences:
                yield launch
                launch, room = [], num_rows
            stop = min(count, start + room)
            launch.append(_piece(segment, segment_idx, start, stop))
            room -= stop - start
            start = stop
    if launch:
        yield launch


def _piece(segment: Segment, segment_idx: int, start: int, stop: int) -> Piece:
    size = stop - start
    wanted = range(size)
    if segment.logits != "all":
        ends = segment.logits == "last" and stop == len(segment.tokens)
        wanted = range(size - 1 if ends else size, size)
    if segment.mask is None:
        parents = list(range(-1, size - 1))
        return Piece(segment_idx, start, stop, parents, [(2 << i) - 1 for i in range(size)], wanted)
    seen = segment.mask.tolist()
    masks = [sum(1 << j for j, bit in enumerate(row) if bit) for row in seen]
    parents = [(mask & ((1 << i) - 1)).bit_length() - 1 for i, mask in enumerate(masks)]
    return Piece(segment_idx, start, stop, parents, masks, wanted)
