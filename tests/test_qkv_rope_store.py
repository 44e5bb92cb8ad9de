# SPDX-License-Identifier: Apache-2.0
"""Bias, head norms, rotation and store of q, k and v: against Hugging Face's own code, and rows
against themselves.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from ooospec import ops
from ooospec.reference import qkv_rope_ref, rms_norm_ref
from op_cases import DEVICE, DTYPES, PROVIDERS, close, guarded, same_bits
from tree_cases import far

# (query heads, kv heads, head dim)
SHAPES = [(1, 1, 2), (4, 1, 16), (14, 2, 64), (6, 3, 80), (5, 1, 96), (32, 8, 128), (4, 1, 256)]
MAX_POSITIONS = 70
NUM_SLOTS = 90


def cos_sin_table(dim: int) -> torch.Tensor:
    speeds = 10000.0 ** (-torch.arange(0, dim, 2) / dim)
    angles = torch.arange(MAX_POSITIONS)[:, None] * speeds
    return torch.cat((angles.cos(), angles.sin()), dim=1)


class Case:
    """Random rows of one shape, with what goes with them."""

    def __init__(
        self, shape: tuple[int, int, int], num_rows: int, dtype: torch.dtype, extras: str
    ) -> None:
        self.num_heads, self.num_kv_heads, self.dim = shape
        torch.manual_seed(sum(shape) + num_rows)
        width = (self.num_heads + 2 * self.num_kv_heads) * self.dim
        self.qkv = torch.randn(num_rows, width).to(dtype)
        self.positions = torch.randint(MAX_POSITIONS, (num_rows,), dtype=torch.int32)
        self.slots = torch.randperm(NUM_SLOTS)[:num_rows]
        self.options: dict[str, Any] = {"eps": 1e-5, "offset": 1.0 if "offset" in extras else 0.0}
        if "bias" in extras:
            self.options["bias"] = torch.randn(width).to(dtype)
        if "norm" in extras:
            self.options["q_norm"], self.options["k_norm"] = torch.randn(2, self.dim).to(dtype)

    def expected(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        cos_sin = cos_sin_table(self.dim)[self.positions.long()]
        heads = (self.num_heads, self.num_kv_heads)
        return qkv_rope_ref(self.qkv, cos_sin, *heads, **self.options)

    def run(self, provider: ops.Provider) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns q of all rows, and keys and values of all slots, NaN where nothing is stored."""
        dtype, cache = self.qkv.dtype, (NUM_SLOTS, self.num_kv_heads, self.dim)
        with guarded() as put, ops.using(provider):
            options = {
                name: put.put(option) if isinstance(option, torch.Tensor) else option
                for name, option in self.options.items()
            }
            q = put.empty(len(self.qkv), self.num_heads, self.dim, dtype=dtype, pad=3)
            keys, values = put.empty(*cache, dtype=dtype), put.empty(*cache, dtype=dtype, pad=5)
            inputs = (put.put(self.qkv, pad=1), put.put(cos_sin_table(self.dim), pad=2))
            places = (put.put(self.positions), put.put(self.slots))
            ops.qkv_rope_store(*inputs, *places, q, keys, values, **options)
        return q.cpu(), keys.cpu(), values.cpu()


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("extras", ["", "bias", "norm", "bias norm offset"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_are_rotated_and_stored(
    provider: ops.Provider, dtype: torch.dtype, extras: str, shape: tuple[int, int, int]
) -> None:
    case = Case(shape, 3, dtype, extras)
    q, keys, values = case.run(provider)
    expected = case.expected()
    for got, wanted in zip((q, keys[case.slots], values[case.slots]), expected, strict=True):
        close(got, wanted, case.dim, provider)
    for cached in (keys, values):
        others = torch.ones(NUM_SLOTS, dtype=torch.bool)
        others[case.slots] = False
        assert bool(cached[others].isnan().all())


@pytest.mark.parametrize("normed", [False, True])
def test_the_reference_rotates_as_hugging_face_does(normed: bool) -> None:
    case = Case((4, 2, 32), 5, torch.float64, "bias norm" if normed else "bias")
    q, k, v = case.expected()
    heads = (case.qkv + case.options["bias"]).view(5, 8, 32)
    cos, sin = cos_sin_table(32)[case.positions.long()].double().chunk(2, dim=1)
    asked, stored = heads[:, :4], heads[:, 4:6]
    if normed:
        asked = rms_norm_ref(asked, case.options["q_norm"], 1e-5)
        stored = rms_norm_ref(stored, case.options["k_norm"], 1e-5)
    angles = (torch.cat((cos, cos), dim=1)[None], torch.cat((sin, sin), dim=1)[None])
    wanted_q, wanted_k = apply_rotary_pos_emb(
        asked.transpose(0, 1)[None], stored.transpose(0, 1)[None], *angles
    )
    torch.testing.assert_close(q, wanted_q[0].transpose(0, 1))
    torch.testing.assert_close(k, wanted_k[0].transpose(0, 1))
    torch.testing.assert_close(v, heads[:, 6:])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_does_not_depend_on_its_neighbours_or_slot(
    provider: ops.Provider, dtype: torch.dtype
) -> None:
    whole = Case((6, 2, 64), 9, dtype, "bias norm")
    one_q, one_keys, one_values = whole.run(provider)
    rows = [4, 7]
    part = Case((6, 2, 64), 9, dtype, "bias norm")
    others = [row for row in range(9) if row not in rows]
    part.qkv[others] = torch.nan
    part.slots = part.slots.flip(0)
    q, keys, values = part.run(provider)
    assert same_bits(q[rows], one_q[rows])
    assert same_bits(keys[part.slots[rows]], one_keys[whole.slots[rows]])
    assert same_bits(values[part.slots[rows]], one_values[whole.slots[rows]])
    alone = Case((6, 2, 64), 9, dtype, "bias norm")
    alone.qkv, alone.positions = alone.qkv[7:8], alone.positions[7:8]
    alone.slots = alone.slots[7:8]
    q, keys, values = alone.run(provider)
    assert same_bits(q[0], one_q[7])
    assert same_bits(keys[alone.slots], one_keys[whole.slots[7:8]])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_slots_may_lie_farther_away_than_int32_reaches(provider: ops.Provider) -> None:
    case = Case((2, 1, 32), 2, torch.float16, "")
    places = case.positions.to(DEVICE), torch.tensor([0, 130], device=DEVICE)
    inputs = case.qkv.to(DEVICE), cos_sin_table(32).to(DEVICE)
    near = [torch.zeros(131, 1, 32, dtype=torch.float16, device=DEVICE) for _ in range(2)]
    apart = [far(part) for part in near]
    for keys, values in (near, apart):
        q = torch.zeros(2, 2, 32, dtype=torch.float16, device=DEVICE)
        with ops.using(provider):
            ops.qkv_rope_store(*inputs, *places, q, keys, values, **case.options)
    for part, expected in zip(apart, near, strict=True):
        assert bool(expected[130].any())
        assert torch.equal(part, expected)


def test_wrong_tensors_are_named() -> None:
    case = Case((2, 1, 4), 2, torch.float32, "")
    q, cache = torch.empty(2, 2, 4), torch.empty(NUM_SLOTS, 1, 4)
    table, norm = cos_sin_table(4), torch.ones(4)
    good = (case.qkv, table, case.positions, case.slots, q, cache, cache.clone())
    for place, name, wrong in (
        (0, "qkv", case.qkv[:, :15]),
        (1, "cos_sin", table.double()),
        (2, "positions", case.positions.long()),
        (3, "slots", case.slots.int()),
        (6, "values", cache[:, :, :3]),
    ):
        tensors = [*good[:place], wrong, *good[place + 1 :]]
        with pytest.raises(ValueError, match=f"{name}: expected"):
            ops.qkv_rope_store(*tensors)
    with pytest.raises(ValueError, match="q_norm, k_norm: expected both or neither"):
        ops.qkv_rope_store(*good, q_norm=norm)
    with pytest.raises(ValueError, match=r"bias: expected"):
        ops.qkv_rope_store(*good, bias=norm)
