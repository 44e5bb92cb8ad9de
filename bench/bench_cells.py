# SPDX-License-Identifier: Apache-2.0
"""The paper's cells by replay: methods on models in the shapes of the paper's targets.

`--table paper`: API-Bank, ToolAlpaca and 68 BFCL requests on nine shapes, all at 8B, a fixed
stratified 30 a file elsewhere. `unrolled`: every calling turn of API-Bank's dialogues in order.
`other`: rows with several calls, and with none. What does not fit is a row with its reason. Answers
are those of --answers (`ooospec trace`) where it has them, else reference calls; hints those of
--hints (`ooospec eval-sidecar --hints`), else the answer's own call.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import transformers

from _cell_rows import add_cell, add_means
from _cells import (
    FULL,
    SAMPLE,
    Files,
    other_files,
    paper_files,
    replay_parser,
    sampled,
    settings_of,
    unrolled_files,
)
from _cells import with_records as recorded
from _harness import Report, parse_args
from ooospec.bench.records import RecordFile
from ooospec.bench.replayed import CAPTION, REPLAYED, run_replay
from ooospec.bench.run import BenchConfig
from ooospec.bench.shapes import SHAPES
from ooospec.bench.summary import summarise
from ooospec.tiny.untrained import untrained_pair

QWEN = ("Qwen2.5-7B", "Qwen2.5-14B", "Qwen2.5-32B", "Qwen3-4B", "Qwen3-8B", "Qwen3-14B")
PAPER_SHAPES = (*QWEN, "Qwen3-32B", "Llama-3.1-8B")
TABLES = {"paper": paper_files, "unrolled": unrolled_files, "other": other_files}
PAPER = {  # arXiv 2608.00814, two H100s: over its own autoregressive decoding, mean of 21 cells
    ("ooo, mean of 21 cells", 3.89),
    ("ooo, lowest cell", 2.46),
    ("ooo, highest cell", 5.34),
    ("toolspec, mean of 21 cells", 2.95),
    ("ooo / toolspec, mean of Qwen3 targets", 1.341),
}


def run_shape(args: Any, shape: str, files: Files, warm: bool, folder: Path) -> tuple[Any, Any]:
    """Returns the records of a shape, and what was said of it."""
    config = BenchConfig(
        REPLAYED if args.methods is None else ("ar", *args.methods),
        device=args.device,
        wave=args.wave,
        cost_model=not args.smoke,
        warm=warm,
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.tokenizer)
    small = SHAPES[args.sidecar_shape], tokenizer
    settings = settings_of(args, shape=shape, warm=warm)
    kept = RecordFile(folder / f"{shape}-{warm}.jsonl", settings)
    said: list[str] = []
    how: Any = {"tokenizer": tokenizer, "sidecar": small, "seed": args.seed, "say": said.append}
    for records in run_replay([SHAPES[shape]], files, config, kept, **how):
        print(f"{shape} {records[0].request}", flush=True)
    return kept.records, said


def bench(args: Any, files: Files, folder: Path) -> None:
    """Adds all cells; raises SystemExit if an answer was not equal."""
    report = Report(f"cells_{args.table}", args)
    full = "All" if args.full_rows is None else f"A stratified {args.full_rows} a file of the"
    print(CAPTION, f"{full} requests at {', '.join(FULL)}, a stratified {args.rows} elsewhere.")
    for name, value in sorted(PAPER):
        report.add(f"the paper's {name}", "published", value, "x")
    unequal = 0
    for shape in args.shapes:
        own = sampled(files, shape, args.rows, args.full_rows)
        for warm in (False, True) if args.warm else (False,):
            records, said = run_shape(args, shape, own, warm, folder)
            for line in said:
                print(line)
            if not records:
                report.add(shape, said[-1].partition(": ")[2], 1, "")
                break
            unequal += sum(not record.equal for record in records)
            prefix = "warm prefix" if warm else "cold prefix"
            cells = summarise(records, args.seed)
            for cell in cells:
                add_cell(report, cell, prefix)
            add_means(report, cells, records, f"{shape}, {prefix}")
    report.finish()
    if unequal:
        raise SystemExit(f"{unequal} answers had other raw logits than plain decoding")


def main() -> None:
    parser = replay_parser("the targets'")
    parser.add_argument("--table", choices=TABLES, default="paper")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=PAPER_SHAPES)
    parser.add_argument("--methods", nargs="+", choices=REPLAYED[1:])
    parser.add_argument("--rows", type=int, default=SAMPLE, help="of a file, but at 8B")
    parser.add_argument("--full-rows", type=int, help="of a file at 8B; all")
    parser.add_argument("--warm", action="store_true", help="with a cached prefix besides")
    parser.add_argument("--wave", choices=("always", "wait"), default="always", help="see load()")
    parser.add_argument("--device")
    parser.add_argument("--work", type=Path, help="folder where a run that was stopped goes on")
    args = parse_args(__doc__ or "", parser)
    with tempfile.TemporaryDirectory() as folder:
        if args.smoke:
            args.tokenizer, _ = untrained_pair(Path(folder))
            args.shapes, args.sidecar_shape, args.rows = ["tiny"], "tiny", 1
            args.methods = args.methods or ["ooo"]
        elif args.tokenizer is None:
            parser.error("--tokenizer: expected a folder or hub id, or --smoke")
        files = recorded(TABLES[args.table](args.data), args.answers, args.hints)
        if args.work is not None:
            args.work.mkdir(parents=True, exist_ok=True)
        bench(args, files, args.work or Path(folder))


if __name__ == "__main__":
    main()
