# SPDX-License-Identifier: Apache-2.0
"""Real requests, and what drafts for them: the answer itself, and hints from reference calls."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ooospec.sources import SourceRequest, SourceState, WeightedPath

FILES = ("eval_apibank", "eval_toolalpaca", "eval_bfcl_javajs")


def folder(variable: str) -> Path:
    """Returns the folder that an environment variable names; skips the test where it does not."""
    path = os.environ.get(variable)
    if not path:
        pytest.skip(f"{variable} is not set")
    return Path(path)


def requests(file: str, num_rows: int | None = None) -> list[dict[str, Any]]:
    """Returns `num_rows` rows of a file, evenly spread; None: all."""
    with gzip.open(folder("OOOSPEC_DATA") / f"{file}.jsonl.gz", "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    count = len(found) if num_rows is None else num_rows
    return [found[i * len(found) // count] for i in range(count)]


class RecordedAnswer:
    """Drafts what Hugging Face answered, and the same shifted by one, which is wrong."""

    answer: ClassVar[list[int]] = []

    def begin(self, request: SourceRequest) -> None:
        self.done = 0

    def propose(self, state: SourceState, budget: int) -> Sequence[WeightedPath]:
        rest = self.answer[self.done :]
        return [WeightedPath(rest, 0.6), WeightedPath(rest[1:], 0.3)]

    def commit(self, tokens: Sequence[int]) -> None:
        self.done += len(tokens)
