# SPDX-License-Identifier: Apache-2.0
"""From a recipe to a folder with a tiny model, its tokenizer, its card and its numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torch

from ooospec.errors import InvalidRequest
from ooospec.synth.generate import generate
from ooospec.tiny.card import write_card
from ooospec.tiny.evaluation import answers, shares
from ooospec.tiny.examples import ChatExamples, Recipe, Request, WaveExamples, is_plain, prepare
from ooospec.tiny.model import SIDECAR, TARGET, new_model
from ooospec.tiny.tokenizer import train_tokenizer
from ooospec.tiny.training import Run, Settings, seconds_a_step
from ooospec.train.branches import Scorer
from ooospec.train.rows import Example
from ooospec.train.trainer import evaluate

Part = Literal["target", "sidecar"]
NUMBERS = "training.json"
_TOKENIZER_REQUESTS = 8_000  # generated ones that the tokenizer is trained on
_DEV_REQUESTS = 500
_DEV_SEED = 1_000_003
_DEV_TOKENS = 16_384  # of a pass


class Builder:
    """Trains one of the pair.

    recipe: what it is trained on. folder: where it is put; a run that was ended goes on from there.
    processes: that prepare examples. start: folder of a trained one of the same part that is
    trained further, None for random weights and a new tokenizer.
    """

    def __init__(
        self,
        part: Part,
        recipe: Recipe,
        folder: Path,
        *,
        device: str,
        processes: int = 1,
        start: Path | None = None,
    ) -> None:
        """Raises InvalidRequest for a start that is none."""
        self.part, self.recipe, self.folder = part, recipe, folder
        self._processes = processes
        self._before = None if start is None else _numbers(start, part)
        self.tokenizer, self.model = _new(part, recipe) if start is None else _trained(start)
        make = ChatExamples if part == "target" else WaveExamples
        varied = partial(ChatExamples, cuts=recipe.cuts) if part == "target" else WaveExamples
        self.train = prepare(recipe, varied(self.tokenizer), processes)
        dev = Recipe(_DEV_REQUESTS, (), _DEV_SEED)
        self.dev = {
            name: prepare(dev, make(self.tokenizer), processes, held_out=held_out)
            for name, held_out in (("synth", False), ("synth, held out", True))
        }
        self.model.to(device)
        on_gpu = self.model.device.type == "cuda"
        if on_gpu:  # eager steps of so small a model wait for memory most of the time
            self.model.get_decoder().compile(dynamic=True)
        self.scorer = Scorer(self.model, autocast=torch.bfloat16 if on_gpu else None)
        self.losses: list[float] = []
        self.seconds = 0.0

    def steps_in(self, seconds: float, settings: Settings) -> Settings:
        """Returns settings with as many steps as about `seconds` have."""
        each = seconds_a_step(self.scorer, self.train, settings)
        return replace(settings, num_steps=max(1, int(seconds / each)))

    def run(self, settings: Settings) -> Iterator[float]:
        """Trains; yields the loss of each step."""
        self.folder.mkdir(parents=True, exist_ok=True)
        run = Run(self.scorer, self.train, settings, self.folder)
        workers = min(8, self._processes - 1)
        yield from run.run(workers)
        self.losses, self.seconds = run.losses, run.seconds

    def exact(self) -> dict[str, dict[str, float]]:
        """Returns for each dev set the loss, and the share of rows written right by their kind."""
        found = {}
        for name, examples in self.dev.items():
            done = evaluate(self.scorer, examples, 0, pass_tokens=_DEV_TOKENS, shared=True)
            found[name] = {"loss": done.loss, **done.exact}
        return found

    def save(self, settings: Settings) -> dict[str, Any]:
        """Writes weights in bfloat16, tokenizer, numbers and card; returns the numbers."""
        numbers: dict[str, Any] = {
            "part": self.part,
            "parameters": self.model.num_parameters(),
            "examples": len(self.train),
            "tokens": sum(one.num_tokens for one in self.train),
            "synth": self.recipe.synth,
            "repeat": self.recipe.repeat,
            "strange": self.recipe.strange,
            "unclear": self.recipe.unclear,
            "cuts": self.recipe.cuts,
            "sources": _sources(self.train),
            "settings": asdict(settings),
            "seconds": self.seconds,
            "losses": [round(loss, 4) for loss in self.losses[:: max(1, len(self.losses) // 200)]],
            "dev": self.exact(),
        }
        if self._before is not None:
            numbers["before"] = self._before
        self.model.to(torch.bfloat16).save_pretrained(self.folder)
        self.tokenizer.save_pretrained(self.folder)
        (self.folder / NUMBERS).write_text(json.dumps(numbers, indent=1) + "\n")
        write_card(self.folder, numbers)
        return numbers


def evaluate_target(
    folder: Path, sets: Mapping[str, Seq[Request]], *, device: str, rows: int
) -> dict[str, Any]:
    """Returns what a target's greedy answers to sets of requests are worth; see shares."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
    found: dict[str, Any] = {}
    for name, requests in sets.items():
        texts = answers(model, tokenizer, requests, rows)
        samples = [
            {"id": request["id"], "calls": request["calls"], "answer": text}
            for request, text in list(zip(requests, texts, strict=True))[:8]
        ]
        found[name] = {"shares": shares(requests, texts), "samples": samples}
    return found


def held_out_requests(count: int) -> list[Request]:
    """Returns requests that share no sentence, kind of value or parameter word with training."""
    return list(generate(count, seed=_DEV_SEED, held_out=True))


def _new(part: Part, recipe: Recipe) -> tuple[Any, Any]:
    """Returns a tokenizer for the texts of a recipe, and a model with random weights."""
    shape = TARGET if part == "target" else SIDECAR
    tokenizer = train_tokenizer(_texts(recipe), shape.num_tokens, chat=part == "target")
    return tokenizer, new_model(shape, tokenizer, recipe.seed)


def _numbers(folder: Path, part: Part) -> dict[str, Any]:
    """Returns what save() told of the model in a folder. Raises InvalidRequest where there is none
    of that part.
    """
    path = folder / NUMBERS
    if not path.is_file():
        raise InvalidRequest(f"start: expected the folder of a tiny {part}, got no {path}")
    numbers: dict[str, Any] = json.loads(path.read_text())
    if numbers.get("part") != part:
        raise InvalidRequest(
            f"start: expected the folder of a tiny {part}, got a {numbers.get('part')} in {folder}"
        )
    return numbers


def _trained(folder: Path) -> tuple[Any, Any]:
    """Returns the tokenizer and the model of a folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return AutoTokenizer.from_pretrained(folder), model.train()


def _texts(recipe: Recipe) -> Iterator[str]:
    """Yields the text that the tokenizer is trained on."""
    how: Any = {"strange": recipe.strange, "words": recipe.words}
    made = generate(min(recipe.synth, _TOKENIZER_REQUESTS), seed=recipe.seed, **how)
    for request in chain(filter(is_plain, recipe.requests), made):
        for message in request["messages"]:
            yield message.get("content") or ""
        for part in (*request["tools"], *request["calls"]):
            yield json.dumps(part, ensure_ascii=False)


def _sources(examples: Seq[Example]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for example in examples:
        counts[example.source] = counts.get(example.source, 0) + 1
    return counts
