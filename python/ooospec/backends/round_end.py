# SPDX-License-Identifier: Apache-2.0
"""How a round ends: the target's choices are followed through the tree, on the device or here."""

from __future__ import annotations

from time import perf_counter
from typing import Protocol

import torch

from ooospec import ops
from ooospec._core import cuda_core
from ooospec.backends.base import Verdict
from ooospec.backends.launch import Launch
from ooospec.rows import Rows

TIMEOUT_US = 60_000_000


class RoundEnd(Protocol):
    """The end of the rounds of one launch.

    choices: int32[N], top8: int32[N, 8]; what `ops.sample` writes, on the device.
    """

    choices: torch.Tensor
    top8: torch.Tensor

    def run(self) -> None:
        """Launches what follows `ops.sample`; part of the round's graph."""
        ...

    def captured(self) -> None:
        """Says that a graph with run() in it was captured, and ran before that."""
        ...

    def read(self, rows: Rows, launched: float, *, top8: bool) -> Verdict:
        """Waits for the round of `rows`, which are the launch's first, and returns what came of it.

        launched: when the round was, for the verdict.
        Raises RuntimeError if the model gave no usable logits or the device failed.
        """
        ...

    def read_rider(self, rows: Rows, launched: float, first: int, num_given: int) -> Verdict:
        """Returns what came of greedy rows from `first` on of the round that read() waited for.

        num_given: see Ask. Raises RuntimeError for no usable logits.
        """
        ...


def round_end(launch: Launch) -> RoundEnd:
    """Returns the end of rounds on the device where there is a CUDA core, else the host's."""
    if launch.pool.device.type == "cuda":
        try:
            return DeviceEnd(launch)
        except ImportError:
            return HostEnd(launch)
    return HostEnd(launch)


class DeviceEnd:
    """Accepts, compacts and publishes inside the graph; the host spins until that has come."""

    def __init__(self, launch: Launch) -> None:
        """Raises ImportError where the package was built without nvcc."""
        self._core = cuda_core()
        self._launch = launch
        device, num_rows = launch.pool.device, launch.num_rows
        self.choices, self.top8 = _outputs(launch)
        self._sources = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._targets = torch.zeros_like(self._sources)
        self._count = torch.zeros(1, dtype=torch.int32, device=device)
        self._round = torch.zeros(1, dtype=torch.int64, device=device)
        self._report = self._core.RoundReport()
        self._counts, self._tokens = self._report.counts, self._report.tokens
        self._rows, self._top8 = self._report.rows, self._report.top8
        self._num_rounds = 0

    def run(self) -> None:
        """See RoundEnd."""
        launch, pool = self._launch, self._launch.pool
        self._core.end_of_round(
            report=self._report,
            round=self._round.data_ptr(),
            num_rows=launch.num_rows,
            choices=self.choices.data_ptr(),
            top8=self.top8.data_ptr(),
            tokens=launch.tokens.data_ptr(),
            parents=launch.parents.data_ptr(),
            positions=launch.positions.data_ptr(),
            sequences=launch.sequences.data_ptr(),
            slots=launch.slots.data_ptr(),
            page_table=launch.page_table.data_ptr(),
            num_pages=launch.page_table.shape[1],
            page_size=pool.page_size,
            path_sources=self._sources.data_ptr(),
            path_targets=self._targets.data_ptr(),
            path_count=self._count.data_ptr(),
            stream=torch.cuda.current_stream(pool.device).cuda_stream,
        )
        for keys, values in zip(pool.blocks[::2], pool.blocks[1::2], strict=True):
            ops.kv_compact(keys, values, self._sources, self._targets, self._count)

    def captured(self) -> None:
        """See RoundEnd."""
        self._num_rounds = int(self._round)

    def read(self, rows: Rows, launched: float, *, top8: bool) -> Verdict:
        """See RoundEnd."""
        self._num_rounds += 1
        stream = torch.cuda.current_stream(self._launch.pool.device).cuda_stream
        if not self._report.wait(self._num_rounds, TIMEOUT_US, stream):
            raise RuntimeError(f"round: expected an end within {TIMEOUT_US / 1e6:.0f} s, got none")
        seen = perf_counter()
        count = int(self._counts[0])
        tokens = self._tokens[:count].tolist()
        _check(tokens)
        found = self._top8[: len(rows)].copy() if top8 else None
        path = self._rows[:count].tolist()
        return Verdict(path, tokens, launched, seen, found, compacted=True)

    def read_rider(self, rows: Rows, launched: float, first: int, num_given: int) -> Verdict:
        """See RoundEnd. The device follows the choices from the first row on: only where they are
        what was given does it get to the root, and behind it.
        """
        likeliest = self._top8[first : first + len(rows), 0].tolist()
        path, tokens = rows.follow(lambda row, depth: likeliest[row], num_given)
        _check(tokens)
        compacted = int(self._counts[first]) > num_given
        return Verdict(path, tokens, launched, perf_counter(), compacted=compacted)


class HostEnd:
    """Copies choices to the host, which follows them."""

    def __init__(self, launch: Launch) -> None:
        self._device = launch.pool.device
        on_gpu = self._device.type == "cuda"
        self.choices, self.top8 = _outputs(launch)
        self._host_choices = torch.zeros_like(self.choices, device="cpu", pin_memory=on_gpu)
        self._host_top8 = torch.zeros_like(self.top8, device="cpu", pin_memory=on_gpu)

    def run(self) -> None:
        """See RoundEnd."""
        self._host_choices.copy_(self.choices, non_blocking=True)
        self._host_top8.copy_(self.top8, non_blocking=True)

    def captured(self) -> None:
        """See RoundEnd."""

    def read_rider(self, rows: Rows, launched: float, first: int, num_given: int) -> Verdict:
        """See RoundEnd."""
        return self.read(rows, launched, top8=False, first=first, num_given=num_given)

    def read(
        self, rows: Rows, launched: float, *, top8: bool, first: int = 0, num_given: int = 0
    ) -> Verdict:
        """See RoundEnd. first: of the rows in the launch, which may hold others too. num_given:
        see Ask.
        """
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        seen = perf_counter()
        choices = self._host_choices[first : first + len(rows)].tolist()
        path, tokens = rows.follow(lambda row, depth: choices[row], num_given)
        _check(tokens)
        found = self._host_top8[first : first + len(rows)].numpy().copy() if top8 else None
        return Verdict(path, tokens, launched, seen, found)


def _outputs(launch: Launch) -> tuple[torch.Tensor, torch.Tensor]:
    device, num_rows = launch.pool.device, launch.num_rows
    choices = torch.zeros(num_rows, dtype=torch.int32, device=device)
    return choices, torch.zeros(num_rows, ops.TOP, dtype=torch.int32, device=device)


def _check(tokens: list[int]) -> None:
    if tokens[-1] < 0:
        raise RuntimeError("the model gave no usable logits: expected a finite maximum, got none")
