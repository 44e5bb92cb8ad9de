# SPDX-License-Identifier: Apache-2.0
"""What is written beside an adapter: its card, the curves as a picture, and both as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ooospec.errors import needs_extra
from ooospec.files import whole_file, write_text
from ooospec.train.config import TrainConfig
from ooospec.train.trainer import History
from ooospec.version import VERSION

SMOOTHED_STEPS = 10
CARD, CURVES, NUMBERS = "README.md", "curves.svg", "training.json"


@dataclass(frozen=True)
class Data:
    """What an adapter was trained on.

    files: names; traced: of those, what teachers wrote. train, dev: requests by source.
    num_further: of those to train on, again, further on; see further_on. skipped: requests by
    reason. num_lost, num_pruned: see Split.
    """

    files: Seq[str]
    traced: Seq[str]
    train: Mapping[str, int]
    num_further: int
    dev: Mapping[str, int]
    skipped: Mapping[str, int]
    num_lost: int
    num_pruned: int


def write_report(
    folder: Path,
    *,
    base: str,
    command: str,
    config: TrainConfig,
    data: Data,
    history: History,
    num_bytes: int,
    shared: bool,
) -> None:
    """Writes card, curves and numbers. command: that made the adapter. num_bytes: of its weights.

    shared: whether the rows of a request shared its prefix.
    """
    numbers = {
        "base": base,
        "version": VERSION,
        "command": command,
        "config": asdict(config),
        "shared_prefix": shared,
        "data": asdict(data),
        "history": asdict(history),
        "num_bytes": num_bytes,
    }
    write_text(folder / NUMBERS, json.dumps(numbers, indent=1, ensure_ascii=False) + "\n")
    write_text(folder / CARD, _card(numbers, data, history))
    write_curves(folder / CURVES, history)


def _card(numbers: Mapping[str, Any], data: Data, history: History) -> str:
    best = history.best
    lines = [
        "---",
        f"base_model: {numbers['base']}",
        "library_name: peft",
        "tags: [ooospec, lora, tool-calling]",
        "---",
        f"# Sidecar adapter for {numbers['base']}",
        "",
        "Predicts the function and every argument of the next tool call, for speculation by "
        f"ooospec ({numbers['version']}). The target verifies each token, so a wrong guess costs "
        "time and never a token.",
        "",
        "```",
        numbers["command"],
        "```",
        "",
        "## Data",
        "",
        f"Files: {', '.join(data.files)}."
        + (f" Calls of a teacher: {', '.join(data.traced)}." if data.traced else ""),
        "",
        "| source | train | dev |",
        "| --- | --- | --- |",
        *(
            f"| {source or '(none named)'} | {data.train.get(source, 0)} | "
            f"{data.dev.get(source, 0)} |"
            for source in sorted({*data.train, *data.dev})
        ),
        "",
        f"Train and dev share no tool name: {data.num_lost} requests that call a tool of dev are "
        f"in neither, and {data.num_pruned} tools were taken off the lists of training requests.",
        f"{data.num_further} training requests were used again, with some of their calls made.",
        "",
        *(f"- skipped, {reason}: {count}" for reason, count in sorted(data.skipped.items())),
        "",
        "## Settings",
        "",
        *(f"- {name}: {value}" for name, value in numbers["config"].items()),
        f"- rows of a request: {'over one prefix' if numbers['shared_prefix'] else 'apart'}",
        "",
        "## Result",
        "",
        f"{len(history.losses)} steps in {history.seconds:.0f} s ({history.stopped}); weights of "
        f"{numbers['num_bytes'] / 1e6:.1f} MB in bfloat16.",
    ]
    if best is not None:
        lines += [
            f"The best evaluation, after step {best.step}, has dev loss {best.loss:.4f}. Share of "
            "rows that greedy decoding answers exactly:",
            "",
            "| rows | exact |",
            "| --- | --- |",
            *(f"| {kind} | {share:.1%} |" for kind, share in best.exact.items()),
        ]
    return "\n".join([*lines, "", f"![Loss and exact answers]({CURVES})", ""])


def write_curves(path: Path, history: History) -> None:
    """Draws loss and exact answers against steps, as SVG. Raises MissingExtra without matplotlib,
    InvalidRequest where it cannot be written.
    """
    with needs_extra("train", "curves"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    steps = range(1, len(history.losses) + 1)
    left.plot(steps, history.losses, color="0.8", linewidth=0.8)
    left.plot(steps, _smoothed(history.losses), label="train")
    at = [one.step for one in history.evaluations]
    left.plot(at, [one.loss for one in history.evaluations], marker="o", label="dev")
    left.set(xlabel="step", ylabel="loss of an answer's token", yscale="log")
    left.legend(frameon=False)
    for kind in sorted({kind for one in history.evaluations for kind in one.exact}):
        shares = [one.exact.get(kind) for one in history.evaluations]
        right.plot(at, shares, marker="o", label=kind)
    right.set(xlabel="step", ylabel="dev rows answered exactly", ylim=(0, 1.02))
    if history.evaluations:
        right.legend(frameon=False, fontsize="small")
    with whole_file(path) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})


def _smoothed(values: Seq[float]) -> list[float]:
    """Returns the means of the last SMOOTHED_STEPS values at each point."""
    windows = (values[max(0, i - SMOOTHED_STEPS + 1) : i + 1] for i in range(len(values)))
    return [sum(window) / len(window) for window in windows]
