# SPDX-License-Identifier: Apache-2.0
"""From a model and requests to a training run that is ready to start."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ooospec.backends.load import find_device, load_model
from ooospec.errors import InvalidRequest
from ooospec.files import write_text
from ooospec.sidecar.prompt import PromptBuilder
from ooospec.train.branches import Scorer
from ooospec.train.config import TrainConfig
from ooospec.train.labels import BadRow, label
from ooospec.train.lora import attach_lora, recompute_layers, save_adapter
from ooospec.train.plan import Estimate, estimate
from ooospec.train.report import Data
from ooospec.train.rows import make_examples, with_traces
from ooospec.train.split import Split, split_by_tools
from ooospec.train.steps import further_on
from ooospec.train.trainer import Trainer

Request = Mapping[str, Any]
DEV = "dev.jsonl"


@dataclass(frozen=True)
class Run:
    """A run that is ready. why_apart: why the rows of a request do not share its prefix, or ""."""

    trainer: Trainer
    model: Any
    data: Data
    dev: Seq[Request]
    estimate: Estimate
    folder: Path
    why_apart: str

    def save(self, base: str) -> int:
        """Writes the best adapter into the folder, and the dev requests beside it.

        base: name of the model. Returns the bytes of the weights. Raises InvalidRequest.
        """
        lines = (json.dumps(one, ensure_ascii=False) + "\n" for one in self.dev)
        write_text(self.folder / DEV, "".join(lines))
        return save_adapter(self.model, self.trainer.best_state, self.folder, base=base)


def open_run(
    source: str | tuple[Any, Any],
    requests: Seq[Request],
    traces: Seq[Request],
    config: TrainConfig,
    folder: Path,
    *,
    device: str | None = None,
    dtype: str | None = None,
    skipped: Mapping[str, int] | None = None,
    files: Seq[str] = (),
    traced: Seq[str] = (),
) -> Run:
    """Returns a run over the valid rows of `requests` and `traces`.

    source: folder or hub id of a causal LM, or a loaded (model, tokenizer). device: None: a GPU if
    there is one. dtype: of the frozen weights and of products; None: bfloat16 on a GPU, float32
    else. skipped: rows that were no requests, by reason. files, traced: their names, for the card.
    Raises InvalidRequest for no valid row, ModelNotFound, UnsupportedModel.
    """
    place = find_device(device)
    half = torch.bfloat16 if place.type == "cuda" else torch.float32
    wanted = half if dtype is None else getattr(torch, dtype, None)
    if wanted not in (torch.bfloat16, torch.float32):
        raise InvalidRequest(f"dtype: expected bfloat16 or float32 to train in, got {dtype!r}")
    if isinstance(source, str):
        source = load_model(source, wanted)
    model, tokenizer = source
    model = model.to(place)
    limit = min(config.max_tokens, getattr(model.config, "max_position_embeddings", 1 << 30))
    builder = PromptBuilder(tokenizer, max_tokens=limit, examples=False)
    reasons = Counter(skipped or {})
    valid = list(_valid(with_traces(requests, traces), reasons))
    split = split_by_tools(valid, config.dev_share, config.seed)
    train, bad = make_examples(builder, split.train, others=config.others)
    dev, bad_dev = make_examples(builder, split.dev, others=config.others)
    reasons += bad + bad_dev
    if not train:
        raise InvalidRequest(f"requests: expected a row to train on, got none ({dict(reasons)})")
    model = attach_lora(
        model, config.where, config.rank, config.alpha, dropout=config.dropout, seed=config.seed
    )
    if config.gradient_checkpointing:
        recompute_layers(model)
    is_half = wanted == torch.bfloat16
    scorer = Scorer(model, autocast=wanted if is_half else None)
    later = further_on(split.train, config.seed) if config.steps else []
    more, _ = make_examples(builder, later, others=config.others)
    trainer = Trainer(scorer, train + more, dev, config, folder)
    taken = estimate(model, trainer.train, config, shared=trainer.shared, half=is_half)
    why = "" if trainer.shared else scorer.why_not or "as told"
    data = _data(split, train, len(more), dev, reasons, files, traced)
    return Run(trainer, model, data, split.dev, taken, folder, why)


def _valid(requests: Iterable[Request], reasons: Counter[str]) -> Iterable[Request]:
    for request in requests:
        try:
            label(request)
        except BadRow as error:
            reasons[str(error)] += 1
        else:
            yield request


def _data(
    split: Split,
    train: Seq[Any],
    num_further: int,
    dev: Seq[Any],
    reasons: Counter[str],
    files: Seq[str],
    traced: Seq[str],
) -> Data:
    return Data(
        files=list(files),
        traced=list(traced),
        train=dict(Counter(example.source for example in train)),
        num_further=num_further,
        dev=dict(Counter(example.source for example in dev)),
        skipped=dict(reasons),
        num_lost=split.num_lost,
        num_pruned=split.num_pruned,
    )
