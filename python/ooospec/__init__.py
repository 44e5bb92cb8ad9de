# SPDX-License-Identifier: Apache-2.0
"""Tool calls in a few forward passes: out-of-order speculation, exact to the token."""

from ooospec._core import _C
from ooospec.version import VERSION as __version__

HintKind = _C.HintKind
HintRecord = _C.HintRecord
HintRing = _C.HintRing

__all__ = ["HintKind", "HintRecord", "HintRing", "__version__"]
