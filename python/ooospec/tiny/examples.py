# SPDX-License-Identifier: Apache-2.0
"""Requests as training examples of a target and of a sidecar; prepared by many processes."""

from __future__ import annotations

import multiprocessing
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial
from typing import Any

from ooospec.formats import normalise_messages
from ooospec.sidecar.prompt import PromptBuilder
from ooospec.synth.generate import generate
from ooospec.tiny.model import CONTEXT
from ooospec.tiny.tokenizer import with_fewer_merges
from ooospec.tokens import TokenTable
from ooospec.train.branches import num_laid_out
from ooospec.train.labels import BadRow, label
from ooospec.train.rows import Example, Row, make_example

Request = Mapping[str, Any]
MAX_TOKENS = 2048  # of an example; longer requests are left out
NO_CALL = "I have no tool for that."
_MOST_FOREIGN = 0.2  # of a request's characters; the vocabulary has little but English
_CHUNK = 500
_MOST_LACKING = 0.6  # of the merges
_WORD = re.compile(r"\b[a-z]{3,10}\b")


@dataclass(frozen=True)
class Recipe:
    """What is trained on.

    synth: number of generated requests. requests: others. seed: of the generated ones.
    repeat: how often the others come in an epoch.
    strange: share of the generated names and values that are strange words, most of them from the
    others; in [0, 1]. unclear: share of the generated calls that cannot be told; see generate().
    cuts: number of other ways to cut words into tokens; a target's examples use them every second
    time, so that it copies pieces that are rare.
    """

    synth: int
    requests: Seq[Request]
    seed: int = 0
    repeat: int = 1
    strange: float = 0.0
    unclear: float = 0.0
    cuts: int = 0

    @property
    def words(self) -> list[str]:
        """The plain words of the other requests."""
        if not self.strange:
            return []
        texts = (str((one["messages"], one["tools"])) for one in self.requests)
        return sorted({word for text in texts for word in _WORD.findall(text)})


class ChatExamples:
    """Makes the examples of a target: the dialogue, and the answer as the chat template has it.

    tokenizer: with a chat template that takes tools. cuts: see Recipe.
    """

    def __init__(self, tokenizer: Any, cuts: int = 0) -> None:
        self._tokenizer = tokenizer
        self._tables = [TokenTable(tokenizer)] * max(1, cuts)
        for i in range(cuts):
            lacking = _MOST_LACKING * (i + 1) / cuts
            self._tables.append(TokenTable(with_fewer_merges(tokenizer, lacking, i)))

    def __call__(self, request: Request) -> Example:
        """Raises BadRow."""
        label(request)
        prompt, answer = chat_texts(self._tokenizer, request)
        table = self.table_of(request)
        row = Row("call", (), tuple(table.encode(answer)))
        prefix = tuple(table.encode(prompt))
        return Example(str(request["id"]), str(request["source"]), prefix, (row,), 0)

    def table_of(self, request: Request) -> TokenTable:
        """Returns by what a request is cut: every second one as the tokenizer does it."""
        return self._tables[zlib.crc32(str(request["id"]).encode()) % len(self._tables)]


def chat_texts(tokenizer: Any, request: Request) -> tuple[str, str]:
    """Returns the prompt of a request, and the answer that it should get, with its end."""
    messages = normalise_messages(request["messages"])
    render = partial(tokenizer.apply_chat_template, tools=request["tools"], tokenize=False)
    prompt = render(messages, add_generation_prompt=True)
    calls = [{"type": "function", "function": call} for call in request["calls"]]
    text = "" if calls else request.get("meta", {}).get("answer", NO_CALL)
    turn = {"role": "assistant", "content": text, "tool_calls": calls}
    answer = render([*messages, turn])[len(prompt) :].removesuffix("\n")
    return prompt, answer


class WaveExamples:
    """Makes the examples of a sidecar: see make_example."""

    def __init__(self, tokenizer: Any) -> None:
        self._builder = PromptBuilder(tokenizer, max_tokens=CONTEXT, examples=False)

    def __call__(self, request: Request) -> Example:
        """Raises BadRow."""
        return make_example(self._builder, request, others=False)


def prepare(
    recipe: Recipe, make: Callable[[Request], Example], processes: int, *, held_out: bool = False
) -> list[Example]:
    """Returns the examples of a recipe, in its order; those that are too long are left out."""
    chunks = [
        (start, min(_CHUNK, recipe.synth - start)) for start in range(0, recipe.synth, _CHUNK)
    ]
    others = [request for request in recipe.requests if is_plain(request)]
    parts = [others[i : i + _CHUNK] for i in range(0, len(others), _CHUNK)]
    jobs: list[Any] = [*parts, *((recipe.seed, held_out, *chunk) for chunk in chunks)]
    how = {"strange": recipe.strange, "words": recipe.words, "unclear": recipe.unclear}
    _inherited[:] = [make, how]
    if processes < 2:
        done = [_prepare(job) for job in jobs]
    else:  # what makes examples holds a lock, which cannot be sent to a process: each inherits it
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            done = list(pool.imap(_prepare, jobs))
    again = done[: len(parts)] * (recipe.repeat - 1)
    return [example for part in (*done, *again) for example in part]


_inherited: list[Any] = []


def _prepare(job: Any) -> list[Example]:
    """Returns the examples of a job: requests, or (seed, held out, first number, how many)."""
    make, how = _inherited
    requests: Iterable[Request] = job
    if isinstance(job, tuple):
        seed, held_out, first, count = job
        requests = generate(count, seed=seed, first=first, held_out=held_out, **how)
    found = []
    for request in requests:
        try:
            example = make(request)
        except BadRow:
            continue
        if num_laid_out(example) <= MAX_TOKENS:
            found.append(example)
    return found


def is_plain(request: Request) -> bool:
    """Returns whether a request is mostly in characters that the vocabulary has."""
    text = str(request["messages"]) + str(request["tools"])
    return sum(not character.isascii() for character in text) <= _MOST_FOREIGN * len(text)
