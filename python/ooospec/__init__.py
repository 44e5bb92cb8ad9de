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
    from ooospec._C import DraftTree, HintKind, HintRecord, HintRing
    from ooospec.draft import Drafter
    from ooospec.engine import Engine, Generation
    from ooospec.loading import load
    from ooospec.sampling import SamplingParams

__all__ = [
    "DraftTree",
    "Drafter",
    "Engine",
    "Generation",
    "HintKind",
    "HintRecord",
    "HintRing",
    "SamplingParams",
    "__version__",
    "load",
]

# Public name -> the module of ooospec that has it; names of the compiled core are under "_core".
_HOMES = {
    "Drafter": "draft",
    "Engine": "engine",
    "Generation": "engine",
    "SamplingParams": "sampling",
    "load": "loading",
    "DraftTree": "_core",
    "HintKind": "_core",
    "HintRecord": "_core",
    "HintRing": "_core",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ooospec' has no attribute {name!r}")
    home = import_module(f"ooospec.{_HOMES[name]}")
    return getattr(home._C if _HOMES[name] == "_core" else home, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
