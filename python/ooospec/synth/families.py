# SPDX-License-Identifier: Apache-2.0
"""Families of requests: what a dialogue is about, where it stands, and which call comes next."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from datetime import date

from ooospec.synth import wording
from ooospec.synth.dialogue import Turn
from ooospec.synth.kinds import Said, Scene, any_day
from ooospec.synth.tools import Slot, Style, Task, draw_provider, draw_style, draw_task
from ooospec.synth.world import Provider, World


@dataclass(frozen=True)
class Draft:
    """A request before it is written down. calls: that come next; tasks: whose tools are listed.

    answer: what to say where no call is right.
    """

    turns: Seq[Turn]
    tasks: Seq[Task]
    calls: Seq[Task]
    answer: str = ""


def one(scene: Scene, world: World) -> Draft:
    """A request in one turn, and the only tool."""
    task = draw_task(scene, world, draw_style(scene))
    return Draft([_user(wording.request(scene, world, task, task.given))], [task], [task])


def choice(scene: Scene, world: World) -> Draft:
    """A request in one turn, and several tools, some of them near."""
    style = draw_style(scene)
    task = draw_task(scene, world, style)
    tasks = [task, *_others(scene, world, style, [task], scene.rng.randint(1, 6))]
    return Draft([_user(wording.request(scene, world, task, task.given))], tasks, [task])


def turns(scene: Scene, world: World) -> Draft:
    """Values that are given bit by bit, on an assistant's questions; sometimes one is changed."""
    style = draw_style(scene)
    task = draw_task(scene, world, style, optional=0.7)
    tasks = [task, *_others(scene, world, style, [task], scene.rng.randint(0, 4))]
    said, task = _talk(scene, world, task)
    return Draft(said, tasks, [task])


def none(scene: Scene, world: World) -> Draft:
    """A request that no tool fits, or a chat."""
    style = draw_style(scene)
    missing = draw_task(scene, world, style)
    tasks = _others(scene, world, style, [missing], scene.rng.randint(1, 5))
    answer = scene.rng.choice(world.wording.refusals)
    if scene.rng.random() < 0.3:
        return Draft([_user(scene.rng.choice(world.wording.chats))], tasks, [], answer)
    return Draft([_user(wording.request(scene, world, missing, missing.given))], tasks, [], answer)


def several(scene: Scene, world: World) -> Draft:
    """Calls that may all be made at once."""
    style = draw_style(scene)
    wanted = _wanted(scene, world, style, scene.rng.randint(2, 3), [])
    tasks = [*wanted, *_others(scene, world, style, wanted, scene.rng.randint(0, 3))]
    return Draft([_user(_wishes(scene, world, wanted))], tasks, wanted)


def needed(scene: Scene, world: World) -> Draft:
    """A value is missing that another tool gives: that one is called."""
    return _chain(scene, world, 0)


def given(scene: Scene, world: World) -> Draft:
    """The value that another tool gave is there: the main tool is called with it."""
    return _chain(scene, world, 1)


def progress(scene: Scene, world: World) -> Draft:
    """Some of several calls were made and answered: the next one comes."""
    rng = scene.rng
    style = draw_style(scene)
    wanted, first, said = _errand(scene, world, style)
    num_done = rng.randint(1, len(wanted) - 1)
    for task in wanted[:num_done]:
        said += _made(scene, world, task)
    extra = _others(scene, world, style, [*first, *wanted], rng.randint(0, 3))
    return Draft(said, [*first, *wanted, *extra], [wanted[num_done]])


def done(scene: Scene, world: World) -> Draft:
    """All calls were made and answered, or the user only says thanks: none comes."""
    rng = scene.rng
    if rng.random() < 0.4:
        return _chain(scene, world, 2)
    style = draw_style(scene)
    wanted, first, said = _errand(scene, world, style)
    for task in wanted:
        said += _made(scene, world, task)
    said, answer = _close(scene, world, said, wanted[-1])
    extra = _others(scene, world, style, [*first, *wanted], rng.randint(0, 3))
    return Draft(said, [*first, *wanted, *extra], [], answer)


