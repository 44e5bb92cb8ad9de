# SPDX-License-Identifier: Apache-2.0
"""Target and sidecar on a GPU each against both on one, and two targets that share a sidecar.

By replay. `ooo`: the sidecar is a thread on the target's GPU; `ooo, split`: a process on the second
GPU. Per shape: speed-ups over `ar`, how much of a wave is hidden, tokens committed before the first
hint, a hint's age when it is there for a draft, and what waves cost the target. Then, with a
sidecar that listens on the second GPU, tokens a second of a target on the first GPU, of one on the
second, and of both.
"""

from __future__ import annotations

import gc
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import transformers

from _cell_rows import add_cell, add_means
from _cells import SAMPLE, Files, Row, paper_files, replay_parser, settings_of, stratified
from _cells import with_records as recorded
from _harness import Report, parse_args
from ooospec.bench.records import RecordFile
from ooospec.bench.replayed import APART, CAPTION, Answers, ReplaySubjects, place, run_replay
from ooospec.bench.run import BenchConfig
from ooospec.bench.shapes import SHAPES
from ooospec.bench.summary import summarise
from ooospec.bench.waves import wave_figures
from ooospec.sidecar.listen import Listener
from ooospec.sidecar.sockets import bind
from ooospec.sidecar.worker import SidecarConfig
from ooospec.tiny.untrained import untrained_pair

TARGETS = ("Qwen3-8B", "Qwen3-14B", "Qwen3-32B")
METHODS = ("ar", "toolspec", "ooo", APART)
WARM_REQUESTS = 3
PATIENCE = 300.0


def bench_shapes(report: Report, args: Any, files: Files, folder: Path) -> int:
    """Adds the cells of all shapes; returns how many answers were not equal."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.tokenizer)
    unequal = 0
    for name in args.shapes:
        config = BenchConfig(
            METHODS, device=args.device, split_device=args.split_device, cost_model=not args.smoke
        )
        kept, said = RecordFile(folder / f"{name}.jsonl", settings_of(args, shape=name)), []
        how: Any = {"tokenizer": tokenizer, "sidecar": (SHAPES[args.sidecar_shape], tokenizer)}
        for records in run_replay(
            [SHAPES[name]], files, config, kept, seed=args.seed, say=said.append, **how
        ):
            print(f"{name} {records[0].request}", flush=True)
        if not kept.records:
            report.add(name, said[-1].partition(": ")[2], 1, "")
            continue
        unequal += sum(not record.equal for record in kept.records)
        gc.collect()
        torch.cuda.empty_cache()  # what comes then, in other processes, finds room
        cells = summarise(kept.records, args.seed)
        for cell in cells:
            add_cell(report, cell, "cold prefix")
        add_means(report, cells, kept.records, name)
        for one in wave_figures(kept.records):
            for metric, value in asdict(one).items():
                if metric not in ("target", "file", "method") and value is not None:
                    report.add(f"{name}, {one.file}, {one.method}, waves", metric, value, "")
    return unequal


@dataclass(frozen=True)
class Shared:
    """What targets and the sidecar that they share are made of. For other processes."""

    shape: str
    sidecar_shape: str
    tokenizer: str
    rows: Sequence[Row]
    seed: int
    cost_model: bool


def serve_sidecar(shared: Shared, device: str, here: Connection) -> None:
    """A process: a sidecar that knows the calls of all rows and listens."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(shared.tokenizer)
    where, dtype = place(BenchConfig(("ar",), device=device))
    config = SidecarConfig(
        SHAPES[shared.sidecar_shape].model(where, dtype, shared.seed + 1),
        tokenizer=tokenizer,
        examples=False,
        wave="always",
        device=None if where == "cpu" else where,
        recorded=Answers(tokenizer, shared.rows).calls(shared.rows),
    )
    listener = Listener(config, bind("tcp://127.0.0.1:*"))
    here.send(listener.address)
    listener.run()


