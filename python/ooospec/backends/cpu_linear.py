# SPDX-License-Identifier: Apache-2.0
"""Linear layers of a CPU: for a handful of rows oneDNN takes two thirds of the time of F.linear.

Rounds of Qwen2.5-0.5B behind 256 tokens, float32, one AVX2 core, milliseconds for 1 / 4 / 8 / 16 /
64 rows: 300 / 850 / 1000 / 1200 / 2300 with F.linear, 300 / 570 / 660 / 860 / 1600 with oneDNN. A
single row stays with F.linear, which is as fast there, but not with AVX-512: 20 products of a row
with 8960 x 1536 take two such cores 54 ms with F.linear, 30 ms with oneDNN.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

_FEWEST = 1 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 2  # rows for oneDNN


def use_onednn(model: nn.Module) -> list[nn.Linear]:
    """Lets the float32 linear layers of a model on a CPU use oneDNN; returns those changed.

    Mutates: the forward method of those layers; undo() puts it back.
    """
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):  # torch was built without oneDNN
        return []
    layers = [
        module
        for module in model.modules()
        if type(module) is nn.Linear
        and module.weight.dtype == torch.float32
        and module.weight.device.type == "cpu"
        and "forward" not in vars(module)
    ]
    for layer in layers:
        layer.forward = partial(_linear, layer)  # type: ignore[method-assign]
    return layers


def undo(layers: list[nn.Linear]) -> None:
    """Gives `layers` their own forward method back."""
    for layer in layers:
        del layer.forward


def _linear(layer: nn.Linear, rows: torch.Tensor) -> torch.Tensor:
    if rows.numel() < _FEWEST * rows.shape[-1]:
        return F.linear(rows, layer.weight, layer.bias)
    found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
        rows, layer.weight, layer.bias, "none", [], ""
    )
    return found
