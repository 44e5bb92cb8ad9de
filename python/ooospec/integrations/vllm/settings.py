# SPDX-License-Identifier: Apache-2.0
"""What may stand under "ooospec" in vLLM's --additional-config."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ooospec.methods import METHODS


@dataclass(frozen=True)
class Settings:
    """sidecar: address of one that listens; None: no hints. method: which sources draft.

    pay: whether drafts are cut where, by the measured times of steps, they do not pay.
    Raises ValueError for values out of range.
    """

    sidecar: str | None = None
    method: str = "ooo"
    pay: bool = True

    def __post_init__(self) -> None:
        if self.method not in METHODS or METHODS[self.method].draft:
            known = ", ".join(name for name, one in METHODS.items() if not one.draft)
            raise ValueError(f"ooospec.method: expected one of {known}, got {self.method!r}")
        if self.sidecar is not None and not isinstance(self.sidecar, str):
            raise ValueError(f"ooospec.sidecar: expected an address, got {self.sidecar!r}")

    @classmethod
    def of(cls, vllm_config: Any) -> Settings:
        """Returns those of a VllmConfig. Raises ValueError for one that is not known."""
        extra = getattr(vllm_config, "additional_config", None)
        given = extra.get("ooospec", {}) if isinstance(extra, dict) else {}
        known = {field.name for field in fields(cls)}
        odd = sorted(set(given) - known)
        if odd:
            raise ValueError(f"ooospec: expected {', '.join(sorted(known))}, got {', '.join(odd)}")
        return cls(**given)
