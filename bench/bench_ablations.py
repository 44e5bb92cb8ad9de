# SPDX-License-Identifier: Apache-2.0
"""What each part of `ooo` is worth, by replay on one shape: one thing changed at a time.

Accuracy of hints (shares of the answer's own values) and their delay, waiting for them against
polling (before the first round; before the prefill, so that the wave has the GPU alone), one lane
against a parallel wave, function or values only, slots as they end against one last hint, a sidecar
in a process of its own on the same device, no sidecar but spans, the size of trees; then how cost
grows with context, tools and earlier calls; and the tokens a round that a drafter of some cost
needs to equal `ooo`. Hints of an untrained sidecar, or of tools that it has seen, are another
--hints.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import transformers

from _cells import SAMPLE, Row, paper_files, replay_parser, stratified, with_records
from _harness import Report, parse_args
from _requests import earlier_answers, with_others
from ooospec import CallStyle
from ooospec.bench.ablations import FUNCTION, VALUE, ChangedSidecar, less_accurate, only
from ooospec.bench.records import Record
from ooospec.bench.replayed import APART, CAPTION, HINTED, ReplaySubjects, place
from ooospec.bench.run import BenchConfig
from ooospec.bench.shapes import SHAPES
from ooospec.bench.summary import summarise
from ooospec.config import MAX_NODES
from ooospec.tiny.untrained import untrained_pair

ACCURACIES = (0.0, 0.25, 0.5, 0.75, 1.0)
DELAYS_MS = (0, 5, 20, 50, 100, 200)
NODES = (8, 16, 32, 64)
DRAFTER_MS = (0.5, 1, 2, 4, 8)
CONTEXTS = (1024, 4096, 16384, 32768)
TOOLS = (1, 4, 16, 64)
EARLIER = (1, 100, 10_000)
ANSWER = 512  # tokens, of a context


class Bench:
    """Runs variants of `ooo` on the same requests. rows: by file."""

    def __init__(self, args: Any, report: Report, rows: Sequence[Row]) -> None:
        self.args, self.report, self.rows = args, report, rows
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(args.tokenizer)
        self.unequal = 0

    def run(
        self,
        case: str,
        *,
        rows: Sequence[Row] | None = None,
        methods: tuple[str, ...] = ("ar", "ooo"),
        max_nodes: int = MAX_NODES,
        num_earlier: int = 0,
        wave: str = "always",
        **how: Any,
    ) -> list[Record]:
        """Adds the figures of one variant; returns its records.

        num_earlier: calls that `ooo` has learnt before. how: of ReplaySubjects.
        """
        own = place(BenchConfig(("ar",), device=self.args.device))[0]
        config = BenchConfig(
            methods,
            device=own,
            wave=wave,
            split_device=own if APART in methods else None,
            cost_model=not self.args.smoke,
            max_nodes=max_nodes,
        )
        shape, small = SHAPES[self.args.shape], SHAPES[self.args.sidecar_shape]
        some = self.rows if rows is None else rows
        subjects = ReplaySubjects(
            shape,
            self.tokenizer,
            config,
            rows=some,
            sidecar=(small, self.tokenizer),
            seed=self.args.seed,
            **how,
        )
        try:
            subjects.warm_up()
            text = subjects.engine.drafting.text  # type: ignore[union-attr]
            for ids in earlier_answers(self.args.data, text, CallStyle("tags"), num_earlier):
                subjects.learn(some[0], "ooo", ids)
            records = [
                record
                for number, row in enumerate(some)
                for record in subjects.run(shape.name, "all rows", row, number)
            ]
        finally:
            subjects.close()
        self.unequal += sum(not record.equal for record in records)
        for cell in summarise(records, self.args.seed):
            if cell.method != "ar" and cell.file != "all":
                name = f"{case}, {cell.method}"
                self.report.add(name, "decoding", cell.decode.value, "x ar")
                self.report.add(name, "in total", cell.total.value, "x ar")
                self.report.add(name, "rate", cell.rate, "tokens/round")
        return records


def bench_hints(bench: Bench) -> None:
    """Adds what comes of hints that are wrong, late, fewer, or not streamed."""
    whole = bench.run("as it is", methods=("ar", "toolspec", "self", "ooo", "ooo+self"))
    told = [{key: row[key] for key in row if key != "hints"} for row in bench.rows]  # the answer's
    for accuracy in () if bench.args.smoke else ACCURACIES:

        def worse(call: Any, key: str, accuracy: float = accuracy) -> Any:
            return less_accurate(call, accuracy, key)

        for wave, how in (("always", ""), ("wait", ", waits for them")):
            case = f"hints right at {accuracy:.0%}{how}"
            bench.run(case, rows=told, change_hint=worse, wave=wave)
    changes: dict[str, Callable[[Any], Any]] = {
        f"hints {ms} ms late": lambda inner, ms=ms: ChangedSidecar(inner, delay=ms / 1000)
        for ms in DELAYS_MS
    }
    changes |= {
        "function only": lambda inner: ChangedSidecar(inner, change=only(FUNCTION)),
        "values only": lambda inner: ChangedSidecar(inner, change=only(VALUE)),
        "one last hint": lambda inner: ChangedSidecar(inner, at_once=True),
    }
    for case, change in list(changes.items())[-1 if bench.args.smoke else 0 :]:
        bench.run(case, change_sidecar=change)
    if not bench.args.smoke:
        bench.run("waits for the hints", methods=("ar", *HINTED), wave="wait")
        bench.run("waits for the hints before the prefill", prefill_waits=True)
        bench.run("two processes", methods=("ar", APART))
        bench.run("slots one after another", num_lanes=1)
        for nodes in NODES:
            bench.run(f"trees of {nodes} nodes", max_nodes=nodes)
    add_break_even(bench.report, whole)


def add_break_even(report: Report, records: Sequence[Record]) -> None:
    """Adds the tokens a round with which a drafter that costs some time a round equals `ooo`."""
    ooo = [record for record in records if record.method == "ooo"]
    num_rounds = sum(len(record.rounds) for record in ooo)
    per_token = sum(record.decode for record in ooo) / sum(len(r.token_ids) - 1 for r in ooo)
    round_ms = 1000 * sum(record.verify for record in ooo) / num_rounds
    for cost in DRAFTER_MS:
        needed = (round_ms + cost) / (1000 * per_token)
        report.add(
            f"break-even of a drafter of {cost} ms a round", "needed", needed, "tokens/round"
        )


def bench_growth(bench: Bench) -> None:
    """Adds how figures change with context, tools and earlier calls."""
    row = bench.rows[0]
    filler = "Some earlier talk about other things. "
    limit = SHAPES[bench.args.shape].context
    per_text = len(bench.tokenizer(filler * 50)["input_ids"]) / 50
    own = len(bench.tokenizer(str((row["messages"], row["tools"])))["input_ids"]) + ANSWER
    for num_tokens in (64,) if bench.args.smoke else CONTEXTS:
        if num_tokens + 2048 > limit:
            bench.report.add(f"context of {num_tokens}", f"skipped: context of {limit}", 1, "")
            continue
        longer = copy.deepcopy(row)
        text = filler * int(max(0, num_tokens - own) / per_text)
        longer["messages"] = [{"role": "user", "content": text}, *longer["messages"]]
        bench.run(f"context of {num_tokens}", rows=[longer])
    spare = [tool for other in bench.rows for tool in other["tools"]]
    called = [call["name"] for call in row["calls"]]
    tools = sorted(row["tools"], key=lambda tool: tool["function"]["name"] not in called)
    for count in () if bench.args.smoke else TOOLS:
        bench.run(f"{count} tools", rows=[{**row, "tools": with_others(tools, spare, count)}])
    for count in () if bench.args.smoke else EARLIER:
        bench.run(f"{count} earlier calls", rows=[row], num_earlier=count)


def main() -> None:
    parser = replay_parser("the target's")
    parser.add_argument("--shape", choices=SHAPES, default="Qwen3-8B")
    parser.add_argument("--rows", type=int, default=SAMPLE, help="of each file, stratified")
    parser.add_argument("--device")
    args = parse_args(__doc__ or "", parser)
    with tempfile.TemporaryDirectory() as folder:
        if args.smoke:
            args.tokenizer, _ = untrained_pair(Path(folder))
            args.shape = args.sidecar_shape = "tiny"
        elif args.tokenizer is None:
            parser.error("--tokenizer: expected a folder or hub id, or --smoke")
        files = with_records(paper_files(args.data), args.answers, args.hints)
        rows = [row for some in files.values() for row in stratified(some, args.rows)]
        if args.smoke:
            rows = [min(rows, key=lambda row: len(str((row["messages"], row["tools"]))))]
        report = Report("ablations", args)
        print(CAPTION)
        bench = Bench(args, report, rows)
        start = time.perf_counter()
        bench_hints(bench)
        bench_growth(bench)
        report.add("all", "taken", time.perf_counter() - start, "s")
        report.finish()
    if bench.unequal:
        raise SystemExit(f"{bench.unequal} answers had other raw logits than plain decoding")


if __name__ == "__main__":
    main()
