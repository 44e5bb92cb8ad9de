# SPDX-License-Identifier: Apache-2.0
"""Results by request that a bench keeps in a folder, so that it goes on where it was ended."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ooospec.files import append_whole, make_folder


class Kept:
    """Results in a folder, in a file a process: runs side by side share it, later ones go on.

    settings: what the results depend on, written beside each of them. make: the dataclass of a
    result, which has the `id` of its request. results: by id.
    Raises SystemExit for a folder with results of other settings.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], make: Callable[..., Any]) -> None:
        self.results: dict[str, Any] = {}
        self._path = folder / f"{os.getpid()}.jsonl"
        self._settings = json.loads(json.dumps(settings))
        make_folder(folder)
        for path in sorted(folder.glob("*.jsonl")):
            for line in path.read_text().split("\n")[:-1]:  # the last one may be half written
                row = json.loads(line)
                if row.get("settings") != self._settings:
                    raise SystemExit(
                        f"--work: expected a folder with results of {self._settings}, got those of "
                        f"{row.get('settings')} in {path}"
                    )
                one = make(**row["result"])
                self.results[one.id] = one

    def add(self, one: Any) -> None:
        """Keeps the result of one more request."""
        self.results[one.id] = one
        line = json.dumps({"settings": self._settings, "result": asdict(one)})
        append_whole(self._path, f"{line}\n".encode())