def ask(scene: Scene, world: World) -> Draft:
    """A required value is in neither dialogue nor results: the user has to be asked."""
    style = draw_style(scene)
    task = draw_task(scene, world, style)
    while not any(slot.required and slot.parameter.kind.question == "" for slot in task.given):
        task = draw_task(scene, world, style)
    slots = [slot for slot in task.given if slot.required and slot.parameter.kind.question == ""]
    slot = scene.rng.choice(slots)
    told = [one for one in task.given if one is not slot]
    tasks = [task, *_others(scene, world, style, [task], scene.rng.randint(0, 4))]
    answer = wording.question(scene, world, slot)
    return Draft([_user(wording.request(scene, world, task, told))], tasks, [], answer)


FAMILIES: dict[str, tuple[Callable[[Scene, World], Draft], int]] = {
    "one": (one, 10),
    "choice": (choice, 22),
    "turns": (turns, 12),
    "none": (none, 8),
    "several": (several, 7),
    "needed": (needed, 12),
    "given": (given, 12),
    "progress": (progress, 8),
    "done": (done, 6),
    "ask": (ask, 3),
}
"""By name: what draws a request of the family, and its weight among all."""


def _user(text: str) -> Turn:
    return Turn("user", text)


def _assistant(text: str) -> Turn:
    return Turn("assistant", text)


def _others(scene: Scene, world: World, style: Style, tasks: Seq[Task], number: int) -> list[Task]:
    """Returns tasks whose tools are listed beside those of `tasks`, mostly near the first."""
    aside = replace(scene, today=None)  # what they are called with is never said
    found: list[Task] = []
    main = next((task for task in tasks if task.key[0] != "fetch"), None)
    for _ in range(number):
        near = main if scene.rng.random() < 0.7 else None
        found.append(draw_task(aside, world, style, avoid=[*tasks, *found], near=near))
    return found


def _talk(scene: Scene, world: World, task: Task) -> tuple[list[Turn], Task]:
    """Returns turns in which a user gives all values of a task, and the task as it was said."""
    rng = scene.rng
    given = task.given
    rng.shuffle(given)
    later = given[: rng.randint(1, max(1, len(given)))] if given else []
    told = [slot for slot in task.given if slot not in later]
    said = [_user(wording.request(scene, world, task, told))]
    while later:
        slot = later.pop()
        if later and rng.random() < 0.3 and not _asked(later[-1]) and not _asked(slot):
            other = later.pop()
            words = f"{slot.word} and the {other.word}"
            said.append(_assistant(rng.choice(world.wording.questions).format(word=words)))
            said.append(_user(wording.facts(scene, world, [slot, other])))
            continue
        said.append(_assistant(wording.question(scene, world, slot)))
        text, value = wording.reply(scene, world, slot)
        said.append(_user(text))
        task = task.with_said(slot.key, value)
    if rng.random() < 0.3:
        said.append(_assistant(rng.choice(world.wording.fillers)))
    return said, task


def _asked(slot: Slot) -> bool:
    return bool(slot.parameter.kind.question)


def _chain(scene: Scene, world: World, num_made: int) -> Draft:
    """Draws a task that needs what another tool gives. num_made: of both calls, up to now."""
    rng = scene.rng
    if rng.random() < 0.12:
        return _dated_chain(scene, world, num_made)
    style = draw_style(scene)
    provider = rng.choice(world.providers)
    first, task = _pair(scene, world, style, provider)
    said: list[Turn] = []
    extra = _others(scene, world, style, [first, task], rng.randint(0, 3))
    if rng.random() < 0.2:  # something else was asked and done before
        before = draw_task(scene, world, style, avoid=[first, task, *extra])
        extra.append(before)
        said.append(_user(wording.request(scene, world, before, before.given)))
        said += _made(scene, world, before)
        said.append(_assistant(rng.choice(world.wording.confirmations).format(entity=before.bare)))
    opening, first = _open(scene, world, provider, first, task)
    said += opening
    tasks = [first, task, *extra]
    if num_made == 0:
        return Draft(said, tasks, [first])
    said += _fetched(scene, first, task)
    if rng.random() < 0.3:
        said.append(_assistant(rng.choice(world.wording.fillers)))
    if num_made == 1:
        return Draft(said, tasks, [task])
    said += _made(scene, world, task)
    said, answer = _close(scene, world, said, task)
    return Draft(said, tasks, [], answer)


