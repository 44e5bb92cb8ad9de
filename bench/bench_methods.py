# SPDX-License-Identifier: Apache-2.0
"""Methods on real requests: tokens a round of the call, or wall time.

`--mode rounds`: 64 nodes, cost model off, hints ready before the first round; every answer must
equal that of `ar`; see _methods_rounds.py.
`--mode time`: cost model on, everything live; Hugging Face `generate` beside it, and the cases
where speculation cannot pay; see _methods_time.py.
With `--smoke` both models are tiny; the target knows the answer to its one request by heart.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from _harness import Report, parse_args
from _methods_rounds import bench_rounds
from _methods_time import CASES, bench_time
from _requests import FILES, read_requests, spread
from _taught import teach
from ooospec.tiny.untrained import untrained_pair


def part(text: str) -> tuple[int, int]:
    """Returns the numbers of I/N. Raises argparse.ArgumentTypeError for what is none."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise argparse.ArgumentTypeError(f"expected I/N with I below N, such as 0/4, got {text!r}")
    return int(found[1]), int(found[2])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", help="model folder or hub id")
    parser.add_argument("--sidecar", help="model folder or hub id")
    parser.add_argument(
        "--adapter", nargs="*", default=(), help="folders of adapters of the sidecar, in rounds"
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the request files")
    parser.add_argument("--mode", choices=("rounds", "time"), default="rounds")
    parser.add_argument("--files", nargs="+", choices=FILES, default=FILES)
    parser.add_argument("--rows", type=int, default=20, help="rows of each file")
    parser.add_argument(
        "--part",
        type=part,
        default="0/1",
        metavar="I/N",
        help="every N-th request from number I (of 0 to N-1) on, for runs side by side",
    )
    parser.add_argument(
        "--work", type=Path, help="folder of what was measured; a run goes on from there"
    )
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=CASES,
        help="of time: these alone, and `ar` is not compared with Hugging Face",
    )
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    args = parse_args(__doc__ or "", parser)
    if not args.smoke and None in (args.target, args.sidecar):
        parser.error("--target, --sidecar: expected both, or --smoke")
    if args.mode == "time" and args.adapter:
        parser.error("--adapter: expected --mode rounds, got --mode time")
    if args.mode == "rounds" and args.cases:
        parser.error("--cases: expected --mode time, got --mode rounds")
    files, rows = (args.files[-1:], 1) if args.smoke else (args.files, args.rows)
    requests = [
        (file, row) for file in files for row in spread(read_requests(args.data, file), rows)
    ]
    first, step = args.part
    requests = requests[first::step]
    if not requests:
        parser.error(f"--part: expected one with requests, got part {first} of {step}")
    run: Callable[..., None] = bench_rounds if args.mode == "rounds" else bench_time
    torch.backends.cuda.matmul.allow_tf32 = False
    with tempfile.TemporaryDirectory() as folder:
        if args.smoke:
            args.target, args.sidecar = untrained_pair(Path(folder))
            teach(args.target, requests[0][1])
        report = Report(f"methods_{args.mode}", args)
        run(args, report, requests)
        report.finish()


if __name__ == "__main__":
    main()
