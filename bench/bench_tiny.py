# SPDX-License-Identifier: Apache-2.0
"""The models that come with the package: what their answers are worth.

On made-up requests that share no wording, kind of value, parameter word or markup with training,
and on request files: the target's calls that parse and those that are right, the sidecar's
functions and arguments.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch

from _harness import Report, parse_args
from _requests import read_requests, spread
from ooospec.backends.load import load_model
from ooospec.shipped import SIDECAR, TARGET
from ooospec.sidecar.placement import open_sidecar
from ooospec.sidecar.worker import SidecarConfig
from ooospec.synth.generate import generate
from ooospec.tiny.evaluation import answers, shares
from ooospec.tiny.untrained import untrained_pair
from ooospec.train.evaluation import Tally, evaluate, wait_ready

SEED = 2_000_003  # of requests that no training run has seen


def bench_target(report: Report, args: Any, sets: dict[str, list[Any]]) -> None:
    """Adds the shares of the target's greedy answers."""
    model, tokenizer = load_model(args.target, torch.float32)
    model.eval()
    for name, requests in sets.items():
        found = shares(requests, answers(model, tokenizer, requests, args.rows))
        for what in ("parsed", "right", "function"):
            one = found["all"].get(what)
            if one is not None:
                report.add(f"target, {name}", what, one["share"], f"of {one['asked']}")


def bench_sidecar(report: Report, args: Any, sets: dict[str, list[Any]]) -> None:
    """Adds the shares of what the sidecar says."""
    sidecar = open_sidecar(SidecarConfig(args.sidecar, wave="always", device="cpu"))
    try:
        wait_ready(sidecar)
        for name, requests in sets.items():
            tally = Tally()
            for request, wanted, said in evaluate(sidecar, requests):
                tally.add(request, wanted, said)
            for what in ("function", "none", "arguments", "calls"):
                right, asked = tally.counts.get(what, (0, 0))
                if asked:
                    report.add(f"sidecar, {name}", what, right / asked, f"of {asked}")
    finally:
        sidecar.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default=TARGET)
    parser.add_argument("--sidecar", default=SIDECAR)
    parser.add_argument("--data", type=Path, help="folder of the request files")
    parser.add_argument("--files", nargs="+", default=["eval_toolalpaca", "eval_bfcl_javajs"])
    parser.add_argument("--requests", type=int, default=200, help="of each set")
    parser.add_argument("--rows", type=int, default=16, help="answers at a time")
    args = parse_args(__doc__ or "", parser)
    with tempfile.TemporaryDirectory() as folder:
        if args.smoke:
            args.requests = 2
            args.target, args.sidecar = untrained_pair(Path(folder))
        bench(args)


def bench(args: Any) -> None:
    """Adds the rows of both models."""
    sets = {"held out": list(generate(args.requests, seed=SEED, held_out=True))}
    for file in args.files if args.data else ():
        sets[file] = spread(read_requests(args.data, file), args.requests)
    report = Report("tiny", args)
    bench_target(report, args, sets)
    bench_sidecar(report, args, sets)
    report.finish()


if __name__ == "__main__":
    main()
