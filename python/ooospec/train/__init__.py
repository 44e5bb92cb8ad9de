# SPDX-License-Identifier: Apache-2.0
"""From requests and calls to a sidecar's adapter, and how good it is."""
