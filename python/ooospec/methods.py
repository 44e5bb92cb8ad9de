# SPDX-License-Identifier: Apache-2.0
"""Methods: named sets of sources. Every method runs in the same loop, so they differ by their
drafts alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Method:
    """Which sources draft.

    schema: what the call's format and the tools' schemas force or suggest.
    hint: what the sidecar says (needs schema, which writes it out).
    span: values that stand in the request, where no hint is right (needs schema).
    lookup: continuations found in the prompt and in the answer so far.
    retrieval: continuations found in earlier answers.
    recycler: successors that the target ranked high before.
    recycler_tree: of these a whole tree of fixed shape (needs recycler).
    branches: values that the target itself writes beside its call (needs schema); see
        ooospec.self_branches.
    draft: what a smaller model of the same tokenizer writes; see ooospec.draft_model.
    learns: whether retrieval goes on to finished answers, or stays with what it was given.
    """

    name: str
    schema: bool = False
    hint: bool = False
    span: bool = False
    lookup: bool = False
    retrieval: bool = False
    recycler: bool = False
    recycler_tree: bool = False
    branches: bool = False
    draft: bool = False
    learns: bool = True


_TOOLSPEC = Method("toolspec", schema=True, span=True, lookup=True, retrieval=True, recycler=True)

METHODS = {
    method.name: method
    for method in (
        Method("ar"),
        Method("pld", lookup=True),
        Method("sam", lookup=True, retrieval=True, learns=False),
        Method("recycling", recycler=True, recycler_tree=True),
        Method("draft", draft=True),
        Method("span", schema=True, span=True),
        _TOOLSPEC,
        replace(_TOOLSPEC, name="ooo", hint=True),
        replace(_TOOLSPEC, name="self", branches=True),
        replace(_TOOLSPEC, name="ooo+self", hint=True, branches=True),
    )
}


def methods_with(draft_model: bool) -> dict[str, Method]:
    """Returns the methods by name of an engine that has a draft model, or has none."""
    return {name: method for name, method in METHODS.items() if draft_model or not method.draft}


def method(name: str) -> Method:
    """Returns the method called `name`. Raises ValueError for one that does not exist."""
    if name not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, got {name!r}")
    return METHODS[name]
