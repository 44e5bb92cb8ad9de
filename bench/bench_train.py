# SPDX-License-Identifier: Apache-2.0
"""Training over requests: rows as branches over one prefix, beside separate rows.

The same steps of the same requests are taken both ways, from the same adapter; the losses of the
first step, which both begin with, are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from _harness import Report, parse_args
from _requests import read_requests, spread
from ooospec.tiny.untrained import untrained_pair
from ooospec.train.config import TrainConfig
from ooospec.train.run import Run, open_run

MAX_DIFFERENCE = 0.01  # of the first loss, relative: both ways round differently in half precision


def open_way(args: Any, requests: list[Any], rows: str, others: bool, folder: Path) -> Run:
    """Returns a run over `requests` whose rows are "branches" or "separate"; see TrainConfig."""
    config = TrainConfig(
        rows=rows,  # type: ignore[arg-type]
        dev_share=0.0,
        others=others,
        step_requests=args.step_requests,
        pass_tokens=args.pass_tokens,
        max_tokens=args.max_tokens,
        seed=args.seed,
    )
    model = one_layer(args.model) if args.smoke else args.model
    return open_run(model, requests, [], config, folder, device=args.device)


def one_layer(folder: str) -> tuple[Any, Any]:
    """Returns a random model of the shape of another, but for its depth, and its tokenizer."""
    config = transformers.AutoConfig.from_pretrained(folder)
    config.num_hidden_layers = 1
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:1]
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def time_run(run: Run) -> tuple[float, float]:
    """Returns the seconds of all steps but the first, which warms up, and the first loss."""
    steps = run.trainer.run()
    first = next(steps)
    start = time.perf_counter()
    for _ in steps:
        pass
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start, first


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help="folder of a causal LM; --smoke makes a tiny one")
    parser.add_argument("--data", type=Path, required=True, help="folder of the request files")
    parser.add_argument("--files", nargs="+", default=["train_*"], help="names, or patterns")
    parser.add_argument("--requests", type=int, default=320, help="spread evenly over the files")
    parser.add_argument("--step-requests", type=int, default=32)
    parser.add_argument("--pass-tokens", type=int, default=16384)
    parser.add_argument("--max-tokens", type=int, default=4096)
    parser.add_argument("--device")
    args = parse_args(__doc__ or "", parser)
    with tempfile.TemporaryDirectory() as folder:
        if args.smoke:
            args.requests, args.step_requests, args.max_tokens = 2, 1, 2048
            args.pass_tokens, args.device, args.files = 4096, "cpu", ["train_glaive"]
            _, args.model = untrained_pair(Path(folder))
        elif args.model is None:
            parser.error("--model: expected a folder, or --smoke")
        bench(args)


def bench(args: Any) -> None:
    """Adds the rows of both ways."""
    transformers.utils.logging.disable_progress_bar()
    names = sorted(
        {
            path.name.partition(".")[0]
            for pattern in args.files
            for path in args.data.glob(f"{pattern}.jsonl*")
        }
    )
    every = [row for name in names for row in read_requests(args.data, name)]
    requests = spread(every, args.requests)
    report = Report("train", args)
    for others in (True,) if args.smoke else (False, True):
        compare(args, requests, others, report)
    report.finish()


def compare(args: Any, requests: list[Any], others: bool, report: Report) -> None:
    """Adds rows of both ways. others: also with parameters of functions that are not called."""
    asked = "all functions" if others else "called functions"
    seconds, losses = {}, {}
    for rows in ("branches", "separate"):
        case = f"{rows}, {asked}"
        with tempfile.TemporaryDirectory() as folder:
            run = open_way(args, requests, rows, others, Path(folder))
            taken = run.estimate
            report.add(case, "tokens", taken.num_tokens, "computed, padding included")
            report.add(case, "passes", taken.num_passes, "forward and backward")
            seconds[rows], losses[rows] = time_run(run)
        report.add(case, "seconds", seconds[rows], f"s, {taken.num_steps - 1} steps")
        report.add(case, "first loss", losses[rows], "a weighted token of an answer")
    difference = abs(losses["branches"] / losses["separate"] - 1)
    if difference > MAX_DIFFERENCE:
        raise SystemExit(f"train: expected one first loss of both ways, got {losses}")
    speed = seconds["separate"] / seconds["branches"]
    report.add(f"branches / separate, {asked}", "speed", speed, "x")


if __name__ == "__main__":
    main()
