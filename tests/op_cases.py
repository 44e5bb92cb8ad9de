# SPDX-License-Identifier: Apache-2.0
"""What the tests of operations share: devices, providers, tolerances, and guarded tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PROVIDERS = ("reference", "triton")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
GUARD = 64


def truncates(provider: str, dtype: torch.dtype) -> bool:
    """Triton's interpreter cuts float32 down to bfloat16 instead of rounding it."""
    return provider == "triton" and DEVICE == "cpu" and dtype == torch.bfloat16


def rounded(numbers: torch.Tensor, dtype: torch.dtype, provider: str) -> torch.Tensor:
    """Returns float32 `numbers` in `dtype`, as `provider` converts them."""
    if truncates(provider, dtype):
        numbers = (numbers.view(torch.int32) & -(1 << 16)).view(torch.float32)
    return numbers.to(dtype)


def close(got: torch.Tensor, expected: torch.Tensor, num_terms: int, provider: str) -> None:
    """Raises AssertionError unless `got` is `expected`, float64, up to one rounding to its dtype
    and the error of float32 sums over `num_terms` at the size of the row.
    """
    assert bool(torch.isfinite(got).all()), "not all of the output was written"
    unit = torch.finfo(got.dtype).eps * (1 if truncates(provider, got.dtype) else 0.5)
    size = expected.abs().amax(dim=-1, keepdim=True)
    allowed = unit * expected.abs() + torch.finfo(torch.float32).eps * (8 + num_terms**0.5) * size
    allowed += torch.finfo(got.dtype).smallest_normal * torch.finfo(got.dtype).eps
    worst = float(((got.double() - expected).abs() / allowed).max())
    assert worst <= 1, f"{worst:.2f} times the error allowed"


class Guarded:
    """Tensors inside larger ones that hold NaN (or -1): what must not be touched, or not read."""

    def __init__(self) -> None:
        self._zones: list[tuple[torch.Tensor, torch.Tensor]] = []

    def put(self, tensor: torch.Tensor, pad: int = 0) -> torch.Tensor:
        """Returns a copy of `tensor` between guards, with `pad` more behind each of its rows."""
        filler = torch.nan if tensor.dtype.is_floating_point else -1
        rows = tensor.shape[0] if tensor.ndim > 1 else 1
        width = tensor.numel() // max(rows, 1) + pad
        flat = torch.full((2 * GUARD + rows * width,), filler, dtype=tensor.dtype, device=DEVICE)
        inner = flat[GUARD : GUARD + rows * width].view(rows, width)[:, : width - pad]
        inner.copy_(tensor.reshape(rows, -1))
        outside = torch.ones_like(flat, dtype=torch.bool)
        outside[GUARD : GUARD + rows * width].view(rows, width)[:, : width - pad] = False
        self._zones.append((flat, outside))
        if tensor.ndim == 1:
            return inner[0]
        return inner if tensor.ndim == 2 else inner.unflatten(1, tensor.shape[1:])

    def empty(self, *shape: int, dtype: torch.dtype, pad: int = 0) -> torch.Tensor:
        """Returns a tensor full of NaN (or -1) between guards."""
        filler = torch.nan if dtype.is_floating_point else -1
        return self.put(torch.full(shape, filler, dtype=dtype), pad)

    def check(self) -> None:
        for flat, outside in self._zones:
            zone = flat[outside]
            untouched = zone.isnan() if zone.dtype.is_floating_point else zone == -1
            assert bool(untouched.all()), "a guard was overwritten"


@contextmanager
def guarded() -> Iterator[Guarded]:
    """Checks the guards of all tensors that were put into it when the block ends."""
    zones = Guarded()
    yield zones
    zones.check()


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two tensors are equal bit for bit, NaN and signs of zero included."""
    kind = {4: torch.int32, 2: torch.int16}[one.element_size()]
    return torch.equal(one.contiguous().view(kind), other.contiguous().view(kind))