def serve_target(shared: Shared, device: str, address: str, here: Connection) -> None:
    """A process: says that it is ready, then, told to go, answers rows for as long as asked and
    says (tokens, seconds, answers that are not equal).
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(shared.tokenizer)
    config = BenchConfig(("ar", "ooo"), device=device, cost_model=shared.cost_model)
    subjects = ReplaySubjects(
        SHAPES[shared.shape],
        tokenizer,
        config,
        rows=shared.rows,
        sidecar=address,
        seed=shared.seed,
    )
    subjects.warm_up()
    plain: list[list[int]] = []
    for row in shared.rows:
        subjects.answer(row, "ar")
        plain.append(subjects.hashes["ar"])
    for row in shared.rows[:WARM_REQUESTS]:
        subjects.answer(row, "ooo")
    here.send("ready")
    while (seconds := here.recv()) is not None:
        start, tokens, unequal, number = time.perf_counter(), 0, 0, 0
        while time.perf_counter() - start < seconds:
            number = (number + 1) % len(shared.rows)
            run = subjects.answer(shared.rows[number], "ooo")
            tokens += len(run.answer.token_ids)
            unequal += subjects.hashes["ooo"] != plain[number]
        here.send((tokens, time.perf_counter() - start, unequal))
    subjects.close()


def bench_shared(report: Report, args: Any, rows: Sequence[Row]) -> int:
    """Adds the rates of one and of two targets; returns how many answers were not equal."""
    shared = Shared(
        args.shapes[0],
        args.sidecar_shape,
        args.tokenizer,
        rows,
        args.seed,
        not args.smoke,
    )
    spawn = multiprocessing.get_context("spawn")
    running = []

    def start(run: Any, *how: Any) -> Connection:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=run, args=(shared, *how, theirs), daemon=True)
        process.start()
        theirs.close()
        running.append(process)
        return ours

    def hear(pipe: Connection, patience: float = PATIENCE) -> Any:
        if not pipe.poll(patience):
            raise RuntimeError(f"bench_split: expected word of a process within {patience:.0f} s")
        return pipe.recv()

    try:
        address = hear(start(serve_sidecar, args.split_device))
        targets = [
            start(serve_target, where, address) for where in (args.device, args.split_device)
        ]
        for one in targets:
            hear(one)
        case, rates, unequal = f"{shared.shape}, one sidecar", {}, 0
        groups = {
            "a target on the first GPU": targets[:1],
            "a target on the second GPU": targets[1:],
            "two targets, one a GPU": targets,
        }
        for name, group in groups.items():
            for one in group:
                one.send(args.seconds)
            said = [hear(one, PATIENCE + args.seconds) for one in group]
            rates[name] = sum(tokens / seconds for tokens, seconds, _ in said)
            unequal += sum(one[2] for one in said)
            report.add(f"{case}, {name}", "rate", rates[name], "tokens/s")
        *alone, both = rates.items()
        for name, rate in alone:
            report.add(f"{case}, two targets over {name}", "rate", both[1] / rate, "x")
        report.add(f"{case}, answers with other raw logits than ar", "number", unequal, "")
        for one in targets:
            one.send(None)
    finally:
        for process in running:
            process.terminate()
            process.join()
    return unequal


def main() -> None:
    parser = replay_parser("the targets'")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=TARGETS)
    parser.add_argument("--rows", type=int, default=SAMPLE, help="of each file, stratified")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--split-device", default="cuda:1")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the targets that share")
    parser.add_argument("--work", type=Path, help="folder where a run that was stopped goes on")
    args = parse_args(__doc__ or "", parser)
    with tempfile.TemporaryDirectory() as folder:
        if args.smoke:
            args.tokenizer, _ = untrained_pair(Path(folder))
            args.shapes, args.sidecar_shape, args.rows = ["tiny"], "tiny", 1
            args.device = args.split_device = "cpu"
            args.seconds = 0.5
            torch.set_num_threads(1)
        elif args.tokenizer is None:
            parser.error("--tokenizer: expected a folder or hub id, or --smoke")
        files = recorded(paper_files(args.data), args.answers, args.hints)
        files = {file: stratified(rows, args.rows) for file, rows in files.items()}
        if args.smoke:
            files = dict(list(files.items())[-1:])
        report = Report("split", args)
        print(CAPTION)
        if args.work is not None:
            args.work.mkdir(parents=True, exist_ok=True)
        unequal = bench_shapes(report, args, files, args.work or Path(folder))
        unequal += bench_shared(report, args, [row for rows in files.values() for row in rows])
        report.finish()
    if unequal:
        raise SystemExit(f"{unequal} answers had other raw logits than plain decoding")


if __name__ == "__main__":
    main()
