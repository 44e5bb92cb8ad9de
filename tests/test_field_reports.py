# SPDX-License-Identifier: Apache-2.0
"""The table of docs/field_reports.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent
TABLE = TESTS.parent / "docs" / "field_reports.md"


def test_every_row_names_a_test_that_exists() -> None:
    rows = re.findall(r"^\| ([A-K]\d\d) \| .+ \| (.+) \|$", TABLE.read_text(), re.MULTILINE)
    ids = [row_id for row_id, _ in rows]
    assert len(ids) == len(set(ids)) > 50
    listed = [(row_id, test) for row_id, tests in rows for test in tests.split(", ")]
    for row_id, test in listed:
        file, name = test.strip("`").split("::")
        declaration = rf"TEST\({name}\)" if file.endswith(".cc") else rf"def {name}\("
        assert re.search(declaration, (TESTS / file).read_text()), (row_id, test)
