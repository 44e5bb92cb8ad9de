# SPDX-License-Identifier: Apache-2.0
"""The rows of a request as branches over one prefix, in one forward pass.

A request is laid out as its prefix and then, one after another, question and answer of each row.
Positions of every branch go on from the prefix, and a token attends to the prefix and to its own
branch up to itself: the pass computes for each row what a pass over prefix and row alone computes.
A request with one row is the ordinary causal sequence; separate rows are requests with one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ooospec.train.rows import WEIGHTS, Example, Kind, Row

PAD_TO = 64  # tokens; attention kernels like it, and memory is asked for in few sizes
_PADDING = -1
# Not cuDNN's, which torch would take on a GPU: its gradients are NaN where a batch has padding.
_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_WINDOWED = "sliding_attention"
_KNOWN_LAYERS = frozenset((_WINDOWED, "full_attention"))


@dataclass(frozen=True)
class Batch:
    """Requests side by side; tensors are on one device.

    ids, positions, segments: int64[B, S]; segment 0 is the prefix, i the i-th branch, -1 padding.
    branched: whether a mask is needed beyond the causal one. sequence, index: int64[K], where the
    token before each token of an answer stands; targets: int64[K], that token; weights: float32[K];
    row: int64[K], whose answer it is; kinds: of the rows.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    segments: torch.Tensor
    branched: bool
    sequence: torch.Tensor
    index: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor
    row: torch.Tensor
    kinds: tuple[Kind, ...]

    @property
    def allowed(self) -> torch.Tensor:
        """bool[B, 1, S, S]: whether a token may attend to another."""
        of, to = self.segments[:, None, :, None], self.segments[:, None, None, :]
        size = self.ids.shape[1]
        causal = torch.ones(size, size, dtype=torch.bool, device=self.ids.device).tril()
        return causal & ((to == 0) | (to == of))

    def each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        """Returns a batch of its tensors, each changed."""
        changed: dict[str, Any] = {
            name: change(value)
            for name, value in vars(self).items()
            if isinstance(value, torch.Tensor)
        }
        return replace(self, **changed)

    def pin_memory(self) -> Batch:
        """Returns it in memory from where a GPU fetches by itself; DataLoader asks for it."""
        return self.each(torch.Tensor.pin_memory)


def separate(example: Example) -> list[Example]:
    """Returns the rows of a request as requests of one row."""
    return [replace(example, rows=(row,)) for row in example.rows]


