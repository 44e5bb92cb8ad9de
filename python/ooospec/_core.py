# SPDX-License-Identifier: Apache-2.0
"""The only module that loads the compiled core."""

from __future__ import annotations

try:
    from ooospec import _C
except ImportError as error:
    raise ImportError(
        "ooospec: the compiled core is missing. Install the package (`pip install .` in a "
        f"checkout, or a wheel) rather than running from the source folder. Cause: {error}"
    ) from error

__all__ = ["_C"]
