# SPDX-License-Identifier: Apache-2.0
"""Settings of an engine, validated on construction."""

from __future__ import annotations

from dataclasses import dataclass

PAGE_SIZE = 16  # slots of a page of the KV cache; of ops.BLOCK where our kernels read it
LAUNCH_ROWS = 64  # rows of a launch: one bit each in a mask of ancestors
MAX_NODES = LAUNCH_ROWS  # most nodes of a draft tree, its root included


@dataclass(frozen=True)
class EngineConfig:
    """How an engine runs; one configuration for all its requests.

    max_nodes: most nodes of a draft tree, root included; in [1, 64].
    cache_tokens: tokens the KV cache holds over all requests; None: the context of the model, at
    most 32768.
    prefix_cache: reuse the KV of earlier prompts that start alike.
    shadow: rebuild each sequence by prefill after every round and compare (slow; for tests and bug
    reports).

    Raises ValueError for values out of range.
    """

    max_nodes: int = MAX_NODES
    cache_tokens: int | None = None
    prefix_cache: bool = True
    shadow: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.max_nodes, int) or not 1 <= self.max_nodes <= MAX_NODES:
            raise ValueError(f"max_nodes: expected 1 to {MAX_NODES}, got {self.max_nodes!r}")
        tokens = self.cache_tokens
        if tokens is not None and (not isinstance(tokens, int) or tokens < PAGE_SIZE):
            raise ValueError(f"cache_tokens: expected at least {PAGE_SIZE}, got {tokens!r}")
