# SPDX-License-Identifier: Apache-2.0
"""Sources from outside: anybody's Python class that drafts tokens joins the draft tree."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Protocol

ENTRY_POINT_GROUP = "ooospec.sources"
MAX_SOURCES = 9  # the core counts acceptance for so many sources from outside


@dataclass(frozen=True)
class SourceRequest:
    """What a source is told at the start of a request.

    prompt: the target's prompt as token ids.
    messages, tools: OpenAI style; empty for a request of raw ids.
    tokenizer: the target's Hugging Face tokenizer.
    """

    prompt: Sequence[int]
    messages: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]]
    tokenizer: Any


@dataclass(frozen=True)
class SourceState:
    """What a source may look at in a round: the prompt and the committed answer, as token ids."""

    prompt: Sequence[int]
    answer: Sequence[int]


@dataclass(frozen=True)
class WeightedPath:
    """Tokens that may come next, up to the first id that the target does not have.

    probability: that the first one does, in (0, 1]; what is outside counts as the nearest one.
    """

    tokens: Sequence[int]
    probability: float


class Source(Protocol):
    """A source of drafts. Whatever it proposes, the answer stays the target's own.

    One that has a method `close()` is closed at the end of its request.
    """

    def begin(self, request: SourceRequest) -> None:
        """Starts a request."""

    def propose(self, state: SourceState, budget: int) -> Sequence[WeightedPath]:
        """Returns paths of at most `budget` tokens that may follow the committed answer; may be
        empty.
        """

    def commit(self, tokens: Sequence[int]) -> None:
        """Hears what the target committed."""


def load_source(name: str | type) -> type:
    """Returns the source class named `module:Class`, or by an entry point of group
    `ooospec.sources`, or itself.

    Raises ValueError, naming what was expected and got, when there is none or it lacks a method.
    """
    if not isinstance(name, str):
        found = name
    elif ":" in name:
        module_name, _, class_name = name.partition(":")
        try:
            found = getattr(importlib.import_module(module_name), class_name)
        except Exception as error:  # whatever somebody's module does when it is imported
            raise ValueError(
                f"source: expected an importable module:Class, got {name!r} "
                f"({type(error).__name__}: {error})"
            ) from error
    else:
        known = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
        if name not in known:
            listed = ", ".join(sorted(known)) or "none is installed"
            raise ValueError(
                f"source: expected module:Class or an entry point of {ENTRY_POINT_GROUP} "
                f"({listed}), got {name!r}"
            )
        found = known[name].load()
    missing = [
        method
        for method in ("begin", "propose", "commit")
        if not callable(getattr(found, method, None))
    ]
    if missing:
        raise ValueError(
            f"source {name!r}: expected methods begin, propose and commit, got none called "
            + ", ".join(missing)
        )
    return found
