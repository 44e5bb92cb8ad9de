# SPDX-License-Identifier: Apache-2.0
"""The wave: every slot of a request at once, over the rows of one backend.

The prefix is prefilled once. One launch scores the functions: the question and the names behind it
are a tree of rows, so the choice and the likelihood of every function are known before a value is
written. Then branches forked from the prefix advance together, a token a launch, with those of the
likeliest function first; a branch that ends makes room for the question of the next one.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from ooospec._core import _C
from ooospec.backends.base import Backend, Segment
from ooospec.errors import OutOfPages
from ooospec.kv import PrefixCache, Sequence
from ooospec.sidecar.policy import Work
from ooospec.sidecar.prompt import PromptBuilder, Slot, WavePrompt
from ooospec.sidecar.value import value_schema

NUM_LANES = 32  # branches that advance together
MAX_VALUE_TOKENS = 48
LIKELY_WITHIN = 7.0  # the sidecar's name of a function against its likeliest; about 1 in 1,100
MAX_SLOTS = 256  # asked for in one wave; those of the least likely functions are left out
MAX_TOKENS = 8192  # of a branch; less where the context of the model is shorter

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """One launch of a wave. Times in seconds of time.perf_counter."""

    start: float
    stop: float
    num_rows: int


@dataclass(frozen=True)
class Answered:
    """A slot that ended, or the choice of a function. kind: name of its HintKind.

    sent: its value went out.
    """

    time: float
    kind: str
    tool: int
    parameter: int
    sent: bool


@dataclass
class WaveReport:
    """What a wave did. outcome: "done", "cancelled", "skipped", or "failed: ..."; times as in Step.

    reason: why it started, or did not. Slots: num_sent went out as values, num_unsaid are nulls of
    functions that were not chosen, and all of unlikely ones, which are not worth a record,
    num_invalid are no values of their schema. answers: in the order in which they came.
    """

    request_id: int
    start: float = field(default_factory=time.perf_counter)
    stop: float = 0.0
    outcome: str = "done"
    reason: str = ""
    work: Work | None = None
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_cut_tokens: int = 0
    num_slots: int = 0
    num_sent: int = 0
    num_unsaid: int = 0
    num_invalid: int = 0
    steps: list[Step] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)


class _CancelledError(Exception):
    """The request of a wave is over."""


@dataclass
class _Branch:
    """A slot being answered. tokens: to launch next, its question and then its last token."""

    slot: Slot
    sequence: Sequence
    tokens: Seq[int]
    reader: _C.ValueReader = field(default_factory=_C.ValueReader)
    num_answered: int = 0


class WaveRunner:
    """Runs the waves of one sidecar model, one after another. Greedy. For one thread."""

    def __init__(
        self,
        backend: Backend,
        builder: PromptBuilder,
        *,
        num_rows: int = NUM_LANES,
        max_value_tokens: int = MAX_VALUE_TOKENS,
        likely_within: float = LIKELY_WITHIN,
    ) -> None:
        """builder: of the backend's tokenizer. num_rows: branches that advance together.

        likely_within: a function is asked about if the log probability of its name is at most so
        much below the best. Raises ValueError for counts below one.
        """
        if num_rows < 1 or max_value_tokens < 1:
            raise ValueError(
                f"wave: expected at least one row and one token a value, got {num_rows} and "
                f"{max_value_tokens}"
            )
        self.backend = backend
        self.builder = builder
        self.num_rows = num_rows
        self.max_value_tokens = max_value_tokens
        self.likely_within = likely_within
        branches = num_rows * (2 * max_value_tokens + 64)
        self.pool = backend.new_pool(2 * min(backend.context_limit, MAX_TOKENS) + branches)
        self.prefixes = PrefixCache(self.pool, backend.chunk)

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
        """Answers every slot of `prompt`; each hint goes into the ring once, when it is known.

        They carry the report's request id. The last one is END, or ERROR where a slot had no valid
        answer or was not asked.
        wants: asked once, before the first launch; no: outcome "skipped". cancelled: asked before
        each launch; yes: outcome "cancelled". tenant: requests of one tenant share prefixes.
        Mutates: report. Raises OutOfPages and what the backend raises; no page stays held.
        """
        wave = _Wave(self, prompt, ring, report, cancelled)
        try:
            wave.run(wants, tenant)
        except _CancelledError:
            report.outcome = "cancelled"
        finally:
            wave.release()
            report.stop = time.perf_counter()


class _Wave:
    def __init__(
        self,
        runner: WaveRunner,
        prompt: WavePrompt,
        ring: _C.HintRing,
        report: WaveReport,
        cancelled: Callable[[], bool],
    ) -> None:
        self._runner = runner
        self._backend = runner.backend
        self._prompt = prompt
        self._ring = ring
        self._report = report
        self._cancelled = cancelled
        self._prefix = Sequence(runner.pool)
        self._waiting = deque(prompt.slots)
        self._active: list[_Branch] = []
        self._chosen: int | None = None

    def release(self) -> None:
        for branch in self._active:
            branch.sequence.release()
        self._active.clear()
        self._prefix.release()

    def run(self, wants: Callable[[Work], bool], tenant: str) -> None:
        prefix, report = self._prompt.prefix, self._report
        report.num_prompt_tokens, report.num_cut_tokens = len(prefix), self._prompt.num_cut
        report.num_cached_tokens = self._runner.prefixes.attach(self._prefix, prefix, tenant)
        report.num_slots = len(self._waiting)
        groups = self._option_groups()
        work = self._work(groups)
        if not wants(work):
            report.outcome = "skipped"
            return
        self._prefill(tenant, max(len(group.tokens) for group in groups))
        scores: dict[int | None, float] = {}
        fits = work.num_question_rows <= self._backend.chunk
        if len(groups) == 1 and fits and len(self._waiting) <= self._runner.num_rows:
            self._admit(self._backend.chunk)  # all at once: their order does not matter
        for group in groups:
            logits = self._launch(group.segment(self._prefix))
            scores.update(group.scores(logits[:, : self._backend.decodable]))
        self._choose(scores)
        self._take()
        while self._active or self._waiting:
            self._admit(self._backend.chunk)
            self._launch()
            self._take()
        self._end()

    def _work(self, groups: Seq[_Options]) -> Work:
        rows = sum(len(group.tokens) for group in groups)
        rows += sum(len(slot.question) for slot in self._waiting)
        new = len(self._prompt.prefix) - self._prefix.length
        return Work(new, len(self._prompt.prefix), len(self._waiting), rows)

    def _prefill(self, tenant: str, num_rows: int) -> None:
        """Commits the prefix, with room for `num_rows` rows behind it, where names are scored."""
        prefix = self._prompt.prefix
        num_tokens = len(prefix) + num_rows
        self._with_pages(num_tokens, lambda: self._prefix.reserve(num_tokens))
        while self._prefix.length < len(prefix):
            start = self._prefix.length
            stop = min(len(prefix), start + self._backend.chunk - start % self._backend.chunk)
            with self._step(stop - start):
                self._backend.prefill(self._prefix, prefix[start:stop])
        self._runner.prefixes.insert(self._prefix, prefix, tenant)

    def _option_groups(self) -> list[_Options]:
        """Returns the names of all functions behind the question, in trees that fit a launch."""
        groups: list[_Options] = []
        most = self._backend.max_tree_rows
        for answer, tokens in self._prompt.options.items():
            size = len(tokens) - 1
            if not groups or len(groups[-1].tokens) + size > most:
                groups.append(_Options(self._prompt.question))
            groups[-1].add(answer, tokens)
        return groups

    def _choose(self, scores: dict[int | None, float]) -> None:
        """Sends the likeliest function and puts the slots of likely functions first."""
        for recorded in self._prompt.recorded:
            scores = {answer: 0.0 if answer == recorded else -math.inf for answer in scores}
        self._chosen = max(scores, key=lambda answer: scores[answer])
        tool = _C.HintRecord.NO_TOOL if self._chosen is None else self._chosen
        self._answered(_C.HintKind.FUNCTION, tool, 0, "")
        least = max(scores.values()) - self._runner.likely_within
        likely = [slot for slot in self._waiting if scores[slot.tool] >= least]
        dropped = [branch for branch in self._active if scores[branch.slot.tool] < least]
        for branch in dropped:
            branch.sequence.release()
        self._active = [branch for branch in self._active if scores[branch.slot.tool] >= least]
        self._report.num_unsaid += len(self._waiting) - len(likely) + len(dropped)
        order = sorted(
            likely,
            key=lambda slot: (-scores[slot.tool], slot.tool, not slot.required, slot.parameter),
        )
        self._waiting = deque(order[:MAX_SLOTS])

    def _admit(self, max_rows: int) -> None:
        """Forks branches for waiting slots while there are rows, pages and room in the launch."""
        num_rows = len(self._active)
        while self._waiting and len(self._active) < self._runner.num_rows:
            question = self._waiting[0].question
            num_rows += len(question)
            if self._active and num_rows > max_rows:
                return
            room = self._prefix.length + len(question) + self._runner.max_value_tokens
            try:
                sequence = self._fork(room)
            except OutOfPages:
                if not self._active:
                    raise
                return
            self._active.append(_Branch(self._waiting.popleft(), sequence, question))

    def _fork(self, num_tokens: int) -> Sequence:
        return self._with_pages(num_tokens, lambda: self._prefix.fork(num_tokens))

    def _with_pages(self, num_tokens: int, take: Callable[[], T]) -> T:
        """Returns take(), after forgetting cached prefixes if there are too few pages."""
        try:
            return take()
        except OutOfPages:
            self._runner.prefixes.evict(-(-num_tokens // self._runner.pool.page_size))
            return take()

    def _launch(self, extra: Segment | None = None) -> torch.Tensor:
        """Advances every active branch by a token, in one launch with `extra`.

        Returns the logits of the launch's last segment.
        """
        segments = [
            Segment(
                branch.sequence,
                branch.tokens,
                range(branch.sequence.length, branch.sequence.length + len(branch.tokens)),
                logits="last",
            )
            for branch in self._active
        ]
        if extra is not None:
            segments.append(extra)
        with self._step(sum(len(segment.tokens) for segment in segments)):
            logits = self._backend.forward(segments)
            chosen = self._greedy(logits[: len(self._active)])
        for branch, token in zip(self._active, chosen, strict=True):
            branch.sequence.keep(range(len(branch.tokens)))
            branch.tokens = branch.slot.recorded[branch.num_answered :][:1] or (token,)
        return logits[-1]

    def _take(self) -> None:
        """Takes up the token that every active branch has got; those that ended make room."""
        self._active = [branch for branch in self._active if not self._finish(branch)]

    def _greedy(self, logits: Seq[torch.Tensor]) -> list[int]:
        if not logits:
            return []
        rows = torch.cat(list(logits))[:, : self._backend.decodable]
        tokens: list[int] = rows.argmax(-1).tolist()
        return tokens

    def _finish(self, branch: _Branch) -> bool:
        """Takes up the branch's new token; returns whether its answer ended, and sends it if so."""
        token = branch.tokens[0]
        branch.num_answered += 1
        ended = token in self._backend.eos_ids
        if not ended and not branch.reader.feed(self._runner.builder.decode([token])):
            if branch.num_answered < self._runner.max_value_tokens:
                return False
            branch.sequence.release()
            self._report.num_invalid += 1
            self._answered(_C.HintKind.VALUE, branch.slot.tool, branch.slot.parameter, None)
            return True
        branch.sequence.release()
        slot = branch.slot
        schema = value_schema(slot.schema)
        hint = schema.to_hint(branch.reader.answer)
        if hint == "null" and slot.tool != self._chosen:
            self._report.num_unsaid += 1
            self._answered(_C.HintKind.VALUE, slot.tool, slot.parameter, None)
        elif hint is None or (hint == "null" and slot.required and not schema.is_nullable):
            self._report.num_invalid += 1
            self._answered(_C.HintKind.VALUE, slot.tool, slot.parameter, None)
        else:
            sent = self._answered(_C.HintKind.VALUE, slot.tool, slot.parameter, hint)
            self._report.num_sent += sent
        return True

    def _answered(self, kind: _C.HintKind, tool: int, parameter: int, text: str | None) -> bool:
        """Sends an answer, unless it is None; returns whether it went out."""
        request_id, now = self._report.request_id, time.perf_counter()  # a reader may be quick
        sent = text is not None and self._ring.try_push(request_id, kind, 0, tool, parameter, text)
        self._report.answers.append(Answered(now, kind.name, tool, parameter, sent))
        return sent

    def _end(self) -> None:
        missing = self._report.num_slots - self._report.num_sent - self._report.num_unsaid
        text = f"{missing} of {self._report.num_slots} slots have no valid value" if missing else ""
        kind = _C.HintKind.ERROR if missing else _C.HintKind.END
        self._ring.try_push(self._report.request_id, kind, 0, 0, 0, text)

    @contextmanager
    def _step(self, num_rows: int) -> Iterator[None]:
        if self._cancelled():
            raise _CancelledError
        start = time.perf_counter()
        yield
        self._report.steps.append(Step(start, time.perf_counter(), num_rows))


