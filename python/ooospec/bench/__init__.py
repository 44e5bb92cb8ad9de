# SPDX-License-Identifier: Apache-2.0
"""Methods side by side on the same requests: what `ooospec bench` and `ooospec estimate` run."""
