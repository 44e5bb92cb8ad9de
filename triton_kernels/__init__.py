# SPDX-License-Identifier: Apache-2.0
"""Triton kernels, one op a file; import them as `ooospec.triton_kernels`."""
