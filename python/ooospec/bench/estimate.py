# SPDX-License-Identifier: Apache-2.0
"""What drafting would have gained on recorded answers: the real drafter, and a comparison with the
record in place of the target. No model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any

from ooospec._core import _C
from ooospec.config import MAX_NODES
from ooospec.draft import Drafter, DraftStore
from ooospec.errors import InvalidRequest
from ooospec.formats import answer_calls, check_tools, render, tools_as_json, unicode
from ooospec.methods import METHODS, Method
from ooospec.replay import ReplayRound, replay, slot_records
from ooospec.target_text import target_text
from ooospec.tokens import TokenTable

RECORDED, PERFECT = "ooo, recorded hints", "ooo, perfect hints"
# What the target ranked high is in no record, so successors are not drafted.
ESTIMATED = {
    "span": METHODS["span"],
    "toolspec": replace(METHODS["toolspec"], recycler=False),
    RECORDED: replace(METHODS["ooo"], recycler=False),
    PERFECT: replace(METHODS["ooo"], recycler=False),
}


@dataclass(frozen=True)
class RoundTimes:
    """How long a round takes.

    plain_ms: of one row. wide: how many times as long one of 64 rows takes; between them, by rows.
    """

    plain_ms: float = 1.0
    wide: float = 1.05

    def ms(self, num_rows: int) -> float:
        return self.plain_ms * (1 + (self.wide - 1) * (num_rows - 1) / (MAX_NODES - 1))


@dataclass(frozen=True)
class RecordedAnswer:
    """A request and what a target answered.

    prompt_ids, token_ids: in the target's tokens, the end token included. hints: calls as a sidecar
    said them; None: not recorded.
    """

    name: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    prompt_ids: list[int]
    token_ids: list[int]
    text: str
    hints: list[dict[str, Any]] | None

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls of the answer: all that perfect hints may know."""
        return [
            {"name": one["function"]["name"], "arguments": json.loads(one["function"]["arguments"])}
            for one in answer_calls(self.text, self.tools)
        ]


class Recorded:
    """Reads records with a tokenizer, and replays them."""

    def __init__(self, tokenizer: Any) -> None:
        """tokenizer: the target's. Raises UnsupportedModel for one that cannot be read as bytes."""
        self.tokenizer = tokenizer
        self.table = TokenTable(tokenizer)
        self.text = target_text(tokenizer, table=self.table)

    def answer(self, row: Mapping[str, Any]) -> RecordedAnswer:
        """Returns a line of a log: messages, perhaps tools, `token_ids` or `answer` (text) or what
        `ooospec trace` wrote (`text`, `tokens`), perhaps `hints`.

        Raises InvalidRequest for a line that has neither, or what cannot be read.
        """
        name = str(row.get("id", "request"))
        tools = tools_as_json(row.get("tools")) or []
        check_tools(tools)
        for key in ("answer", "text"):
            if isinstance(row.get(key), str):
                unicode(row[key], f"{name}: {key}")
        prompt_ids = self.table.encode(render(self.tokenizer, row["messages"], tools or None))
        token_ids, text = row.get("token_ids"), row.get("answer")
        if isinstance(token_ids, list) and token_ids:
            bad = [one for one in token_ids if not isinstance(one, int) or one not in self]
            if bad:
                raise InvalidRequest(f"{name}: expected token_ids of the tokenizer, got {bad[0]!r}")
        elif isinstance(text, str) and text:
            token_ids = [*self.table.encode(text), self.text.end_token]
        elif isinstance(row.get("text"), str) and row["text"]:
            token_ids = self._traced(row["text"], row.get("tokens"))
        else:
            raise InvalidRequest(f"{name}: expected `token_ids`, `answer` or `text`, got none")
        text = self.table.decode_bytes([t for t in token_ids if t != self.text.end_token])
        hints = row.get("hints")
        if not isinstance(hints, list | None):
            raise InvalidRequest(f"{name}: expected a list of hints, got {hints!r:.80}")
        for hint in hints or ():
            said = hint if isinstance(hint, dict) else {}
            if not isinstance(said.get("name"), str) or not isinstance(said.get("arguments"), dict):
                raise InvalidRequest(
                    f"{name}: expected hints with a name and arguments, got {hint!r:.80}"
                )
        decoded = text.decode(errors="replace")
        return RecordedAnswer(
            name, list(row["messages"]), tools, prompt_ids, token_ids, decoded, hints
        )

    def _traced(self, text: str, tokens: Any) -> list[int]:
        """Returns the tokens of a text that a model wrote: the recorded ones, whose last may be an
        end, where they are of this tokenizer and spell it. A model may cut words in its own way.
        """
        end = [self.text.end_token]
        if isinstance(tokens, list) and all(isinstance(one, int) and one in self for one in tokens):
            for written in (tokens, tokens[:-1]):
                if self.table.decode_bytes(written).decode(errors="replace") == text:
                    return written + end
        return self.table.encode(text) + end

    def __contains__(self, token: int) -> bool:
        return 0 <= token < len(self.text.vocab)

    def replay(
        self,
        answer: RecordedAnswer,
        method: Method,
        hints: Seq[dict[str, Any]] | None,
        memory: _C.DraftMemory | None = None,
        costs_us: Seq[float] | None = None,
    ) -> list[ReplayRound]:
        """Returns the rounds that `method` needs for `answer`. Its memory learns the answer.

        hints: calls that the sidecar says before the first round.
        """
        drafter = Drafter(
            self.text,
            answer.tools,
            method,
            answer.prompt_ids,
            memory=memory,
            costs_us=costs_us,
            messages=answer.messages,
        )
        for record in slot_records(1, hints or (), answer.tools):
            drafter.offer_hint(record)
        rounds = replay(drafter, answer.token_ids)
        drafter.finish()
        return rounds


@dataclass(frozen=True)
class Estimate:
    """One request by each method that was replayed. plain_ms, ms: behind the first token."""

    name: str
    text: str
    num_tokens: int
    plain_ms: float
    num_rounds: dict[str, int]
    ms: dict[str, float]


def estimate(
    recorded: Recorded,
    rows: Seq[Mapping[str, Any]],
    times: RoundTimes,
    on_request: Callable[[], object] = lambda: None,
) -> list[Estimate]:
    """Replays all rows in their order by each of ESTIMATED, each with a store of its own.

    Recorded hints are replayed for rows that have them. Raises InvalidRequest for a bad row.
    """
    store = DraftStore(recorded.text)
    costs_us = [1000 * times.ms(num_rows) for num_rows in range(1, MAX_NODES + 1)]
    found = []
    for row in rows:
        answer = recorded.answer(row)
        num_rounds, ms = {}, {}
        for name, method in ESTIMATED.items():
            hints = answer.hints if name == RECORDED else answer.calls if name == PERFECT else None
            if name == RECORDED and hints is None:
                continue
            rounds = recorded.replay(answer, method, hints, store.memory(name), costs_us)
            num_rounds[name] = len(rounds)
            ms[name] = sum(times.ms(one.nodes) for one in rounds)
        num_tokens = len(answer.token_ids) - 1
        found.append(
            Estimate(answer.name, answer.text, num_tokens, num_tokens * times.ms(1), num_rounds, ms)
        )
        on_request()
    return found


def worst(estimates: Seq[Estimate], method: str, count: int) -> list[Estimate]:
    """Returns the requests in which `method` commits fewest tokens a round, the worst first."""
    known = [one for one in estimates if one.num_rounds.get(method)]
    return sorted(known, key=lambda one: one.num_tokens / one.num_rounds[method])[:count]
