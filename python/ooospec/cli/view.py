# SPDX-License-Identifier: Apache-2.0
"""How an answer looks: each token in the colour of the source that drafted it, and a small plot."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from collections.abc import Sequence as Seq

from rich.text import Text

from ooospec.source_names import MEANINGS, source_name

COLOURS = {
    "target": "bold white",
    "schema": "blue",
    "hint": "green",
    "retrieval": "yellow",
    "recycler": "magenta",
    "span": "bright_green",
    "external": "cyan",
}


def spans(
    pieces: Seq[bytes], token_ids: Seq[int], sources: Seq[int], text: str
) -> Iterator[tuple[str, str]]:
    """Yields (text, source) of each token that shows, up to the length of `text`.

    A character of several tokens goes to the one that completes it.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    left = len(text)
    for token, source in zip(token_ids, sources, strict=True):
        shown = decoder.decode(pieces[token] if token < len(pieces) else b"")[:left]
        left -= len(shown)
        if shown:
            yield shown, source_name(source)


def coloured(parts: Seq[tuple[str, str]]) -> Text:
    """Returns the parts as one text in colours."""
    answer = Text()
    for shown, source in parts:
        answer.append(shown, COLOURS[source])
    return answer


def legend(sources: Seq[str]) -> Text:
    """Returns what the colours of `sources` mean, with their number of tokens, most first."""
    counts = {name: sources.count(name) for name in COLOURS if name in sources}
    lines = Text()
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        lines.append(f"{count:5d} ", COLOURS[name])
        lines.append(f"{MEANINGS[name]}\n", COLOURS[name])
    lines.rstrip()
    return lines


def plot(curves: Seq[tuple[str, Seq[int]]], width: int = 34, height: int = 9) -> Text:
    """Returns tokens (upwards) over rounds (to the right).

    curves: (style, tokens after each round); the first is on top. Drawn in braille, two by four
    dots a character.
    """
    num_rounds = max((len(tokens) for _, tokens in curves), default=0)
    num_tokens = max((tokens[-1] for _, tokens in curves if tokens), default=0)
    if not num_rounds or not num_tokens:
        return Text()
    dots = [[0] * width for _ in range(height)]
    styles = [[""] * width for _ in range(height)]
    for style, tokens in reversed(curves):
        lowest = 0
        for x in range(2 * width):
            round_idx = x * num_rounds // (2 * width)
            if round_idx >= len(tokens):
                break
            level = tokens[round_idx] * (4 * height - 1) // num_tokens
            for up in range(min(lowest + 1, level), level + 1):  # the rise from the round before
                row, dot = divmod(4 * height - 1 - up, 4)
                dots[row][x // 2] |= _BRAILLE[x % 2][dot]
                styles[row][x // 2] = style
            lowest = level
    drawn = Text()
    for row in range(height):
        label = f"{num_tokens} " if row == 0 else "0 " if row == height - 1 else ""
        drawn.append(f"{label:>6}\u2502", "dim")
        for mask, style in zip(dots[row], styles[row], strict=True):
            drawn.append(chr(0x2800 + mask) if mask else " ", style)
        drawn.append("\n")
    drawn.append(f"{'tokens':>6}\u2514{chr(0x2500) * width}\n", "dim")
    drawn.append(f"{'':7}{'rounds':<{width - 6}}{num_rounds:>6}", "dim")
    return drawn


_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
