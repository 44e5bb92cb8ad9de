# SPDX-License-Identifier: Apache-2.0
"""Builds a set, and knows the hashes of what its authors published and of what comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ooospec.errors import InvalidRequest
from ooospec.hashes import text_hash
from ooospec.sets import apibank, bfcl, toolalpaca
from ooospec.sets.upstream import Upstream


@dataclass(frozen=True)
class EvaluationSet:
    """A set: where it comes from, the SHA-256 of those files, and of the lines they give."""

    file: str
    source: str
    rows: Callable[[Upstream], list[dict[str, Any]]]
    files: dict[str, str]
    sha256: str


SETS = {
    "apibank": EvaluationSet(
        "eval_apibank",
        "github.com/hemingkx/ToolSpec at 69335b9faafecca0b544780ca0893f533c5d7f3c",
        apibank.rows,
        {
            "data/API-Bank/level-1-api_processed.json": (
                "a57383e171292413de7d31f3f1837f01f8e7e1ce999e170ac556bb9841036041"
            ),
            "data/API-Bank/level-2-api_processed.json": (
                "1d568d0eed5b5d8ddec4c8a67190382dd72dddd0d3680957b82c7e61c80047bb"
            ),
            "data/API-Bank/level-3-api_processed.json": (
                "cca1e9342cf38a680b3339979a3a9905bee34a4d1fe9890037af944217f3e4ed"
            ),
        },
        "2379952c0fd6216b0fd57da7be8ff0d7b8a1608a0872b464318bedc795a6ee58",
    ),
    "toolalpaca": EvaluationSet(
        "eval_toolalpaca",
        "github.com/tangqiaoyu/ToolAlpaca at 189069998d64a7baf1b4a1c3c4b2e75eb9d05532",
        toolalpaca.rows,
        {
            "data/eval_simulated.json": (
                "17085ffefae0a0e15c1d2d564263063932d692011edf27ce8ae3d3803432ba08"
            ),
            "data/eval_real.json": (
                "86d1392c786060e00dd6feaa963d8a87660e3042380b0abbd8ccad2b931e2778"
            ),
        },
        "11ff53e5fd25dfdb55b677147b8c88f34e11b2c06f5992b0432f3a61e287dc9d",
    ),
    "bfcl": EvaluationSet(
        "eval_bfcl_javajs",
        "bfcl_eval 2026.3.23 of PyPI",
        bfcl.rows,
        {
            "bfcl_eval/data/BFCL_v4_simple_java.json": (
                "13d2303a125b08754f0e41995b9273b5005fa8ed8ebfaa24ef53b4d83c4b5c6e"
            ),
            "bfcl_eval/data/BFCL_v4_simple_javascript.json": (
                "329e67fedf79a6243d93dbda4b388d12bd2d31f1f2163d92cb6ef676d1764f44"
            ),
            "bfcl_eval/data/possible_answer/BFCL_v4_simple_java.json": (
                "78f25616084044fa05bbfcee68e03f6ececb222bdd5cb3b7783a675fb3366e35"
            ),
            "bfcl_eval/data/possible_answer/BFCL_v4_simple_javascript.json": (
                "e2f9f2e51d88e0c8056ffbf1a3dd3d02eb032532d2b5d98c9cc9003385bdd56b"
            ),
        },
        "232816c8f1da552a7fa939cc4fdc4fd50764cae918855e7e7481cdf1310c7275",
    ),
}


@dataclass(frozen=True)
class Built:
    """Lines of a request file. changed: upstream files that are not those we know."""

    lines: str
    num_rows: int
    sha256: str
    changed: list[str]


def build(name: str, path: Path) -> Built:
    """Builds the set `name` from a clone or a package at `path`.

    Raises InvalidRequest for files that are not there or not of the format they had.
    """
    one = SETS[name]
    upstream = Upstream(path, one.files)
    try:
        rows = one.rows(upstream)
    except InvalidRequest:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        named = f"; {', '.join(upstream.changed)} changed" if upstream.changed else ""
        raise InvalidRequest(
            f"{path}: expected files of {one.source}, got others ({error!r}{named})"
        ) from error
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return Built(lines, len(rows), text_hash(lines), upstream.changed)
