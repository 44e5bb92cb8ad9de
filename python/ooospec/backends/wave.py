# SPDX-License-Identifier: Apache-2.0
"""The launches of a wave on the fused backend: buffers that the core writes, and their programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ooospec import ops
from ooospec._core import cuda_core
from ooospec.backends.buffers import Buffers, Fields
from ooospec.backends.program import capture
from ooospec.config import LAUNCH_ROWS
from ooospec.kv import PagePool

if TYPE_CHECKING:
    from ooospec.backends.fused import FusedBackend

NUM_PAIRS = 128  # (row, token) whose probabilities one launch can tell
WAVE_PRIORITY = 0  # of its launches: below the target's, which go at HIGH_PRIORITY
TIMEOUT_US = 60_000_000

Arrays = dict[str, np.ndarray[Any, Any]]


class WaveRows:
    """Rows of a launch that the core writes; see Decoder.run. page_table: the caller's to write.

    leaders, num_shared: see ops.TreePlan.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    sequences: torch.Tensor
    mask: torch.Tensor
    slots: torch.Tensor
    lengths: torch.Tensor
    page_table: torch.Tensor
    leaders: torch.Tensor
    num_shared: torch.Tensor

    def __init__(
        self,
        pool: PagePool,
        num_rows: int,
        num_sequences: int,
        num_pages: int,
        more: Fields | None = None,
    ) -> None:
        """more: arrays beside those of the rows, of int64 first."""
        self.pool = pool
        self.num_rows = num_rows
        fields = {
            "mask": (torch.int64, (num_rows,)),
            "slots": (torch.int64, (num_rows,)),
            **(more or {}),
            "tokens": (torch.int32, (num_rows,)),
            "positions": (torch.int32, (num_rows,)),
            "sequences": (torch.int32, (num_rows,)),
            "lengths": (torch.int32, (num_sequences,)),
            "leaders": (torch.int32, (num_sequences,)),
            "num_shared": (torch.int32, (num_sequences,)),
            "page_table": (torch.int32, (num_sequences, num_pages)),
        }
        self._buffers = Buffers(fields, pool.device)
        self.host, self.device = self._buffers.host, self._buffers.device
        vars(self).update({name: self.device[name] for name in fields if name not in (more or {})})
        self.host["sequences"][:] = -1

    def copy_in(self) -> None:
        """Sends what the core wrote to the device; part of every program."""
        self._buffers.copy_in()


class AskRows:
    """Rows of a wide launch in parts of 64, each a launch for attention (ops.LaunchRows).

    tables: rows of a launch that have the same sequences.
    """

    def __init__(self, tables: WaveRows, num_parts: int) -> None:
        self.pool = tables.pool
        num_rows, num_sequences = num_parts * LAUNCH_ROWS, len(tables.lengths)
        fields = {
            "mask": (torch.int64, (num_rows,)),
            "slots": (torch.int64, (num_rows,)),
            "tokens": (torch.int32, (num_rows,)),
            "positions": (torch.int32, (num_rows,)),
            "sequences": (torch.int32, (num_rows,)),
            "lengths": (torch.int32, (num_parts * num_sequences,)),
        }
        self._buffers = Buffers(fields, tables.pool.device)
        self._buffers.host["sequences"][:] = -1
        device = self._buffers.device
        self.tokens, self.positions, self.slots = (
            device[name] for name in ("tokens", "positions", "slots")
        )
        self.sequences, self.mask, self.lengths = (
            device[name] for name in ("sequences", "mask", "lengths")
        )
        self.page_table = tables.page_table
        sizes = dict.fromkeys(fields, LAUNCH_ROWS) | {"lengths": num_sequences}

        def part(arrays: Mapping[str, Any], i: int) -> dict[str, Any]:
            return {name: arrays[name][i * size : (i + 1) * size] for name, size in sizes.items()}

        self.host: list[Arrays] = [part(self._buffers.host, i) for i in range(num_parts)]
        self.parts = [
            SimpleNamespace(page_table=self.page_table, **part(device, i)) for i in range(num_parts)
        ]

    def copy_in(self) -> None:
        """Sends what the core wrote to the device; part of the program."""
        self._buffers.copy_in()


