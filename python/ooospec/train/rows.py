# SPDX-License-Identifier: Apache-2.0
"""Training rows of a request: the questions of its wave, with the answers that its label gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Literal

from ooospec.errors import PromptTooLong
from ooospec.formats import function_of, parameters
from ooospec.sidecar.prompt import PromptBuilder
from ooospec.sidecar.wave import MAX_VALUE_TOKENS
from ooospec.train.labels import BadRow, Label, label

Kind = Literal["function", "argument", "null", "other", "call"]
MAX_CALL_TOKENS = 256  # of the auxiliary; longer calls go without it

# What a token of an answer weighs in the loss. "null": a parameter that the call leaves out;
# "other": one of a function that is not called, of which there are many, all alike.
WEIGHTS: dict[Kind, float] = {
    "function": 2.0,
    "argument": 1.0,
    "null": 1.0,
    "other": 0.2,
    "call": 0.3,
}


@dataclass(frozen=True)
class Row:
    """A question behind the prefix and its answer, in tokens."""

    kind: Kind
    question: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        return len(self.question) + len(self.answer)

    @property
    def weight(self) -> float:
        """Of all tokens of the answer, in the loss."""
        return WEIGHTS[self.kind] * len(self.answer)


@dataclass(frozen=True)
class Example:
    """A request as tokens: one prefix, many rows. num_tools: to choose from."""

    name: str
    source: str
    prefix: tuple[int, ...]
    rows: tuple[Row, ...]
    num_tools: int

    @property
    def num_tokens(self) -> int:
        """Tokens of the prefix once and of all rows."""
        return len(self.prefix) + sum(row.num_tokens for row in self.rows)


def make_example(
    builder: PromptBuilder, request: Mapping[str, Any], *, others: bool = True
) -> Example:
    """Returns the rows of a request: the function or `none`; of every parameter the value, or null
    where the call leaves it out; the whole call. Raises BadRow.

    others: with parameters of functions that are not called, whose value is null.
    Values longer than a wave writes, and calls longer than MAX_CALL_TOKENS, make no row.
    """
    wanted = label(request)
    tools = request["tools"]
    try:
        prompt = builder.build(request["messages"], tools)
    except PromptTooLong as error:
        raise BadRow("longer than a prompt may be") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadRow("messages or tools are not valid") from error
    if wanted.tool not in prompt.options:
        raise BadRow("the called tool found no room in the prompt")
    rows = [Row("function", prompt.question, prompt.options[wanted.tool])]
    for slot in prompt.slots:
        if not others and slot.tool not in wanted.arguments:
            continue
        name = list(parameters(tools[slot.tool]))[slot.parameter]
        value = wanted.arguments.get(slot.tool, {}).get(name)
        answer = builder.value_answer(value)
        if len(answer) <= MAX_VALUE_TOKENS:
            rows.append(Row(_kind(wanted, slot.tool, value), slot.question, answer))
    if wanted.tool is not None:
        name = function_of(tools[wanted.tool])["name"]
        question, answer = builder.call_row(name, wanted.arguments[wanted.tool])
        if len(answer) <= MAX_CALL_TOKENS:
            rows.append(Row("call", question, answer))
    return Example(
        str(request.get("id", "")),
        str(request.get("source", "")),
        prompt.prefix,
        tuple(rows),
        len(prompt.options) - 1,
    )


def make_examples(
    builder: PromptBuilder, requests: Iterable[Mapping[str, Any]], *, others: bool = True
) -> tuple[list[Example], Counter[str]]:
    """Returns the examples of `requests`, and how many were skipped, by reason."""
    examples: list[Example] = []
    skipped: Counter[str] = Counter()
    for request in requests:
        try:
            examples.append(make_example(builder, request, others=others))
        except BadRow as error:
            skipped[str(error)] += 1
    return examples, skipped


def with_traces(
    requests: Seq[Mapping[str, Any]], traces: Seq[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Returns `requests`, each labelled by the trace of the same id if there is one, and those of
    `traces` that are of none of them.
    """
    written = {str(trace.get("id")): trace for trace in traces}
    found: list[Mapping[str, Any]] = []
    for request in requests:
        trace = written.pop(str(request.get("id")), None)
        found.append(request if trace is None else {**request, "call": trace.get("call")})
    return [*found, *written.values()]


def _kind(wanted: Label, tool: int, value: Any) -> Kind:
    if tool not in wanted.arguments:
        return "other"
    return "null" if value is None else "argument"
