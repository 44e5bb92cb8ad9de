# SPDX-License-Identifier: Apache-2.0
"""Tasks in sentences: what a user says of one, and how an assistant asks for the rest."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from ooospec.synth.kinds import Said, Scene
from ooospec.synth.tools import Slot, Task
from ooospec.synth.world import World


def request(scene: Scene, world: World, task: Task, slots: Seq[Slot]) -> str:
    """Returns a wish for `task` that gives the values of `slots`, in their order or about it."""
    rng, wording = scene.rng, world.wording
    clauses: list[Slot] = []
    facts: list[Slot] = []
    in_clauses = rng.choice((0.0, 0.8, 0.8, 1.0))
    for slot in slots:
        clause = bool(slot.parameter.clauses) and rng.random() < in_clauses
        (clauses if clause or slot.parameter.kind.question else facts).append(slot)
    what = "".join(f" {_clause(scene, slot)}" for slot in clauses)
    form = scene.worded(rng.choice(wording.requests))
    text = _capital(form.format(do=task.do, thing=task.thing, what=what))
    if len(facts) > 1 and rng.random() < 0.4:
        head, item = (
            scene.worded(rng.choice(one)) for one in (wording.list_heads, wording.list_items)
        )
        return "\n".join(filter(None, (text, head, *(_fill(item, slot) for slot in facts))))
    told = [_fill(scene.worded(rng.choice(wording.facts)), slot) for slot in facts]
    if told and text[-1] not in ".?!:":
        text += "."
    return " ".join((text, *told))


def facts(scene: Scene, world: World, slots: Seq[Slot]) -> str:
    """Returns a sentence or a line that gives the values of `slots`."""
    rng = scene.rng
    if len(slots) > 1 and rng.random() < 0.5:
        first, *others = (f"the {slot.word} is {_text(slot)}" for slot in slots)
        return _capital(" and ".join((first, *others)) + ".")
    return " ".join(_fill(scene.worded(rng.choice(world.wording.facts)), slot) for slot in slots)


def question(scene: Scene, world: World, slot: Slot) -> str:
    """Returns an assistant's question for a value."""
    kind = slot.parameter.kind
    return kind.question or scene.rng.choice(world.wording.questions).format(word=slot.word)


def reply(scene: Scene, world: World, slot: Slot) -> tuple[str, Said]:
    """Returns a user's answer to the question for a value, and the value as it says it."""
    assert slot.said is not None
    if slot.parameter.kind.question:
        text = scene.rng.choice(world.wording.yes if slot.said.value else world.wording.no)
        return text, Said(slot.said.value, text)
    return _fill(scene.worded(scene.rng.choice(world.wording.replies)), slot), slot.said


def wish(scene: Scene, world: World, task: Task) -> str:
    """Returns `task` as a part of a longer sentence, with all its values as clauses or facts."""
    told = [slot for slot in task.given if slot.parameter.clauses]
    rest = [slot for slot in task.given if not slot.parameter.clauses]
    what = "".join(f" {_clause(scene, slot)}" for slot in told)
    extra = "".join(f", {slot.word} {_text(slot)}" for slot in rest)
    return f"{task.do} {task.thing}{what}{extra}."


def _clause(scene: Scene, slot: Slot) -> str:
    return scene.rng.choice(slot.parameter.clauses).format(_text(slot))


def _fill(form: str, slot: Slot) -> str:
    """Returns a sentence with a capital, unless it starts with the value, which is not changed."""
    text = form.format(word=slot.word, value=_text(slot))
    return text if form.startswith("{value}") else _capital(text)


def _text(slot: Slot) -> str:
    assert slot.said is not None
    return slot.said.text


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
