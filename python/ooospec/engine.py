# SPDX-License-Identifier: Apache-2.0
"""The engine: messages or ids in, an answer out, by any method and always the same one."""

from __future__ import annotations

import itertools
import operator
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from typing import Any, Protocol

from ooospec.backends.base import Backend
from ooospec.config import EngineConfig
from ooospec.errors import EngineClosed, InvalidRequest, OutOfPages, PromptTooLong
from ooospec.formats import (
    Message,
    Tool,
    check_tools,
    opens_thinking,
    render,
    tools_as_json,
    unicode,
)
from ooospec.kv import PrefixCache
from ooospec.run import (
    DEFAULT_MAX_TOKENS,
    HINT_PAUSE,
    Delta,
    Generation,
    MakeDrafter,
    Request,
    Run,
    step_together,
)
from ooospec.sampling import SamplingParams
from ooospec.shadow import check_shadow
from ooospec.tokens import TokenTable

__all__ = ["Delta", "Drafting", "Engine", "Generation", "MakeDrafter", "Request", "Run"]

DEFAULT_CACHE_TOKENS = 32768


class Drafting(Protocol):
    """What makes an engine's drafters and holds their sidecar."""

    @property
    def status(self) -> str:
        """One line for people: what becomes of the hints."""
        ...

    def close(self) -> None:
        """Ends the sidecar."""
        ...


