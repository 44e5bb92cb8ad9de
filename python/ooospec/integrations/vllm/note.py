# SPDX-License-Identifier: Apache-2.0
"""What is known of a request in the worker: a note that came along, or what its prompt shows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

from ooospec.formats import tool_set

KEY = "ooospec"  # of the note in vllm_xargs, and of the settings in additional_config
_TOOL = re.compile(r'\{\s{0,64}"type"\s{0,8}:\s{0,8}"function"')
MAX_TOOLS_IN_PROMPT = 512
MAX_BROKEN_TOOLS = 8  # that begin like one; each costs the time of the text behind it


@dataclass(frozen=True)
class Note:
    """Whose hints a request gets, its tools, and what was said: where values may stand.

    session, request: under which the sidecar was asked; 0: it was not. tenant: whose drafts it may
    learn from.
    """

    session: int = 0
    request: int = 0
    tools: Seq[dict[str, Any]] = field(default_factory=tuple)
    said: str = ""
    tenant: str = ""

    def pack(self) -> str:
        """Returns the text that read() reads."""
        return json.dumps({**vars(self), "tools": list(self.tools)}, ensure_ascii=False)

    @classmethod
    def read(cls, extra_args: Mapping[str, Any] | None) -> Note | None:
        """Returns the note in a request's extra arguments; None for none that is right."""
        text = (extra_args or {}).get(KEY)
        if not isinstance(text, str):
            return None
        try:
            note = cls(**json.loads(text))
            right = isinstance(note.session, int) and isinstance(note.request, int)
            right &= isinstance(note.said, str) and isinstance(note.tenant, str)
            tool_set(note.tools)
        except (TypeError, ValueError, RecursionError):
            return None
        return note if right else None

    @classmethod
    def of_prompt(cls, text: str) -> Note:
        """Returns what a rendered prompt shows: tools as JSON, as templates list them, and behind
        them what was said.
        """
        tools, end = tools_in(text)
        return cls(tools=tools, said=text[end:])


def tools_in(text: str) -> tuple[list[dict[str, Any]], int]:
    """Returns the tools that stand in a prompt as JSON objects with "type": "function", and where
    the last of them ends. Names that come again are not taken twice.
    """
    decoder = json.JSONDecoder()
    found: dict[str, dict[str, Any]] = {}
    end = num_broken = 0
    for begin in _TOOL.finditer(text):
        if begin.start() < end:
            continue  # inside the one before
        if len(found) == MAX_TOOLS_IN_PROMPT or num_broken == MAX_BROKEN_TOOLS:
            break
        try:
            tool, stop = decoder.raw_decode(text, begin.start())
            tool_set([tool])
            found.setdefault(tool["function"]["name"], tool)
            end = stop
        except (ValueError, KeyError, TypeError, RecursionError):
            num_broken += 1
    return list(found.values()), end
