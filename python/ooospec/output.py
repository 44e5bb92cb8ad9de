# SPDX-License-Identifier: Apache-2.0
"""Where an answer ends. Nothing else cuts: text, ids, finish reason and usage follow from here."""

from __future__ import annotations

import codecs
from collections.abc import Collection
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Literal

from ooospec.sampling import SamplingParams

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True)
class Usage:
    """Tokens of a request. cached_tokens: those of the prompt that were not computed again."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class Output:
    """The answer of one request as it grows.

    An answer ends with the first token, in emission order, that is an end of sequence, completes a
    stop string, or is the last that `max_tokens` or the context allow. `token_ids` ends with that
    token; `text` ends before the end of sequence or the stop string. Text is decoded byte by byte:
    U+FFFD appears only for bytes that are no UTF-8.
    """

    def __init__(
        self,
        pieces: Seq[bytes] | None,
        params: SamplingParams,
        eos_ids: Collection[int],
        max_tokens: int,
    ) -> None:
        """pieces: bytes of each token; None: no text. max_tokens: what params and context allow."""
        self.token_ids: list[int] = []
        self._text = ""
        self._undecoded: list[int] = []
        self.finish_reason: Literal["stop", "length"] | None = None
        self._pieces = pieces
        self._params = params
        self._eos_ids = frozenset() if params.ignore_eos else frozenset(eos_ids)
        self._max_tokens = max_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._num_sent = 0

    @property
    def text(self) -> str:
        """The text so far; decoded when somebody asks."""
        if self._undecoded and self._pieces is not None:
            pieces, self._undecoded = map(self._piece, self._undecoded), []
            self._text += self._decoder.decode(b"".join(pieces))
        return self._text

    @property
    def num_left(self) -> int:
        """Tokens that may still follow."""
        return 0 if self.finish_reason else self._max_tokens - len(self.token_ids)

    def add(self, tokens: Seq[int]) -> int:
        """Appends `tokens` up to where the answer ends; returns how many were taken."""
        count = len(tokens)
        goes_on = len(self.token_ids) + count < self._max_tokens and not self._params.stop
        if goes_on and self.finish_reason is None and self._eos_ids.isdisjoint(tokens):
            self.token_ids += tokens  # all of them, at once
            self._undecoded += tokens
            return count
        for count, token in enumerate(tokens):
            if self.finish_reason is not None:
                return count
            self._add(token)
        return len(tokens)

    def delta(self) -> str:
        """Returns the text that is certain and was not returned before.

        A tail that may turn out to begin a stop string is held back until it does not, or until the
        answer ends.
        """
        text = self.text
        stop = len(text) if self.finish_reason else len(text) - self._num_held()
        new = text[self._num_sent : stop]
        self._num_sent = max(self._num_sent, stop)
        return new

    def _piece(self, token: int) -> bytes:
        """Returns the bytes of a token; an unknown one has none."""
        assert self._pieces is not None
        return self._pieces[token] if 0 <= token < len(self._pieces) else b""

    def _add(self, token: int) -> None:
        self.token_ids.append(token)
        if token in self._eos_ids:
            self._finish("stop")
            return
        if self._pieces is not None:
            known_length = len(self.text)
            fresh = self._decoder.decode(self._piece(token))
            self._text += fresh
            if fresh and self._cut_at_stop(known_length):
                self.finish_reason = "stop"
                return
        if len(self.token_ids) >= self._max_tokens:
            self._finish("length")

    def _cut_at_stop(self, start: int) -> bool:
        """Cuts the text before the first stop string that ends behind `start`; not too early."""
        if len(self.token_ids) < self._params.min_tokens:
            return False
        starts = [self.text.find(stop, max(0, start - len(stop) + 1)) for stop in self._params.stop]
        found = [i for i in starts if i >= 0]
        if found:
            self._text = self.text[: min(found)]
        return bool(found)

    def _finish(self, reason: Literal["stop", "length"]) -> None:
        self._text = self.text + self._decoder.decode(b"", final=True)
        self.finish_reason = reason

    def _num_held(self) -> int:
        """Length of the longest tail of the text that is a proper prefix of a stop string."""
        longest = 0
        for stop in self._params.stop:
            for length in range(min(len(stop) - 1, len(self.text)), longest, -1):
                if self.text.endswith(stop[:length]):
                    longest = length
                    break
        return longest
