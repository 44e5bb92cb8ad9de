# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of the README from the committed rows: `python bench/tables.py`.

A table stands between `<!-- NAME -->` and `<!-- end -->`. `--check`: only says which differ.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[1]
FILES = ("eval_apibank", "eval_toolalpaca", "eval_bfcl_javajs")
ONE_TOOL = [("eval_bfcl_javajs", "function")]  # each request has but one
ADAPTER = "ooo, qwen2.5-coder-0.5b"
PERFECT = "ooo, perfect hints"


class Rows:
    """The values of a file of committed rows, by case and metric."""

    def __init__(self, bench: str) -> None:
        with (ROOT / "bench" / "results" / f"{bench}.csv").open(newline="") as file:
            rows = [
                (row["case"], row["metric"], float(row["value"])) for row in csv.DictReader(file)
            ]
        self._values = {(case, metric): value for case, metric, value in rows}
        if len(self._values) < len(rows):
            raise ValueError(f"{bench}: expected one row a case and metric, got more")
        self.cases = list(dict.fromkeys(case for case, _ in self._values))

    def __call__(self, case: str, metric: str) -> float:
        return self._values[case, metric]


def rounds() -> list[list[str]]:
    """Tokens a round of the call on a real target."""
    get = Rows("methods_rounds")
    methods = {
        "span": "`span`: values that stand in the request; no model",
        "toolspec": "`toolspec`: and schema, retrieval, recycler; no model",
        "self": "`self`: and the target itself fills in other parameters in spare rows",
        "ooo": "`ooo`: `toolspec` and hints of an **untrained** 0.5B sidecar",
        ADAPTER: "`ooo`: hints of the same sidecar with our adapter",
        PERFECT: "`ooo` with perfect hints: the ceiling",
    }
    number = get("all", "rows")
    title = f"Qwen2.5-Coder 1.5B answers {number:.0f} requests of API-Bank, ToolAlpaca and BFCL"
    table = [[title, "tokens a round of the call", "x `toolspec` (95 % interval)"]]
    table.append(["plain decoding", "1", ""])
    for method, said in methods.items():
        pair, over = f"{method} / toolspec", ""
        if pair in get.cases:
            value, low, high = (get(pair, metric) for metric in ("ratio", "low", "high"))
            over = f"{value:.2f} ({low:.2f} to {high:.2f})"
        table.append([said, f"{get(method, 'rate'):.1f}", over])
    return table


