# SPDX-License-Identifier: Apache-2.0
"""A bench on replay: models of true shape with random weights, answers and hints from records.

Every launch computes all that a real one does; what the target would have said is replaced by what
was recorded (backends/tape.py), and so is what the sidecar would have (sidecar/recorded.py).
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any, Literal

import torch

from ooospec._core import _C
from ooospec.backends.fused import FusedBackend
from ooospec.backends.load import find_device
from ooospec.backends.modules import ModuleBackend
from ooospec.backends.tape import TapedBackend
from ooospec.backends.transformers import TransformersBackend
from ooospec.bench.ablations import hints_first
from ooospec.bench.branch_values import BranchValues
from ooospec.bench.estimate import Recorded, RecordedAnswer
from ooospec.bench.records import Record, RecordFile
from ooospec.bench.run import (
    PERFECT,
    SPLIT,
    Answered,
    BenchConfig,
    Subjects,
    method_of,
    run_target,
)
from ooospec.bench.shapes import Shape, misfit
from ooospec.errors import InvalidRequest
from ooospec.formats import tool_set
from ooospec.methods import METHODS
from ooospec.sidecar.placement import Sidecar, open_sidecar
from ooospec.sidecar.recorded import ask_key
from ooospec.sidecar.wave import NUM_LANES
from ooospec.sidecar.worker import SidecarConfig

HINTED = ("ooo", "ooo+self")  # share a sidecar
# Those that read what the target ranks high, or hidden states, are not known in a replay: their
# sources stay out, and methods of nothing else are not run.
REPLAYED = ("ar", "pld", "sam", "span", "toolspec", "self", *HINTED, PERFECT)
APART = "ooo" + SPLIT
LOAD_SECONDS = 300.0
CAPTION = (
    "Replay: random weights in the true shape, full arithmetic in every launch, logits bent by "
    "absolute position along recorded answers. A branch of self is launched and verified round by "
    "round, and says the value that the answer has: one of a real target may say another. Equality "
    "is of the raw logits before bending, hashed behind every committed position, between ar and "
    "each method; the bent tokens count for nothing. Methods that read hidden states or logits are "
    "n/a, and toolspec, ooo and self run without successors. "
)


class Answers:
    """What is replayed for each request: recorded answers first, then reference calls in styles
    mixed as in those records.
    """

    def __init__(self, tokenizer: Any, rows: Seq[Mapping[str, Any]]) -> None:
        """rows: all requests; some may have `token_ids` or `answer`, and `hints`."""
        self._recorded = Recorded(tokenizer)
        self._own = self._recorded.text.styles[0].style
        self._styles = [style for row in rows if is_recorded(row) for style in self._style(row)]

    def of(self, row: Mapping[str, Any]) -> RecordedAnswer:
        """Returns what is to be answered. Raises InvalidRequest for a row with neither record nor
        reference calls.
        """
        if not is_recorded(row):
            if row.get("calls") is None:
                raise InvalidRequest(f"{row.get('id')}: expected an answer or calls, got neither")
            row = {**row, "answer": self._written(row)}
        return self._recorded.answer(row)

    def calls(
        self,
        rows: Seq[Mapping[str, Any]],
        change: Callable[[Any, str], Any] = lambda call, key: call,
    ) -> dict[str, Mapping[str, Any] | None]:
        """Returns the call that a sidecar is to say for each row, for SidecarConfig.recorded: the
        recorded one, else the answer's own. change: of a call and its request's id.
        """
        found = {}
        for row in rows:
            answer = self.of(row)
            calls = answer.calls if answer.hints is None else answer.hints
            call = change(calls[0] if calls else None, answer.name)
            found[ask_key(row["messages"], row.get("tools") or [])] = call
        return found

    def branches(self, answer: RecordedAnswer) -> BranchValues:
        """Returns what the target's own branches of an answer say."""
        return BranchValues(self._recorded.table, answer)

    def _written(self, row: Mapping[str, Any]) -> str:
        if not row["calls"]:
            return "No tool is needed."
        calls = [
            (call["name"], json.dumps(call["arguments"], ensure_ascii=False))
            for call in row["calls"]
        ]
        place = int(hashlib.sha256(str(row["id"]).encode()).hexdigest(), 16)
        styles = self._styles or [self._own]
        return str(_C.render_calls(calls, styles[place % len(styles)]))

    def _style(self, row: Mapping[str, Any]) -> list[_C.CallStyle]:
        """Returns the style of a recorded answer, or none where it holds no call."""
        answer = self.of(row)
        try:
            return [_C.CallStyle.from_text(answer.text, tool_set(answer.tools))]
        except ValueError:
            return []


