# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another thread or process does, with an end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SECONDS = 60.0


def wait_for(condition: Callable[[], Any], seconds: float = SECONDS) -> None:
    """Returns as soon as `condition` holds. Raises AssertionError if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"expected it within {seconds} s"
        time.sleep(0.005)
