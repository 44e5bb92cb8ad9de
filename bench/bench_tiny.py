# SPDX-License-Identifier: Apache-2.0
"""The models that come with the package: what their answers are worth.

On made-up requests that share no sentence, kind of value, parameter word or markup with training,
and on request files: the target's calls that parse and those that are right, the sidecar's
functions and arguments, and the target's tokens a round of the call with hints of the sidecar, and
of another one with an adapter (--other, --adapter), that are there before the first round.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch

import ooospec
from _harness import Report, parse_args
from _requests import read_requests, spread
from ooospec.backends.load import load_model
from ooospec.bench.calls import call_rounds
from ooospec.shipped import SIDECAR, TARGET
from ooospec.sidecar.placement import open_sidecar
from ooospec.sidecar.ready import ReadySidecar
from ooospec.sidecar.worker import SidecarConfig
from ooospec.synth.generate import generate
from ooospec.tiny.evaluation import MAX_ANSWER, answers, shares
from ooospec.tiny.untrained import untrained_pair
from ooospec.train.evaluation import Tally, evaluate, wait_ready
from ooospec.train.labels import BadRow, label

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


def has_label(request: Any) -> bool:
    """Returns whether a request's reference calls are of tools that it lists."""
    try:
        label(request)
    except BadRow:
        return False
    return True


def bench_sidecar(report: Report, args: Any, sets: dict[str, list[Any]]) -> None:
    """Adds the shares of what the sidecar says."""
    sidecar = open_sidecar(SidecarConfig(args.sidecar, wave="always", device="cpu"))
    try:
        wait_ready(sidecar)
        for name, requests in sets.items():
            tally = Tally()
            for request, wanted, said in evaluate(sidecar, list(filter(has_label, requests))):
                tally.add(request, wanted, said)
            for what in ("function", "none", "arguments", "calls"):
                right, asked = tally.counts.get(what, (0, 0))
                if asked:
                    report.add(f"sidecar, {name}", what, right / asked, f"of {asked}")
    finally:
        sidecar.close()


def bench_hints(report: Report, args: Any, sets: dict[str, list[Any]]) -> None:
    """Adds tokens a round of the call with hints that are ready; raises SystemExit for an answer
    that differs from plain decoding.
    """
    plain = ooospec.load(args.target, device="cpu", cost_model=False)
    sidecars = {"ooo": (args.sidecar, None)}
    if args.other:
        sidecars[f"ooo, {Path(args.other).name} with an adapter"] = args.other, args.adapter
    runs: dict[str, tuple[Any, str]] = {"toolspec": (plain, "toolspec")}
    opened = []
    for name, (source, adapter) in sidecars.items():
        config = SidecarConfig(source, adapter=adapter, wave="always", device="cpu")
        opened.append(ReadySidecar(open_sidecar(config)))
        how: Any = {"sidecar": opened[-1], "wave": "always", "cost_model": False}
        runs[name] = ooospec.load(plain.backend, **how), "ooo"
    for file, requests in sets.items():
        totals = {name: [0, 0] for name in runs}
        for request in requests[:: -(-len(requests) // args.hinted)]:
            asked: Any = request["messages"], request["tools"]
            ids = plain.generate(*asked, method="ar", max_tokens=MAX_ANSWER).token_ids
            for name, (engine, method) in runs.items():
                answer = engine.generate(*asked, method=method, max_tokens=MAX_ANSWER)
                if answer.token_ids != ids:
                    raise SystemExit(f"{request['id']}: {name} differs from ar")
                counted = call_rounds(plain.tokens.pieces, request["tools"], answer)
                if counted is not None:
                    totals[name][0] += counted.num_tokens
                    totals[name][1] += counted.num_rounds
        for name, (num_tokens, num_rounds) in totals.items():
            if num_rounds:
                report.add(f"{name}, {file}", "rate", num_tokens / num_rounds, "tokens/round")
    for sidecar in opened:
        sidecar.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default=TARGET)
    parser.add_argument("--sidecar", default=SIDECAR)
    parser.add_argument("--data", type=Path, help="folder of the request files")
    parser.add_argument("--files", nargs="+", default=["eval_toolalpaca", "eval_bfcl_javajs"])
    parser.add_argument("--requests", type=int, default=200, help="of each set")
    parser.add_argument("--hinted", type=int, default=40, help="of each set, answered with hints")
    parser.add_argument("--other", help="another sidecar that gives hints")
    parser.add_argument("--adapter", help="folder of an adapter of it")
    parser.add_argument("--rows", type=int, default=16, help="answers at a time")
    args = parse_args(__doc__ or "", parser)
    with tempfile.TemporaryDirectory() as folder:
        if args.smoke:
            args.requests = args.hinted = 2
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
    bench_hints(report, args, sets)
    report.finish()


if __name__ == "__main__":
    main()
