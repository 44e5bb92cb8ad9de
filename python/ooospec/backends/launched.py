# SPDX-License-Identifier: Apache-2.0
"""Runs launches of fixed shape, a round as one CUDA graph, whatever computes the rows."""

from __future__ import annotations

import bisect
import itertools
import time
import weakref
from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any, Protocol

import torch

from ooospec import ops
from ooospec.backends.base import Ask, Segment, Verdict
from ooospec.backends.launch import Launch
from ooospec.backends.packing import pack
from ooospec.backends.program import Program
from ooospec.backends.round_end import HostEnd, RoundEnd, round_end
from ooospec.backends.support import decodable_ids, eos_ids
from ooospec.config import LAUNCH_ROWS
from ooospec.kv import LayerShape, PagePool, Sequence
from ooospec.rows import Rows
from ooospec.sampling import Chooser

CHUNK = 256  # rows of a prefill chunk


class Body(Protocol):
    """A model over launches of fixed shape. layers: what a slot of each holds, all of one shape.

    num_heads: of queries. num_logits: of a row, padding of the vocabulary included.
    """

    layers: list[LayerShape]
    num_heads: int
    num_logits: int

    def step(self, launch: Launch, plan: ops.TreePlan, logits: torch.Tensor) -> None:
        """Runs a launch of trees; writes float32[N, V] of all its rows. Mutates: its pool."""
        ...

    def chunk(self, launch: Launch) -> None:
        """Runs a chunk of prefill. Mutates: its pool."""
        ...

    def last(self, launch: Launch, logits: torch.Tensor) -> None:
        """Writes the logits of `last_row` of the chunk that ran into row 0."""
        ...


