# SPDX-License-Identifier: Apache-2.0
"""What a world of requests is made of. There are two, for training and for tests, which share no
parameter word, kind of value, sentence or markup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from ooospec.synth.kinds import Kind

Manner = Literal["make", "find", "change", "end"]


@dataclass(frozen=True)
class Parameter:
    """words: what it is called, by schemas and people, the first the plainest. clauses: say its
    value inside a request, such as "from {}".
    """

    words: Seq[str]
    kind: Kind
    clauses: Seq[str] = ()


@dataclass(frozen=True)
class Verb:
    """names: in tool names; said: by people; manner: which parameters a tool of it has."""

    names: Seq[str]
    said: Seq[str]
    manner: Manner


@dataclass(frozen=True)
class Entity:
    """What tools act on. noun: with its article; verbs, parameters: keys of the world's."""

    domain: str
    noun: str
    verbs: Seq[str]
    parameters: Seq[str]

    @classmethod
    def parse(cls, line: str) -> Entity:
        """Returns what a line `domain | noun | verbs | parameters` says."""
        domain, noun, verbs, parameters = (part.strip() for part in line.split("|"))
        return cls(domain, noun, verbs.split(), parameters.split())

    def called(self, bare: str) -> Entity:
        """Returns the entity under another noun."""
        article = "an" if bare[0] in "aeiou" else "a"
        return replace(self, noun=f"{article} {bare}")

    @property
    def bare(self) -> str:
        """The noun without its article."""
        return self.noun.split(" ", 1)[1]


@dataclass(frozen=True)
class Provider:
    """A tool whose result another tool needs. names: of it; describes: what it does.

    takes: keys of the parameters that it needs; gives: the parameter that its result is; needs:
    asks the user for what it takes; before: what an assistant says before it is called.
    """

    names: Seq[str]
    describes: Seq[str]
    takes: Seq[str]
    gives: Parameter
    needs: Seq[str]
    before: Seq[str]


@dataclass(frozen=True)
class Wording:
    """Sentences. Fields in braces: {do} a verb, {thing} a noun with article, {entity} one without,
    {word} a parameter, {value} its value, {what} clauses or a list of words.
    """

    requests: Seq[str]
    facts: Seq[str]
    list_heads: Seq[str]
    list_items: Seq[str]
    questions: Seq[str]
    replies: Seq[str]
    yes: Seq[str]
    no: Seq[str]
    fillers: Seq[str]
    confirmations: Seq[str]
    thanks: Seq[str]
    welcomes: Seq[str]
    refusals: Seq[str]
    chats: Seq[str]
    orders: Seq[Seq[str]]
    today: Seq[str]
    systems: Seq[str]
    ends: Seq[str]
    tool_texts: Seq[str]
    parameter_texts: Seq[str]
    successes: Seq[str]


@dataclass(frozen=True)
class Markup:
    """Writes a whole dialogue as one text. head: before it; user, assistant: around a turn, {};
    call: with {name} and {arguments}; result: around a result; gap: between turns.
    """

    head: Seq[str]
    user: str
    assistant: str
    call: str
    result: str
    gap: str


@dataclass(frozen=True)
class World:
    """All that requests are drawn from. calendar: tells the date of today. keys: kinds of
    identifiers of entities, by what they are called; reference: identifiers in results. modifiers,
    adjectives: go before the words of parameters, and nouns; invented: made-up words that stand in
    for either, or none.
    """

    name: str
    verbs: Mapping[str, Verb]
    parameters: Mapping[str, Parameter]
    entities: Seq[Entity]
    providers: Seq[Provider]
    calendar: Provider
    keys: Mapping[str, Kind]
    reference: Callable[[Random], str]
    wording: Wording
    markups: Seq[Markup]
    modifiers: Seq[str]
    adjectives: Seq[str]
    invented: Callable[[Random], str] | None = None
