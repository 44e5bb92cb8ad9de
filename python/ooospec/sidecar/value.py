# SPDX-License-Identifier: Apache-2.0
"""What a parameter's schema makes of the answer to its slot; the work is done in csrc/wave."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ooospec._core import _C

_READ = ("const", "enum", "type")


def value_schema(schema: Mapping[str, Any]) -> _C.ValueSchema:
    """Returns what the core reads of a JSON Schema. Raises ValueError for what is no JSON."""
    return _C.ValueSchema(json.dumps({key: schema[key] for key in _READ if key in schema}))
