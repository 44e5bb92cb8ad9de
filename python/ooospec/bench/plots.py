# SPDX-License-Identifier: Apache-2.0
"""The plots of a bench, as SVG that stands in a page."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np

from ooospec.bench.records import Record
from ooospec.bench.summary import PLAIN, Cell
from ooospec.errors import needs_extra
from ooospec.source_names import MEANINGS

COLOURS = {
    "schema": "#4878d0",
    "hint": "#59a14f",
    "span": "#8cd17d",
    "retrieval": "#edc948",
    "recycler": "#b07aa1",
    "external": "#76b7b2",
    "target": "#9c9c9c",
}
SPLIT = {"prefill": "#9c9c9c", "verify": "#4878d0", "host": "#e15759"}
MAX_ROUNDS = 24  # shown of the tokens by round
Draw = Callable[[Any], None]


def check_matplotlib() -> None:
    """Raises MissingExtra where there is no matplotlib."""
    with needs_extra("bench", "plots of the report"):
        import matplotlib.figure  # noqa: F401


def svg(draw: Draw, name: str, width: float = 8.0, height: float = 3.4) -> str:
    """Returns what `draw` puts on a figure; `name` keeps its ids apart from other plots'."""
    import matplotlib
    from matplotlib.figure import Figure

    settings = {"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    text = out.getvalue()
    return text[text.index("<svg") :]


def plots(cells: Seq[Cell], records: Seq[Record]) -> list[tuple[str, str]]:
    """Returns (caption, SVG) of each plot."""
    methods = [*dict.fromkeys(cell.method for cell in cells)]
    drafted = [method for method in methods if method != PLAIN]
    places = [*dict.fromkeys((cell.target, cell.file) for cell in cells)]
    wide = max(8.0, 0.32 * len(places) * len(methods) + 2)
    drawn: list[tuple[str, Draw, float]] = [
        (
            "How many times as fast as plain decoding: dark from arrival to the last token, light "
            "after the first token; 95 % bootstrap intervals over requests.",
            lambda figure: _speedups(figure, cells, places, drafted),
            wide,
        ),
        (
            "Tokens a round: committed tokens over the target's passes after prefill.",
            lambda figure: _rates(figure, cells, places, methods),
            wide,
        ),
        (
            "Committed tokens by who drafted them, all requests.",
            lambda figure: _sources(figure, records, drafted),
            8.0,
        ),
        (
            "Tokens that the n-th round commits, on average over answers that have so many rounds.",
            lambda figure: _by_round(figure, records, drafted),
            8.0,
        ),
        (
            "Where the time goes, summed over requests: prefill, the target's rounds, the host.",
            lambda figure: _split(figure, records, methods),
            8.0,
        ),
        (
            "Share of the requests that had their last token so long after arrival.",
            lambda figure: _latency(figure, records, methods),
            8.0,
        ),
        (
            f"One request ({_median_request(records)}): prefill, rounds, the sidecar's wave (thin "
            "bar) and hints (ticks).",
            lambda figure: _timeline(figure, records, methods),
            8.0,
        ),
    ]
    return [
        (caption, svg(draw, f"plot{i}", width)) for i, (caption, draw, width) in enumerate(drawn)
    ]


def _legend(figure: Any, names: Mapping[str, str] | None = None) -> None:
    """Puts the legend above the axes; names: what to show instead of labels."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    shown = [label if names is None else names[label] for label in labels]
    options = {"frameon": False, "fontsize": "small", "ncols": 4}
    figure.legend(handles, shown, loc="outside upper left", **options)


def _label(place: tuple[str, str]) -> str:
    return f"{place[1]}\n{place[0]}"


def _grouped(
    figure: Any, places: Seq[tuple[str, str]], methods: Seq[str]
) -> tuple[Any, dict[str, Any], float]:
    """Returns axes with a group of bars for each place, the bars' middles by method, and width."""
    axes = figure.subplots()
    width = 0.8 / max(1, len(methods))
    middle = np.arange(len(places), dtype=float)
    at = {m: middle + (k - (len(methods) - 1) / 2) * width for k, m in enumerate(methods)}
    axes.set_xticks(middle, [_label(place) for place in places])
    axes.spines[["top", "right"]].set_visible(False)
    return axes, at, width


def _speedups(
    figure: Any, cells: Seq[Cell], places: Seq[tuple[str, str]], methods: Seq[str]
) -> None:
    axes, at, width = _grouped(figure, places, methods)
    by = {(cell.target, cell.file, cell.method): cell for cell in cells}
    for k, method in enumerate(methods, start=1):  # the colours of the other plots
        for place, x in zip(places, at[method], strict=True):
            cell = by.get((*place, method))
            if cell is None:
                continue
            for ratio, alpha, side in ((cell.decode, 0.4, -1), (cell.total, 1.0, 1)):
                low, high = ratio.value - ratio.low, ratio.high - ratio.value
                axes.bar(
                    x + side * width / 5,
                    ratio.value,
                    width / 2.6,
                    yerr=[[max(low, 0)], [max(high, 0)]],
                    color=f"C{k}",
                    alpha=alpha,
                    error_kw={"elinewidth": 0.8},
                    label=method if place == places[0] and side == 1 else None,
                )
    axes.axhline(1, color="0.5", linewidth=0.8)
    axes.set_ylabel("x plain decoding")
    _legend(figure)


def _rates(figure: Any, cells: Seq[Cell], places: Seq[tuple[str, str]], methods: Seq[str]) -> None:
    axes, at, width = _grouped(figure, places, methods)
    by = {(cell.target, cell.file, cell.method): cell.rate for cell in cells}
    for method in methods:
        axes.bar(at[method], [by.get((*p, method), 0) for p in places], 0.9 * width, label=method)
    axes.set_ylabel("tokens a round")
    _legend(figure)


def _stacked(figure: Any, methods: Seq[str], parts: dict[str, list[float]], colours: Any) -> Any:
    axes = figure.subplots()
    left = np.zeros(len(methods))
    for name, values in parts.items():
        axes.barh([*methods], values, left=left, color=colours[name], label=name, height=0.7)
        left += values
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _sources(figure: Any, records: Seq[Record], methods: Seq[str]) -> None:
    parts: dict[str, list[float]] = {}
    for source in COLOURS:
        counts = []
        for method in methods:
            own = [record for record in records if record.method == method]
            total = max(1, sum(len(record.token_ids) for record in own))
            count = sum(record.accepted.get(source, 0) for record in own)
            if source == "target":
                count = total - sum(sum(record.accepted.values()) for record in own)
            counts.append(count / total)
        if any(counts):
            parts[source] = counts
    _stacked(figure, methods, parts, COLOURS).set_xlabel("share of the committed tokens")
    _legend(figure, MEANINGS)


def _by_round(figure: Any, records: Seq[Record], methods: Seq[str]) -> None:
    axes = figure.subplots()
    for k, method in enumerate(methods, start=1):
        sums, counts = np.zeros(MAX_ROUNDS), np.zeros(MAX_ROUNDS)
        for record in records:
            if record.method == method:
                committed = [one[5] for one in record.rounds[:MAX_ROUNDS]]
                sums[: len(committed)] += committed
                counts[: len(committed)] += 1
        shown = counts > 0
        axes.plot(
            np.arange(1, MAX_ROUNDS + 1)[shown],
            (sums[shown] / counts[shown]),
            f"C{k}",
            label=method,
        )
    axes.set(xlabel="round", ylabel="tokens committed", ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    _legend(figure)


def _split(figure: Any, records: Seq[Record], methods: Seq[str]) -> None:
    parts: dict[str, list[float]] = {name: [] for name in SPLIT}
    for method in methods:
        own = [record for record in records if record.method == method]
        prefill, verify = sum(r.prefill for r in own), sum(r.verify for r in own)
        parts["prefill"].append(prefill)
        parts["verify"].append(verify)
        parts["host"].append(max(0.0, sum(r.last for r in own) - prefill - verify))
    _stacked(figure, methods, parts, SPLIT).set_xlabel("seconds")
    _legend(figure)


def _latency(figure: Any, records: Seq[Record], methods: Seq[str]) -> None:
    axes = figure.subplots()
    for method in methods:
        last = np.sort([1000 * record.last for record in records if record.method == method])
        axes.step(last, np.arange(1, len(last) + 1) / len(last), where="post", label=method)
    for share in (0.5, 0.95):
        axes.axhline(share, color="0.8", linewidth=0.8, zorder=0)
    axes.set(xlabel="ms from arrival to the last token", ylabel="share", xscale="log", ylim=(0, 1))
    axes.spines[["top", "right"]].set_visible(False)
    _legend(figure)


def _median_request(records: Seq[Record]) -> str:
    plain = sorted((r for r in records if r.method == PLAIN), key=lambda record: record.last)
    return plain[len(plain) // 2].request


def _timeline(figure: Any, records: Seq[Record], methods: Seq[str]) -> None:
    axes = figure.subplots()
    request = _median_request(records)
    shown = {record.method: record for record in records if record.request == request}
    for y, method in enumerate(methods):
        record = shown[method]
        start = record.first - record.prefill
        axes.broken_barh([(1000 * start, 1000 * record.prefill)], (y - 0.3, 0.6), color="0.6")
        spans = [(1000 * one[1], 1000 * (one[2] - one[1])) for one in record.rounds]
        axes.broken_barh(spans, (y - 0.3, 0.6), color="#4878d0", edgecolor="white", linewidth=0.4)
        if record.wave is not None:
            begin, end = record.wave
            axes.broken_barh(
                [(1000 * begin, 1000 * (end - begin))], (y + 0.32, 0.1), color="#59a14f"
            )
        hints = [1000 * moment for moment in record.hints]
        axes.plot(hints, [y + 0.37] * len(hints), "|", color="#2f6b27", markersize=6)
    axes.set_yticks(range(len(methods)), [*methods])
    axes.invert_yaxis()
    axes.set_xlabel("ms since arrival")
    axes.spines[["top", "right"]].set_visible(False)
