# SPDX-License-Identifier: Apache-2.0
"""Products of a round against float64, and a row's bits against themselves among other rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ooospec import ops
from ooospec._core import has_cuda_core
from ooospec.reference import linear_ref, swiglu_ref
from op_cases import DEVICE, close, guarded, same_bits

# (outputs, inputs) of qkv, o, half of gate and up, down.
SHAPES = {
    "qwen2.5-0.5b": ((1152, 896), (896, 896), (4864, 896), (896, 4864)),
    "qwen2.5-1.5b": ((2048, 1536), (1536, 1536), (8960, 1536), (1536, 8960)),
    "qwen2.5-7b": ((4608, 3584), (3584, 3584), (18944, 3584), (3584, 18944)),
    "qwen3-0.6b": ((4096, 1024), (1024, 2048), (3072, 1024), (1024, 3072)),
    "qwen3-4b": ((6144, 2560), (2560, 4096), (9728, 2560), (2560, 9728)),
    "qwen3-8b": ((6144, 4096), (4096, 4096), (12288, 4096), (4096, 12288)),
    "qwen3-32b": ((10240, 5120), (5120, 8192), (25600, 5120), (5120, 25600)),
    "llama3-8b": ((6144, 4096), (4096, 4096), (14336, 4096), (4096, 14336)),
}
HEADS = ((151936, 896), (152064, 3584), (151936, 1024), (151936, 4096), (128256, 4096))
ODD_SHAPES = ((8, 8), (8, 64), (72, 72), (200, 328), (136, 1000), (1000, 136), (2504, 4104))
Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


def has_kernel() -> bool:
    hopper = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9
    return hopper and has_cuda_core()


hopper = pytest.mark.skipif(not has_kernel(), reason="needs a Hopper GPU and the CUDA core")


def made(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    tensor = (torch.randn(*shape, device=DEVICE) * scale).to(dtype)
    if DEVICE == "cuda":
        torch.cuda.synchronize()  # a weight is read before the launches ahead have ended
    return tensor


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("num_rows", "outputs", "inputs"), [(1, 1, 1), (3, 5, 7), (64, 72, 136)])
def test_small_products(dtype: torch.dtype, num_rows: int, outputs: int, inputs: int) -> None:
    torch.manual_seed(inputs)
    x, weight = made(num_rows, inputs, dtype=dtype), made(2 * outputs, inputs, dtype=dtype)
    with guarded() as put:
        out = put.empty(num_rows, 2 * outputs, dtype=dtype, pad=2)
        wide = put.empty(num_rows, 2 * outputs, dtype=torch.float32, pad=2)
        activated = put.empty(num_rows, outputs, dtype=dtype, pad=2)
        ops.linear(x, weight, out)
        ops.linear(x, weight, wide)
        ops.linear_swiglu(x, weight, activated)
    expected = linear_ref(x, weight).cpu()
    close(out.cpu(), expected, inputs, "reference")
    close(wide.cpu(), expected, inputs, "reference")
    error = (activated.cpu().double() - swiglu_ref(expected, "silu").double()).norm()
    assert error <= 8 * torch.finfo(dtype).eps * swiglu_ref(expected, "silu").double().norm()


def test_wrong_arguments_are_named() -> None:
    x, weight = torch.zeros(2, 8, device=DEVICE), torch.zeros(16, 8, device=DEVICE)
    with pytest.raises(ValueError, match=r"weight: expected .*16, 8.* got .*16, 7"):
        ops.linear(x, weight[:, :7], torch.zeros(2, 16, device=DEVICE))
    with pytest.raises(ValueError, match=r"out: expected .*2, 16.* got .*2, 15"):
        ops.linear(x, weight, torch.zeros(2, 15, device=DEVICE))
    with pytest.raises(ValueError, match=r"out: expected torch.float32 .* got torch.float64"):
        ops.linear(x, weight, torch.zeros(2, 16, device=DEVICE, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"gate_up: expected .*14, 8.* got .*16, 8"):
        ops.linear_swiglu(x, weight, torch.zeros(2, 7, device=DEVICE))
    out = torch.zeros(2, 8, device=DEVICE)
    with pytest.raises(ValueError, match=r"scratch: expected .*2, 16.* got .*2, 8"):
        ops.linear_swiglu(x, weight, out, out.clone())


def check(
    product: Product,
    x: torch.Tensor,
    weight: torch.Tensor,
    outputs: int,
    swiglu: bool,
    out_dtype: torch.dtype,
) -> None:
    """Compares with float64, and the bits of rows alone, elsewhere and beside NaN."""
    num_rows = len(x)
    with guarded() as put:
        out = put.empty(num_rows, outputs, dtype=out_dtype, pad=8)
        product(x, weight, out)
        torch.cuda.synchronize()
    expected = x.float() @ weight.float().t()  # float32 products of float32, summed by cuBLAS
    if swiglu:
        expected = swiglu_ref(expected.double(), "silu").float()
    error = (out.float() - expected).norm() / expected.norm()
    assert error <= torch.finfo(out_dtype).eps + 2e-6 * x.shape[1] ** 0.5
    for row, place, others in ((0, 0, 1), (num_rows - 1, 0, num_rows), (7, 40, 64)):
        moved = torch.full((others, x.shape[1]), torch.nan, dtype=x.dtype, device=DEVICE)
        moved[place] = x[row]
        again = torch.full((others, outputs), torch.nan, dtype=out_dtype, device=DEVICE)
        product(moved, weight, again)
        assert same_bits(again[place], out[row])
        beside = torch.arange(others, device=DEVICE) != place
        assert bool(again[beside].isnan().all())


@hopper
@pytest.mark.gpu
@pytest.mark.parametrize("model", SHAPES)
def test_shapes_of_models(model: str) -> None:
    torch.manual_seed(0)
    for name, (outputs, inputs) in zip(("qkv", "o", "up", "down"), SHAPES[model], strict=True):
        x = made(64, inputs, dtype=torch.bfloat16)
        rows = outputs * (2 if name == "up" else 1)
        weight = made(rows, inputs, dtype=torch.bfloat16, scale=0.05)
        product = ops.linear_swiglu if name == "up" else ops.linear
        check(product, x, weight, outputs, name == "up", torch.bfloat16)


@hopper
@pytest.mark.gpu
@pytest.mark.parametrize(("outputs", "inputs"), HEADS)
def test_heads_in_float32(outputs: int, inputs: int) -> None:
    torch.manual_seed(1)
    x, weight = made(64, inputs, dtype=torch.bfloat16), made(outputs, inputs, dtype=torch.bfloat16)
    check(ops.linear, x, weight, outputs, False, torch.float32)


@hopper
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), ODD_SHAPES)
def test_sizes_that_no_tile_divides(outputs: int, inputs: int, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    x, weight = made(41, inputs, dtype=dtype), made(2 * outputs, inputs, dtype=dtype, scale=0.1)
    check(ops.linear, x, weight, 2 * outputs, False, dtype)
    check(ops.linear, x, weight, 2 * outputs, False, torch.float32)
    check(ops.linear_swiglu, x, weight, outputs, True, dtype)


@hopper
@pytest.mark.gpu
@pytest.mark.parametrize("model", SHAPES)
def test_less_shared_memory_changes_no_bit(model: str) -> None:
    torch.manual_seed(5)
    for outputs, inputs in SHAPES[model]:
        x, weight = (made(rows, inputs, dtype=torch.bfloat16) for rows in (64, outputs))
        full, less = (torch.empty(64, outputs, dtype=x.dtype, device=DEVICE) for _ in range(2))
        ops.linear(x, weight, full)
        ops.linear(x, weight, less, max_smem=150 * 1024)
        assert same_bits(full, less)


@hopper
@pytest.mark.gpu
def test_little_shared_memory_is_enough_or_refused() -> None:
    torch.manual_seed(6)

    def product(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
        ops.linear(x, weight, out, max_smem=72 * 1024)

    x, weight = (made(rows, 1024, dtype=torch.bfloat16) for rows in (64, 3072))
    check(product, x, weight, 3072, False, torch.bfloat16)
    with pytest.raises(ValueError, match="max_smem: expected room for two stages"):
        ops.linear(x, weight, torch.empty(64, 3072, dtype=x.dtype, device=DEVICE), max_smem=9000)


@hopper
@pytest.mark.gpu
def test_graphs_on_two_streams_at_once() -> None:
    torch.manual_seed(3)
    hidden, inner, num_layers = 1024, 3072, 8
    ups = [made(2 * inner, hidden, dtype=torch.bfloat16, scale=0.03) for _ in range(num_layers)]
    downs = [made(hidden, inner, dtype=torch.bfloat16, scale=0.03) for _ in range(num_layers)]

    class Chain:
        def __init__(self) -> None:
            self.start = made(64, hidden, dtype=torch.bfloat16)
            self.hidden, self.inner = self.start.clone(), made(64, inner, dtype=torch.bfloat16)
            self.stream, self.graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            self.run()
            torch.cuda.synchronize()
            self.expected = self.hidden.clone()
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.run()

        def run(self) -> None:
            self.hidden.copy_(self.start)
            for up, down in zip(ups, downs, strict=True):
                ops.linear_swiglu(self.hidden, up, self.inner)
                ops.linear(self.inner, down, self.hidden)

    chains = [Chain(), Chain()]
    for _ in range(50):
        for chain in chains:
            chain.hidden.fill_(torch.nan)
        torch.cuda.synchronize()
        for chain in chains:
            with torch.cuda.stream(chain.stream):
                chain.graph.replay()
        torch.cuda.synchronize()
        assert all(same_bits(chain.hidden, chain.expected) for chain in chains)
