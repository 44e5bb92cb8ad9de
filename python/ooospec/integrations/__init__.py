# SPDX-License-Identifier: Apache-2.0
"""ooospec inside other people's stacks: transformers, vLLM."""
