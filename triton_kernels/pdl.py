# SPDX-License-Identifier: Apache-2.0
"""Programmatic dependent launch: a kernel's programs start before the kernel ahead has ended.

A kernel so launched waits (`gdc_wait`) before it reads what the kernels ahead wrote and before it
writes anything, and lets the next one start (`gdc_launch_dependents`) only behind that. What is
older than the last ordinary launch, and the weights, may be read before.
"""

from __future__ import annotations

from functools import cache

import torch


def starts_early(tensor: torch.Tensor) -> bool:
    """Returns whether kernels on the device of `tensor` are launched so: from Hopper on."""
    return tensor.is_cuda and _is_able(tensor.device)


@cache
def _is_able(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] >= 9
