# SPDX-License-Identifier: Apache-2.0
"""What the target's own branches say in a replay: the values of the calls that they leave."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from collections.abc import Sequence as Seq

from ooospec._core import _C
from ooospec.bench.estimate import RecordedAnswer
from ooospec.formats import tool_set
from ooospec.tokens import TokenTable

_DECODER = json.JSONDecoder(strict=False)
_GAP = re.compile(r"[\s,]*")


class BranchValues:
    """The arguments of an answer's calls as they are written there, for branches of that answer."""

    def __init__(self, table: TokenTable, answer: RecordedAnswer) -> None:
        """table: of the target's tokens."""
        self._table = table
        self._tokens = answer.token_ids
        calls = _C.parse_calls(table.decode_bytes(answer.token_ids), tool_set(answer.tools))
        self._calls = [(call.begin, call.end, dict(_members(call.arguments))) for call in calls]

    def tokens(self, num_before: int, fed: Seq[int]) -> list[int]:
        """Returns what a branch says behind `fed`, its value's most tokens at most.

        num_before: tokens of the answer that come before `fed`, which ends a call's head and has
        the key. A branch says null where the call has no such argument, or begins it by other
        tokens.
        """
        place = len(self._table.decode_bytes(self._tokens[:num_before]))
        begun = self._table.decode_bytes([*fed]).decode(errors="replace")
        opening, colon = begun.index("{") + 1, begun.rindex(":") + 1
        key = json.loads(begun[opening : colon - 1], strict=False)
        found = (values for begin, end, values in self._calls if begin <= place < end)
        value = next(found, {}).get(key)
        told = [] if value is None else self._table.encode(f'{begun[:colon]}{value}, "')
        is_begun = told[: len(fed)] == [*fed]
        said = told[len(fed) :] if is_begun else self._table.encode(' null, "')
        return said[: _C.SlotBranch.MAX_TOKENS]


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Yields each key of a JSON object, with what is written from its colon to its value's end."""
    place = _skip(text, text.index("{") + 1)
    while text[place] != "}":
        key, place = _DECODER.raw_decode(text, place)
        colon = text.index(":", place) + 1
        _, place = _DECODER.raw_decode(text, _skip(text, colon))
        yield key, text[colon:place]
        place = _skip(text, place)


def _skip(text: str, place: int) -> int:
    gap = _GAP.match(text, place)
    return place if gap is None else gap.end()
