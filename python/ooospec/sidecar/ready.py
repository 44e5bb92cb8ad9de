# SPDX-License-Identifier: Apache-2.0
"""A sidecar that is waited for: where hints are to be there before the first round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ooospec._core import _C
from ooospec.sidecar.placement import Sidecar

READY_SECONDS = 120.0


class ReadySidecar:
    """A sidecar whose wave, if it runs at all, has ended before the first round.

    sidecar: closed with this one.
    """

    def __init__(self, sidecar: Sidecar) -> None:
        self.sidecar = sidecar
        self.ring = _C.HintRing()

    @property
    def status(self) -> str:
        """See Sidecar."""
        return self.sidecar.status

    def ask(
        self,
        request_id: int,
        messages: Sequence[Any],
        tools: Sequence[dict[str, Any]],
        tenant: str = "",
    ) -> None:
        """See Sidecar. Blocks; raises TimeoutError for a wave of which nothing is heard."""
        self.sidecar.ask(request_id, messages, tools, tenant)
        if self.sidecar.wait_wave(request_id, READY_SECONDS) is None:
            raise TimeoutError(f"sidecar: expected a wave within {READY_SECONDS} s ({self.status})")
        while (record := self.sidecar.ring.try_pop()) is not None:
            if record.request_id == request_id:
                self.ring.try_push(
                    request_id, record.kind, record.call, record.tool, record.parameter, record.text
                )

    def cancel(self, request_id: int) -> None:
        """See Sidecar."""
        self.sidecar.cancel(request_id)

    def close(self) -> None:
        """See Sidecar."""
        self.sidecar.close()
