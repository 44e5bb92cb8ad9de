# SPDX-License-Identifier: Apache-2.0
"""Trains all weights of a small model: packed steps, cosine, resume."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ooospec.errors import InvalidRequest
from ooospec.train.branches import PAD_TO, Batch, Scorer, make_batch, num_laid_out
from ooospec.train.rows import Example

CHECKPOINT = "checkpoint.pt"
CHECKPOINT_SECONDS = 60.0
MAX_NORM = 1.0  # of the gradient
_PROBES, _WARM = 20, 6  # steps that are timed, and before those
_SORTED = 4096  # examples that are sorted by length together


@dataclass(frozen=True)
class Settings:
    """How a model is trained.

    num_steps: of the optimizer. step_tokens: of a step, padding included. learning_rate: at its
    highest; see rate(). weight_decay: of products; see _groups(). warmup: share of the steps in
    which the rate rises. text_weight: of a token of a prompt in the loss; one of an answer has that
    of its row (see WEIGHTS). seed: of the order of the examples.
    """

    num_steps: int
    step_tokens: int = 32768
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    warmup: float = 0.03
    text_weight: float = 0.03
    seed: int = 0


class Steps(Dataset[Batch]):
    """The batches of a run, each a function of settings, data and its number."""

    def __init__(self, examples: Seq[Example], settings: Settings) -> None:
        """Raises InvalidRequest for no examples."""
        if not examples:
            raise InvalidRequest("requests: expected at least one to train on, got none")
        self._examples, self._settings = examples, settings
        self._packs = list(_packs(examples, settings))

    def __len__(self) -> int:
        return len(self._packs)

    def __getitem__(self, step: int) -> Batch:
        examples = [self._examples[i] for i in self._packs[step]]
        return with_text(make_batch(examples), examples, self._settings.text_weight)


def _packs(examples: Seq[Example], settings: Settings) -> Iterator[list[int]]:
    """Yields the numbers of the examples of each step: of much the same length, epoch by epoch."""
    sizes = [-(-num_laid_out(example) // PAD_TO) * PAD_TO for example in examples]
    num_left, epoch = settings.num_steps, 0
    while num_left > 0:
        rng = random.Random(f"{settings.seed} {epoch}")
        order = list(range(len(examples)))
        rng.shuffle(order)
        found: list[list[int]] = []
        for start in range(0, len(order), _SORTED):
            pack: list[int] = []
            for i in sorted(order[start : start + _SORTED], key=sizes.__getitem__):
                if pack and (len(pack) + 1) * sizes[i] > settings.step_tokens:
                    found.append(pack)
                    pack = []
                pack.append(i)
            found.append(pack)
        rng.shuffle(found)
        yield from found[:num_left]
        num_left -= len(found)
        epoch += 1


def with_text(batch: Batch, examples: Seq[Example], weight: float) -> Batch:
    """Returns a batch that asks for the tokens of the prefixes too, each with `weight`."""
    lengths = torch.tensor([len(example.prefix) for example in examples])
    inside = torch.arange(batch.ids.shape[1]) < lengths[:, None] - 1
    sequence, index = inside.nonzero(as_tuple=True)
    num_rows = len(batch.kinds)
    return replace(
        batch,
        sequence=torch.cat([batch.sequence, sequence]),
        index=torch.cat([batch.index, index]),
        targets=torch.cat([batch.targets, batch.ids[sequence, index + 1]]),
        weights=torch.cat([batch.weights, torch.full(index.shape, weight)]),
        row=torch.cat([batch.row, torch.full_like(index, num_rows)]),
    )


class Run:
    """A run over `examples`; goes on from the checkpoint in `folder` if there is one.

    losses: of each step, per weighted token. seconds: that the steps took.
    """

    def __init__(
        self, scorer: Scorer, examples: Seq[Example], settings: Settings, folder: Path
    ) -> None:
        """Raises InvalidRequest for no examples, or a checkpoint of other settings or data."""
        self._scorer, self._model, self._settings = scorer, scorer.model, settings
        self._steps = Steps(examples, settings)
        self._optimizer = _optimizer(scorer, settings)
        self.losses: list[float] = []
        self.seconds = 0.0
        self._path = folder / CHECKPOINT
        self._key = {"settings": asdict(settings), "data": _checksum(examples)}
        if self._path.is_file():
            self._load()

    def run(self, workers: int = 0) -> Iterator[float]:
        """Trains to the end; yields the loss of each step, some steps after it was taken."""
        self._model.train()
        start, saved = time.perf_counter(), time.perf_counter()
        numbers = range(len(self.losses), len(self._steps))
        loader = DataLoader(
            self._steps,
            batch_size=None,
            sampler=numbers,
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
            pin_memory=self._scorer.device.type == "cuda",  # else each copy waits for the last step
        )
        pending: list[torch.Tensor] = []
        for step, batch in zip(numbers, loader, strict=True):
            learning_rate = self._settings.learning_rate * rate(step, self._settings)
            pending.append(_take_step(self._scorer, self._optimizer, batch, learning_rate))
            if len(pending) == 32 or step + 1 == len(self._steps):
                losses = torch.stack(pending).tolist()  # waits for the device, so now and then
                pending = []
                self.losses += losses
                self.seconds += time.perf_counter() - start
                start = time.perf_counter()
                yield from losses
                if start - saved > CHECKPOINT_SECONDS and step + 1 < len(self._steps):
                    self._save()
                    saved = time.perf_counter()
        self._path.unlink(missing_ok=True)
        self._model.eval()

    def _save(self) -> None:
        """Writes the checkpoint; a kill leaves the old one or the new one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        state: dict[str, Any] = {
            "key": self._key,
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "losses": self.losses,
            "seconds": self.seconds,
        }
        torch.save(state, new)
        os.replace(new, self._path)

    def _load(self) -> None:
        saved = torch.load(self._path, map_location="cpu", weights_only=True)
        if saved["key"] != self._key:
            raise InvalidRequest(
                f"{self._path}: expected a checkpoint of these settings and data, got one of "
                "others; take another --out, or remove it"
            )
        self._model.load_state_dict(saved["model"])
        self._optimizer.load_state_dict(saved["optimizer"])
        self.losses, self.seconds = saved["losses"], saved["seconds"]


