# SPDX-License-Identifier: Apache-2.0
"""How long the device waits for the host between two rounds of a request.

The engine, its loop and the fused backend are the real ones, and so is all that drafts: a prompt of
4k tokens, 16 tools, 10,000 earlier calls in the index, hints that arrive while the third round
runs. What the target says is a recorded answer, of which a round takes four tokens at most. On a
GPU a model of random weights runs every round all the same; on a CPU none does.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer

from _harness import Report, parse_args
from _requests import (
    answer_ids,
    call_styles,
    earlier_answers,
    evaluation_calls,
    long_dialogue,
    with_others,
)
from bench_round import random_model
from ooospec import HintRing, load
from ooospec.backends.base import Verdict
from ooospec.backends.fused import FusedBackend
from ooospec.config import EngineConfig
from ooospec.kv import PagePool, Sequence
from ooospec.replay import slot_records
from ooospec.rows import Rows

NUM_PROMPT_TOKENS = 4096
NUM_TOOLS = 16
NUM_EARLIER_CALLS = 10_000
MOST_TAKEN = 4  # tokens that a round commits
HINT_ROUND = 2
VOCAB_SIZE = 151936  # of the model: no less than the tokenizer's


class Recording:
    """A recorded answer, and the hints that a sidecar gives meanwhile: one request at a time.

    Stands in for a sidecar (see ooospec.hints), and for the program and the end of a round (see
    ooospec.backends), behind which the real ones run where there is a device.
    """

    status = "ready"

    def __init__(self) -> None:
        self.ring = HintRing()
        self.answer: list[int] = []
        self.hints: Seq[Any] = ()
        self._request_id = self._done = self._round = 0
        self.rows = Rows.root(0)
        self._path: list[int] = []
        self._tokens: list[int] = []
        self._top8: Any = None
        self._program: Any = None
        self._end: Any = None

    def ask(self, request_id: int, messages: Any, tools: Any, tenant: str = "") -> None:
        """A request begins."""
        self._request_id, self._done, self._round = request_id, 1, 0

    def cancel(self, request_id: int) -> None:
        """See Sidecar."""

    def close(self) -> None:
        """See Sidecar."""

    def take_over(self, programs: Any, on_gpu: bool) -> None:
        """Replaces how the rounds of `programs` run and end."""
        if on_gpu:
            self._program, self._end = programs.greedy, programs.end
        programs.greedy = programs.end = self

    def prepare(self) -> bool:
        """See Program."""
        return self._program is not None and self._program.prepare()

    def __getattr__(self, name: str) -> Any:
        """What else the program needs of the end: its buffers, and what runs on the device."""
        return getattr(self._end, name)

    def captured(self) -> None:
        """See RoundEnd."""
        self._end.captured()

    def replay(self) -> None:
        """A round begins; in its time hints arrive, and the answer to `rows` is found."""
        if self._program is not None:
            self._program.replay()
        rest = self.answer[self._done :] + self.answer[-1:] * len(self.rows)
        choices = [rest[depth] for depth in self.rows.depths.tolist()]
        path, tokens = self.rows.follow(lambda row, depth: choices[row])
        self._path, self._tokens = path[:MOST_TAKEN], tokens[:MOST_TAKEN]
        self._top8 = np.array(choices, dtype=np.int32)[:, None] + np.arange(8, dtype=np.int32)
        self._done += len(self._tokens)
        if self._round == HINT_ROUND:
            for hint in self.hints:
                fields = hint.kind, hint.call, hint.tool, hint.parameter, hint.text
                self.ring.try_push(self._request_id, *fields)
        self._round += 1

    def read(self, rows: Rows, launched: float, *, top8: bool) -> Verdict:
        """Returns a verdict as the device gives it, with the tokens of the answer."""
        path, tokens = self._path, self._tokens
        if self._end is not None:
            found = self._end.read(rows, launched, top8=top8)
            return found._replace(path=path, tokens=tokens)
        seen, likeliest = time.perf_counter(), self._top8 if top8 else None
        return Verdict(path, tokens, launched, seen, likeliest, compacted=True)


class RecordedTarget(FusedBackend):
    """A fused backend that answers as recorded."""

    def __init__(self, recording: Recording, *args: Any) -> None:
        super().__init__(*args)
        self._recording = recording

    def new_pool(self, num_tokens: int) -> PagePool:
        """See Backend."""
        pool = super().new_pool(num_tokens)
        self._recording.take_over(self._of(pool), self.device.type == "cuda")
        return pool

    def verify(self, sequence: Sequence, rows: Rows, *args: Any, **options: Any) -> Verdict:
        """See Backend."""
        self._recording.rows = rows
        return super().verify(sequence, rows, *args, **options)

    def prefill(
        self, sequence: Sequence, tokens: Seq[int], progress: Callable[[int], None] | None = None
    ) -> torch.Tensor:
        """See Backend."""
        if self.device.type == "cuda":
            super().prefill(sequence, tokens, progress)
        else:
            sequence.length += len(tokens)
        logits = torch.zeros(self.decodable, device=self.device)
        logits[self._recording.answer[0]] = 1
        return logits


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", required=True, help="model folder")
    parser.add_argument("--data", type=Path, required=True, help="folder of the request files")
    parser.add_argument("--requests", type=int, default=200)
    args = parse_args(__doc__ or "", parser)
    on_gpu = torch.cuda.is_available()
    kind = ("0.6B", "cuda", torch.bfloat16) if on_gpu else ("tiny", "cpu", torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    model = random_model(*kind, vocab_size=VOCAB_SIZE)
    recording = Recording()
    target = RecordedTarget(recording, model, tokenizer)
    target.eos_ids = frozenset({tokenizer.eos_token_id})
    config = EngineConfig(cache_tokens=16384)
    engine = load(target, sidecar=recording, cost_model=False, config=config)
    store = engine.drafting.store  # type: ignore[union-attr]
    style = call_styles()["fenced json, indented by 2"]
    for answer in earlier_answers(
        args.data, store.text, style, 100 if args.smoke else NUM_EARLIER_CALLS
    ):
        store.memory("ooo").learn_answer(answer)
    num_requests = 4 if args.smoke else args.requests
    system = long_dialogue(args.data)
    system = store.text.tokenizer.decode(store.text.encode(system)[:NUM_PROMPT_TOKENS])
    calls = list(evaluation_calls(args.data, 200))
    spare = [tool for _, _, tools, _ in calls for tool in tools]
    gaps: dict[str, list[float]] = {"no hints": [], "hints pending": [], "hints known": []}
    rows: list[int] = []
    for number, (_, dialogue, tools, call) in zip(
        range(num_requests), itertools.cycle(calls), strict=False
    ):
        tools = with_others(tools, spare, NUM_TOOLS)
        recording.answer = answer_ids(store.text, call, style)
        recording.hints = slot_records(1, [call], tools) if number % 2 else ()
        messages = [{"role": "system", "content": system}, {"role": "user", "content": dialogue}]
        found = engine.generate(messages, tools, method="ooo")
        if found.token_ids != recording.answer:
            raise RuntimeError(f"expected {recording.answer}, got {found.token_ids}")
        rows += [one.num_rows for one in found.metrics.rounds]
        for idx, gap in enumerate(found.metrics.gap_seconds):
            hinted = "hints pending" if idx == HINT_ROUND else "hints known"
            before = idx < HINT_ROUND or not recording.hints
            gaps["no hints" if before else hinted].append(gap * 1e9)
    engine.close()
    report = Report("gap", args)
    gaps["all"] = list(itertools.chain(*gaps.values()))
    for case, times in gaps.items():
        report.add_times(case, times)
        report.add(case, "count", len(times), "rounds")
    report.add("rows", "mean", sum(rows) / len(rows), "rows")
    report.finish()


if __name__ == "__main__":
    main()
