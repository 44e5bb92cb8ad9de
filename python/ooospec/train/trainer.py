# SPDX-License-Identifier: Apache-2.0
"""Trains the adapter: steps, evaluations, early stop, and going on after a kill."""

from __future__ import annotations

import io
import math
import pickle
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from ooospec.errors import InvalidRequest
from ooospec.files import whole_file
from ooospec.model_files import first_line
from ooospec.train.branches import Scorer, make_batch
from ooospec.train.config import TrainConfig
from ooospec.train.lora import adapter_state, load_adapter_state
from ooospec.train.plan import epoch_steps, learning_rate, padded_tokens, passes
from ooospec.train.rows import Example

CHECKPOINT = "checkpoint.pt"
CHECKPOINT_SECONDS = 30.0
MAX_NORM = 1.0  # of the gradient
_BROKEN = (  # what torch.load raises for a file that torch.save did not write
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    pickle.UnpicklingError,
    struct.error,
)


@dataclass(frozen=True)
class Evaluation:
    """How the dev split does after some steps. loss: a weighted token of an answer.

    exact: share of rows of each kind that greedy decoding answers right; "function, 2 tools" are
    those with a choice.
    """

    step: int
    loss: float
    exact: dict[str, float]


@dataclass
class History:
    """losses: of each step, a weighted token. stopped: why it ended, once it has."""

    losses: list[float] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    seconds: float = 0.0
    stopped: str = ""

    @property
    def best(self) -> Evaluation | None:
        """The evaluation with the lowest loss, the first of equals."""
        return min(self.evaluations, key=lambda one: one.loss, default=None)


