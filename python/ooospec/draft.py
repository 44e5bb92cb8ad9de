# SPDX-License-Identifier: Apache-2.0
"""Drafting for one target: the C++ drafter, what it remembers between requests, and sources from
outside.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ooospec._core import _C
from ooospec.formats import tool_set
from ooospec.methods import Method
from ooospec.sources import MAX_SOURCES, Source, SourceRequest, SourceState

logger = logging.getLogger("ooospec")

DraftTree = _C.DraftTree
MEMORY_BYTES = 256 << 20  # cap of the index over earlier answers of one (method, tenant)
MAX_MEMORIES = 64  # of (method, tenant): an empty one takes 9 MB with a vocabulary of 150,000


@dataclass(frozen=True)
class TargetText:
    """How a target reads and writes text.

    vocab: bytes of every token.
    encode: text to ids, without special tokens; safe to call from several threads.
    end_token: id that ends an answer, -1 for none.
    styles: how the target is thought to write calls, with probabilities.
    tokenizer: the Hugging Face tokenizer, handed to sources from outside.
    spell: encode() as if the tokenizer had no added tokens, if it can: some targets spell a tag
        that is one token of their tokenizer.
    """

    vocab: _C.Vocab
    encode: Callable[[str], Sequence[int]]
    end_token: int
    styles: Sequence[_C.StyleGuess]
    tokenizer: Any = None
    spell: Callable[[str], Sequence[int]] | None = None


def new_memory(text: TargetText, max_bytes: int = MEMORY_BYTES) -> _C.DraftMemory:
    """Returns an empty memory for a target."""
    return _C.DraftMemory(vocab_size=len(text.vocab), max_bytes=max_bytes, styles=list(text.styles))


def request_text(messages: Sequence[dict[str, Any]]) -> str:
    """Returns what the dialogue says, but for the system's part: where values may stand."""
    texts = []
    for message in messages:
        content = message.get("content")
        if message.get("role") == "system" or content is None:
            continue
        parts = [{"text": content}] if isinstance(content, str) else content
        texts += [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return "\n".join(texts).encode(errors="replace").decode()  # half a surrogate pair has no bytes


class DraftStore:
    """What drafting learns about one target, apart for each method and tenant.

    A tenant never gets drafts learnt from another; requests of one tenant share what they learn. Of
    more than MAX_MEMORIES, what was not asked for the longest is forgotten. Thread-safe.
    corpus: answers, as text, that all of them know from the start.
    """

    def __init__(
        self, text: TargetText, max_bytes: int = MEMORY_BYTES, corpus: Sequence[str] = ()
    ) -> None:
        self.text = text
        self._corpus = [[*text.encode(answer), text.end_token] for answer in corpus]
        self._max_bytes = max_bytes
        self._memories: dict[tuple[str, str], _C.DraftMemory] = {}  # last used last
        self._lock = threading.Lock()

    def memory(self, method: str, tenant: str = "") -> _C.DraftMemory:
        """Returns the memory of (method, tenant), made on first use."""
        key = (method, tenant)
        with self._lock:
            memory = self._memories.pop(key, None)
            if memory is None:
                memory = new_memory(self.text, self._max_bytes)
                for answer in self._corpus:
                    memory.learn_answer(answer)
            self._memories[key] = memory
            if len(self._memories) > MAX_MEMORIES:
                del self._memories[next(iter(self._memories))]
        return memory

    def forget(self, tenant: str | None = None) -> None:
        """Drops what was learnt from `tenant`, or from all when it is None."""
        with self._lock:
            self._memories = {
                key: kept for key, kept in self._memories.items() if tenant not in (None, key[1])
            }


@dataclass
class Drafter:
    """One request's drafting: `propose`, let the target verify and `prepare` meanwhile, `commit`;
    `finish` at the end.

    Usable without the engine. Not thread-safe.

    text: the target's text side.
    tools: OpenAI tool list.
    method: which sources draft.
    memory: from DraftStore.memory, or None for one of this request's own.
    prompt: the target's prompt ids, at least one.
    costs_us: float[64], time of a round of 1..64 rows; None: rows up to the budget are free.
    sources: sources from outside, at most MAX_SOURCES.
    messages: OpenAI messages of the request: values may stand in them, and sources are given them.
    num_opening: so many tokens at the end of the prompt are what the answer is made to begin with.
    thinking: the answer begins inside <think>.
    answer: the committed tokens. branches: of this request's values; they hear of its hints too.
    Raises ValueError for an empty prompt, too many sources, or tools that are none. At the first
    use, not before, raises IndexError for ids outside the vocabulary, and ValueError for an opening
    longer than the prompt or costs that are no times.
    """

    text: TargetText
    tools: Sequence[dict[str, Any]]
    method: Method
    prompt: Sequence[int]
    memory: _C.DraftMemory | None = None
    costs_us: Sequence[float] | None = None
    sources: Sequence[Source] = ()
    messages: Sequence[dict[str, Any]] = ()
    num_opening: int = 0
    thinking: bool = False
    answer: list[int] = field(default_factory=list, init=False)
    branches: list[_C.SlotBranch] = field(default_factory=list, init=False)
    _cut_noted: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if len(self.sources) > MAX_SOURCES:
            raise ValueError(f"sources: expected at most {MAX_SOURCES}, got {len(self.sources)}")
        if not len(self.prompt):
            raise ValueError("prompt: expected at least one token, got none")
        self._tools = tool_set(self.tools)
        request = SourceRequest(self.prompt, self.messages, self.tools, self.text.tokenizer)
        for source in self.sources:
            source.begin(request)

    @cached_property
    def core(self) -> _C.Drafter:
        """What drafts. It is made when it is first asked for, in the engine while the prompt's last
        chunk runs: reading prompt, request and schemas takes some tenths of a millisecond.
        """
        method = self.method
        core = _C.Drafter(
            self.text.vocab,
            self._tools,
            self.memory or new_memory(self.text),
            self.text.encode,
            spell=self.text.spell,
            schema=method.schema,
            hint=method.hint or method.branches,
            span=method.span,
            lookup=method.lookup,
            retrieval=method.retrieval,
            recycler=method.recycler,
            recycler_tree=method.recycler_tree,
            learn=method.learns,
            branches=method.branches,
            thinking=self.thinking,
            end_token=self.text.end_token,
        )
        core.begin(self.prompt, self.num_opening)
        if method.span:
            core.read_request(request_text(self.messages))
        if self.costs_us is not None:
            core.set_costs(list(self.costs_us))
        return core

    def set_costs(self, costs_us: Sequence[float]) -> None:
        """Replaces `costs_us` for the trees to come. Cost: some microseconds."""
        self.costs_us = costs_us
        self.core.set_costs(costs_us)

    def offer_hint(self, record: _C.HintRecord) -> bool:
        """Takes up a record of the hint ring. Returns False for one that says nothing usable."""
        used: bool = self.core.offer_hint(
            record.kind, record.call, record.tool, record.parameter, record.text
        )
        for branch in self.branches if record.kind == _C.HintKind.VALUE else ():
            slot = branch.call, branch.tool, branch.parameter
            if slot == (record.call, record.tool, record.parameter):
                branch.offer_hint(record.text)
        return used

    def propose(self, budget: int) -> DraftTree:
        """Returns the tree to verify next, of at most `budget` nodes, node 0 being the last
        committed token.

        Valid until the next call. Raises whatever a source from outside raises.
        """
        if self.sources and budget > 1:
            self._ask_sources(budget)
        return self.core.propose(budget)

    def _ask_sources(self, budget: int) -> None:
        """Adds what sources from outside draft."""
        for number, source in enumerate(self.sources):
            for path in source.propose(SourceState(self.prompt, self.answer), budget - 1):
                tokens = list(path.tokens)
                if len(tokens) >= budget and not self._cut_noted:
                    self._cut_noted = True
                    logger.info(
                        "a draft of %d tokens by %s is cut to the %d that a round may hold",
                        len(tokens),
                        type(source).__name__,
                        budget - 1,
                    )
                self.core.add_path(number, tokens[: budget - 1], path.probability)

    def commit(self, tokens: Sequence[int], top8: npt.NDArray[np.int32] | None = None) -> None:
        """Takes up the committed tokens. Raises IndexError for ids outside the vocabulary.

        top8: int32[nodes of the last tree, 8], the target's likeliest ids after each node, best
            first; -1 for nodes that it did not run.
        """
        self.core.commit(tokens, top8)
        self.answer.extend(tokens)
        for source in self.sources:
            source.commit(tokens)

    def prepare(self) -> None:
        """Does what can be done before commit(), while the target verifies."""
        self.core.prepare()

    @property
    def wants_top8(self) -> bool:
        """Whether commit() has a use for `top8`."""
        return self.method.recycler

    def finish(self) -> None:
        """Ends the request; its memory learns from the answer, sources that can be are closed."""
        try:
            if "core" in vars(self):  # else it was never asked for
                self.core.finish()
        finally:
            for source in self.sources:
                close = getattr(source, "close", None)
                if close is not None:
                    close()