class _Options:
    """A question and the answers to be scored behind it, as the rows of a tree."""

    def __init__(self, question: Seq[int]) -> None:
        self.tokens = list(question)
        self._num_question = len(question)
        self._answers: dict[int | None, tuple[Seq[int], int]] = {}  # its tokens and first row

    def add(self, answer: int | None, tokens: Seq[int]) -> None:
        """Adds an answer; its last token is scored but needs no row."""
        self._answers[answer] = tokens, len(self.tokens)
        self.tokens += tokens[:-1]

    def segment(self, prefix: Sequence) -> Segment:
        """Returns the tree as rows behind `prefix`."""
        length, asked = prefix.length, self._num_question
        mask = torch.zeros(len(self.tokens), len(self.tokens), dtype=torch.bool)
        mask[:, :asked] = True
        mask[:asked, :asked] = torch.ones(asked, asked, dtype=torch.bool).tril()
        positions = [*range(length, length + asked)]
        for tokens, first in self._answers.values():
            size = len(tokens) - 1
            mask[first : first + size, first : first + size] = torch.ones(size, size).tril().bool()
            positions += range(length + asked, length + asked + size)
        return Segment(prefix, self.tokens, positions, mask)

    def scores(self, logits: torch.Tensor) -> dict[int | None, float]:
        """Returns the log probability of each answer. logits: float32[rows, V]."""
        totals = torch.logsumexp(logits, dim=-1)
        found = {}
        for answer, (tokens, first) in self._answers.items():
            rows = [self._num_question - 1, *range(first, first + len(tokens) - 1)]
            picked = logits[rows, list(tokens)] - totals[rows]
            found[answer] = float(picked.double().sum())
        return found
