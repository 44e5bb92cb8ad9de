# SPDX-License-Identifier: Apache-2.0
"""Moving accepted rows to their places."""

from __future__ import annotations

import torch

from ooospec.config import LAUNCH_ROWS
from ooospec.ops.dispatch import has_kernel, require


def kv_compact(
    keys: torch.Tensor,
    values: torch.Tensor,
    sources: torch.Tensor,
    targets: torch.Tensor,
    count: torch.Tensor,
) -> None:
    """Copies slots sources[i] to targets[i], i < count, of all layers, as if at once.

    keys, values: dtype[layers, slots, G, D]. sources, targets: int64[M], M <= 64, targets distinct.
    count: int32[1]. Mutates keys, values. Raises ValueError for other dtypes, shapes or strides.
    Cost: one launch.
    """
    for name, tensor in (("keys", keys), ("values", values)):
        require(name, tensor, keys.dtype, *keys.shape[:3], tensor.shape[-1])
        if tensor.stride(2) != tensor.shape[3]:
            raise ValueError(f"{name}: expected dense slots, got strides {tensor.stride()}")
    num_moves = len(sources)
    require("sources", sources, torch.int64, num_moves)
    require("targets", targets, torch.int64, num_moves)
    require("count", count, torch.int32, 1)
    if num_moves > LAUNCH_ROWS:
        raise ValueError(f"sources: expected at most {LAUNCH_ROWS}, got {num_moves}")
    if has_kernel(keys):
        from ooospec.triton_kernels.kv_compact import kv_compact as launch

        launch(keys, values, sources, targets, count)
        return
    moves = int(count)
    for cached in (keys, values):
        cached[:, targets[:moves]] = cached[:, sources[:moves]]
