# SPDX-License-Identifier: Apache-2.0
"""The engine: messages or ids in, an answer out, by any method and always the same one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ooospec.backends.base import Backend
from ooospec.config import EngineConfig
from ooospec.errors import InvalidRequest, OutOfPages, PromptTooLong
from ooospec.formats import Message, Tool, answer_calls, render, tools_as_json
from ooospec.kv import PrefixCache, Sequence
from ooospec.loop import Drafter, Loop, Metrics
from ooospec.output import FinishReason, Output, Usage
from ooospec.sampling import Chooser, SamplingParams
from ooospec.shadow import check_shadow
from ooospec.tokens import TokenTable

DEFAULT_MAX_TOKENS = 1024
DEFAULT_CACHE_TOKENS = 32768


@dataclass(frozen=True)
class Request:
    """What a drafter may know. tools: OpenAI JSON. tenant: whose cache and stores it may use."""

    request_id: int
    prompt_ids: list[int]
    params: SamplingParams
    messages: list[Message] | None = None
    tools: list[Tool] | None = None
    tenant: str = ""


class Drafting(Protocol):
    """What makes an engine's drafters and holds their sidecar."""

    @property
    def status(self) -> str:
        """One line for people: what becomes of the hints."""
        ...

    def close(self) -> None:
        """Ends the sidecar."""
        ...


