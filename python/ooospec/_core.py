# SPDX-License-Identifier: Apache-2.0
"""The only module that loads the compiled core, and the part of it that needs CUDA."""

from __future__ import annotations

from functools import cache
from types import ModuleType

try:
    from ooospec import _C
except ImportError as error:
    raise ImportError(
        "ooospec: the compiled core is missing. Install the package (`pip install .` in a "
        f"checkout, or a wheel) rather than running from the source folder. Cause: {error}"
    ) from error

__all__ = ["_C", "cuda_core", "has_cuda_core"]


def cuda_core() -> ModuleType:
    """Returns `ooospec._C_cuda`. Raises ImportError where the package was built without nvcc."""
    try:
        from ooospec import _C_cuda
    except ImportError as error:
        raise ImportError(
            "ooospec: the CUDA core is missing: the package was built without nvcc. Install CUDA's "
            f"compiler and install ooospec anew (`pip install .`). Cause: {error}"
        ) from error
    return _C_cuda


@cache
def has_cuda_core() -> bool:
    """Returns whether the package was built with nvcc."""
    try:
        cuda_core()
    except ImportError:
        return False
    return True