class Trainer:
    """One run. history: grows with it. num_steps: at most, of all epochs.

    shared: whether the rows of a request share its prefix.
    """

    def __init__(
        self,
        scorer: Scorer,
        train: Seq[Example],
        dev: Seq[Example],
        config: TrainConfig,
        folder: Path,
    ) -> None:
        """scorer: of a model with adapters. folder: where it keeps its checkpoint.

        Goes on from the checkpoint in `folder` if there is one. Raises InvalidRequest if that is of
        other settings or data, or rows are to share prefixes and the model cannot.
        """
        if not train:
            raise InvalidRequest("train: expected at least one request to train on, got none")
        if config.rows == "branches" and not scorer.shared:
            raise InvalidRequest(
                "rows: expected a model that can run branches, got one that cannot: "
                f"{scorer.why_not}"
            )
        self.shared = scorer.shared and config.rows != "separate"
        self.history = History()
        self.scorer, self._model = scorer, scorer.model
        self.train, self._dev, self._config = train, dev, config
        self._steps = [
            step
            for epoch in range(config.epochs)
            for step in epoch_steps(len(train), epoch, config)
        ]
        self.num_steps = len(self._steps)
        self._evaluation_steps = max(1, self.num_steps // (config.epochs * config.num_evaluations))
        weights = [weight for weight in self._model.parameters() if weight.requires_grad]
        self._weights = weights
        self._optimizer = torch.optim.AdamW(weights, lr=config.learning_rate, weight_decay=0.0)
        self.best_state = adapter_state(self._model)
        self._path = folder / CHECKPOINT
        self._key = {"config": asdict(config), "shared": self.shared, "data": _key(train, dev)}
        self._saved = time.perf_counter()
        if self._path.is_file():
            self._load()

    def measure(self, done: Callable[[], None] = lambda: None) -> float:
        """Returns the seconds that the steps left to do will take, from passes that change nothing:
        the largest, which shows that memory is enough, and one of middling size, which is timed.
        """
        every = [
            one for step in self._steps[len(self.history.losses) :] for one in self._passes(step)
        ]
        if not every:
            return 0.0
        every.sort(key=padded_tokens)
        middling = every[len(every) // 2]
        for one in (every[-1], middling, middling) if self._on_gpu else (middling,):
            self._wait()
            start = time.perf_counter()
            self._backward(one, 1.0)
            self._wait()
            seconds = time.perf_counter() - start
            self._optimizer.zero_grad()
            done()
        return seconds * sum(map(padded_tokens, every)) / padded_tokens(middling)

    def run(self) -> Iterator[float]:
        """Trains on; yields the loss of each step, after it, and writes checkpoints on the way.

        Raises InvalidRequest for a loss that is not finite, and for a checkpoint that cannot be
        written; the last one stays.
        """
        history, config = self.history, self._config
        self._model.train()
        while not history.stopped:
            step = len(history.losses)
            start = time.perf_counter()
            loss = self._step(step)
            if not math.isfinite(loss):
                raise InvalidRequest(
                    f"train: expected a finite loss, got {loss} at step {step + 1}; a lower "
                    "--learning-rate or --dtype float32 may help"
                )
            history.losses.append(loss)
            ended = step + 1 == self.num_steps
            if self._dev and (ended or (step + 1) % self._evaluation_steps == 0):
                self._evaluate()
                waited = len(history.evaluations) - 1 - self._best_number()
                if waited >= config.patience:
                    history.stopped = f"no better dev loss in {waited} evaluations"
            elif ended:
                self.best_state = adapter_state(self._model)
            if ended:
                history.stopped = "all epochs done"
            history.seconds += time.perf_counter() - start
            if history.stopped or time.perf_counter() - self._saved > CHECKPOINT_SECONDS:
                self._save()
            yield loss
        load_adapter_state(self._model, self.best_state)
        self._model.eval()

    def _step(self, step: int) -> float:
        """Takes one step of the optimizer and returns its loss."""
        torch.manual_seed(self._config.seed * 1_000_003 + step)  # of dropout, whatever ran before
        examples = [self.train[i] for i in self._steps[step]]
        weight = sum(row.weight for example in examples for row in example.rows)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(step, self.num_steps, self._config)
        losses = [self._backward(one, weight) for one in self._passes(self._steps[step])]
        torch.nn.utils.clip_grad_norm_(self._weights, MAX_NORM)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(torch.stack(losses).sum()) / weight

    def _backward(self, examples: Seq[Example], weight: float) -> torch.Tensor:
        score = self.scorer.score(make_batch(examples, self.scorer.device))
        torch.autograd.backward(score.loss / weight)
        return score.loss.detach()

    def _passes(self, step: Seq[int]) -> list[list[Example]]:
        examples = [self.train[i] for i in step]
        return passes(examples, self._config.pass_tokens, shared=self.shared)

    def _evaluate(self) -> None:
        evaluation = evaluate(
            self.scorer,
            self._dev,
            len(self.history.losses),
            pass_tokens=self._config.pass_tokens,
            shared=self.shared,
        )
        self.history.evaluations.append(evaluation)
        if self.history.best is evaluation:
            self.best_state = adapter_state(self._model)
        self._model.train()

    def _best_number(self) -> int:
        best = self.history.best
        return next(i for i, one in enumerate(self.history.evaluations) if one is best)

    @property
    def _on_gpu(self) -> bool:
        return self.scorer.device.type == "cuda"

    def _wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize(self.scorer.device)

    def _save(self) -> None:
        """Writes the checkpoint; what goes wrong leaves the old one. Raises InvalidRequest."""
        saved = io.BytesIO()  # torch hides what the system says of a full disk
        torch.save(
            {
                "key": self._key,
                "adapter": adapter_state(self._model),
                "best": self.best_state,
                "optimizer": self._optimizer.state_dict(),
                "history": asdict(self.history),
            },
            saved,
        )
        with whole_file(self._path) as file:
            file.write(saved.getbuffer())
        self._saved = time.perf_counter()

    def _load(self) -> None:
        try:
            saved = torch.load(self._path, map_location="cpu", weights_only=True)
            key = saved["key"]
        except _BROKEN as error:
            raise InvalidRequest(
                f"{self._path}: expected a checkpoint, got a file that is none "
                f"({first_line(error)}); take another --out, or remove it"
            ) from error
        if key != self._key:
            raise InvalidRequest(
                f"{self._path}: expected a checkpoint of these settings and data, got one of "
                "others; take another --out, or remove it"
            )
        load_adapter_state(self._model, saved["adapter"])
        self.best_state = saved["best"]
        self._optimizer.load_state_dict(saved["optimizer"])
        history = saved["history"]
        evaluations = [Evaluation(**one) for one in history.pop("evaluations")]
        self.history = History(**history, evaluations=evaluations)


@torch.no_grad()
def evaluate(
    scorer: Scorer, examples: Seq[Example], step: int, *, pass_tokens: int, shared: bool
) -> Evaluation:
    """Returns how a model does on `examples`."""
    scorer.model.eval()
    loss = weight = 0.0
    right: dict[str, list[bool]] = defaultdict(list)
    for one in passes(examples, pass_tokens, shared=shared):
        score = scorer.score(make_batch(one, scorer.device))
        loss += float(score.loss)
        weight += score.weight
        choices = [example.num_tools > 1 for example in one for _ in example.rows]
        for kind, choice, exact in zip(
            (row.kind for example in one for row in example.rows),
            choices,
            score.exact.tolist(),
            strict=True,
        ):
            right[kind].append(exact)
            if kind == "function" and choice:
                right["function, 2 tools"].append(exact)
    shares = {kind: sum(found) / len(found) for kind, found in sorted(right.items())}
    return Evaluation(step, loss / weight, shares)


def _key(train: Seq[Example], dev: Seq[Example]) -> list[list[int]]:
    """Returns what differs where the data do: number of requests, of tokens, and a checksum."""
    return [
        [len(part), sum(one.num_tokens for one in part), _checksum(part)] for part in (train, dev)
    ]


def _checksum(examples: Seq[Example]) -> int:
    total = 0
    for example in examples:
        for row in example.rows:
            total = (total * 31 + hash((row.question, row.answer))) % (1 << 61)
        total = (total * 31 + hash(example.prefix)) % (1 << 61)
    return total