class WavePrograms:
    """Prefill, fork, step, score and ask (the order of the core's WaveProgram) over one pool.

    chunk, rows, asks: arrays that the core writes, and `choices` and `scores`, which it reads.
    launcher: what runs a program, for the core. The lanes are sequences 0 to num_lanes - 1 of the
    rows, the prefix is the one behind them.
    """

    def __init__(
        self, backend: FusedBackend, pool: PagePool, *, num_lanes: int, max_tokens: int
    ) -> None:
        """max_tokens: of a branch. On a GPU, captures all graphs on a stream of low priority.

        Raises ImportError on a GPU where the package was built without nvcc.
        """
        weights, self._device = backend.weights, backend.device
        num_pages = -(-(max_tokens + LAUNCH_ROWS) // pool.page_size)
        more: Fields = {
            "fork_source": (torch.int64, (1,)),
            "fork_targets": (torch.int64, (num_lanes,)),
            "fork_count": (torch.int32, (1,)),
            "pair_rows": (torch.int32, (NUM_PAIRS,)),
            "pair_tokens": (torch.int32, (NUM_PAIRS,)),
            "wanted": (torch.int32, (LAUNCH_ROWS,)),
        }
        self._chunk = WaveRows(pool, backend.chunk, 1, num_pages)
        self._rows = WaveRows(pool, LAUNCH_ROWS, num_lanes + 1, num_pages, more)
        num_parts = backend.chunk // LAUNCH_ROWS
        self._asks = AskRows(self._rows, num_parts if num_parts > 1 else 0)

        def plan(rows: ops.LaunchRows) -> ops.TreePlan:
            shape = weights.num_heads, weights.num_kv_heads, weights.head_dim
            leaders, num_shared = self._rows.leaders, self._rows.num_shared
            return ops.TreePlan(rows, *shape, leaders=leaders, num_shared=num_shared)

        self._plan = plan(self._rows)
        self._ask_plans = [plan(part) for part in self._asks.parts]
        self._pool = pool
        self._body = backend.packed
        self._decodable = backend.decodable
        self._logits = torch.zeros(
            LAUNCH_ROWS, weights.head.shape[0], dtype=torch.float32, device=self._device
        )
        self._scratch = ops.sample_scratch(self._logits)
        self._choices = torch.zeros(LAUNCH_ROWS, dtype=torch.int32, device=self._device)
        self._top8 = torch.zeros(LAUNCH_ROWS, ops.TOP, dtype=torch.int32, device=self._device)
        self._scores = torch.zeros(NUM_PAIRS, dtype=torch.float32, device=self._device)
        self.chunk: Arrays = self._chunk.host
        self.rows: Arrays = dict(self._rows.host)
        self.asks = self._asks.host
        self.launcher: int | Callable[[int], None]
        runs = [self._prefill, self._fork, self._step, self._score]
        if self.asks:
            runs.append(self._ask)
        if self._device.type == "cuda":
            self._capture(runs)
        else:
            self.rows |= {"choices": self._choices.numpy(), "scores": self._scores.numpy()}
            self.launcher = torch.inference_mode()(lambda program: runs[program]())

    def bind(self, prefix: list[int], lanes: list[list[int]], num_tokens: int) -> None:
        """Writes the page tables: of the prefix of `num_tokens` tokens, and of each lane.

        lanes: the pages of a lane behind the full pages of the prefix.
        """
        full = num_tokens // self._pool.page_size
        for table in (self._chunk.host["page_table"][0], self._rows.host["page_table"][-1]):
            table[: len(prefix)] = prefix
        for table, pages in zip(self._rows.host["page_table"], lanes, strict=False):
            table[:full] = prefix[:full]
            table[full : full + len(pages)] = pages
        self._rows.host["leaders"][:] = len(self._rows.host["leaders"]) - 1
        self._rows.host["num_shared"][:] = full * self._pool.page_size

    def _prefill(self) -> None:
        self._chunk.copy_in()
        self._body.chunk(self._chunk)

    def _fork(self) -> None:
        """Copies the last page of the prefix to each lane."""
        self._rows.copy_in()
        if self._device.type == "cuda":
            self._fork_on_device()
            return
        source, count = (int(self._rows.host[name][0]) for name in ("fork_source", "fork_count"))
        for target in self._rows.host["fork_targets"]:
            if target >= 0:
                for block in self._pool.blocks:
                    block[:, target : target + count] = block[:, source : source + count]

    def _step(self) -> None:
        """Rows in, choices out."""
        self._rows.copy_in()
        self._body.step(self._rows, self._plan, self._logits)
        self._choose()

    def _choose(self) -> None:
        out = self._choices, self._top8
        ops.sample(self._logits, self._decodable, *out, scratch=self._scratch)

    def _ask(self) -> None:
        """As _step, for the rows of a wide launch."""
        self._rows.copy_in()
        self._asks.copy_in()
        wanted = self._rows.device["wanted"]
        self._body.ask(self._asks, self._ask_plans, wanted, self._logits)
        self._choose()

    def _score(self) -> None:
        """As _step, and the log probabilities of the pairs."""
        self._step()
        rows, tokens = (self._rows.device[name] for name in ("pair_rows", "pair_tokens"))
        totals = torch.logsumexp(self._logits[:, : self._decodable], dim=-1)
        torch.sub(self._logits[rows, tokens], totals[rows], out=self._scores)

    # --- on a GPU -------------------------------------------------------------------------------

    def _capture(self, runs: list[Callable[[], None]]) -> None:
        self._core = cuda_core()
        self._report = self._core.WaveReport()
        self._round = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._stream = torch.cuda.Stream(self._device, priority=WAVE_PRIORITY)  # type: ignore[no-untyped-call]

        def ended(run: Callable[[], None]) -> Callable[[], None]:
            def run_and_publish() -> None:
                run()
                self._publish()

            return run_and_publish

        with torch.inference_mode():
            self._graphs = [
                capture(ended(run), self._device, priority=WAVE_PRIORITY, keep=True) for run in runs
            ]
        torch.cuda.synchronize(self._device)
        self._launcher = self._core.GraphLauncher(
            [graph.raw_cuda_graph() for graph in self._graphs],
            self._stream.cuda_stream,
            self._report,
            int(self._round),
            TIMEOUT_US,
        )
        self.launcher = self._launcher.address
        self.rows |= {"choices": self._report.choices, "scores": self._report.scores}

    def _publish(self) -> None:
        self._core.wave_end(
            report=self._report,
            round=self._round.data_ptr(),
            choices=self._choices.data_ptr(),
            num_rows=LAUNCH_ROWS,
            scores=self._scores.data_ptr(),
            num_pairs=NUM_PAIRS,
            stream=torch.cuda.current_stream(self._device).cuda_stream,
        )

    def _fork_on_device(self) -> None:
        rows: Mapping[str, torch.Tensor] = self._rows.device
        for block in self._pool.blocks:
            self._core.fork(
                source=rows["fork_source"].data_ptr(),
                targets=rows["fork_targets"].data_ptr(),
                num_targets=len(rows["fork_targets"]),
                count=rows["fork_count"].data_ptr(),
                block=block.data_ptr(),
                layer_bytes=block.stride(0) * block.element_size(),
                slot_bytes=block.stride(1) * block.element_size(),
                num_layers=len(block),
                stream=torch.cuda.current_stream(self._device).cuda_stream,
            )