def real() -> list[list[str]]:
    """A real target and its sidecar on one GPU, everything live: what `ooospec bench` wrote."""
    with (ROOT / "bench" / "results" / "real.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file) if row["file"] == "all"}
    names = {
        "ar": "`ar`",
        "span": "`span`",
        "toolspec": "`toolspec`",
        "self": "`self`",
        "ooo, R": "`ooo`, our adapter",
        "ooo+self, R": "`ooo+self`, our adapter",
        PERFECT: "`ooo`, perfect hints",
    }
    title = f"{rows['ar']['num_requests']} requests, 1.5B and 0.5B live on one H200"
    table = [[title, "tokens a round of the call", "decoding", "from arrival", "p50", "p95"]]
    for method, said in names.items():
        row = {key: float(rows[method][key]) for key in ("call_rate", "decode", "total")}
        times = [f"{float(rows[method][key]):.0f} ms" for key in ("p50_ms", "p95_ms")]
        speeds = [f"{row[key]:.1f} x" for key in ("decode", "total")]
        table.append([said, f"{row['call_rate']:.1f}", *speeds, *times])
    return table


def cells() -> list[list[str]]:
    """Replay on one GPU, means over the three files."""
    get = Rows("cells_paper")
    methods = ("span", "toolspec", "self", "ooo", PERFECT)
    table = [
        [
            "target's shape",
            *(f"`{name}`".replace(", perfect hints`", "`, perfect") for name in methods),
        ]
    ]
    for shape in dict.fromkeys(case.partition(",")[0] for case in get.cases):
        if f"{shape}, cold prefix, ooo, mean" in get.cases:
            means = [f"{shape}, cold prefix, {name}, mean" for name in methods]
            pairs = [both(get, mean) if mean in get.cases else "" for mean in means]
            table.append([shape, *pairs])
    paper = [
        get(f"the paper's {name}, mean of 21 cells", "published") for name in ("toolspec", "ooo")
    ]
    paper_toolspec, paper_ooo = (f"{value:.2f}" for value in paper)
    table.append(["the paper, two H100", "", paper_toolspec, "", paper_ooo, ""])
    return table


def ablations() -> list[list[str]]:
    """What one change makes of `ooo`, by replay at 8B."""
    get = Rows("ablations")
    cases = {
        "as it is, ooo": "as it is",
        "as it is, toolspec": "no sidecar (`toolspec`)",
        "hints right at 0%, ooo": "all values wrong",
        "hints right at 50%, ooo": "half of the values right",
        "hints right at 100%, ooo": "all values right",
        "hints right at 100%, waits for them, ooo": "all values right, rounds wait for the hints",
        "hints 20 ms late, ooo": "hints 20 ms late",
        "hints 200 ms late, ooo": "hints 200 ms late",
        "function only, ooo": "hints of the function only",
        "values only, ooo": "hints of values only",
        "one last hint, ooo": "all hints at the end of the wave",
        "slots one after another, ooo": "one slot at a time, no parallel wave",
        "waits for the hints, ooo": "rounds wait for the hints",
        "waits for the hints before the prefill, ooo": "the prefill waits for the hints",
        "two processes, ooo, split": "the sidecar in a process of its own",
        "trees of 8 nodes, ooo": "trees of 8 nodes",
        "trees of 16 nodes, ooo": "trees of 16 nodes",
        "trees of 32 nodes, ooo": "trees of 32 nodes",
    }
    table = [["Qwen3-8B, one H200, everything live", "tokens a round", "decoding", "from arrival"]]
    for case, said in cases.items():
        times = [f"{get(case, metric):.1f} x" for metric in ("decoding", "in total")]
        table.append([said, f"{get(case, 'rate'):.1f}", *times])
    return table


def toys() -> list[list[str]]:
    """What the models that come with the package are worth."""
    get = Rows("tiny")
    sets = {
        "held out": "made up, of words and sentences held out",
        "eval_apibank": "of API-Bank",
        "eval_toolalpaca": "of ToolAlpaca",
        "eval_bfcl_javajs": "of BFCL Java and JavaScript",
    }
    table = [
        [
            "requests",
            "target: calls that parse",
            "right function",
            "all right",
            "sidecar: right function",
            "arguments, where it is",
            "tokens a round: `toolspec`",
            "`ooo`",
            "`ooo`, our adapter of the 0.5B",
        ]
    ]
    for name, said in sets.items():
        of_target = [get(f"target, {name}", what) for what in ("parsed", "function", "right")]
        of_sidecar = [
            None if (name, what) in ONE_TOOL else get(f"sidecar, {name}", what)
            for what in ("function", "arguments")
        ]
        methods = ("toolspec", "ooo", "ooo, qwen2.5-coder-0.5b with an adapter")
        rates = [get(f"{method}, {name}", "rate") for method in methods]
        shares = [
            "one tool each" if share is None else f"{share:.0%}".replace("%", " %")
            for share in (*of_target, *of_sidecar)
        ]
        table.append([said, *shares, *(f"{rate:.1f}" for rate in rates)])
    return table


def split() -> list[list[str]]:
    """What a second GPU buys, means over the three files."""
    get = Rows("split")
    apart = "ooo, split"
    table = [
        [
            "target's shape",
            "`toolspec`, no sidecar",
            "`ooo`, one GPU",
            "`ooo`, two GPUs",
            "prefill beside a wave: one GPU",
            "two GPUs",
            "wave: one GPU",
            "two GPUs",
        ]
    ]
    for shape in dict.fromkeys(case.partition(",")[0] for case in get.cases):
        if f"{shape}, {apart}, mean" not in get.cases:
            continue
        line = [
            shape,
            *(both(get, f"{shape}, {name}, mean") for name in ("toolspec", "ooo", apart)),
        ]
        for metric, unit in (("prefill", " x"), ("wave_ms", " ms")):
            for name in ("ooo", apart):
                values = [get(f"{shape}, {file}, {name}, waves", metric) for file in FILES]
                line.append(f"{mean(values):.{2 if unit == ' x' else 0}f}{unit}")
        table.append(line)
    return table


def both(get: Rows, case: str) -> str:
    """Returns the speed-ups of a mean, after the first token and in total."""
    return f"{get(case, 'decode'):.1f} / {get(case, 'total'):.1f}"


TABLES = {
    "rounds": rounds,
    "real": real,
    "cells": cells,
    "ablations": ablations,
    "split": split,
    "toys": toys,
}


def markdown(table: list[list[str]]) -> str:
    """Returns a table as Markdown."""
    lines = [table[0], ["---"] * len(table[0]), *table[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def with_tables(text: str) -> str:
    """Returns the README's text with tables made anew. Raises ValueError for one that it lacks."""
    for name, make in TABLES.items():
        pattern = re.compile(f"(?s)(<!-- {name} -->\n).*?(<!-- end -->)")
        if len(pattern.findall(text)) != 1:
            raise ValueError(f"README: expected <!-- {name} --> ... <!-- end --> once")
        made = markdown(make())
        text = pattern.sub(lambda found, made=made: found[1] + made + found[2], text)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the README differs")
    check = parser.parse_args().check
    path = ROOT / "README.md"
    old = path.read_text()
    new = with_tables(old)
    if check:
        sys.exit(int(new != old))
    path.write_text(new)


if __name__ == "__main__":
    main()
