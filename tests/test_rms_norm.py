# SPDX-License-Identifier: Apache-2.0
"""RMS norm of rows against numbers worked out one by one, and a row against itself."""

from __future__ import annotations

import math

import pytest
import torch

from ooospec import ops
from ooospec.reference import rms_norm_ref
from op_cases import DEVICE, DTYPES, PROVIDERS, close, guarded, rounded, same_bits

pytestmark = pytest.mark.parametrize("provider", PROVIDERS)
EPS = 1e-6


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("num_rows", "dim"), [(1, 1), (3, 63), (2, 64), (2, 65), (64, 128), (5, 4096), (2, 5120)]
)
@pytest.mark.parametrize("with_residual", [False, True])
def test_rows_are_normed(
    provider: ops.Provider, dtype: torch.dtype, num_rows: int, dim: int, with_residual: bool
) -> None:
    torch.manual_seed(dim)
    offset = 1.0 if num_rows == 2 else 0.0
    start, residual = 3 * torch.randn(2, num_rows, dim).to(dtype)
    gain = torch.randn(dim).to(dtype)
    summed = rounded(residual.float() + start.float(), dtype, provider) if with_residual else start
    with guarded() as put, ops.using(provider):
        x, weight = put.put(start, pad=5), put.put(gain)
        out = put.empty(num_rows, dim, dtype=dtype, pad=3)
        carried = put.put(residual, pad=1) if with_residual else None
        ops.rms_norm(x, weight, EPS, out, carried, offset)
    close(out.cpu(), rms_norm_ref(summed, gain, EPS, offset), dim, provider)
    assert same_bits(x.cpu(), start)
    if carried is not None:
        assert same_bits(carried.cpu(), summed)


def test_one_row_by_hand(provider: ops.Provider) -> None:
    x = torch.tensor([[3.0, -4.0, 0.0]], device=DEVICE)
    weight = torch.tensor([1.0, 2.0, 5.0], device=DEVICE)
    with ops.using(provider):
        ops.rms_norm(x, weight, 0.5, x, offset=1.0)  # in place
    root = math.sqrt(25 / 3 + 0.5)
    torch.testing.assert_close(x.cpu(), torch.tensor([[2 * 3 / root, 3 * -4 / root, 0.0]]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_does_not_depend_on_others(provider: ops.Provider, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    dim = 1000
    row = torch.randn(dim).to(dtype).to(DEVICE)
    weight = torch.randn(dim).to(dtype).to(DEVICE)
    results = []
    for num_rows, place in ((1, 0), (7, 3), (64, 63)):
        x = torch.full((num_rows, dim), torch.nan, dtype=dtype, device=DEVICE)
        x[place] = row
        out = torch.empty_like(x)
        with ops.using(provider):
            ops.rms_norm(x, weight, EPS, out)
        results.append(out[place])
    assert all(same_bits(result, results[0]) for result in results)


def test_wrong_tensors_are_named(provider: ops.Provider) -> None:
    x, weight, out = torch.zeros(2, 8), torch.zeros(8), torch.zeros(2, 8)
    with ops.using(provider):
        with pytest.raises(ValueError, match=r"weight: expected .*8.* got .*7"):
            ops.rms_norm(x, weight[:7], EPS, out)
        with pytest.raises(ValueError, match=r"out: expected torch.float32"):
            ops.rms_norm(x, weight, EPS, out.half())
        with pytest.raises(ValueError, match=r"x: expected .* last stride 1"):
            ops.rms_norm(torch.zeros(8, 2).T, weight, EPS, out)
        with pytest.raises(ValueError, match=r"residual: expected"):
            ops.rms_norm(x, weight, EPS, out, torch.zeros(3, 8))
