# SPDX-License-Identifier: Apache-2.0
"""A dev split that shares no tool name with what is trained on."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from ooospec.formats import function_of
from ooospec.train.labels import called_names

Request = Mapping[str, Any]
MAX_LOST = 3  # training requests that a dev request may cost


@dataclass(frozen=True)
class Split:
    """train: without the tools of dev. num_lost: requests in neither, since they call one of them.

    num_pruned: tools that were taken off the lists of training requests, which only showed them.
    """

    train: list[Request]
    dev: list[Request]
    num_lost: int
    num_pruned: int


def tool_key(name: str) -> str:
    """Returns what two names share that count as the same: lower case, letters and digits."""
    return re.sub(r"[\W_]", "", name.lower())


def split_by_tools(requests: Seq[Request], share: float, seed: int = 0) -> Split:
    """Returns a split in which about `share` of the requests of each source are dev.

    Dev requests keep their tools. A training request that calls one of them is left out; one that
    lists it loses it from its list. Requests are drawn by a hash of seed and id, from those that
    cost at most MAX_LOST others, so sources in which all requests share tools may give none.
    requests: valid ones (see label()).
    """
    called = [{tool_key(name) for name in called_names(request)} for request in requests]
    listed = [{tool_key(_name(tool)) for tool in request["tools"]} for request in requests]
    callers: dict[str, set[int]] = defaultdict(set)
    for i, own in enumerate(called):
        for name in own:
            callers[name].add(i)
    sources = [str(request.get("source", "")) for request in requests]
    room = {source: round(share * count) for source, count in Counter(sources).items()}
    dev: set[int] = set()
    lost: set[int] = set()
    names: set[str] = set()
    for i in sorted(range(len(requests)), key=lambda i: _draw(seed, requests[i], i)):
        costs = set().union(*(callers[name] for name in listed[i] - names)) - dev - lost - {i}
        if room[sources[i]] > 0 and i not in lost and len(costs) <= MAX_LOST:
            room[sources[i]] -= 1
            dev.add(i)
            lost |= costs
            names |= listed[i]
    train = [i for i in range(len(requests)) if i not in dev and not called[i] & names]
    kept = [_without(requests[i], names) for i in train]
    return Split(
        [request for request in kept if request["tools"]],
        [requests[i] for i in sorted(dev)],
        len(requests) - len(dev) - sum(bool(request["tools"]) for request in kept),
        sum(len(requests[i]["tools"]) for i in train) - sum(len(one["tools"]) for one in kept),
    )


def _without(request: Request, names: set[str]) -> Request:
    kept = [tool for tool in request["tools"] if tool_key(_name(tool)) not in names]
    return request if len(kept) == len(request["tools"]) else {**request, "tools": kept}


def _name(tool: Mapping[str, Any]) -> str:
    return str(function_of(tool)["name"])


def _draw(seed: int, request: Request, number: int) -> bytes:
    return hashlib.sha256(f"{seed} {request.get('id', number)}".encode()).digest()