class Engine:
    """Runs requests on one backend. Thread-safe; the rounds of different requests alternate.

    lock: of pool, caches and backend; for those who drive runs themselves (see run() and step()).
    """

    def __init__(
        self,
        backend: Backend,
        *,
        methods: Mapping[str, MakeDrafter] | None = None,
        drafting: Drafting | None = None,
        config: EngineConfig | None = None,
        tokens: TokenTable | None = None,
    ) -> None:
        """methods: drafters by name; "ar" (plain decoding) is always there.

        drafting: what makes them, closed with the engine; see ooospec.load.
        tokens: of the backend's tokenizer, where somebody has made them already.
        """
        self.backend = backend
        self.config = config or EngineConfig()
        self.drafting = drafting
        self.methods: dict[str, MakeDrafter] = {"ar": lambda request: None, **(methods or {})}
        if tokens is None and backend.tokenizer is not None:
            tokens = TokenTable(backend.tokenizer)
        self.tokens = tokens
        cache_tokens = self.config.cache_tokens or min(backend.context_limit, DEFAULT_CACHE_TOKENS)
        self.pool = backend.new_pool(cache_tokens + self.config.max_nodes)
        self.prefix_cache = PrefixCache(self.pool, backend.chunk)
        self.lock = threading.RLock()  # a dropped stream may be collected inside a round
        self._request_ids = itertools.count(1)
        self._closed = False

    def generate(
        self,
        messages: Seq[Message],
        tools: Seq[Tool | Callable[..., Any]] | None = None,
        *,
        method: str | MakeDrafter | None = None,
        tenant: str = "",
        **sampling: Any,
    ) -> Generation:
        """Returns the answer to a dialogue.

        messages: OpenAI messages, earlier calls and tool results included. tools: OpenAI JSON or
        typed functions.
        method: a name in `methods`, or a MakeDrafter; None: `ooo` where it is known, else `ar`.
        tenant: requests of one tenant share cached prefixes and what drafting learns from answers.
        sampling: fields of SamplingParams.
        Raises InvalidRequest, PromptTooLong, OutOfPages; the engine stays usable. Raises
        EngineClosed after close().
        """
        request = self.request(messages, tools, tenant=tenant, **sampling)
        return _last(self._rounds(self.run(request, method)))

    def stream(
        self,
        messages: Seq[Message],
        tools: Seq[Tool | Callable[..., Any]] | None = None,
        *,
        method: str | MakeDrafter | None = None,
        tenant: str = "",
        **sampling: Any,
    ) -> Iterator[Delta | Generation]:
        """Yields a Delta a round, then the Generation; see generate(). Bad requests raise now."""
        request = self.request(messages, tools, tenant=tenant, **sampling)
        return _deltas(self._rounds(self.run(request, method)))

    def generate_ids(
        self,
        prompt_ids: Seq[int],
        *,
        method: str | MakeDrafter | None = None,
        tenant: str = "",
        **sampling: Any,
    ) -> Generation:
        """Returns the answer to raw prompt ids; see generate()."""
        request = self._request(_ids(prompt_ids), sampling, tenant=tenant)
        return _last(self._rounds(self.run(request, method)))

    def stream_ids(
        self,
        prompt_ids: Seq[int],
        *,
        method: str | MakeDrafter | None = None,
        tenant: str = "",
        **sampling: Any,
    ) -> Iterator[Delta | Generation]:
        """Yields a Delta a round, then the Generation, for raw prompt ids; see stream()."""
        request = self._request(_ids(prompt_ids), sampling, tenant=tenant)
        return _deltas(self._rounds(self.run(request, method)))

    def request(
        self,
        messages: Seq[Message],
        tools: Seq[Tool | Callable[..., Any]] | None = None,
        *,
        prompt: str | None = None,
        tenant: str = "",
        opening: str = "",
        **sampling: Any,
    ) -> Request:
        """Returns the request of a dialogue, checked as far as it can be before anything runs.

        prompt: what prompt() gave, if it was asked already. opening: what the answer is made to
        begin with; it counts as prompt, and for drafts and calls as answer. Raises InvalidRequest,
        PromptTooLong.
        """
        for name, text in (("prompt", prompt), ("opening", opening)):
            if not isinstance(text, str | None):
                raise InvalidRequest(f"{name}: expected text, got {text!r:.80}")
            unicode(text or "", name)
        known = tools_as_json(tools)
        check_tools(known)
        if prompt is None:
            prompt = self.prompt(messages, known)
        if self.tokens is None:
            raise InvalidRequest("prompt: expected a target with its tokenizer, got one without")
        opening_ids = self.tokens.encode(opening) if opening else []
        return self._request(
            self.tokens.encode(prompt) + opening_ids,
            sampling,
            messages=list(messages),
            tools=known,
            tenant=tenant,
            opening=opening,
            num_opening=len(opening_ids),
            thinking=opens_thinking(prompt),
        )

    def run(self, request: Request, method: str | MakeDrafter | None = None) -> Run:
        """Returns a run of a request, which holds nothing yet. method: as of generate().

        Raises EngineClosed.
        """
        self._check_open()
        return Run(self, request, self._method(method))

    def step(self, runs: Seq[Run]) -> None:
        """Runs one round of runs that have started and are not over, which share its rows.

        runs: 1 to config.max_nodes of them. What fails in one of several is its `error`, and the
        others go on. Mutates: the runs. Raises what the backend raises, and EngineClosed.
        """
        with self.lock:
            self._check_open()
            if len(runs) == 1:
                runs[0].loop.step()
            else:
                step_together(self.backend, runs, self.config.max_nodes // len(runs))
            if not self.config.shadow:
                return
            for run in runs:
                committed = run.request.prompt_ids + run.loop.output.token_ids[:-1]
                check_shadow(self.backend, run.sequence, committed)

    def answer_limit(self, request: Request) -> int:
        """Returns the most tokens that the answer may have. Raises OutOfPages where prompt and
        answer never fit the cache.
        """
        num_prompt, wanted = len(request.prompt_ids), request.params.max_tokens
        room = self.pool.num_pages * self.pool.page_size - self.config.max_nodes - num_prompt
        limit = self.backend.context_limit - num_prompt
        limit = min(limit, max(1, min(room, DEFAULT_MAX_TOKENS)) if wanted is None else wanted)
        if limit > room:
            raise OutOfPages(
                f"KV cache: expected prompt and answer within {room + num_prompt} tokens "
                f"(cache_tokens), got {num_prompt} + {limit}"
            )
        return limit

    @property
    def pieces(self) -> Seq[bytes] | None:
        """Bytes of each token; None without a tokenizer."""
        return None if self.tokens is None else self.tokens.pieces

    def prompt(
        self, messages: Seq[Message], tools: Seq[Tool | Callable[..., Any]] | None = None
    ) -> str:
        """Returns the prompt of a dialogue as the target's template writes it. Raises
        InvalidRequest.
        """
        return render(self.backend.tokenizer, messages, tools_as_json(tools))

    def prompt_ids(
        self, messages: Seq[Message], tools: Seq[Tool | Callable[..., Any]] | None = None
    ) -> list[int]:
        """Returns the prompt of a dialogue as the target reads it. Raises InvalidRequest."""
        prompt = self.prompt(messages, tools)
        assert self.tokens is not None  # prompt() needs a tokenizer too
        return self.tokens.encode(prompt)

    def close(self) -> None:
        """Ends the sidecar, if there is one, and gives the model back. Safe to call twice."""
        with self.lock:
            self._closed = True
        if self.drafting is not None:
            self.drafting.close()
        self.backend.close()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed("engine: expected one that is open, got one that was closed")

    def _method(self, method: str | MakeDrafter | None) -> MakeDrafter:
        if method is None:
            method = "ooo" if "ooo" in self.methods else "ar"
        if callable(method):
            return method
        if not isinstance(method, str) or method not in self.methods:
            known = ", ".join(sorted(self.methods))
            raise InvalidRequest(f"method: expected one of {known}, got {method!r}")
        return self.methods[method]

    def _request(self, prompt_ids: list[int], sampling: dict[str, Any], **rest: Any) -> Request:
        """Returns a request, checked as far as it can be before anything runs. Raises
        InvalidRequest, PromptTooLong.
        """
        try:
            params = SamplingParams(**sampling).seeded()
        except TypeError as error:
            raise InvalidRequest(f"sampling: {error}") from error
        if not isinstance(rest.get("tenant", ""), str):
            raise InvalidRequest(f"tenant: expected text, got {rest['tenant']!r:.80}")
        if params.stop and self.tokens is None:
            raise InvalidRequest(
                "stop: expected a backend with a tokenizer for stop strings, got none"
            )
        if not prompt_ids:
            raise InvalidRequest("prompt: expected at least one token, got none")
        bad = [token for token in prompt_ids if not 0 <= token < self.backend.decodable]
        if bad:
            raise InvalidRequest(
                f"prompt: expected ids in [0, {self.backend.decodable}), got {bad[0]}"
            )
        if len(prompt_ids) >= self.backend.context_limit:
            raise PromptTooLong(
                f"prompt: expected fewer than the {self.backend.context_limit} tokens of the "
                f"context, got {len(prompt_ids)}"
            )
        return Request(next(self._request_ids), prompt_ids, params, **rest)

    def _rounds(self, run: Run) -> Iterator[Run | Generation]:
        """Runs a request; yields its run after the first token and each round, then what became of
        it.
        """
        try:
            with self.lock:
                run.admit()
            run.begin()
            with self.lock:
                self._check_open()
                run.start()
            yield run
            while not run.is_over and self._awaits_hints(run):
                time.sleep(HINT_PAUSE)
            while not run.is_over:
                self.step([run])
                if run.error is not None:
                    raise run.error
                yield run
        finally:
            with self.lock:
                run.close()
        yield run.generation()

    def _awaits_hints(self, run: Run) -> bool:
        with self.lock:  # whose round looks for hints may have some for others too
            self._check_open()
            return run.awaits_hints()


def _ids(prompt: Seq[int]) -> list[int]:
    """Returns the ids of a prompt. Raises InvalidRequest for what is no list of integers."""
    try:
        return [operator.index(token) for token in prompt]
    except TypeError as error:
        raise InvalidRequest(f"prompt: expected a list of token ids, got {prompt!r:.80}") from error


def _deltas(rounds: Iterator[Run | Generation]) -> Iterator[Delta | Generation]:
    """Yields what each round added, then the Generation."""
    for item in rounds:
        yield item if isinstance(item, Generation) else item.delta()


def _last(rounds: Iterator[Run | Generation]) -> Generation:
    for item in rounds:
        if isinstance(item, Generation):
            return item
    raise AssertionError("a request ends with its Generation")
