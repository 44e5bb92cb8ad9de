# SPDX-License-Identifier: Apache-2.0
"""Whether the attention kernels run on this device for a shape: tried out once, at load."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from types import SimpleNamespace

import torch

from ooospec import ops
from ooospec.backends.program import on_device
from ooospec.config import LAUNCH_ROWS

MIN_CAPABILITY = (8, 0)  # of a GPU that the kernels are for


def trouble(
    device: torch.device, dtype: torch.dtype, num_heads: int, num_kv_heads: int, dim: int
) -> str | None:
    """Returns why the attention kernels do not run, or None if they do.

    Cost: they are compiled, unless that was done before, and launched once on a page of zeros.
    """
    if find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        if (major, minor) < MIN_CAPABILITY:
            oldest = ".".join(map(str, MIN_CAPABILITY))
            return f"the GPU has compute capability {major}.{minor}, older than {oldest}"
    from triton.errors import TritonError  # type: ignore[import-untyped]

    try:
        with on_device(device):
            _try_out(device, dtype, num_heads, num_kv_heads, dim)
    except (TritonError, ImportError, OSError, RuntimeError, subprocess.SubprocessError) as error:
        lines = str(error).strip().splitlines() or [""]
        return f"a kernel does not run here: {type(error).__name__}: {lines[0]}"
    return None


def _try_out(
    device: torch.device, dtype: torch.dtype, num_heads: int, num_kv_heads: int, dim: int
) -> None:
    """Runs a row behind a page of zeros, as a tree and as a chunk. Raises what a kernel raises."""

    def zeros(*shape: int, of: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.zeros(shape, dtype=of, device=device)

    rows = SimpleNamespace(
        positions=zeros(LAUNCH_ROWS),
        sequences=zeros(LAUNCH_ROWS) - 1,
        mask=zeros(LAUNCH_ROWS, of=torch.int64),
        slots=zeros(LAUNCH_ROWS, of=torch.int64),
        lengths=zeros(1),
        page_table=zeros(1, 1),
    )
    rows.sequences[0], rows.mask[0] = 0, 1
    keys = zeros(ops.BLOCK, num_kv_heads, dim, of=dtype)
    query = zeros(LAUNCH_ROWS, num_heads, dim, of=dtype)
    out = torch.full_like(query, torch.nan)
    plan = ops.TreePlan(rows, num_heads, num_kv_heads, dim)
    ops.tail_slots(plan)
    ops.tree_attention(query, keys, keys, plan, out, scale=1.0)
    _check_zero("tree_attention", out)
    ops.prefill_attention(query, keys, keys, rows, out.fill_(torch.nan), scale=1.0)
    _check_zero("prefill_attention", out)


def _check_zero(name: str, out: torch.Tensor) -> None:
    if bool((out != 0).any()):
        raise RuntimeError(f"{name}: expected zeros for values of zero")
