# SPDX-License-Identifier: Apache-2.0
"""activation(gate) * up against the same by hand, and a row against itself."""

from __future__ import annotations

import math

import pytest
import torch

from ooospec import ops
from ooospec.reference import swiglu_ref
from op_cases import DEVICE, DTYPES, PROVIDERS, close, guarded, same_bits

pytestmark = pytest.mark.parametrize("provider", PROVIDERS)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", ops.ACTIVATIONS)
@pytest.mark.parametrize(
    ("num_rows", "dim"), [(1, 1), (3, 63), (64, 64), (2, 1023), (3, 1024), (2, 1025), (2, 4864)]
)
def test_rows_are_activated(
    provider: ops.Provider, dtype: torch.dtype, activation: str, num_rows: int, dim: int
) -> None:
    torch.manual_seed(dim)
    numbers = (4 * torch.randn(num_rows, 2 * dim)).to(dtype)
    with guarded() as put, ops.using(provider):
        gate_up = put.put(numbers, pad=7)
        out = put.empty(num_rows, dim, dtype=dtype, pad=2)
        ops.swiglu(gate_up, out, activation)
    close(out.cpu(), swiglu_ref(numbers, activation), 1, provider)


def test_one_row_by_hand(provider: ops.Provider) -> None:
    gate_up = torch.tensor([[1.5, -0.5, 0.0, 2.0, 3.0, 4.0]], device=DEVICE)
    silu, gelu = torch.empty(1, 3, device=DEVICE), torch.empty(1, 3, device=DEVICE)
    with ops.using(provider):
        ops.swiglu(gate_up, silu)
        ops.swiglu(gate_up, gelu, "gelu_tanh")
    pairs = [(1.5, 2.0), (-0.5, 3.0), (0.0, 4.0)]
    by_hand = [x / (1 + math.exp(-x)) * up for x, up in pairs]
    torch.testing.assert_close(silu.cpu(), torch.tensor([by_hand]))
    inner = [math.sqrt(2 / math.pi) * (x + 0.044715 * x**3) for x, _ in pairs]
    by_hand = [x / 2 * (1 + math.tanh(y)) * up for (x, up), y in zip(pairs, inner, strict=True)]
    torch.testing.assert_close(gelu.cpu(), torch.tensor([by_hand]))


@pytest.mark.parametrize("activation", ops.ACTIVATIONS)
def test_large_gates_neither_overflow_nor_become_nan(
    provider: ops.Provider, activation: str
) -> None:
    gate = torch.tensor([-1e4, -200.0, -100.0, 100.0, 200.0, 1e4])
    gate_up = torch.cat((gate, torch.full((6,), 2.0)))[None].to(DEVICE)
    out = torch.empty(1, 6, device=DEVICE)
    with ops.using(provider):
        ops.swiglu(gate_up, out, activation)
    expected = 2 * gate.clamp(min=0)
    assert bool(((out[0].cpu() - expected).abs() < 1e-30).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_does_not_depend_on_others(provider: ops.Provider, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    row = torch.randn(3000).to(dtype).to(DEVICE)
    results = []
    for num_rows, place in ((1, 0), (7, 3), (64, 63)):
        gate_up = torch.full((num_rows, 3000), torch.nan, dtype=dtype, device=DEVICE)
        gate_up[place] = row
        out = torch.empty(num_rows, 1500, dtype=dtype, device=DEVICE)
        with ops.using(provider):
            ops.swiglu(gate_up, out)
        results.append(out[place])
    assert all(same_bits(result, results[0]) for result in results)


def test_wrong_arguments_are_named(provider: ops.Provider) -> None:
    with ops.using(provider):
        with pytest.raises(ValueError, match=r"gate_up: expected .*6.* got .*7"):
            ops.swiglu(torch.zeros(2, 7), torch.zeros(2, 3))
        with pytest.raises(ValueError, match=r"activation: expected one of .* got 'relu'"):
            ops.swiglu(torch.zeros(2, 6), torch.zeros(2, 3), "relu")
