# SPDX-License-Identifier: Apache-2.0
"""What a parameter's schema makes of the answer to its slot; the work is done in csrc/wave."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ooospec._core import _C

_READ = ("const", "enum", "type")


def value_schema(schema: Mapping[str, Any]) -> _C.ValueSchema:
    """Returns what the core reads of a JSON Schema. Raises ValueError for what is no JSON."""
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema and "const" not in schema:
        return _of_type(kind)
    return _C.ValueSchema(json.dumps({key: schema[key] for key in _READ if key in schema}))


@lru_cache(maxsize=64)
def _of_type(kind: str) -> _C.ValueSchema:
    return _C.ValueSchema(json.dumps({"type": kind}))