Method = Callable[[Request], Drafter | None]
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
    """

    text: str
    token_ids: list[int]
    sources: list[int]
    finish_reason: FinishReason
    usage: Usage
    metrics: Metrics
    tool_calls: list[dict[str, Any]] = field(default_factory=list)


class Engine:
    """Runs requests on one backend. Thread-safe; the rounds of different requests alternate."""

    def __init__(
        self,
        backend: Backend,
        *,
        methods: Mapping[str, Method] | None = None,
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
        self.methods: dict[str, Method] = {"ar": lambda request: None, **(methods or {})}
        if tokens is None and backend.tokenizer is not None:
            tokens = TokenTable(backend.tokenizer)
        self.tokens = tokens
        cache_tokens = self.config.cache_tokens or min(backend.context_limit, DEFAULT_CACHE_TOKENS)
        self.pool = backend.new_pool(cache_tokens + self.config.max_nodes)
        self.prefix_cache = PrefixCache(self.pool, backend.chunk)
        self._lock = threading.RLock()  # a dropped stream may be collected inside a round
        self._request_ids = itertools.count(1)

    def generate(
        self,
        messages: Seq[Message],
        tools: Seq[Tool | Callable[..., Any]] | None = None,
        *,
        method: str | Method | None = None,
        tenant: str = "",
        **sampling: Any,
    ) -> Generation:
        """Returns the answer to a dialogue.

        messages: OpenAI messages, earlier calls and tool results included. tools: OpenAI JSON or
        typed functions.
        method: a name in `methods`, or a Method; None: `ooo` where it is known, else `ar`.
        tenant: requests of one tenant share cached prefixes.
        sampling: fields of SamplingParams.
        Raises InvalidRequest, PromptTooLong, OutOfPages; the engine stays usable.
        """
        request = self._dialogue(messages, tools, tenant, sampling)
        return _last(self._rounds(request, self._method(method)))

    def stream(
        self,
        messages: Seq[Message],
        tools: Seq[Tool | Callable[..., Any]] | None = None,
        *,
        method: str | Method | None = None,
        tenant: str = "",
        **sampling: Any,
    ) -> Iterator[Delta | Generation]:
        """Yields a Delta a round, then the Generation; see generate(). Bad requests raise now."""
        request = self._dialogue(messages, tools, tenant, sampling)
        return _deltas(self._rounds(request, self._method(method)))

    def generate_ids(
        self,
        prompt_ids: Seq[int],
        *,
        method: str | Method | None = None,
        tenant: str = "",
        **sampling: Any,
    ) -> Generation:
        """Returns the answer to raw prompt ids; see generate()."""
        request = self._request(list(prompt_ids), sampling, tenant=tenant)
        return _last(self._rounds(request, self._method(method)))

    def stream_ids(
        self,
        prompt_ids: Seq[int],
        *,
        method: str | Method | None = None,
        tenant: str = "",
        **sampling: Any,
    ) -> Iterator[Delta | Generation]:
        """Yields a Delta a round, then the Generation, for raw prompt ids; see stream()."""
        request = self._request(list(prompt_ids), sampling, tenant=tenant)
        return _deltas(self._rounds(request, self._method(method)))

    def prompt_ids(
        self, messages: Seq[Message], tools: Seq[Tool | Callable[..., Any]] | None = None
    ) -> list[int]:
        """Returns the prompt of a dialogue as the target reads it. Raises InvalidRequest."""
        prompt = render(self.backend.tokenizer, messages, tools_as_json(tools))
        assert self.tokens is not None  # render() needs a tokenizer too
        return self.tokens.encode(prompt)

    def close(self) -> None:
        """Ends the sidecar, if there is one, and gives the model back. Safe to call twice."""
        if self.drafting is not None:
            self.drafting.close()
        self.backend.close()

    def _method(self, method: str | Method | None) -> Method:
        if method is None:
            method = "ooo" if "ooo" in self.methods else "ar"
        if callable(method):
            return method
        if method not in self.methods:
            known = ", ".join(sorted(self.methods))
            raise InvalidRequest(f"method: expected one of {known}, got {method!r}")
        return self.methods[method]

    def _dialogue(
        self,
        messages: Seq[Message],
        tools: Seq[Tool | Callable[..., Any]] | None,
        tenant: str,
        sampling: dict[str, Any],
    ) -> Request:
        """Returns the request of a dialogue. Raises what generate() raises before anything runs."""
        known = tools_as_json(tools)
        prompt_ids = self.prompt_ids(messages, known)
        return self._request(
            prompt_ids, sampling, messages=list(messages), tools=known, tenant=tenant
        )

    def _request(self, prompt_ids: list[int], sampling: dict[str, Any], **rest: Any) -> Request:
        """Validates what can be known before anything runs."""
        try:
            params = SamplingParams(**sampling).seeded()
        except TypeError as error:
            raise InvalidRequest(f"sampling: {error}") from error
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
                "context, "
                f"got {len(prompt_ids)}"
            )
        return Request(next(self._request_ids), prompt_ids, params, **rest)

    def _rounds(self, request: Request, method: Method) -> Iterator[Loop | Generation]:
        """Runs a request; yields its loop after the first token and each round, then what became
        of it.
        """
        sequence = Sequence(self.pool)
        drafter: Drafter | None = None
        try:
            with self._lock:
                max_tokens = self._admit(sequence, request)
            drafter = method(request)
            loop = self._loop(request, sequence, drafter, max_tokens)
            cached_tokens = sequence.length
            with self._lock:
                loop.start(request.prompt_ids)
                if self.config.prefix_cache:
                    self.prefix_cache.insert(sequence, request.prompt_ids, request.tenant)
            yield loop
            while loop.output.finish_reason is None:
                with self._lock:
                    loop.step()
                    if self.config.shadow:
                        check_shadow(
                            self.backend, sequence, request.prompt_ids + loop.output.token_ids[:-1]
                        )
                yield loop
        finally:
            with self._lock:
                sequence.release()
            if drafter is not None:
                drafter.finish()
        yield self._generation(request, loop, cached_tokens)

    def _admit(self, sequence: Sequence, request: Request) -> int:
        """Takes pages for prompt, answer and draft rows; returns the longest the answer may be."""
        num_prompt, wanted = len(request.prompt_ids), request.params.max_tokens
        room = self.pool.num_pages * self.pool.page_size - self.config.max_nodes - num_prompt
        limit = self.backend.context_limit - num_prompt
        limit = min(limit, max(1, min(room, DEFAULT_MAX_TOKENS)) if wanted is None else wanted)
        if limit > room:
            raise OutOfPages(
                f"KV cache: expected prompt and answer within {room + num_prompt} tokens "
                "(cache_tokens), "
                f"got {num_prompt} + {limit}"
            )
        if self.config.prefix_cache:
            self.prefix_cache.attach(sequence, request.prompt_ids, request.tenant)
        num_tokens = num_prompt + limit + self.config.max_nodes
        self.prefix_cache.evict(-(-num_tokens // self.pool.page_size) - len(sequence.pages))
        sequence.reserve(num_tokens)
        return limit

    def _loop(
        self, request: Request, sequence: Sequence, drafter: Drafter | None, max_tokens: int
    ) -> Loop:
        eos_ids = self.backend.eos_ids
        chooser = Chooser(request.params, self.backend.decodable, eos_ids)
        pieces = None if self.tokens is None else self.tokens.pieces
        output = Output(pieces, request.params, eos_ids, max_tokens)
        max_nodes = min(self.config.max_nodes, self.backend.max_tree_rows)
        return Loop(self.backend, sequence, chooser, output, drafter, max_nodes)

    def _generation(self, request: Request, loop: Loop, cached_tokens: int) -> Generation:
        output = loop.output
        assert output.finish_reason is not None
        usage = Usage(len(request.prompt_ids), len(output.token_ids), cached_tokens)
        calls = answer_calls(output.text, request.tools)
        reason: FinishReason = output.finish_reason
        if calls and reason == "stop":
            reason = "tool_calls"
        return Generation(
            output.text, output.token_ids, loop.sources, reason, usage, loop.metrics, calls
        )


def _deltas(rounds: Iterator[Loop | Generation]) -> Iterator[Delta | Generation]:
    """Yields what each round added, then the Generation."""
    num_sent = 0
    for item in rounds:
        if isinstance(item, Generation):
            yield item
            continue
        output = item.output
        yield Delta(output.delta(), output.token_ids[num_sent:], item.sources[num_sent:])
        num_sent = len(output.token_ids)


def _last(rounds: Iterator[Loop | Generation]) -> Generation:
    for item in rounds:
        if isinstance(item, Generation):
            return item
    raise AssertionError("a request ends with its Generation")
