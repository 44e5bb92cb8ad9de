# SPDX-License-Identifier: Apache-2.0
"""Tool calls in a few forward passes: out-of-order speculation, exact to the token."""

from ooospec.version import VERSION as __version__

__all__ = ["__version__"]
