# SPDX-License-Identifier: Apache-2.0
"""One request on its way through an engine: admitted, prefilled, decoded round by round, closed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ooospec._core import _C
from ooospec.backends.base import Ask, Backend
from ooospec.errors import OutOfPages
from ooospec.formats import Message, Tool, answer_calls
from ooospec.kv import Sequence
from ooospec.loop import Drafter, Loop, Metrics
from ooospec.output import FinishReason, Output, Usage
from ooospec.sampling import Chooser, SamplingParams
from ooospec.self_branches import SelfBranches

if TYPE_CHECKING:
    from ooospec.engine import Engine

HINT_PAUSE = 1e-4  # seconds between two looks for hints that are waited for
DEFAULT_MAX_TOKENS = 1024


@dataclass(frozen=True)
class Request:
    """What a drafter may know. tools: OpenAI JSON. tenant: whose cache and stores it may use.

    opening: text that the answer is made to begin with; its num_opening tokens are the last of
    prompt_ids. thinking: the answer begins inside <think>.
    """

    request_id: int
    prompt_ids: list[int]
    params: SamplingParams
    messages: list[Message] | None = None
    tools: list[Tool] | None = None
    tenant: str = ""
    opening: str = ""
    num_opening: int = 0
    thinking: bool = False


MakeDrafter = Callable[[Request], Drafter | None]
"""Makes the drafter of a request; None means plain decoding."""


class Delta(NamedTuple):
    """What a round added. text: lags behind the ids in a character or a possible stop string."""

    text: str
    token_ids: list[int]
    sources: list[int]


@dataclass(frozen=True)
class Generation:
    """A finished answer.

    sources: who drafted each of token_ids (0: the target wrote it alone).
    finish_reason: as OpenAI has it: "tool_calls" for an answer with calls that came to its end.
    tool_calls: complete calls; an opening that was given counts as part of the answer.
    """

    text: str
    token_ids: list[int]
    sources: list[int]
    finish_reason: FinishReason
    usage: Usage
    metrics: Metrics
    tool_calls: list[dict[str, Any]] = field(default_factory=list)


class Run:
    """A request under way. Not thread-safe: whoever drives it holds the engine's lock.

    error: what ended it before its time; the caller is to close it. cached_tokens: of the prompt,
    that are not computed again.
    """

    def __init__(self, engine: Engine, request: Request, method: MakeDrafter) -> None:
        self.request = request
        self.sequence = Sequence(engine.pool)
        self.error: Exception | None = None
        self._engine = engine
        self._method = method
        self._max_tokens = 0
        self.cached_tokens = 0
        self._drafter: Drafter | None = None
        self._loop: Loop | None = None
        self._num_sent = 0
        self._began = 0.0

    @property
    def loop(self) -> Loop:
        """Its loop, once it has begun."""
        assert self._loop is not None, "the run has not begun"
        return self._loop

    @property
    def has_begun(self) -> bool:
        """Whether there is a loop."""
        return self._loop is not None

    @property
    def is_over(self) -> bool:
        """Whether the answer has come to its end."""
        return self._loop is not None and self._loop.output.finish_reason is not None

    def admit(self) -> None:
        """Takes pages for prompt, answer and draft rows, cached ones of the tenant included.

        Raises OutOfPages, holding nothing, where there are not enough now.
        """
        engine, request = self._engine, self.request
        self._max_tokens = engine.answer_limit(request)
        try:
            if engine.config.prefix_cache:
                engine.prefix_cache.attach(self.sequence, request.prompt_ids, request.tenant)
            num_tokens = len(request.prompt_ids) + self._max_tokens + engine.config.max_nodes
            num_pages = -(-num_tokens // engine.pool.page_size)
            engine.prefix_cache.evict(num_pages - len(self.sequence.pages))
            self.sequence.reserve(num_tokens)
        except OutOfPages:
            self.sequence.release()
            raise
        self.cached_tokens = self.sequence.length

    def begin(self) -> None:
        """Makes the drafter, which may ask the sidecar; needs no lock. Behind admit()."""
        engine, params = self._engine, self.request.params
        self._began = time.perf_counter()
        self._drafter = self._method(self.request)
        backend = engine.backend
        branches: SelfBranches | None = getattr(self._drafter, "self_branches", None)
        if branches is not None:
            num_before = len(self.request.prompt_ids) - self.request.num_opening
            branches.begin(self.sequence, num_before, backend.decodable)
        self._loop = Loop(
            backend,
            self.sequence,
            Chooser(params, backend.decodable, backend.eos_ids),
            Output(engine.pieces, params, backend.eos_ids, self._max_tokens),
            self._drafter,
            min(engine.config.max_nodes, backend.max_tree_rows),
            branches,
        )

    def start(self) -> None:
        """Prefills the prompt and commits the first token."""
        self.loop.start(self.request.prompt_ids)
        self._remember_prompt()

    def start_on(self) -> bool:
        """Does one chunk of what start() does; returns whether that was the last."""
        done = self.loop.start_on(self.request.prompt_ids)
        if done:
            self._remember_prompt()
        return done

    def awaits_hints(self) -> bool:
        """Returns whether the next round is better put off, since hints are on their way; asked
        anew after a while, it says no at last.
        """
        awaits = getattr(self._drafter, "awaits_hints", None)
        return awaits is not None and bool(awaits())

    @property
    def hint_ages(self) -> list[float]:
        """Seconds from begin() to the arrival of each hint, in order."""
        arrivals = getattr(self._drafter, "arrivals", [])
        return [
            arrival.time - self._began for arrival in arrivals if arrival.kind != _C.HintKind.ERROR
        ]

    def attempt(self, step: Callable[..., Any], *args: Any) -> Any:
        """Does a step of this run alone and returns what it returns; what it raises is the run's
        error, and gives None.
        """
        try:
            return step(*args)
        except Exception as error:
            self.error = error
            return None

    def delta(self) -> Delta:
        """Returns what was not returned before."""
        output, num_sent = self.loop.output, self._num_sent
        self._num_sent = len(output.token_ids)
        return Delta(output.delta(), output.token_ids[num_sent:], self.loop.sources[num_sent:])

    def close(self) -> None:
        """Gives the pages back and ends the drafter. Safe to call twice, and at any time."""
        if self._loop is not None:
            self._loop.close()
        self.sequence.release()
        drafter, self._drafter = self._drafter, None
        if drafter is not None:
            drafter.finish()

    def generation(self) -> Generation:
        """Returns the answer of a run that is over."""
        output, request = self.loop.output, self.request
        assert output.finish_reason is not None
        usage = Usage(len(request.prompt_ids), len(output.token_ids), self.cached_tokens)
        calls = answer_calls(request.opening + output.text, request.tools)
        reason: FinishReason = output.finish_reason
        if calls and reason == "stop":
            reason = "tool_calls"
        return Generation(
            output.text,
            output.token_ids,
            self.loop.sources,
            reason,
            usage,
            self.loop.metrics,
            calls,
        )

    def _remember_prompt(self) -> None:
        if self._engine.config.prefix_cache:
            request = self.request
            self._engine.prefix_cache.insert(self.sequence, request.prompt_ids, request.tenant)


def step_together(backend: Backend, runs: Seq[Run], budget: int) -> None:
    """Runs one round of several runs, of at most `budget` rows each; see Engine.step()."""
    start = time.perf_counter()
    max_riders = backend.num_sequences // len(runs) - 1
    asked: list[tuple[Run, list[Ask]]] = []
    for run in runs:
        try:
            asked.append((run, run.loop.ask(max(1, budget), max_riders)))
        except Exception as error:  # of a drafter: the others go on
            run.error = error
    if not asked:
        return

    def meanwhile() -> None:
        for run, _ in asked:
            run.attempt(run.loop.meanwhile)

    # Answers first: should there be more launches than one, they share the first.
    answers = [asks[0] for _, asks in asked]
    riders = [ask for _, asks in asked for ask in asks[1:]]
    verdicts = backend.verify_together([*answers, *riders], meanwhile)
    ridden = iter(verdicts[len(answers) :])
    for (run, asks), verdict in zip(asked, verdicts, strict=False):
        own = list(itertools.islice(ridden, len(asks) - 1))
        if isinstance(verdict, RuntimeError):
            run.error = verdict
        elif run.error is None:
            run.attempt(run.loop.take, asks[0].rows, verdict._replace(riders=own), start)
