# SPDX-License-Identifier: Apache-2.0
"""What an engine or a sidecar needs of a model: rows in, logits out, KV in our pages."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ooospec.kv import PagePool, Sequence
from ooospec.rows import Rows
from ooospec.sampling import Chooser


@dataclass
class Segment:
    """Rows of one sequence in one launch.

    tokens, positions: one a row; a row's position is its own, siblings of a tree share theirs.
    mask: bool[n, n]; [i, j]: row j is row i or an ancestor of it. None: the rows are a causal
    chain.
    logits: of which rows logits are wanted.
    """

    sequence: Sequence
    tokens: Seq[int]
    positions: Seq[int]
    mask: torch.Tensor | None = field(default=None)
    logits: Literal["all", "last", "none"] = "all"


class Verdict(NamedTuple):
    """What the target made of a draft.

    path: rows passed, the root first. tokens: its choices along them: the drafts accepted and the
    token that comes after.
    launched, seen: seconds of time.perf_counter when the rows were on their way to the device, and
    when the host knew that it was done with them.
    top8: int32[rows, 8], ids of the highest logits after each row; None unless asked for.
    compacted: the KV of the path lies in rows 0, 1, ... already.
    riders: the verdict on each, or what verify() would raise for it.
    """

    path: list[int]
    tokens: list[int]
    launched: float
    seen: float
    top8: npt.NDArray[np.int32] | None = None
    compacted: bool = False
    riders: Seq[Verdict | RuntimeError] = ()


class Ask(NamedTuple):
    """What a round is to verify of one sequence; see Backend.verify. place: its `index`.

    num_given: rows before the root, which the target is made to write; the path begins with them.
    """

    sequence: Sequence
    rows: Rows
    chooser: Chooser
    place: int
    top8: bool
    num_given: int = 0


class Backend(Protocol):
    """A loaded model.

    tokenizer: its Hugging Face tokenizer, or None.
    decodable: ids from here on are padding of the embedding, never chosen.
    chunk: rows of a prefill chunk. max_tree_rows: most rows of a segment with a mask.
    num_sequences: most sequences that may share a launch.
    level: how exact its output is known to be: "bit-exact" and "self-checked" (see
    selfcheck.level_after), "tested" against Hugging Face, "not checked", or why it is none of
    these. is_canonical: its rows are to have the same bits in every launch, so that they can be
    proven to. description: one line for people.
    """

    device: torch.device
    dtype: torch.dtype
    tokenizer: Any
    decodable: int
    eos_ids: frozenset[int]
    context_limit: int
    chunk: int
    max_tree_rows: int
    num_sequences: int
    level: str
    is_canonical: bool
    description: str

    def new_pool(self, num_tokens: int) -> PagePool:
        """Returns a KV cache with room for `num_tokens` tokens, in the shape this model needs."""
        ...

    def forward(self, segments: Seq[Segment]) -> list[torch.Tensor]:
        """Runs one launch; returns float32 logits [rows, V] of each segment, zero rows for "none".

        The KV of a segment's rows go to the slots behind its sequence's length, which must be
        reserved.
        Mutates: the pools, and num_rows of the sequences.
        """
        ...

    def verify(
        self,
        sequence: Sequence,
        rows: Rows,
        chooser: Chooser,
        index: int,
        *,
        top8: bool,
        meanwhile: Callable[[], None],
        riders: Seq[Ask] = (),
    ) -> Verdict:
        """Runs one round: the target's choices for `rows` behind the sequence.

        index: place in the answer of the token that comes after the root. meanwhile: what the host
        may do while the device works. riders: other sequences, greedy ones, whose rows share the
        launch: with `rows` at most 64, of at most num_sequences. The caller keeps what it takes of
        the path.
        Mutates: as forward(). Raises RuntimeError if the model gave no usable logits.
        """
        ...

    def verify_together(
        self, asks: Seq[Ask], meanwhile: Callable[[], None]
    ) -> list[Verdict | RuntimeError]:
        """Runs one round of all `asks`, of one pool; returns what verify() returns for each, or
        raises.
        """
        ...

    def prefill(
        self, sequence: Sequence, tokens: Seq[int], progress: Callable[[int], None] | None = None
    ) -> torch.Tensor:
        """Commits `tokens` behind the sequence, in chunks that end at multiples of `chunk`.

        progress: called with the tokens done after each chunk. Returns float32[V], logits of the
        last token.
        """
        ...

    def measure_costs(self, row_counts: Seq[int]) -> list[float]:
        """Returns the microseconds of a round of each of `row_counts` rows."""
        ...

    def close(self) -> None:
        """Gives the model back. Safe to call twice."""
        ...


def prefill(
    backend: Backend,
    sequence: Sequence,
    tokens: Seq[int],
    progress: Callable[[int], None] | None = None,
) -> torch.Tensor:
    """The prefill of backends without programs; see Backend.prefill.

    Raises ValueError for no tokens.
    """
    if not tokens:
        raise ValueError("prefill: expected at least one token, got none")
    start, logits = 0, torch.empty(0)
    while start < len(tokens):
        first = sequence.length
        stop = min(len(tokens), start + backend.chunk - first % backend.chunk)
        rows = tokens[start:stop]
        wanted: Literal["last", "none"] = "last" if stop == len(tokens) else "none"
        positions = range(first, first + len(rows))
        logits = backend.forward([Segment(sequence, rows, positions, logits=wanted)])[0]
        sequence.keep(range(len(rows)))
        start = stop
        if progress is not None:
            progress(start)
    return logits[-1]
