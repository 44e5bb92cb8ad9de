# SPDX-License-Identifier: Apache-2.0
"""activation(gate) * up, element by element."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ooospec.triton_kernels.pdl import starts_early

BLOCK = 1024


@triton.jit
def _swiglu_kernel(
    gate_up_ptr,
    out_ptr,
    gate_up_stride,
    out_stride,
    DIM: tl.constexpr,
    GELU: tl.constexpr,
    PDL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(1).to(tl.int64)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < DIM
    gate_ptr = gate_up_ptr + row * gate_up_stride + cols
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    gate = tl.load(gate_ptr, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_ptr + DIM, mask=inside, other=0.0).to(tl.float32)
    # GELU by tanh is x * sigmoid(2 y): tanh(y) = 2 * sigmoid(2 y) - 1.
    slope = gate
    if GELU:
        slope = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    decay = tl.exp(-tl.abs(slope))  # at most 1: nothing overflows
    activated = gate * tl.where(slope < 0, decay, 1.0) / (1.0 + decay)
    out = out_ptr + row * out_stride + cols
    tl.store(out, (activated * up).to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate_up: torch.Tensor, out: torch.Tensor, activation: str) -> None:
    """See `ops.swiglu`."""
    num_rows, dim = out.shape
    pdl = starts_early(out)
    _swiglu_kernel[(triton.cdiv(dim, BLOCK), num_rows)](
        gate_up,
        out,
        gate_up.stride(0),
        out.stride(0),
        DIM=dim,
        GELU=activation == "gelu_tanh",
        PDL=pdl,
        BLOCK=BLOCK,
        num_warps=4,
        launch_pdl=pdl,
    )
