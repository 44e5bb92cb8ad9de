# SPDX-License-Identifier: Apache-2.0
"""Rows of requests: a function of seed, number, families and world alone."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from random import Random
from typing import Any

from ooospec.errors import InvalidRequest
from ooospec.synth.dialogue import Turn, as_messages, as_one_text
from ooospec.synth.families import FAMILIES, told_today
from ooospec.synth.held_out_world import WORLD as HELD_OUT
from ooospec.synth.kinds import Scene, any_day
from ooospec.synth.train_world import WORLD as TRAIN
from ooospec.synth.world import World

_DATED, _SYSTEM, _ONE_TEXT, _SHORT_ONE_TEXT = 0.4, 0.25, 0.5, 0.1


def generate(
    count: int,
    *,
    seed: int = 0,
    families: Seq[str] = (),
    held_out: bool = False,
    strange: float = 0.0,
    words: Seq[str] = (),
    unclear: float = 0.0,
    first: int = 0,
) -> Iterator[dict[str, Any]]:
    """Yields `count` requests, from number `first` on; a number's is the same whatever the count.

    families: names from FAMILIES; none: all, by their weights. held_out: of the world for tests.
    strange: share of names and values that are strange words, some of them from `words`. unclear:
    share of the requests with calls whose call is one of any listed tool, with values that nobody
    said: what trains on them learns to stay with tools and types where it cannot tell.
    Raises InvalidRequest for an unknown family, a negative count, or a share that is none.
    """
    if count < 0:
        raise InvalidRequest(f"count: expected at least 0, got {count}")
    for name, share in (("strange", strange), ("unclear", unclear)):
        if not 0 <= share <= 1:
            raise InvalidRequest(f"{name}: expected a share from 0 to 1, got {share}")
    for family in families:
        if family not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise InvalidRequest(f"families: expected some of {known}, got {family!r}")
    names = sorted(set(families), key=list(FAMILIES).index) or list(FAMILIES)
    world = HELD_OUT if held_out else TRAIN
    how = seed, names, world, strange, words, unclear
    return (_row(number, *how) for number in range(first, first + count))


def _row(
    number: int,
    seed: int,
    names: Seq[str],
    world: World,
    strange: float,
    words: Seq[str],
    unclear: float,
) -> dict[str, Any]:
    """Returns one request with its reference calls.

    meta.said: for each call, how the dialogue says each argument. meta.answer: where there is no
    call, what to say.
    """
    rng = Random(f"{world.name} {seed} {number}")
    family = rng.choices(names, [FAMILIES[name][1] for name in names])[0]
    scene = Scene(rng, any_day(rng) if rng.random() < _DATED else None, strange, words)
    draft = FAMILIES[family][0](scene, world)
    turns = list(draft.turns)
    if rng.random() < _SYSTEM:
        turns.insert(0, Turn("system", rng.choice(world.wording.systems)))
    if scene.today is not None and (scene.today_matters or rng.random() < 0.2):
        turns = told_today(scene, world, scene.today, turns)
    calls = draft.calls
    if calls and unclear and rng.random() < unclear:
        calls = [rng.choice(draft.tasks)]
    tools = [task.tool for task in draft.tasks]
    rng.shuffle(tools)
    if rng.random() < (_ONE_TEXT if len(turns) > 2 else _SHORT_ONE_TEXT):
        messages = as_one_text(scene, world, turns, ask=bool(draft.calls))
    else:
        messages = as_messages(turns)
    meta: dict[str, Any] = {
        "family": family,
        "world": world.name,
        "said": [task.said for task in calls],
    }
    if not draft.calls:
        meta |= {"no_call": True, "answer": draft.answer}
    return {
        "id": f"synth-{world.name}-{seed}-{number}",
        "source": "synth",
        "split": world.name,
        "messages": messages,
        "tools": tools,
        "calls": [{"name": task.name, "arguments": task.arguments} for task in calls],
        "meta": meta,
    }
