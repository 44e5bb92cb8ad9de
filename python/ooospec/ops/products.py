# SPDX-License-Identifier: Apache-2.0
"""Products of a few rows with a large weight."""

from __future__ import annotations

from functools import cache

import torch

from ooospec._core import cuda_core, has_cuda_core
from ooospec.config import LAUNCH_ROWS
from ooospec.ops.dispatch import is_reference_forced, require
from ooospec.ops.layer import swiglu


def linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, *, max_smem: int = 0) -> None:
    """Writes x @ weight^T, summed in float32, to `out`.

    x: dtype[N, K]. weight: dtype[M, K]. out: dtype[N, M], or float32. max_smem: bytes of shared
    memory of a multiprocessor that the kernel may take, so that another stream finds room beside
    it; 0: all.
    On Hopper, up to 64 rows in bfloat16 or float16 go to a kernel of our own, whose rows depend on
    nothing but themselves and the weight: a row has the same bits among any others. It reads the
    weight before the launches ahead have ended: a weight that was just written needs a
    synchronisation first. Elsewhere torch.mm does it, of which this is so at one number of rows.
    Mutates out. Raises ValueError for other dtypes, shapes or strides. Cost: one launch; the weight
    is read once.
    """
    (num_rows, num_inputs), num_outputs = x.shape, weight.shape[0]
    require("x", x, x.dtype, num_rows, num_inputs)
    require("weight", weight, x.dtype, num_outputs, num_inputs)
    require("out", out, out.dtype, num_rows, num_outputs)
    if out.dtype not in (x.dtype, torch.float32):
        raise ValueError(f"out: expected {x.dtype} or {torch.float32}, got {out.dtype}")
    if _has_linear(x, weight, out):
        _launch_linear(x, weight, out, is_swiglu=False, max_smem=max_smem)
    elif out.dtype == x.dtype:
        torch.mm(x, weight.t(), out=out)
    elif x.is_cuda:
        torch.mm(x, weight.t(), out_dtype=out.dtype, out=out)
    else:
        torch.mm(x.to(out.dtype), weight.t().to(out.dtype), out=out)


def linear_swiglu(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    out: torch.Tensor,
    scratch: torch.Tensor | None = None,
    activation: str = "silu",
    *,
    max_smem: int = 0,
) -> None:
    """Writes activation(x @ gate^T) * (x @ up^T) to `out`: `linear` and `swiglu`.

    x: dtype[N, K]. gate_up: dtype[2 M, K], gate first. out: dtype[N, M].
    scratch: dtype[N, 2 M], for where there are two launches; None allocates it there.
    activation: see `swiglu`. max_smem: as of `linear`. With silu on Hopper, there is one launch, in
    which gate and up are multiplied before they are rounded. What `linear` says of rows and weights
    holds.
    Mutates out, scratch. Raises ValueError for another activation, dtype, shape or stride.
    """
    (num_rows, num_inputs), num_outputs = x.shape, out.shape[1]
    require("x", x, x.dtype, num_rows, num_inputs)
    require("gate_up", gate_up, x.dtype, 2 * num_outputs, num_inputs)
    require("out", out, x.dtype, num_rows, num_outputs)
    if scratch is not None:
        require("scratch", scratch, x.dtype, num_rows, 2 * num_outputs)
    if activation == "silu" and _has_linear(x, gate_up, out):
        _launch_linear(x, gate_up, out, is_swiglu=True, max_smem=max_smem)
        return
    if scratch is None:
        scratch = torch.empty(num_rows, 2 * num_outputs, dtype=x.dtype, device=x.device)
    linear(x, gate_up, scratch, max_smem=max_smem)
    swiglu(scratch, out, activation)


@cache
def _is_hopper(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] == 9


def _has_linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> bool:
    """Returns whether the kernel does this product: by what never changes within an engine."""
    if is_reference_forced() or not x.is_cuda or not _is_hopper(x.device):
        return False
    aligned = all(
        tensor.data_ptr() % 16 == 0 and tensor.stride(0) % 8 == 0 for tensor in (x, weight, out)
    )
    sized = len(x) <= LAUNCH_ROWS and x.shape[1] % 8 == 0 and out.shape[1] % 8 == 0
    return aligned and sized and x.dtype in (torch.bfloat16, torch.float16) and has_cuda_core()


def _launch_linear(
    x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, *, is_swiglu: bool, max_smem: int
) -> None:
    cuda_core().linear(
        x=x.data_ptr(),
        x_stride=x.stride(0),
        weight=weight.data_ptr(),
        weight_stride=weight.stride(0),
        out=out.data_ptr(),
        out_stride=out.stride(0),
        num_rows=len(x),
        num_inputs=x.shape[1],
        num_outputs=out.shape[1],
        is_bfloat16=x.dtype == torch.bfloat16,
        has_float_out=out.dtype == torch.float32,
        is_swiglu=is_swiglu,
        max_smem=max_smem,
        stream=torch.cuda.current_stream(x.device).cuda_stream,
    )
