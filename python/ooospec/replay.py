# SPDX-License-Identifier: Apache-2.0
"""Runs a drafter against a recorded answer: verification by comparison, no model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ooospec._core import _C
from ooospec.config import MAX_NODES
from ooospec.draft import Drafter
from ooospec.formats import parameters


@dataclass(frozen=True)
class ReplayRound:
    """One round: it began with `start` tokens of the answer committed, verified `nodes`, committed
    `committed`.
    """

    start: int
    nodes: int
    committed: int


def replay(
    drafter: Drafter,
    answer: Sequence[int],
    *,
    budget: int = MAX_NODES,
    before_round: Callable[[int], None] | None = None,
) -> list[ReplayRound]:
    """Returns the rounds that `drafter` needs for `answer`.

    answer: the recorded ids, end token included. The first one comes from prefill and costs no
    round.
    budget: most nodes of a tree.
    before_round: called with the number of committed tokens before each proposal; may offer hints.
    """
    if not answer:
        raise ValueError("replay: expected an answer of at least one token, got none")
    drafter.commit([answer[0]])
    padded = np.full(len(answer) + budget + 1, -1, dtype=np.int32)
    padded[: len(answer)] = answer
    rounds = []
    done = 1
    while done < len(answer):
        if before_round is not None:
            before_round(done)
        tree = drafter.propose(budget)
        path = tree.accept(padded[done + tree.depths].tolist())
        tokens = answer[done : done + len(path) + 1]
        rounds.append(ReplayRound(done, len(tree), len(tokens)))
        drafter.commit(tokens)
        done += len(tokens)
    return rounds


def slot_records(
    request_id: int, calls: Iterable[dict[str, Any]], tools: Sequence[dict[str, Any]]
) -> list[_C.HintRecord]:
    """Returns the records of a sidecar that knows `calls`, in the order of the schema.

    calls: `{"name", "arguments": object}`. A call of an unknown function, and an argument that its
    schema does not name, have no slot and are left out.
    """
    names = [tool["function"]["name"] for tool in tools]
    records = []
    for number, call in enumerate(calls):
        if call["name"] not in names:
            continue
        tool = names.index(call["name"])
        record = partial(_C.HintRecord, request_id, call=number, tool=tool)
        records.append(record(kind=_C.HintKind.FUNCTION, parameter=0, text=call["name"]))
        for parameter, name in enumerate(parameters(tools[tool])):
            if name in call["arguments"]:
                text = json.dumps(
                    call["arguments"][name], ensure_ascii=False, separators=(",", ":")
                )
                records.append(record(kind=_C.HintKind.VALUE, parameter=parameter, text=text))
        records.append(record(kind=_C.HintKind.END, parameter=0))
    return records