def _dated_chain(scene: Scene, world: World, num_made: int) -> Draft:
    """Draws a task with a date relative to today, which only a tool tells; see _chain."""
    rng = scene.rng
    scene.today = None  # nobody tells it
    style = draw_style(scene)
    first = draw_provider(scene, world, style, world.calendar)
    aware = replace(scene, today=any_day(rng))
    while not aware.today_matters:
        task = draw_task(aware, world, style, avoid=[first])
    assert aware.today is not None
    tasks = [first, task, *_others(scene, world, style, [first, task], rng.randint(0, 3))]
    said = [_user(wording.request(scene, world, task, task.given))]
    if rng.random() < 0.4:
        said.append(_assistant(rng.choice(world.calendar.before)))
    if num_made == 0:
        return Draft(said, tasks, [first])
    day = aware.today.isoformat()
    result = rng.choice((day, json.dumps({"date": day}), json.dumps({"today": day})))
    said += [Turn("call", first.name, {}), Turn("result", result)]
    if num_made == 1:
        return Draft(said, tasks, [task])
    said += _made(scene, world, task)
    said, answer = _close(scene, world, said, task)
    return Draft(said, tasks, [], answer)


def _pair(scene: Scene, world: World, style: Style, provider: Provider) -> tuple[Task, Task]:
    """Returns the task of a provider, and one that needs what it gives."""
    value = provider.gives.kind.draw(scene).value
    first = draw_provider(scene, world, style, provider)
    said = Said(value, json.dumps(value).strip('"'))
    return first, _needing(scene, world, style, provider, first, said, [])


def _needing(
    scene: Scene,
    world: World,
    style: Style,
    provider: Provider,
    first: Task,
    said: Said,
    avoid: Seq[Task],
) -> Task:
    """Returns a task that needs what a provider gives, and has no parameter that `first` has."""
    taken = {slot.key for slot in first.slots}
    while True:
        task = draw_task(scene, world, style, avoid=[first, *avoid], fetched=(provider.gives, said))
        if not taken & {slot.key for slot in task.slots}:
            return task


def _open(
    scene: Scene, world: World, provider: Provider, first: Task, task: Task
) -> tuple[list[Turn], Task]:
    """Returns turns up to where a provider can be called, with all values of both tasks."""
    rng = scene.rng
    how = rng.random()
    if how < 0.35:  # the user gives everything at once
        text = wording.request(scene, world, task, task.given)
        said = [_user(f"{text} {wording.facts(scene, world, first.given)}")]
    else:
        said = [_user(wording.request(scene, world, task, task.given))]
        words = " and ".join(slot.word for slot in first.given)
        said.append(_assistant(rng.choice(provider.needs).format(what=words)))
        if len(first.given) == 1 and rng.random() < 0.6:
            text, _ = wording.reply(scene, world, first.given[0])
            said.append(_user(text))
        elif rng.random() < 0.2:  # bare values, in order
            said.append(_user(" ".join(slot.said.text for slot in first.given if slot.said)))
        else:
            said.append(_user(wording.facts(scene, world, first.given)))
    if rng.random() < 0.4:
        said.append(_assistant(rng.choice(provider.before)))
    return said, first