class LaunchBackend:
    """A Backend (see base.py) whose rounds and chunks are programs over fixed buffers.

    Every launch has 64 rows, prefill chunks have 256: products always run at one size, so a row's
    result depends on nothing but itself and what it attends to.
    """

    def __init__(
        self, model: Any, tokenizer: Any, body: Body, *, num_sequences: int, chunk: int
    ) -> None:
        """body: runs the rows; of `model`.

        num_sequences: most sequences of one launch; 1 to 64. chunk: rows of a prefill chunk, a
        multiple of 64. Raises ValueError for bad counts.
        """
        if not 1 <= num_sequences <= LAUNCH_ROWS:
            raise ValueError(f"num_sequences: expected 1 to {LAUNCH_ROWS}, got {num_sequences}")
        if chunk < ops.BLOCK or chunk % ops.BLOCK:
            raise ValueError(f"chunk: expected a multiple of {ops.BLOCK}, got {chunk}")
        config = model.config.get_text_config()
        self.model = model
        self.tokenizer = tokenizer
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.chunk = chunk
        self.max_tree_rows = LAUNCH_ROWS
        self.num_sequences = num_sequences
        self.context_limit = int(config.max_position_embeddings)
        self.body = body
        self.num_embeddings = int(model.get_input_embeddings().weight.shape[0])
        self.decodable = decodable_ids(model, tokenizer)
        self.eos_ids = eos_ids(model, tokenizer, self.decodable)
        self.level = "not checked"
        self.is_canonical = False
        size = sum(p.numel() for p in model.parameters()) / 1e9
        dtype = str(self.dtype).removeprefix("torch.")
        self.description = f"{type(model).__name__} {size:.2f}B, {dtype} on {self.device}"
        self._pools: weakref.WeakSet[PagePool] = weakref.WeakSet()  # that have programs of ours

    def close(self) -> None:
        """Gives the graphs back. Safe to call twice."""
        for pool in self._pools:
            pool.programs.pop(self, None)
        self._pools.clear()

    def new_pool(self, num_tokens: int) -> PagePool:
        """Returns a KV cache with room for `num_tokens` tokens."""
        return PagePool(
            self.body.layers,
            -(-num_tokens // ops.BLOCK),
            page_size=ops.BLOCK,
            dtype=self.dtype,
            device=self.device,
        )

    @torch.inference_mode()
    def forward(self, segments: Seq[Segment]) -> list[torch.Tensor]:
        """Runs the rows in as many launches as they need; see Backend.forward.

        Raises ValueError for ids out of range, and for a tree of more than 64 rows.
        """
        for segment in segments:
            self._check(segment.tokens)
        programs = self._of(segments[0].sequence.pool)
        found: list[list[torch.Tensor]] = [[] for _ in segments]
        for pieces in pack(segments, LAUNCH_ROWS, self.num_sequences):
            launch = programs.launch
            launch.begin()
            wanted: list[int] = []
            for piece in pieces:
                segment = segments[piece.segment_idx]
                rows = launch.add(
                    segment.sequence,
                    segment.tokens[piece.start : piece.stop],
                    segment.positions[piece.start : piece.stop],
                    piece.parents,
                    piece.masks,
                    length=segment.sequence.length + piece.start,
                )
                wanted += [rows[i] for i in piece.wanted]
            programs.step.replay()
            index = torch.tensor(wanted, dtype=torch.long, device=self.device)
            logits, done = programs.logits[index].float(), 0
            for piece in pieces:
                found[piece.segment_idx].append(logits[done : done + len(piece.wanted)])
                done += len(piece.wanted)
            self._wait()
        for segment in segments:
            segment.sequence.num_rows = len(segment.tokens)
        return [torch.cat(parts) for parts in found]

    def verify(
        self,
        sequence: Sequence,
        rows: Rows,
        chooser: Chooser,
        index: int,
        *,
        top8: bool,
        meanwhile: Callable[[], None] = lambda: None,
        riders: Seq[Ask] = (),
    ) -> Verdict:
        """Runs one round; see Backend.verify."""
        programs = self._of(sequence.pool)
        programs.launch.add_draft(sequence, rows, chooser, index, anew=True)
        for rider in riders:
            programs.launch.add_draft(*rider[:4])
        program = programs.greedy if chooser.params.temperature == 0 else programs.sampled
        if program.prepare():
            programs.end.captured()
        launched = time.perf_counter()
        program.replay()
        meanwhile()
        sequence.num_rows = len(rows)
        verdict = programs.end.read(rows, launched, top8=top8)
        if not riders:
            return verdict
        return verdict._replace(riders=_ridden(programs.end, riders, len(rows), launched))

    def verify_together(
        self, asks: Seq[Ask], meanwhile: Callable[[], None] = lambda: None
    ) -> list[Verdict | RuntimeError]:
        """Runs one round of all `asks`, in as many launches as they need; see
        Backend.verify_together.
        """
        programs = self._of(asks[0].sequence.pool)
        verdicts: list[Verdict | RuntimeError] = []
        while len(verdicts) < len(asks):
            group = self._that_fit(asks[len(verdicts) :])
            launch = programs.launch
            launch.begin()
            firsts = [launch.add_draft(*ask[:4]) for ask in group]
            is_greedy = all(ask.chooser.params.temperature == 0 for ask in group)
            program = programs.shared_greedy if is_greedy else programs.shared_sampled
            program.prepare()
            launched = time.perf_counter()
            program.replay()
            if not verdicts:
                meanwhile()
            for ask, first in zip(group, firsts, strict=True):
                ask.sequence.num_rows = len(ask.rows)
                verdicts.append(_read(programs.shared_end, ask, first, launched))
        return verdicts

    def _that_fit(self, asks: Seq[Ask]) -> Seq[Ask]:
        """Returns the first of `asks` that one launch holds."""
        num_rows = list(itertools.accumulate(len(ask.rows) for ask in asks[: self.num_sequences]))
        return asks[: max(1, bisect.bisect_right(num_rows, LAUNCH_ROWS))]

    @torch.inference_mode()
    def prefill(
        self, sequence: Sequence, tokens: Seq[int], progress: Callable[[int], None] | None = None
    ) -> torch.Tensor:
        """Commits `tokens` behind the sequence; see Backend.prefill."""
        if not tokens:
            raise ValueError("prefill: expected at least one token, got none")
        self._check(tokens)
        programs = self._of(sequence.pool)
        start = 0
        while start < len(tokens):
            first = sequence.length
            stop = min(len(tokens), start + self.chunk - first % self.chunk)
            count = stop - start
            self._wait()  # the last chunk may run on behind this call
            launch = programs.chunk_launch
            launch.begin()
            launch.add(
                sequence,
                tokens[start:stop],
                range(first, first + count),
                range(-1, count - 1),
                [0] * count,
            )
            launch.set_last_row(count - 1)
            programs.chunk.replay()
            sequence.num_rows = count
            sequence.keep(range(count))
            start = stop
            if progress is not None:
                progress(start)
        programs.last.replay()
        return programs.logits[0].clone()

    def measure_costs(self, row_counts: Seq[int]) -> list[float]:
        """Returns the microseconds of a round behind 256 tokens: the same for every count."""
        sequence = Sequence(self.new_pool(CHUNK + LAUNCH_ROWS))
        sequence.reserve(CHUNK + LAUNCH_ROWS)
        for block in sequence.pool.blocks:
            block.zero_()
        sequence.length = CHUNK
        segment = Segment(sequence, [0] * LAUNCH_ROWS, range(CHUNK, CHUNK + LAUNCH_ROWS))
        found = []
        for _ in range(5):
            start = time.perf_counter()
            self.forward([segment])[0].argmax(dim=-1).tolist()
            found.append((time.perf_counter() - start) * 1e6)
        sequence.pool.programs.clear()
        return [min(found)] * len(row_counts)

    def _check(self, tokens: Seq[int]) -> None:
        if not 0 <= min(tokens) <= max(tokens) < self.num_embeddings:
            raise ValueError(
                f"launch: expected ids in [0, {self.num_embeddings}), got {min(tokens)} to "
                f"{max(tokens)}"
            )

    def _wait(self) -> None:
        """Waits until the device has done what was launched: the host's buffers are free again."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def _of(self, pool: PagePool) -> _Programs:
        """Returns the programs that read and write `pool`, made on first use."""
        programs: _Programs | None = pool.programs.get(self)
        if programs is None:
            with torch.inference_mode(False):  # verify() writes to its buffers outside of that
                programs = pool.programs[self] = _Programs(self, pool)
            self._pools.add(pool)
        return programs


def _read(end: HostEnd, ask: Ask, first: int, launched: float) -> Verdict | RuntimeError:
    try:
        return end.read(ask.rows, launched, top8=ask.top8, first=first, num_given=ask.num_given)
    except RuntimeError as error:
        return error


def _ridden(
    end: RoundEnd, riders: Seq[Ask], first: int, launched: float
) -> list[Verdict | RuntimeError]:
    """Reads what became of riders, whose rows lie one behind the other from `first` on."""
    found: list[Verdict | RuntimeError] = []
    for rider in riders:
        rider.sequence.num_rows = len(rider.rows)
        try:
            found.append(end.read_rider(rider.rows, launched, first, rider.num_given))
        except RuntimeError as error:
            found.append(error)
        first += len(rider.rows)
    return found


class _Programs:
    """What a backend runs on one pool: graphs hold the addresses of its pages."""

    def __init__(self, backend: LaunchBackend, pool: PagePool) -> None:
        body, device = backend.body, backend.device
        max_tokens = pool.num_pages * pool.page_size
        self.launch = Launch(
            pool,
            LAUNCH_ROWS,
            num_sequences=backend.num_sequences,
            max_tokens=max_tokens,
        )
        self.chunk_launch = Launch(
            pool,
            backend.chunk,
            num_sequences=1,
            max_tokens=max_tokens,
        )
        layer = body.layers[0]
        self._plan = ops.TreePlan(
            self.launch,
            body.num_heads,
            layer.num_heads,
            layer.key_dim,
            leaders=self.launch.leaders,
            num_shared=self.launch.num_shared,
        )
        dtype = torch.float32
        self.logits = torch.zeros(LAUNCH_ROWS, body.num_logits, dtype=dtype, device=device)
        self.end = round_end(self.launch)
        self.shared_end = HostEnd(self.launch)
        self._scratch = ops.sample_scratch(self.logits)
        self._decodable = backend.decodable
        self._limits: ops.RowLimits | None = None
        if backend.eos_ids:
            eos_ids = torch.tensor(sorted(backend.eos_ids), dtype=torch.int32, device=device)
            self._limits = ops.RowLimits(eos_ids=eos_ids, no_eos=self.launch.no_eos)
        self._body = body
        sampling = self.launch.sampling
        self.greedy = Program(lambda: self._round(self.end, None), device)
        self.sampled = Program(lambda: self._round(self.end, sampling), device)
        self.shared_greedy = Program(lambda: self._round(self.shared_end, None), device)
        self.shared_sampled = Program(lambda: self._round(self.shared_end, sampling), device)
        self.step = Program(self._step, device)
        self.chunk = Program(self._chunk, device)
        self.last = Program(self._last, device)

    def _step(self) -> None:
        """Rows in, logits out."""
        self.launch.copy_in()
        self._body.step(self.launch, self._plan, self.logits)

    def _round(self, end: RoundEnd, sampling: ops.RowSampling | None) -> None:
        """Rows in; the choices that the target makes for them out, as `end` gives them."""
        self._step()
        out = end.choices, end.top8
        ops.sample(self.logits, self._decodable, *out, sampling, self._limits, self._scratch)
        end.run()

    def _chunk(self) -> None:
        """A chunk of prefill, without logits."""
        self.chunk_launch.copy_in()
        self._body.chunk(self.chunk_launch)

    def _last(self) -> None:
        """The logits of a chunk's last row, in row 0."""
        self._body.last(self.chunk_launch, self.logits)
