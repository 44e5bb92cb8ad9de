# SPDX-License-Identifier: Apache-2.0
"""Tasks: a tool with its schema, and the values with which it is to be called."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any, Literal

from ooospec.synth.kinds import Said, Scene
from ooospec.synth.world import Entity, Parameter, Provider, Verb, World

Case = Literal["snake", "camel", "pascal"]


_INVENTED, _QUALIFIED = 0.06, 0.22  # shares of words
_STRANGE_SAID = 0.7  # of the strange verbs, those by which the tool is asked for too


@dataclass(frozen=True)
class Style:
    """How the schemas of a request are written. described: share of texts that are there."""

    tools: Case
    parameters: Case
    described: float


@dataclass(frozen=True)
class Slot:
    """A parameter of a tool. key: its name there; word: what people call it.

    said: its value, None where it is not given. fetched: it comes from another tool's result.
    """

    key: str
    word: str
    parameter: Parameter
    required: bool
    said: Said | None
    fetched: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        return dict(self.parameter.kind.schema)


@dataclass(frozen=True)
class Task:
    """A call that somebody wants. key: what it does to what; entity: None where it fetches a value
    for another; do, thing: how people say it.
    """

    key: tuple[str, str]
    entity: Entity | None
    do: str
    thing: str
    tool: dict[str, Any]
    slots: Seq[Slot]

    @property
    def name(self) -> str:
        return str(self.tool["function"]["name"])

    @property
    def bare(self) -> str:
        """What it is about, without an article."""
        return self.thing.split(" ", 1)[1]

    @property
    def given(self) -> list[Slot]:
        """What the user has to say."""
        return [slot for slot in self.slots if slot.said is not None and not slot.fetched]

    @property
    def arguments(self) -> dict[str, Any]:
        return {slot.key: slot.said.value for slot in self.slots if slot.said is not None}

    @property
    def said(self) -> dict[str, str]:
        """How the dialogue says each argument."""
        return {slot.key: slot.said.text for slot in self.slots if slot.said is not None}

    def with_said(self, key: str, said: Said) -> Task:
        """Returns the task with another value, or another text for it."""
        slots = [replace(slot, said=said) if slot.key == key else slot for slot in self.slots]
        return replace(self, slots=slots)


def draw_style(scene: Scene) -> Style:
    """Returns a style."""
    tools: Case = scene.rng.choice(("snake", "snake", "camel", "pascal"))
    parameters: Case = (
        "camel" if tools == "camel" else scene.rng.choice(("snake", "snake", "camel"))
    )
    return Style(tools, parameters, scene.rng.choice((1.0, 0.9, 0.5)))


def draw_task(
    scene: Scene,
    world: World,
    style: Style,
    *,
    avoid: Seq[Task] = (),
    near: Task | None = None,
    fetched: tuple[Parameter, Said] | None = None,
    optional: float = 0.5,
) -> Task:
    """Returns a task that none of `avoid` is, by name or by what it does.

    near: act on the same thing, or on one of the same domain. fetched: a parameter more, required,
    whose value another tool gives. optional: share of the optional parameters that are given.
    """
    rng = scene.rng
    taken = {task.key for task in avoid} | {("", task.name) for task in avoid}
    while True:
        entity = _draw_entity(scene, world, near)
        near = near if rng.random() < 0.8 else None  # there may be no more of them
        verb_key = rng.choice(entity.verbs)
        verb = world.verbs[verb_key]
        does = verb.manner if verb.manner == "find" else verb_key  # ways to find are all one
        strange = scene.strange_words(1)
        verb_name = strange or rng.choice(verb.names).replace("_", " ")
        name = cased(f"{verb_name} {entity.bare.replace('-', ' ')}", style.tools)
        if (does, entity.bare) in taken or ("", name) in taken:
            continue
        slots = _draw_slots(scene, world, style, verb, entity, fetched, optional)
        tool = _tool(scene, world, style, name, verb, entity, slots)
        owner = "my" if rng.random() < 0.5 else "the"
        thing = entity.noun if verb.manner in ("make", "find") else f"{owner} {entity.bare}"
        do = strange if strange and rng.random() < _STRANGE_SAID else rng.choice(verb.said)
        return Task((does, entity.bare), entity, do, thing, tool, slots)


def draw_provider(scene: Scene, world: World, style: Style, provider: Provider) -> Task:
    """Returns the task of fetching what `provider` gives."""
    rng = scene.rng
    slots = []
    for key in provider.takes:
        parameter = world.parameters[key]
        word = rng.choice(parameter.words)
        said = parameter.kind.draw(scene)
        slots.append(Slot(cased(word, style.parameters), word, parameter, True, said))
    word = rng.choice(provider.gives.words)
    name = cased(rng.choice(provider.names).replace("_", " "), style.tools)
    text = rng.choice(provider.describes).format(word=f"the {word}")
    tool = _as_tool(scene, world, style, name, text, "user", slots)
    return Task(("fetch", name), None, "get", f"the {word}", tool, slots)


def _draw_entity(scene: Scene, world: World, near: Task | None) -> Entity:
    """Returns an entity, sometimes with an adjective or a made-up name; near: its own, or another
    one of its domain.
    """
    rng = scene.rng
    entities = world.entities
    if near is not None and near.entity is not None:
        if rng.random() < 0.5:
            return near.entity
        entities = [one for one in entities if one.domain == near.entity.domain]
    entity = rng.choice(entities)
    draw = rng.random()
    strange = scene.strange_words(2)
    if strange is not None:
        return entity.called(strange)
    if world.invented is not None and draw < _INVENTED:
        return entity.called(world.invented(rng))
    if draw < _INVENTED + _QUALIFIED:
        return entity.called(f"{rng.choice(world.adjectives)} {entity.bare}")
    return entity


def _named(scene: Scene, world: World, parameter: Parameter) -> Parameter:
    """Returns a parameter, sometimes with a modifier or a made-up name."""
    draw = scene.rng.random()
    strange = None if parameter.kind.question else scene.strange_words(2)
    if strange is not None:
        return replace(parameter, words=(strange,), clauses=())
    if world.invented is not None and draw < _INVENTED and not parameter.kind.question:
        return replace(parameter, words=(world.invented(scene.rng),), clauses=())
    if draw < _INVENTED + _QUALIFIED:
        modifier = scene.rng.choice(world.modifiers)
        return replace(parameter, words=[f"{modifier} {word}" for word in parameter.words])
    return parameter


def cased(words: str, case: Case) -> str:
    """Returns a name made of words."""
    if case == "snake":
        return words.lower().replace(" ", "_")
    first, *others = words.split(" ")
    first = first.capitalize() if case == "pascal" else first.lower()
    return first + "".join(word.capitalize() for word in others)


def third_person(do: str) -> str:
    """Returns a verb as in "Books": what a tool does."""
    verb, *others = do.removesuffix(" me").split(" ")
    ending = "es" if verb.endswith(("ch", "sh", "s", "x")) else "s"
    return " ".join((f"{verb}{ending}", *others))


def _draw_slots(
    scene: Scene,
    world: World,
    style: Style,
    verb: Verb,
    entity: Entity,
    fetched: tuple[Parameter, Said] | None,
    optional: float,
) -> tuple[Slot, ...]:
    rng = scene.rng
    least, most = {"make": (1, 5), "find": (1, 4), "change": (1, 3), "end": (0, 1)}[verb.manner]
    keys = rng.sample(entity.parameters, min(len(entity.parameters), rng.randint(least, most)))
    keys.sort(key=list(entity.parameters).index)
    parameters = [_named(scene, world, world.parameters[key]) for key in keys]
    num_first = 0
    if verb.manner in ("change", "end"):
        parameters.insert(0, _identifier(scene, world, entity))
        num_first = 1
    num_required = max(1, num_first, round(len(parameters) * rng.choice((0.4, 0.7, 1.0))))
    slots: list[Slot] = []
    for i, parameter in enumerate(parameters):
        word = parameter.words[0] if rng.random() < 0.5 else rng.choice(parameter.words)
        spoken = word if rng.random() < 0.75 else rng.choice(parameter.words)
        required = i < num_required
        said = parameter.kind.draw(scene) if required or rng.random() < optional else None
        slots.append(Slot(cased(word, style.parameters), spoken, parameter, required, said))
    if fetched is not None:
        parameter, said = fetched
        word = rng.choice(parameter.words)
        slot = Slot(cased(word, style.parameters), word, parameter, True, said, fetched=True)
        slots.insert(rng.choice((0, len(slots))), slot)
    unique = {slot.key: slot for slot in slots}
    return tuple(unique.values())


def _identifier(scene: Scene, world: World, entity: Entity) -> Parameter:
    kind = scene.rng.choice(list(world.keys))
    noun = entity.bare.replace("-", " ")
    words = (f"{noun} {kind}", f"{noun.rsplit(' ', 1)[-1]} {kind}")
    return Parameter(words, world.keys[kind], (f"with {kind} {{}}", f"({kind} {{}})", "{}"))


def _tool(
    scene: Scene,
    world: World,
    style: Style,
    name: str,
    verb: Verb,
    entity: Entity,
    slots: Seq[Slot],
) -> dict[str, Any]:
    do = verb.said[0].removesuffix(" me")
    text = scene.rng.choice(world.wording.tool_texts).format(
        does=third_person(do), do=do, thing=entity.noun
    )
    return _as_tool(scene, world, style, name, text, entity.bare, slots)


def _as_tool(
    scene: Scene,
    world: World,
    style: Style,
    name: str,
    text: str,
    bare: str,
    slots: Seq[Slot],
) -> dict[str, Any]:
    properties = {}
    for slot in slots:
        form = scene.rng.choice(world.wording.parameter_texts)
        described = form.format(word=slot.word, entity=bare)
        hint = slot.parameter.kind.hint
        if hint:
            described = f"{described.removesuffix('.')} ({hint})".strip()
        schema = slot.schema
        if described and (hint or scene.rng.random() < style.described):
            schema["description"] = described[0].upper() + described[1:]
        properties[slot.key] = schema
    function: dict[str, Any] = {"name": name}
    if text and scene.rng.random() < style.described:
        function["description"] = text[0].upper() + text[1:]
    function["parameters"] = {
        "type": "object",
        "properties": properties,
        "required": [slot.key for slot in slots if slot.required],
    }
    return {"type": "function", "function": function}