def seconds_a_step(scorer: Scorer, examples: Seq[Example], settings: Settings) -> float:
    """Returns the seconds that a step takes, from some with a learning rate of 0, which change
    nothing.
    """
    steps = Steps(examples, replace(settings, num_steps=_PROBES + _WARM))
    batches = [steps[number] for number in range(len(steps))]
    if scorer.device.type == "cuda":
        batches = [batch.pin_memory() for batch in batches]
    optimizer = _optimizer(scorer, settings)
    for number, batch in enumerate(batches):
        if number == _WARM:
            _wait(scorer.device)
            start = time.perf_counter()
        _take_step(scorer, optimizer, batch, 0.0)
    _wait(scorer.device)
    return (time.perf_counter() - start) / _PROBES


def _optimizer(scorer: Scorer, settings: Settings) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        _groups(scorer.model, settings.weight_decay),
        lr=settings.learning_rate,
        betas=(0.9, 0.95),
        fused=scorer.device.type == "cuda",
    )


def _take_step(
    scorer: Scorer, optimizer: torch.optim.Optimizer, batch: Batch, learning_rate: float
) -> torch.Tensor:
    """Moves the weights once; returns the loss before, a scalar on the device."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    batch = batch.each(lambda tensor: tensor.to(scorer.device, non_blocking=True))
    losses = nn.functional.cross_entropy(
        scorer.logits(batch).float(), batch.targets, reduction="none"
    )
    loss = (losses * batch.weights).sum() / batch.weights.sum()
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_(scorer.model.parameters(), MAX_NORM)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def rate(step: int, settings: Settings) -> float:
    """Returns the share of the learning rate at a step: up in a line, down as a cosine."""
    num_warm = max(1, round(settings.warmup * settings.num_steps))
    if step < num_warm:
        return (step + 1) / num_warm
    return 0.5 * (1 + math.cos(math.pi * (step - num_warm) / (settings.num_steps - num_warm)))


def _groups(model: Any, weight_decay: float) -> list[dict[str, Any]]:
    """Returns the weights in groups: only products decay."""
    every = list(model.parameters())
    return [
        {"params": [one for one in every if one.dim() > 1], "weight_decay": weight_decay},
        {"params": [one for one in every if one.dim() < 2], "weight_decay": 0.0},
    ]


def _checksum(examples: Seq[Example]) -> int:
    total = 0
    for example in examples:
        rows = tuple((row.question, row.answer) for row in example.rows)
        total = (total * 31 + hash((example.prefix, rows))) % (1 << 61)
    return total