def is_recorded(row: Mapping[str, Any]) -> bool:
    """Returns whether a row has the answer of a real model."""
    return bool(row.get("token_ids") or row.get("answer") or row.get("text"))


class ReplaySubjects(Subjects):
    """One shape and all methods on it. on: device and dtype of target and sidecar."""

    def __init__(
        self,
        shape: Shape,
        tokenizer: Any,
        config: BenchConfig,
        *,
        rows: Seq[Mapping[str, Any]],
        sidecar: tuple[Shape, Any] | str | None = None,
        backend: Literal["fused", "transformers"] = "fused",
        seed: int = 0,
        change_hint: Callable[[Any, str], Any] = lambda call, key: call,
        change_sidecar: Callable[[Any], Any] = lambda sidecar: sidecar,
        num_lanes: int = NUM_LANES,
        prefill_waits: bool = False,
    ) -> None:
        """sidecar: its shape and tokenizer, or the address of one that has these rows recorded;
        None: no `ooo`, no `ooo+self`. backend: of the target; its own modules by "transformers".
        For ablations: change_hint: of a call and its request's id. change_sidecar: of the running
        one. num_lanes: slots that advance together. prefill_waits: for the whole wave. Raises
        InvalidRequest for methods that a replay cannot rank, RuntimeError for a sidecar in a
        process of its own that does not start.
        """
        unfair = [name for name in config.methods if name not in (*REPLAYED, APART)]
        if unfair:
            raise InvalidRequest(
                f"replay: expected methods of {', '.join(REPLAYED)}, got {unfair[0]!r}, which "
                "reads what only a real checkpoint says"
            )
        device, dtype = place(config)
        model = shape.model(device, dtype, seed)
        if backend == "fused":
            self.taped = TapedBackend(FusedBackend(model, tokenizer))
        else:
            self.taped = TapedBackend(ModuleBackend(TransformersBackend(model, tokenizer)))
        self._answers = Answers(tokenizer, rows)
        # A request under way.
        self._now: tuple[Mapping[str, Any], RecordedAnswer, BranchValues] | None = None
        self.hashes: dict[str, list[int]] = {}  # of the last answer's raw logits, by method
        how: dict[str, Any] = {"examples": False, "wave": "always", "num_rows": num_lanes}
        wave = {"wave": "always" if config.wave == "auto" else config.wave}
        lent: dict[str, dict[str, Any]] = {}
        shared: Any = None
        if isinstance(sidecar, str):
            shared = sidecar
        elif sidecar is not None and not {*HINTED, APART}.isdisjoint(config.methods):
            model = sidecar[0].model(device, dtype, seed + 1)
            how["recorded"] = self._answers.calls(rows, change_hint)
            if APART in config.methods:
                how["device"] = config.split_device
                lent[APART] = {"sidecar": open_apart(model, sidecar[1], **how), **wave}
            if not set(HINTED).isdisjoint(config.methods):
                how["device"] = device
                here = open_sidecar(SidecarConfig(model, tokenizer=sidecar[1], **how))
                shared = change_sidecar(here)
        if shared is not None:
            options = {"sidecar": shared, **wave}
            lent |= dict.fromkeys(HINTED, options)
        try:
            super().__init__(self.taped, config, lent=lent)
        except BaseException:  # no room, say
            for one in lent.values():
                close = getattr(one["sidecar"], "close", lambda: None)  # an address has none
                close()
            raise
        for name in config.methods:
            method = METHODS[method_of(name)]
            if method.recycler:
                drafting = self._drafting[name]
                self.engine.methods[name] = drafting.method(replace(method, recycler=False))
        if prefill_waits:
            for name in set(lent).intersection(config.methods):
                self.engine.methods[name] = hints_first(self.engine.methods[name])

    def is_equal(self, name: str, runs: Mapping[str, Answered]) -> bool:
        """Returns whether all raw logits that tokens were chosen from have the bits of `ar`."""
        return self.hashes[name] == self.hashes["ar"]

    def answer(self, row: dict[str, Any], name: str) -> Answered:
        """See Subjects.answer."""
        if self._now is None or self._now[0] is not row:
            recorded = self._answers.of(row)
            self._now = row, recorded, self._answers.branches(recorded)
        _, recorded, values = self._now
        self.taped.tape.play(len(recorded.prompt_ids), recorded.token_ids, values.tokens)
        run = super().answer(row, name)
        if run.answer.token_ids != recorded.token_ids:
            raise RuntimeError(f"{recorded.name}: {name} did not replay the recorded answer")
        self.hashes[name] = self.taped.tape.hashes(len(recorded.token_ids))
        self.taped.tape.stop()
        return run

    def _max_tokens(self) -> int:
        assert self._now is not None
        return len(self._now[1].token_ids)


