# SPDX-License-Identifier: Apache-2.0
"""How many tokens a round a drafter needs that costs some time a round, to be as fast as `ooo`.

Drawn from committed rows (cells_paper.csv, round.csv) into docs/break_even.svg, with the best
speed-ups that others have published, at which a drafter of a cost must make so many tokens.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from tables import ROOT, Rows

SHAPE = "Qwen3-8B"
COSTS_MS = np.linspace(0, 8, 81)
# As their authors say: over their own plain decoding, at best, on chat, code and mathematics.
PUBLISHED = {
    "EAGLE-3 (arXiv 2503.01840)": 6.5,
    "DFlash on Qwen3-8B (z-lab.ai/projects/dflash)": 6.17,
    "PARD-2 on Llama 3.1 8B (arXiv 2605.08632)": 6.94,
}


def tokens_needed(speed_up: float, plain_ms: float, round_ms: float) -> np.ndarray:
    """Returns the tokens a round that each of COSTS_MS needs for a speed-up over plain decoding."""
    return speed_up * (round_ms + COSTS_MS) / plain_ms


def draw() -> Figure:
    """Returns the picture."""
    cells, rounds = Rows("cells_paper"), Rows("round")
    plain_ms = rounds("8B round, 1 rows, 1024 cached", "p50") / 1000
    round_ms = rounds("8B round, 64 rows, 1024 cached", "p50") / 1000
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for method, style in (("ooo", "-"), ("toolspec", "--")):
        speed_up = cells(f"{SHAPE}, cold prefix, {method}, mean", "decode")
        label = f"as fast as {method}: {speed_up:.1f} x plain decoding"
        axes.plot(
            COSTS_MS, tokens_needed(speed_up, plain_ms, round_ms), style, color="C2", label=label
        )
    for (name, speed_up), color in zip(PUBLISHED.items(), ("C0", "C1", "C3"), strict=True):
        label = f"{name}: {speed_up:g} x at best"
        needed = tokens_needed(speed_up, plain_ms, round_ms)
        axes.plot(COSTS_MS, needed, ":", color=color, label=label)
    axes.set_xlabel(
        f"cost of drafting a round, ms (a round of {SHAPE} on an H200: {round_ms:.1f} ms)"
    )
    axes.set_ylabel("tokens a round needed")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "break_even.svg")
    # The same picture from the same rows, its text as text.
    matplotlib.rcParams |= {"svg.hashsalt": "ooospec", "svg.fonttype": "none"}
    draw().savefig(parser.parse_args().out, metadata={"Date": None})


if __name__ == "__main__":
    main()
