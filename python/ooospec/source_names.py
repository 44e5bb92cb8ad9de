# SPDX-License-Identifier: Apache-2.0
"""What people call the sources that draft, and what each of them is."""

from __future__ import annotations

MEANINGS = {
    "target": "the target itself",
    "schema": "format and schema",
    "hint": "hint of the sidecar",
    "retrieval": "found in prompt or earlier answers",
    "recycler": "successor seen before",
    "span": "value found in the request",
    "external": "source of your own",
}


def source_name(number: int) -> str:
    """Returns the name of a source by its number; "target" for what nobody drafted."""
    from ooospec._core import _C

    if number == _C.SOURCES["root"]:
        return "target"
    if number >= _C.SOURCES["external"]:
        return "external"
    return next(name for name, value in _C.SOURCES.items() if value == number)