def open_apart(model: Any, tokenizer: Any, **how: Any) -> Sidecar:
    """Returns a sidecar in a process of its own, which has loaded `model`, on any device.

    how: of SidecarConfig. Raises RuntimeError if it did not load.
    """
    with tempfile.TemporaryDirectory(prefix="ooospec-") as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        dtype = str(model.dtype).removeprefix("torch.")
        sidecar = open_sidecar(SidecarConfig(folder, placement="process", dtype=dtype, **how))
        sidecar.wait_ready(LOAD_SECONDS)
    if not sidecar.status.startswith("ready"):
        status = sidecar.status
        sidecar.close()
        raise RuntimeError(f"sidecar: expected a process that loads its model, got {status}")
    return sidecar


def place(config: BenchConfig) -> tuple[str, torch.dtype]:
    """Returns device and dtype of a replay: a GPU in bfloat16 if there is one.

    Raises ValueError for a device that is not here.
    """
    device = str(find_device(config.device))
    default = "float32" if device == "cpu" else "bfloat16"
    dtype = getattr(torch, config.dtype or default, None)
    if not isinstance(dtype, torch.dtype):
        raise InvalidRequest(f"--dtype: expected a type such as bfloat16, got {config.dtype!r}")
    return device, dtype


def run_replay(
    shapes: Seq[Shape],
    files: Mapping[str, Seq[dict[str, Any]]],
    config: BenchConfig,
    kept: RecordFile,
    *,
    tokenizer: Any,
    sidecar: tuple[Shape, Any] | None = None,
    backend: Literal["fused", "transformers"] = "fused",
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[list[Record]]:
    """Yields the records of each request as it is done; a shape that does not fit is skipped, and
    `say` hears why. See run_bench.
    """
    rows = [row for some in files.values() for row in some]
    for shape in shapes:
        if all(len(kept.done(shape.name, file)) == len(some) for file, some in files.items()):
            continue
        reason = misfit(shape, tokenizer, *place(config))
        if reason is not None:
            say(f"{shape.name}: skipped, {reason}")
            continue
        subjects = ReplaySubjects(
            shape, tokenizer, config, rows=rows, sidecar=sidecar, backend=backend, seed=seed
        )
        yield from run_target(subjects, shape.name, files, kept, say)
