# SPDX-License-Identifier: Apache-2.0
"""The one place that holds the version."""

VERSION = "0.1.0"
