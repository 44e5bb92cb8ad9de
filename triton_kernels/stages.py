# SPDX-License-Identifier: Apache-2.0
"""How far ahead a loop over blocks of keys and values reads: as far as shared memory goes."""

from __future__ import annotations

from functools import cache

import torch
import triton

BLOCK = 64  # positions of a block; queries of a tile
HOPPER_BYTES = 232_448  # shared memory of one program, on a GPU of compute capability 9.0


@cache
def shared_bytes(device: torch.device) -> int:
    """Returns the shared memory of one program on `device`; off the GPU, that of Hopper."""
    if device.type != "cuda":
        return HOPPER_BYTES
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)


def stages(most: int, keys: torch.Tensor) -> int:
    """Returns how many blocks of keys and values, at most `most`, lie beside a tile of queries.

    It changes no bit of a result.
    """
    tile = BLOCK * triton.next_power_of_2(keys.shape[-1]) * keys.element_size()
    return max(1, min(most, (shared_bytes(keys.device) - tile) // (2 * tile)))
