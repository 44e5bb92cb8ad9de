# SPDX-License-Identifier: Apache-2.0
"""A smaller model of the target's tokenizer that drafts token by token: the classic baseline."""

from __future__ import annotations

import threading
from collections.abc import Sequence as Seq
from typing import Any

from ooospec.backends.base import Backend
from ooospec.config import LAUNCH_ROWS
from ooospec.errors import OutOfPages
from ooospec.kv import PagePool, Sequence
from ooospec.rows import Rows
from ooospec.sampling import Chooser, SamplingParams
from ooospec.sources import SourceRequest, SourceState, WeightedPath

NUM_TOKENS = 8  # of a chain
NUM_SIDES = 2  # other tokens beside each of the first ones,
SIDE_DEPTH = 3  # of which there are so many
CHAIN_CLAIM, SIDE_CLAIM = 0.7, 0.08
CACHE_TOKENS = 32768


class DraftModel:
    """A loaded model that drafts for the requests of one engine, one step at a time."""

    def __init__(self, backend: Backend, tokenizer: Any, num_tokens: int = NUM_TOKENS) -> None:
        """tokenizer: the target's. Raises ValueError unless it is the model's own too."""
        own = backend.tokenizer
        if own is None or own.get_vocab() != tokenizer.get_vocab():
            got = "none" if own is None else f"one of {len(own.get_vocab())} tokens"
            raise ValueError(
                "draft model: expected the target's tokenizer of "
                f"{len(tokenizer.get_vocab())} tokens, got {got}"
            )
        self.backend = backend
        self.num_tokens = num_tokens
        self.chooser = Chooser(SamplingParams(), backend.decodable, ())
        self.pool: PagePool = backend.new_pool(
            min(backend.context_limit, CACHE_TOKENS) + LAUNCH_ROWS
        )
        self.lock = threading.Lock()


class DraftModelSource:
    """Drafts a chain of greedy tokens, with the next best ones beside the first of them."""

    def __init__(self, model: DraftModel) -> None:
        self._model = model
        self._sequence = Sequence(model.pool)
        self._cached: list[int] = []  # what the sequence holds
        self._text: list[int] = []  # prompt and answer
        self._num_sure = 0  # tokens that both begin with

    def begin(self, request: SourceRequest) -> None:
        """Reads the prompt, but for its last token, which the first round reads."""
        self._text = list(request.prompt)
        with self._model.lock:
            self._read()

    def propose(self, state: SourceState, budget: int) -> Seq[WeightedPath]:
        """Returns the chain and the tokens beside it; nothing where the text has no room."""
        model = self._model
        with model.lock:
            if not self._read():
                return ()
            chain: list[int] = []
            sides: list[WeightedPath] = []
            token = self._text[-1]
            while len(chain) < min(budget, model.num_tokens):
                top = self._step(token)
                if top is None:
                    break
                if len(chain) < SIDE_DEPTH:
                    others = [other for other in top[1 : 1 + NUM_SIDES] if other >= 0]
                    sides += [WeightedPath([*chain, other], SIDE_CLAIM) for other in others]
                token = top[0]
                chain.append(token)
        return [WeightedPath(chain, CHAIN_CLAIM), *sides] if chain else ()

    def commit(self, tokens: Seq[int]) -> None:
        """Hears what the target committed."""
        self._text += tokens

    def close(self) -> None:
        """Gives the pages back."""
        with self._model.lock:
            self._sequence.release()

    def _read(self) -> bool:
        """Makes the cache hold the text but for its last token; False where there is no room."""
        last = len(self._text) - 1
        same = self._num_sure
        while same < min(last, len(self._cached)) and self._cached[same] == self._text[same]:
            same += 1
        del self._cached[same:]
        self._sequence.length = same
        missing = self._text[same:last]
        if not self._reserve(len(missing)):
            return False
        if missing:
            self._model.backend.prefill(self._sequence, missing)
            self._cached += missing
        self._num_sure = last
        return True

    def _step(self, token: int) -> list[int] | None:
        """Returns the likeliest successors of `token` behind the cached text, best first."""
        if not self._reserve(1):
            return None
        verdict = self._model.backend.verify(
            self._sequence,
            Rows.root(token),
            self._model.chooser,
            0,
            top8=True,
            meanwhile=lambda: None,
        )
        self._sequence.keep_first(1)
        self._cached.append(token)
        assert verdict.top8 is not None
        top: list[int] = verdict.top8[0].tolist()
        return [verdict.tokens[0], *(other for other in top if other != verdict.tokens[0])]

    def _reserve(self, num_tokens: int) -> bool:
        """Makes room for more tokens; returns False where there is none."""
        length = self._sequence.length + num_tokens
        if length + 1 > self._model.backend.context_limit:
            return False
        try:
            self._sequence.reserve(length + self._model.backend.max_tree_rows)
        except OutOfPages:
            return False
        return True
