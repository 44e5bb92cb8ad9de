# SPDX-License-Identifier: Apache-2.0
"""Tool calls in a few forward passes: out-of-order speculation, exact to the token.

A name loads what it needs when it is first used: `import ooospec` itself needs neither torch nor a
GPU, nor the compiled core.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ooospec.version import VERSION as __version__

if TYPE_CHECKING:
    from ooospec._C import (
        AnswerReader,
        CallReader,
        CallStyle,
        DraftTree,
        HintKind,
        HintRecord,
        HintRing,
        StyleGuess,
        SuffixIndex,
        ToolSet,
        Vocab,
        parse_calls,
        render_calls,
        usual_styles,
    )
    from ooospec.draft import Drafter
    from ooospec.engine import Delta, Engine, Generation
    from ooospec.loading import load
    from ooospec.sampling import SamplingParams

__all__ = [
    "AnswerReader",
    "CallReader",
    "CallStyle",
    "Delta",
    "DraftTree",
    "Drafter",
    "Engine",
    "Generation",
    "HintKind",
    "HintRecord",
    "HintRing",
    "SamplingParams",
    "StyleGuess",
    "SuffixIndex",
    "ToolSet",
    "Vocab",
    "__version__",
    "load",
    "parse_calls",
    "render_calls",
    "usual_styles",
]

# Public name -> the module of ooospec that has it; all others are of the compiled core.
_HOMES = {
    "Delta": "engine",
    "Drafter": "draft",
    "Engine": "engine",
    "Generation": "engine",
    "SamplingParams": "sampling",
    "load": "loading",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ooospec' has no attribute {name!r}")
    if name in _HOMES:
        return getattr(import_module(f"ooospec.{_HOMES[name]}"), name)
    return getattr(import_module("ooospec._core")._C, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
