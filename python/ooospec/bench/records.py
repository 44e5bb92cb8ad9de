# SPDX-License-Identifier: Apache-2.0
"""What one method made of one request, and the file that keeps it, so that a bench can go on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ooospec.errors import InvalidRequest
from ooospec.files import append_whole, make_folder, whole_lines
from ooospec.model_files import first_line


@dataclass(frozen=True)
class Record:
    """One answer. Times are seconds since the request arrived.

    equal: the token ids are those of `ar`. first, last: when the first and the last token were
    there. verify: the target's rounds, summed. rounds: (start, verify start, verify stop, stop,
    rows, committed) each. accepted: draft tokens by name of source. call_tokens, call_rounds: of
    the calls; None where none parses. arguments: (right, in all) of the reference call; None
    without one, as `parses` and `function`. wave: when the sidecar's started and stopped; None
    without one. hints: when each arrived. ages: of those that the report of the wave
    names, how long before their arrival they were written.
    """

    target: str
    file: str
    request: str
    method: str
    token_ids: list[int]
    equal: bool
    prompt_tokens: int
    cached_tokens: int
    prefill: float
    first: float
    last: float
    verify: float
    rounds: list[list[float]]
    accepted: dict[str, int]
    rejected: dict[str, int]
    call_tokens: int | None
    call_rounds: int | None
    parses: bool | None
    function: bool | None
    arguments: list[int] | None
    wave: list[float] | None
    hints: list[float]
    ages: list[float] = field(default_factory=list)

    @property
    def decode(self) -> float:
        """Seconds behind the first token."""
        return self.last - self.first

    @property
    def cell(self) -> tuple[str, str]:
        return self.target, self.file


class RecordFile:
    """Records as lines of JSON behind one that has the settings.

    There is no file before the first record. Raises InvalidRequest, when made, for a file of other
    settings, and where it cannot be written to.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self.records: list[Record] = []
        self._settings = settings
        lines = whole_lines(path)
        self._is_new = not lines
        if not lines:
            return
        try:
            old = dict(json.loads(lines[0])["settings"])
            same = old == json.loads(json.dumps(settings))
            self.records = [Record(**json.loads(line)) for line in lines[1:] if same]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidRequest(
                f"{path}: expected what a bench wrote, got {first_line(error)}; give another --out"
            ) from error
        if not same:
            raise InvalidRequest(
                f"{path}: expected the results of the same command, got those of other settings "
                f"({_difference(old, settings)}); give another --out"
            )

    def add(self, records: Iterable[Record]) -> None:
        """Keeps the records of one request, all of them or none. Raises InvalidRequest."""
        new = list(records)
        lines = [asdict(record) for record in new]
        if self._is_new:
            make_folder(self.path.parent)
            lines.insert(0, {"settings": self._settings})
        append_whole(self.path, "".join(json.dumps(line) + "\n" for line in lines).encode())
        self._is_new = False
        self.records += new

    def done(self, target: str, file: str) -> dict[str, list[Record]]:
        """Returns the records of a cell by request, in the order in which they were made."""
        found: dict[str, list[Record]] = {}
        for record in self.records:
            if record.cell == (target, file):
                found.setdefault(record.request, []).append(record)
        return found


def _difference(old: dict[str, Any], settings: dict[str, Any]) -> str:
    return ", ".join(
        f"{key}: {old.get(key)!r}, not {settings.get(key)!r}"
        for key in sorted({*old, *settings})
        if old.get(key) != settings.get(key)
    )
