# SPDX-License-Identifier: Apache-2.0
"""Named arrays that the host writes and the device reads, sent in one copy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

Fields = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]


class Buffers:
    """Arrays of fixed shape, twice: where the host writes them and where kernels read them.

    host: numpy views of pinned memory. device: tensors. Both begin as zeros. On a CPU they are the
    same memory.
    """

    def __init__(self, fields: Fields, device: torch.device) -> None:
        """fields: dtype and shape by name; the widest types first, so that all are aligned."""
        num_bytes = sum(dtype.itemsize * math.prod(shape) for dtype, shape in fields.values())
        on_gpu = device.type == "cuda"
        self._host = torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=on_gpu)
        self._device = torch.zeros_like(self._host, device=device) if on_gpu else self._host
        self.host: dict[str, np.ndarray[Any, Any]] = {}
        self.device: dict[str, torch.Tensor] = {}
        start = 0
        for name, (dtype, shape) in fields.items():
            stop = start + dtype.itemsize * math.prod(shape)
            self.host[name] = self._host[start:stop].view(dtype).view(shape).numpy()
            self.device[name] = self._device[start:stop].view(dtype).view(shape)
            start = stop

    def copy_in(self) -> None:
        """Sends what the host wrote; a graph can hold it."""
        if self._device is not self._host:
            self._device.copy_(self._host, non_blocking=True)
