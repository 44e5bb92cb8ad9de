# SPDX-License-Identifier: Apache-2.0
"""Which provider an operation goes to, and what it demands of tensors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

Provider = Literal["triton", "reference"]

_forced: Provider | None = None


@contextmanager
def using(provider: Provider) -> Iterator[None]:
    """Sends every operation inside the `with` block to one provider, whatever the tensors."""
    global _forced
    before, _forced = _forced, provider
    try:
        yield
    finally:
        _forced = before


def is_reference_forced() -> bool:
    """Returns whether `using("reference")` holds."""
    return _forced == "reference"


def has_kernel(tensor: torch.Tensor) -> bool:
    """Returns whether `tensor` goes to a Triton kernel."""
    if _forced is not None:
        return _forced == "triton"
    return tensor.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"


def require(name: str, tensor: torch.Tensor, dtype: torch.dtype, *shape: int) -> None:
    """Raises ValueError unless `tensor` is of this dtype and shape and dense in its last axis."""
    valid = tensor.dtype == dtype and tuple(tensor.shape) == shape
    if not valid or (tensor.shape[-1] > 1 and tensor.stride(-1) != 1):
        raise ValueError(
            f"{name}: expected {dtype}{list(shape)} with last stride 1, got {tensor.dtype}"
            f"{list(tensor.shape)} with strides {tensor.stride()}"
        )
