# SPDX-License-Identifier: Apache-2.0
"""Waves that are replayed: what a sidecar once said, said again by the steps that it takes.

The whole wave runs, on any weights; only what it chose is replaced, step by step, by the tokens of
the record. So each hint goes out when the steps of its own slot have ended, and no earlier.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

from ooospec.formats import function_of, parameters
from ooospec.sidecar.prompt import PromptBuilder, WavePrompt


def ask_key(messages: Seq[Mapping[str, Any]], tools: Seq[Mapping[str, Any]]) -> str:
    """Returns what a request is known by where its call is recorded; see SidecarConfig.recorded."""
    asked = json.dumps([list(messages), list(tools)], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()


def with_record(
    prompt: WavePrompt,
    builder: PromptBuilder,
    call: Mapping[str, Any] | None,
    tools: Seq[Mapping[str, Any]],
) -> WavePrompt:
    """Returns `prompt` with what its wave is to say: the function and the arguments of `call`.

    call: `{"name", "arguments": object}`; None, or of a function that is not asked about: no call.
    Parameters that it leaves out are answered by null. builder: of the prompt. tools: OpenAI JSON.
    """
    names = [function_of(tool)["name"] for tool in tools]
    chosen = names.index(call["name"]) if call is not None and call["name"] in names else None
    if call is None or chosen not in prompt.options:
        return replace(prompt, recorded=(None,))
    given = call["arguments"]
    properties = list(parameters(tools[chosen or 0]))
    slots = tuple(
        replace(slot, recorded=builder.value_answer(given.get(properties[slot.parameter])))
        if slot.tool == chosen
        else slot
        for slot in prompt.slots
    )
    return replace(prompt, slots=slots, recorded=(chosen,))