def _fetched(scene: Scene, first: Task, task: Task) -> list[Turn]:
    """Returns the call of a provider, and a result that holds what it gives."""
    rng = scene.rng
    slot = next(slot for slot in task.slots if slot.fetched)
    assert slot.said is not None
    value = slot.said.value
    key = slot.key if rng.random() < 0.6 else rng.choice(("result", "value", "output"))
    forms = (
        json.dumps({key: value}),
        json.dumps({key: value}),
        json.dumps({"status": "ok", "data": {key: value}}),
        json.dumps([{key: value, "active": True}]),
        str({key: value}),
        json.dumps({key: value, "expires_in": rng.choice((600, 3600))}),
        slot.said.text,
    )
    call = Turn("call", first.name, first.arguments)
    return [call, Turn("result", rng.choice(forms))]


def _made(scene: Scene, world: World, task: Task) -> list[Turn]:
    """Returns the call of a task and a result of it."""
    form = scene.rng.choice(world.wording.successes)
    result = form.format(value=world.reference(scene.rng))
    return [Turn("call", task.name, task.arguments), Turn("result", result)]


def _wanted(scene: Scene, world: World, style: Style, number: int, avoid: Seq[Task]) -> list[Task]:
    """Returns tasks of one request: with different tools."""
    found: list[Task] = []
    for _ in range(number):
        found.append(draw_task(scene, world, style, avoid=[*avoid, *found], optional=0.3))
    return found


def _wishes(scene: Scene, world: World, wanted: Seq[Task]) -> str:
    forms = scene.rng.choice(world.wording.orders)
    parts = [
        form.format(one=wording.wish(scene, world, task))
        for form, task in zip(forms, wanted, strict=False)
    ]
    joint = "\n" if forms[0].startswith("1") else " "
    return joint.join(part[0].upper() + part[1:] for part in parts)


def _errand(scene: Scene, world: World, style: Style) -> tuple[list[Task], list[Task], list[Turn]]:
    """Returns tasks that a user wants, those that were done for them, and the turns so far."""
    rng = scene.rng
    if rng.random() < 0.6:
        wanted = _wanted(scene, world, style, rng.randint(2, 3), [])
        return wanted, [], [_user(_wishes(scene, world, wanted))]
    provider = rng.choice([one for one in world.providers if len(one.takes) > 1])
    value = provider.gives.kind.draw(scene)
    first = draw_provider(scene, world, style, provider)
    wanted = []
    for _ in range(2):
        wanted.append(_needing(scene, world, style, provider, first, value, wanted))
    said = [_user(f"{_wishes(scene, world, wanted)} {wording.facts(scene, world, first.given)}")]
    said += _fetched(scene, first, wanted[0])
    return wanted, [first], said


def _close(scene: Scene, world: World, said: list[Turn], task: Task) -> tuple[list[Turn], str]:
    """Returns a dialogue whose work is done with its end, and the answer to that."""
    rng = scene.rng
    confirmation = rng.choice(world.wording.confirmations).format(entity=task.bare)
    if rng.random() < 0.4:
        return said, confirmation
    thanks = _user(rng.choice(world.wording.thanks))
    return [*said, _assistant(confirmation), thanks], rng.choice(world.wording.welcomes)


def told_today(scene: Scene, world: World, day: date, said: Seq[Turn]) -> list[Turn]:
    """Returns turns that tell the date of today, in a system message or by the user."""
    forms = (day.isoformat(), f"{day:%B} {day.day}, {day.year}", f"{day:%A}, {day.isoformat()}")
    sentence = scene.rng.choice(world.wording.today).format(value=scene.rng.choice(forms))
    if said[0].role == "system" or scene.rng.random() < 0.5:
        system = said[0].text if said[0].role == "system" else ""
        rest = said[1:] if system else said
        return [Turn("system", f"{system} {sentence}".strip()), *rest]
    first = said[0].text
    text = f"{first} {sentence}" if first[-1] in ".?!" else f"{sentence} {first}"
    return [_user(text), *said[1:]]
