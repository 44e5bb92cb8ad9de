# SPDX-License-Identifier: Apache-2.0
"""tool_choice: which tools the model is shown, and what its answer is made to begin with."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ooospec._core import _C
from ooospec.formats import Tool
from ooospec.serve.request import ChatRequest

MARKERS = ("<tool_call>", "</tool_call>", "<|python_tag|>")


@dataclass(frozen=True)
class Choice:
    """What follows from tool_choice and parallel_tool_calls.

    tools: that the model is shown. name: the function it has to call. forced: it has to call one.
    max_calls: behind so many the answer is cut; None: any number. hides_markers: those of calls,
    should it write some all the same.
    """

    tools: list[Tool] | None
    name: str | None = None
    forced: bool = False
    max_calls: int | None = None
    hides_markers: bool = False

    @classmethod
    def of(cls, asked: ChatRequest) -> Choice:
        """Returns what a request chooses: with "none" the model is shown no tools at all."""
        if asked.tool_choice == "none" or not asked.tools:
            return cls(None, hides_markers=bool(asked.tools))
        name = asked.names_tool
        one = name is not None or asked.parallel_tool_calls is False
        return cls(
            asked.tools,
            name,
            name is not None or asked.tool_choice == "required",
            1 if one else None,
        )

    def opening(self, style: _C.CallStyle, thinking: bool) -> str:
        """Returns the text that the answer is made to begin with: a call up to what is open.

        style: of the target's calls. thinking: the prompt ends inside <think>, which is closed.
        """
        if not self.forced:
            return ""
        text = _C.render_calls([(self.name or "", "{}")], style)
        colons = _colons(text)
        end = colons[-2 if self.name is None else -1]
        return ("\n</think>\n\n" if thinking else "") + text[:end]


def _colons(text: str) -> list[int]:
    """Returns where the values of a rendered call's members may begin: right behind the colons."""
    reader = _C.CallReader(_C.ToolSet("[]"))
    found = []
    for i, character in enumerate(text):
        reader.feed(character.encode())
        if reader.spot == "value" and character == ":":
            found.append(i + 1)
    return found


class WithoutMarkers:
    """Takes the markers of calls out of a text as it comes, however it is cut."""

    _whole = re.compile("|".join(map(re.escape, MARKERS)))
    _begun = re.compile(
        "(?:"
        + "|".join(re.escape(m[:n]) for m in MARKERS for n in range(len(m) - 1, 0, -1))
        + r")\Z"
    )

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Returns what of the text so far is certain and was not returned before."""
        *parts, rest = self._whole.split(self._held + text)
        begun = self._begun.search(rest, max(0, len(rest) - max(map(len, MARKERS))))
        start = len(rest) if begun is None else begun.start()
        self._held = rest[start:]
        return "".join(parts) + rest[:start]

    def finish(self) -> str:
        """Returns what was held back."""
        held, self._held = self._held, ""
        return held
