# SPDX-License-Identifier: Apache-2.0
"""What a server takes from its clients at most; on unless told otherwise."""

from __future__ import annotations

from dataclasses import dataclass, fields

MAX_STOPS = 16  # stop strings of a request
MAX_STOP_CHARACTERS = 1024  # of each


@dataclass(frozen=True)
class Limits:
    """Bounds of requests; what is beyond one is refused with an error that names it.

    max_body_bytes: of a request. max_depth: of nested lists and objects in it.
    max_messages, max_tools: of a request. max_answer_tokens: most that a request may ask for, and
    gets if it asks for no number.
    max_queue: requests that wait for a place. max_seconds: from arrival to the end of an answer,
    which is then cut. max_running: requests that share the engine, at most 64.

    Raises ValueError for a value out of range.
    """

    max_body_bytes: int = 4 << 20
    max_depth: int = 64
    max_messages: int = 1024
    max_tools: int = 512
    max_answer_tokens: int = 16384
    max_queue: int = 256
    max_seconds: float = 600.0
    max_running: int = 8

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value <= 0:
                raise ValueError(f"{limit.name}: expected a number above 0, got {value}")
        if self.max_running > 64:
            raise ValueError(f"max_running: expected at most 64, got {self.max_running}")