def make_batch(examples: Seq[Example], device: torch.device | str = "cpu") -> Batch:
    """Returns requests side by side. The last token of an answer is a target only."""
    size = -(-max(num_laid_out(example) for example in examples) // PAD_TO) * PAD_TO
    shape = (len(examples), size)
    ids = torch.zeros(shape, dtype=torch.long)
    # Through the padding too: rows without branches are then plain to transformers, which would
    # make a mask for any jump, and attend without one.
    positions = torch.arange(size).repeat(len(examples), 1)
    segments = torch.full(shape, _PADDING)
    places: list[tuple[int, int, int, int]] = []  # sequence, index, target, row
    kinds: list[Kind] = []
    for i, example in enumerate(examples):
        end = len(example.prefix)
        ids[i, :end] = torch.tensor(example.prefix)
        segments[i, :end] = 0
        for branch, row in enumerate(example.rows, start=1):
            start, tokens = end, row.question + row.answer[:-1]
            end += len(tokens)
            ids[i, start:end] = torch.tensor(tokens)
            positions[i, start:end] = len(example.prefix) + torch.arange(len(tokens))
            segments[i, start:end] = branch
            first = start + len(row.question) - 1
            places += [(i, first + j, token, len(kinds)) for j, token in enumerate(row.answer)]
            kinds.append(row.kind)
    sequence, index, targets, row_idx = torch.tensor(places).unbind(1)
    weights = torch.tensor([WEIGHTS[kind] for kind in kinds])[row_idx]
    branched = any(len(example.rows) > 1 for example in examples)
    tensors = (ids, positions, segments, sequence, index, targets, weights, row_idx)
    ids, positions, segments, sequence, index, targets, weights, row_idx = (
        tensor.to(device, non_blocking=True) for tensor in tensors
    )
    return Batch(
        ids, positions, segments, branched, sequence, index, targets, weights, row_idx, tuple(kinds)
    )


@dataclass(frozen=True)
class Score:
    """What a model makes of a batch. loss: weighted sum over the answers' tokens; weight: of them.

    row_losses: [R], unweighted sums; exact: bool[R], whether a greedy answer is the right one.
    """

    loss: torch.Tensor
    weight: float
    row_losses: torch.Tensor
    exact: torch.Tensor


class Scorer:
    """Runs batches through a causal LM, an adapter in it or not.

    shared: whether it can run branches; why_not: a sentence, where it cannot.
    """

    def __init__(self, model: Any, *, autocast: torch.dtype | None = None) -> None:
        """autocast: dtype of products that are not asked for in another. Runs some tiny passes."""
        self.model = model
        self._base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._autocast = autocast
        self._plain_head = False
        self.why_not = self._look()
        self.shared = not self.why_not

    @property
    def device(self) -> torch.device:
        device: torch.device = self._base.device
        return device

    def score(self, batch: Batch) -> Score:
        """Returns losses that backward() can be called on, unless gradients are off."""
        logits = self.logits(batch)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        losses = nn.functional.cross_entropy(logits, batch.targets, reduction="none")
        with torch.no_grad():
            num_rows = len(batch.kinds)
            rows = torch.zeros(num_rows, device=losses.device, dtype=losses.dtype)
            rows.index_add_(0, batch.row, losses.detach())
            wrong = torch.zeros(num_rows, device=losses.device)
            wrong.index_add_(0, batch.row, (logits.argmax(-1) != batch.targets).float())
        loss = (losses * batch.weights.to(losses.dtype)).sum()
        return Score(loss, float(batch.weights.sum()), rows, wrong == 0)

    def logits(self, batch: Batch) -> torch.Tensor:
        """Returns [K, V]: what is said of each token of the answers."""
        inputs = {
            "input_ids": batch.ids,
            "position_ids": batch.positions,
            "attention_mask": _mask(self._base.config, batch) if batch.branched else None,
            "use_cache": False,
        }
        kind, dtype = self.device.type, self._autocast
        half = torch.autocast(kind, dtype or torch.bfloat16, enabled=dtype is not None)
        with half, sdpa_kernel(_ATTENTION):
            if not self._plain_head:
                whole: torch.Tensor = self._base(**inputs).logits
                return whole[batch.sequence, batch.index]
            hidden = self._base.get_decoder()(**inputs).last_hidden_state
            chosen: torch.Tensor = self._base.get_output_embeddings()(
                hidden[batch.sequence, batch.index]
            )
            return chosen

    @torch.no_grad()
    def _look(self) -> str:
        """Finds out what the model allows; returns why it cannot run branches, "" if it can."""
        was_training = self.model.training
        self.model.eval()
        try:
            parts = [make_batch([part], self.device) for part in separate(_probe())]
            alone = torch.cat([self.logits(part) for part in parts])
            self._plain_head = True
            try:
                headed = torch.cat([self.logits(part) for part in parts])
                self._plain_head = _near(headed, alone)
            except (AttributeError, TypeError):
                self._plain_head = False
            return self._look_at_branches(alone)
        finally:
            self.model.train(was_training)

    def _look_at_branches(self, alone: torch.Tensor) -> str:
        kinds = set(getattr(self._base.config, "layer_types", None) or ())
        if kinds - _KNOWN_LAYERS:
            return f"it has layers of {', '.join(sorted(kinds - _KNOWN_LAYERS))}"
        try:
            shared = self.logits(make_batch([_probe()], self.device))
            changed = self.logits(make_batch([_probe(changed=True)], self.device))
        except (AttributeError, TypeError, ValueError, KeyError, RuntimeError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return f"it takes no mask of our own ({first:.120})"
        num_last = len(_probe().rows[-1].answer)
        if not torch.equal(shared[-num_last:], changed[-num_last:]) or not _near(shared, alone):
            return "a branch is not what it is alone"
        return ""


def _mask(config: Any, batch: Batch) -> Any:
    """Returns the mask in the form that the model takes: one, or one for each type of layer."""
    allowed, window = batch.allowed, getattr(config, "sliding_window", None)
    near = allowed
    if window is not None:
        distance = batch.positions[:, None, :, None] - batch.positions[:, None, None, :]
        near = allowed & (distance < window)
    kinds: Seq[str] = getattr(config, "layer_types", None) or ()
    if not kinds:
        return near
    masks: Mapping[str, torch.Tensor] = {
        kind: near if kind == _WINDOWED else allowed for kind in set(kinds)
    }
    return masks


def num_laid_out(example: Example) -> int:
    """Returns the tokens that a forward pass sees of a request."""
    return len(example.prefix) + sum(row.num_tokens - 1 for row in example.rows)


def _probe(changed: bool = False) -> Example:
    """Returns a small request; changed: with another first branch, and nothing else changed."""
    other = 3 if changed else 0
    rows = (
        Row("argument", (5 + other, 6 + other, 7 + other), (8 + other, 9 + other)),
        Row("function", (10, 11), (12, 13, 14)),
    )
    return Example("probe", "", tuple(range(20, 44)), rows, 1)


def _near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether logits are equal but for rounding, that of half precision at most."""
    one, other = one.double(), other.double()
    return bool((one - other).norm() <= 0.1 * other.norm())
