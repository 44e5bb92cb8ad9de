# SPDX-License-Identifier: Apache-2.0
"""RMS norm of rows, with the addition of the residual before it: one program a row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ooospec.triton_kernels.pdl import starts_early


@triton.jit
def _rms_norm_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    residual_ptr,
    x_stride,
    out_stride,
    residual_stride,
    eps,
    offset,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    PDL: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < DIM
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    x = tl.load(x_ptr + row * x_stride + cols, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        residual = residual_ptr + row * residual_stride + cols
        summed = x + tl.load(residual, mask=inside, other=0.0).to(tl.float32)
        rounded = summed.to(residual_ptr.dtype.element_ty)
        tl.store(residual, rounded, mask=inside)
        x = rounded.to(tl.float32)
    scale = 1.0 / tl.sqrt_rn(tl.sum(x * x, axis=0) / DIM + eps)
    normed = x * scale * (offset + weight)
    out = out_ptr + row * out_stride + cols
    tl.store(out, normed.to(out_ptr.dtype.element_ty), mask=inside)


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor,
    residual: torch.Tensor | None,
    offset: float,
) -> None:
    """See `ops.rms_norm`."""
    num_rows, dim = x.shape
    block = triton.next_power_of_2(dim)
    pdl = starts_early(x)
    _rms_norm_kernel[(num_rows,)](
        x,
        weight,
        out,
        residual,
        x.stride(0),
        out.stride(0),
        0 if residual is None else residual.stride(0),
        eps,
        offset,
        DIM=dim,
        BLOCK=block,
        HAS_RESIDUAL=residual is not None,
        PDL=pdl,
        num_warps=min(16, max(1, block // 512)),
        launch_pdl=pdl,
    )
