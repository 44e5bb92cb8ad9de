# SPDX-License-Identifier: Apache-2.0
"""A dialogue as turns, and as messages: real ones, or one text that holds them all."""

from __future__ import annotations

import json
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Literal

from ooospec.synth.kinds import Scene
from ooospec.synth.world import Markup, World

_TURNS = ("{0}: {{}}", "{0}> {{}}", "[{0}] {{}}", "({0}) {{}}", "<{0}>{{}}</{0}>", "## {0}\n{{}}")
_CALLS = (
    '{0}: {{{{"name": "{{name}}", "arguments": {{arguments}}}}}}',
    "{0} {{name}}({{arguments}})",
)


@dataclass(frozen=True)
class Turn:
    """role: who speaks, or a call or its result. text: said, or the name of the called tool."""

    role: Literal["system", "user", "assistant", "call", "result"]
    text: str
    arguments: dict[str, Any] | None = None


def as_messages(turns: Seq[Turn]) -> list[dict[str, Any]]:
    """Returns turns as OpenAI messages."""
    messages: list[dict[str, Any]] = []
    num_calls = 0
    for turn in turns:
        if turn.role == "call":
            arguments = json.dumps(turn.arguments, ensure_ascii=False)
            function = {"name": turn.text, "arguments": arguments}
            call = {"id": f"call_{num_calls}", "type": "function", "function": function}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            num_calls += 1
        elif turn.role == "result":
            answered = f"call_{num_calls - 1}"
            messages.append({"role": "tool", "tool_call_id": answered, "content": turn.text})
        elif messages and messages[-1]["role"] == turn.role:
            messages[-1]["content"] += f"\n\n{turn.text}"
        else:
            messages.append({"role": turn.role, "content": turn.text})
    return messages


def as_one_text(scene: Scene, world: World, turns: Seq[Turn], *, ask: bool) -> list[dict[str, Any]]:
    """Returns turns as one message of the user in some markup; a system message stays apart.

    ask: end, mostly, with a sentence that asks for the next call.
    """
    markup: Markup = scene.rng.choice(world.markups)
    if scene.is_wild():
        markup = _strange_markup(scene, markup)
    parts = [scene.worded(scene.rng.choice(markup.head))]
    systems = []
    for turn in turns:
        if turn.role == "system":
            systems.append({"role": "system", "content": turn.text})
        elif turn.role == "call":
            arguments = json.dumps(turn.arguments, ensure_ascii=False)
            parts.append(markup.call.format(name=turn.text, arguments=arguments))
        else:
            form = {"user": markup.user, "assistant": markup.assistant, "result": markup.result}
            parts.append(form[turn.role].format(turn.text))
    if ask and scene.rng.random() < 0.85:
        end = scene.worded(scene.rng.choice(world.wording.ends))
        parts.append(markup.user.format(end) if scene.rng.random() < 0.4 else f"\n{end}")
    text = markup.gap.join(part for part in parts if part)
    return [*systems, {"role": "user", "content": text}]


def _strange_markup(scene: Scene, markup: Markup) -> Markup:
    """Returns a markup in which strange words tell who speaks."""
    rng = scene.rng
    case = rng.choice((str, str.upper, str.capitalize))
    turn = rng.choice(_TURNS)
    user, assistant, call, result = (case(scene.strange_word()) for _ in range(4))
    return Markup(
        markup.head,
        turn.format(user),
        turn.format(assistant),
        rng.choice(_CALLS).format(call),
        turn.format(result),
        rng.choice(("\n", "\n\n")),
    )
