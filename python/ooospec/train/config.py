# SPDX-License-Identifier: Apache-2.0
"""The settings of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ooospec.train.lora import Where


@dataclass(frozen=True)
class TrainConfig:
    """How an adapter is trained.

    where, rank, alpha, dropout: of LoRA; see attach_lora. step_requests: requests a step of AdamW;
    pass_tokens: of a forward pass, padding included (a longer request goes alone). max_tokens: of a
    prompt with its longest answer. steps: also train on what follows the first call of a request;
    see further_on. others: also on parameters of functions that are not called, whose value is
    null; without, a value is what it would be if its function were called. dev_share: of the
    requests of each source; patience: evaluations without a better dev loss before it stops.
    num_evaluations: an epoch. rows: "branches" shares the prefix of a request, "separate" does not,
    "auto" shares it where the model can. seed: of weights, order, dropout and split.

    Raises ValueError for values out of range.
    """

    where: Where = "attention"
    rank: int = 32
    alpha: float = 64.0
    dropout: float = 0.0
    epochs: int = 1
    learning_rate: float = 3e-4
    warmup: float = 0.05
    step_requests: int = 16
    pass_tokens: int = 8192
    max_tokens: int = 4096
    steps: bool = True
    others: bool = False
    dev_share: float = 0.05
    num_evaluations: int = 8
    patience: int = 4
    rows: Literal["auto", "branches", "separate"] = "auto"
    gradient_checkpointing: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"rank": 1, "epochs": 1, "step_requests": 1, "pass_tokens": 64, "max_tokens": 64}
        for name, low in {**least, "num_evaluations": 1, "patience": 1}.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name}: expected at least {low}, got {getattr(self, name)}")
        for name in ("alpha", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: expected more than 0, got {getattr(self, name)}")
        for name in ("dropout", "warmup", "dev_share"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: expected a share below 1, got {getattr(self, name)}")
        for name, known in (
            ("where", ("attention", "linear")),
            ("rows", ("auto", "branches", "separate")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name}: expected one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
