# SPDX-License-Identifier: Apache-2.0
"""The wave on the fused backend: prepared here, then run by the core in one call without the GIL.

What is asked, sent and left out is as in wave.py. Each of the rows that advance together is a lane
with pages of its own behind the prefix, so that nothing has to be made while the wave runs. Rows of
a launch that no lane needs verify guesses at the next tokens of answers: what stands in the prompt
behind the last ones. That saves launches, and changes no answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ooospec._core import _C
from ooospec.backends.fused import FusedBackend
from ooospec.backends.wave import WavePrograms
from ooospec.config import LAUNCH_ROWS
from ooospec.errors import OutOfPages
from ooospec.kv import PrefixCache, Sequence
from ooospec.sidecar.policy import Work
from ooospec.sidecar.prompt import PromptBuilder, WavePrompt
from ooospec.sidecar.value import value_schema
from ooospec.sidecar.wave import (
    LIKELY_WITHIN,
    MAX_TOKENS,
    MAX_VALUE_TOKENS,
    NUM_LANES,
    Answered,
    Step,
    WaveReport,
)

QUESTION_TOKENS = 80  # that the pool has room for in every lane; longer ones make for fewer lanes


class GraphWaveRunner:
    """Runs the waves of one sidecar model, as WaveRunner does; cancel() is for any thread.

    max_slots: asked for in one wave; those of the least likely functions are left out.
    """

    max_slots = _C.Wave.MAX_SLOTS

    def __init__(
        self,
        backend: FusedBackend,
        builder: PromptBuilder,
        *,
        num_rows: int = NUM_LANES,
        max_value_tokens: int = MAX_VALUE_TOKENS,
        likely_within: float = LIKELY_WITHIN,
    ) -> None:
        """builder: of the backend's tokenizer. num_rows: branches that advance together, 1 to 63.

        likely_within: as for WaveRunner.

        On a GPU, captures the graphs. Raises ValueError for counts out of range, ImportError on a
        GPU where the package was built without nvcc.
        """
        if not 1 <= num_rows < LAUNCH_ROWS or max_value_tokens < 1:
            raise ValueError(
                f"wave: expected 1 to {LAUNCH_ROWS - 1} rows and at least one token a value, got "
                f"{num_rows} and {max_value_tokens}"
            )
        self.backend = backend
        self.builder = builder
        self.num_rows = num_rows
        self.max_value_tokens = max_value_tokens
        limit = min(backend.context_limit, MAX_TOKENS)
        page_size = backend.new_pool(1).page_size
        lane = -(-(page_size + QUESTION_TOKENS + max_value_tokens) // page_size) * page_size
        self.pool = backend.new_pool(2 * limit + LAUNCH_ROWS + num_rows * lane)
        self.prefixes = PrefixCache(self.pool, backend.chunk)
        self._programs = WavePrograms(backend, self.pool, num_lanes=num_rows, max_tokens=limit)
        self._wave = _C.Wave(
            vocab=_C.Vocab(builder.pieces),
            eos_ids=sorted(backend.eos_ids),
            max_value_tokens=max_value_tokens,
            num_lanes=num_rows,
            likely_within=likely_within,
            chunk=self._programs.chunk,
            rows=self._programs.rows,
            asks=self._programs.asks,
            spare_slot=self.pool.spare_slot,
            page_size=page_size,
            launcher=self._programs.launcher,
        )

    def cancel(self) -> None:
        """Ends the wave that runs before its next launch. Never blocks."""
        self._wave.cancel()

    def run(
        self,
        prompt: WavePrompt,
        ring: _C.HintRing,
        report: WaveReport,
        *,
        wants: Callable[[Work], bool] = lambda work: True,
        cancelled: Callable[[], bool] = lambda: False,
        tenant: str = "",
    ) -> None:
        """Answers every slot of `prompt`; see WaveRunner.run.

        cancelled: asked once, at the start; then cancel() counts.
        Raises OutOfPages, and what the launches raise; no page stays held.
        """
        self._wave.reset()
        prefix, lanes = Sequence(self.pool), list[list[int]]()
        try:
            tokens = list(prompt.prefix)
            report.num_prompt_tokens, report.num_cut_tokens = len(tokens), prompt.num_cut
            report.num_cached_tokens = self.prefixes.attach(prefix, tokens, tenant)
            report.num_slots = len(prompt.slots)
            if not wants(_work(prompt, report.num_cached_tokens)):
                report.outcome = "skipped"
                return
            if cancelled():
                report.outcome = "cancelled"
                return
            self._reserve(prefix, len(tokens) + LAUNCH_ROWS)
            lanes += self._lanes(prompt)
            self._programs.bind(prefix.pages, lanes, len(tokens))
            result = self._wave.run(self._request(prompt, prefix, lanes, report), ring)
            if not result.cancelled:
                prefix.length = len(tokens)
                self.prefixes.insert(prefix, tokens, tenant)
            _tell(report, result)
        finally:
            for pages in lanes:
                self.pool.release(pages)
            prefix.release()
            report.stop = time.perf_counter()

    def _request(
        self, prompt: WavePrompt, prefix: Sequence, lanes: list[list[int]], report: WaveReport
    ) -> _C.WaveRequest:
        slots = [
            _C.WaveSlot(
                slot.tool,
                slot.parameter,
                slot.required,
                slot.question,
                value_schema(slot.schema),
                slot.recorded,
            )
            for slot in prompt.slots
        ]
        none = _C.HintRecord.NO_TOOL
        options = [(none if tool is None else tool, t) for tool, t in prompt.options.items()]
        return _C.WaveRequest(
            request_id=report.request_id,
            prefix=prompt.prefix,
            num_cached=report.num_cached_tokens,
            question=prompt.question,
            options=options,
            slots=slots,
            prefix_pages=prefix.pages,
            lane_pages=[page for pages in lanes for page in pages],
            pages_per_lane=len(lanes[0]) if lanes else 0,
            recorded=next((none if tool is None else tool for tool in prompt.recorded), None),
        )

    def _reserve(self, sequence: Sequence, num_tokens: int) -> None:
        """Makes room, after forgetting cached prefixes if there are too few pages."""
        try:
            sequence.reserve(num_tokens)
        except OutOfPages:
            self.prefixes.evict(-(-num_tokens // self.pool.page_size))
            sequence.reserve(num_tokens)

    def _lanes(self, prompt: WavePrompt) -> list[list[int]]:
        """Returns the pages of as many lanes as there are slots, rows and pages for, or one."""
        if not prompt.slots:
            return []
        page_size = self.pool.page_size
        longest = max(len(slot.question) for slot in prompt.slots) + self.max_value_tokens
        per_lane = -(-(len(prompt.prefix) % page_size + longest) // page_size)
        wanted = min(self.num_rows, len(prompt.slots))
        if self.pool.num_free < wanted * per_lane:
            self.prefixes.evict(wanted * per_lane)
        wanted = max(1, min(wanted, self.pool.num_free // per_lane))
        pages = self.pool.allocate(wanted * per_lane)
        return [pages[i : i + per_lane] for i in range(0, len(pages), per_lane)]


def _work(prompt: WavePrompt, num_cached: int) -> Work:
    rows = len(prompt.question) + sum(len(tokens) - 1 for tokens in prompt.options.values())
    rows += sum(len(slot.question) for slot in prompt.slots)
    num_tokens = len(prompt.prefix)
    return Work(num_tokens - num_cached, num_tokens, len(prompt.slots), rows)


def _tell(report: WaveReport, result: _C.WaveResult) -> None:
    """Takes up what the core says of a wave."""
    if result.cancelled:
        report.outcome = "cancelled"
    report.num_sent, report.num_unsaid = result.num_sent, result.num_unsaid
    report.num_invalid = result.num_invalid
    report.steps = [Step(start / 1e9, stop / 1e9, rows) for start, stop, rows in result.steps]
    report.answers = [
        Answered(ns / 1e9, kind.name, tool, parameter, sent)
        for ns, kind, tool, parameter, sent in result.answers
    ]
