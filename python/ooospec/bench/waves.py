# SPDX-License-Identifier: Apache-2.0
"""What became of the waves: how much of them was hidden, and what they cost the target."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from statistics import mean, median

from ooospec.bench.records import Record
from ooospec.bench.summary import PLAIN


@dataclass(frozen=True)
class WaveFigures:
    """The waves of one method's requests of one file on one target.

    behind_prefill, behind_answer: median share of a wave that ran before the target's first token,
    and before its last. first_hint_ms: median, from arrival. tokens_before: mean number of tokens
    committed before the first hint was there. age_us: median, of a hint when it was there for a
    draft. prefill, rounds: the target's time beside waves over that of `ar`, of prefills of the
    same requests (sums), and of rounds (medians). Rounds are alike only where all launches have one
    size, as on a GPU; None where no round began and ended within a wave.
    """

    target: str
    file: str
    method: str
    num_waves: int
    behind_prefill: float
    behind_answer: float
    wave_ms: float
    first_hint_ms: float
    tokens_before: float
    age_us: float | None
    prefill: float
    rounds: float | None


COLUMNS = (
    "method",
    "file",
    "waves",
    "of a wave, behind prefill",
    "behind the answer",
    "wave ms",
    "first hint ms",
    "tokens before it",
    "hint's age us",
    "prefill x ar",
    "rounds x ar",
)


def wave_texts(one: WaveFigures) -> list[str]:
    """Returns figures as the texts of COLUMNS."""
    return [
        one.method,
        f"{one.file}, {one.target}",
        str(one.num_waves),
        f"{100 * one.behind_prefill:.0f} %",
        f"{100 * one.behind_answer:.0f} %",
        f"{one.wave_ms:,.1f}",
        f"{one.first_hint_ms:,.1f}",
        f"{one.tokens_before:.1f}",
        "-" if one.age_us is None else f"{one.age_us:,.0f}",
        f"{one.prefill:.3f}",
        "-" if one.rounds is None else f"{one.rounds:.3f}",
    ]


def wave_figures(records: Seq[Record]) -> list[WaveFigures]:
    """Returns the figures of each target, file and method that had waves which sent hints."""
    plain = {(r.cell, r.request): r for r in records if r.method == PLAIN}
    groups: dict[tuple[tuple[str, str], str], list[Record]] = {}
    for record in records:
        if record.wave is not None and record.hints and (record.cell, record.request) in plain:
            groups.setdefault((record.cell, record.method), []).append(record)
    found = []
    for (cell, method), ours in groups.items():
        beside = [plain[cell, record.request] for record in ours]
        found.append(_figures(method, ours, beside))
    return found


def _figures(method: str, ours: Seq[Record], plain: Seq[Record]) -> WaveFigures:
    waves = [record.wave or [0.0, 0.0] for record in ours]
    during = [
        stop - start
        for record, wave in zip(ours, waves, strict=True)
        for _, start, stop, *_ in record.rounds
        if wave[0] <= start and stop <= wave[1]
    ]
    alone = [stop - start for record in plain for _, start, stop, *_ in record.rounds]
    ages = [age for record in ours for age in record.ages]
    return WaveFigures(
        target=ours[0].target,
        file=ours[0].file,
        method=method,
        num_waves=len(ours),
        behind_prefill=median(map(_hidden, waves, [record.first for record in ours])),
        behind_answer=median(map(_hidden, waves, [record.last for record in ours])),
        wave_ms=1000 * median(stop - start for start, stop in waves),
        first_hint_ms=1000 * median(record.hints[0] for record in ours),
        tokens_before=mean(tokens_before(record, record.hints[0]) for record in ours),
        age_us=1e6 * median(ages) if ages else None,
        prefill=sum(r.prefill for r in ours) / sum(r.prefill for r in plain),
        rounds=median(during) / median(alone) if during and alone else None,
    )


def _hidden(wave: Seq[float], until: float) -> float:
    """Returns the share of a wave that ran before `until`."""
    start, stop = wave
    return min(1.0, max(0.0, (until - start) / max(stop - start, 1e-9)))


def tokens_before(record: Record, moment: float) -> int:
    """Returns how many tokens were committed when a moment came; the first is that of prefill."""
    return 1 + sum(int(one[5]) for one in record.rounds if one[3] <= moment)
