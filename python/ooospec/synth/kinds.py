# SPDX-License-Identifier: Apache-2.0
"""Kinds of values: the JSON that a call holds, and the ways in which people say it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from datetime import date, timedelta
from random import Random
from typing import Any


def words(text: str) -> list[str]:
    """Returns what "|" parts."""
    return text.split("|")


NUMBER_WORDS = words(
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|"
    "thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|twenty"
)
_WILD = (0.0, 0.0, 0.3, 0.6, 1.0)  # shares of other words in what a strange scene says
_PART = re.compile(r"\{[^}]*\}|[A-Za-z']+")
_FIRST_DAY, _NUM_DAYS = date(2019, 1, 1), 3650


def ordinal_ending(number: int) -> str:
    """Returns what makes a number an ordinal: "st" for 1."""
    if number % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


@dataclass
class Scene:
    """What the values of one request share. today: a date that the dialogue may tell.

    strange: share of names and values that are strange words, by which copying is learnt; then some
    scenes are worded strangely too. words: of which some of these are made. today_matters: whether
    a value was said relative to today, so that it must be told.
    """

    rng: Random
    today: date | None = None
    strange: float = 0.0
    words: Seq[str] = ()
    today_matters: bool = False

    def __post_init__(self) -> None:
        self._wild = self.rng.choice(_WILD) if self.strange else 0.0

    def strange_words(self, most: int) -> str | None:
        """Returns up to `most` words that do not belong here, or None for no strange ones."""
        if not self.strange or self.rng.random() >= self.strange:
            return None
        return " ".join(self.strange_word() for _ in range(self.rng.randint(1, most)))

    def strange_word(self) -> str:
        """Returns a word that does not belong here."""
        rng = self.rng
        return rng.choice(self.words) if self.words and rng.random() < 0.7 else made_up(rng)

    def is_wild(self) -> bool:
        """Returns whether to say something as nobody would; never, where nothing is strange."""
        return self._wild > 0 and self.rng.random() < self._wild

    def worded(self, form: str) -> str:
        """Returns a sentence with fields in braces, in part in other words, so that what is learnt
        from it hangs on no wording.
        """

        def other(found: re.Match[str]) -> str:
            word = found[0]
            if word.startswith("{") or not self.is_wild():
                return word
            return self.rng.choice(("", self.strange_word(), f"{self.strange_word()} {word}"))

        return re.sub(r"  +", " ", _PART.sub(other, form)) if self._wild else form


@dataclass(frozen=True)
class Said:
    """A value as JSON, and the text that says it in a dialogue."""

    value: Any
    text: str


@dataclass(frozen=True)
class Kind:
    """A kind of value. schema: of a parameter of this kind; hint: of its format, for people.

    question: asks for a flag, which is answered by yes or no; "" for all others.
    """

    name: str
    schema: Mapping[str, Any]
    draw: Callable[[Scene], Said]
    hint: str = ""
    question: str = ""


def text(name: str, pool: Callable[[Random], str], *, schema: Mapping[str, Any] = {}) -> Kind:
    """Returns a kind of strings that are copied."""

    def draw(scene: Scene) -> Said:
        strange = scene.strange_words(3)
        value = pool(scene.rng) if strange is None else _in_some_case(scene.rng, strange)
        return Said(value, value)

    return Kind(name, {"type": "string", **schema}, draw)


def quoted(name: str, pool: Callable[[Random], str]) -> Kind:
    """Returns a kind of longer strings, said in quotes."""

    def draw(scene: Scene) -> Said:
        value = scene.strange_words(6) or pool(scene.rng)
        return Said(value, scene.rng.choice(('"{}"', "'{}'")).format(value))

    return Kind(name, {"type": "string"}, draw)


def _in_some_case(rng: Random, words: str) -> str:
    return rng.choice((str, str.title, str.capitalize))(words)


def count(name: str, low: int, high: int, *, worded: float = 0.4) -> Kind:
    """Returns a kind of integers; small ones are said in words with probability `worded`."""

    def draw(scene: Scene) -> Said:
        value = scene.rng.randint(low, high)
        is_word = value < len(NUMBER_WORDS) and scene.rng.random() < worded
        return Said(value, NUMBER_WORDS[value] if is_word else str(value))

    return Kind(name, {"type": "integer"}, draw)


def amount(
    name: str, low: float, high: float, digits: int, forms: Seq[str], hint: str = ""
) -> Kind:
    """Returns a kind of numbers with at most `digits` places. forms: such as "${}"."""

    def draw(scene: Scene) -> Said:
        value = round(scene.rng.uniform(low, high), scene.rng.randint(0, digits))
        value = int(value) if value == int(value) else value
        written = f"{value:.{digits}f}" if value != int(value) else str(value)
        return Said(value, scene.rng.choice(forms).format(written))

    return Kind(name, {"type": "number"}, draw, hint)


def scaled(name: str, units: Mapping[str, int], hint: str) -> Kind:
    """Returns a kind of integers in a unit, said in others too. units: form -> factor."""

    def draw(scene: Scene) -> Said:
        form = scene.rng.choice(list(units))
        if "{}" not in form:
            return Said(units[form], form)
        number = scene.rng.randint(2, 9) if units[form] > 1 else scene.rng.randint(2, 18) * 5
        is_word = number < len(NUMBER_WORDS) and scene.rng.random() < 0.3
        return Said(number * units[form], form.format(NUMBER_WORDS[number] if is_word else number))

    return Kind(name, {"type": "integer"}, draw, hint)


def flag(name: str, yes: str, no: str) -> Kind:
    """Returns a kind of booleans, said as "with breakfast" or "without breakfast"."""

    def draw(scene: Scene) -> Said:
        value = scene.rng.random() < 0.5
        return Said(value, yes if value else no)

    return Kind(name, {"type": "boolean"}, draw, question=f"{yes[0].upper()}{yes[1:]}?")


def choice(name: str, options: Mapping[str, Seq[str]]) -> Kind:
    """Returns a kind of enums. options: value -> ways to say it."""

    def draw(scene: Scene) -> Said:
        value = scene.rng.choice(list(options))
        return Said(value, scene.rng.choice(options[value]))

    return Kind(name, {"type": "string", "enum": list(options)}, draw)


def day(name: str, forms: Seq[Callable[[date], str]], relative: Mapping[str, int]) -> Kind:
    """Returns a kind of dates as YYYY-MM-DD. relative: form -> days from today."""

    def draw(scene: Scene) -> Said:
        value, said = _draw_day(scene, forms, relative)
        return Said(value.isoformat(), said)

    return Kind(name, {"type": "string", "format": "date"}, draw, "YYYY-MM-DD")


def clock(name: str, forms: Seq[Callable[[int, int], str]]) -> Kind:
    """Returns a kind of times of the day as HH:MM."""

    def draw(scene: Scene) -> Said:
        hour, minute = _draw_time(scene.rng)
        return Said(f"{hour:02}:{minute:02}", scene.rng.choice(forms)(hour, minute))

    return Kind(name, {"type": "string"}, draw, "HH:MM")


def moment(
    name: str,
    days: Seq[Callable[[date], str]],
    clocks: Seq[Callable[[int, int], str]],
    relative: Mapping[str, int],
    joints: Seq[str],
) -> Kind:
    """Returns a kind of date-times as YYYY-MM-DD HH:MM:SS. joints: such as "{day} at {time}"."""

    def draw(scene: Scene) -> Said:
        value, on = _draw_day(scene, days, relative)
        hour, minute = _draw_time(scene.rng)
        at = scene.rng.choice(clocks)(hour, minute)
        said = scene.rng.choice(joints).format(day=on, time=at)
        return Said(f"{value.isoformat()} {hour:02}:{minute:02}:00", said)

    return Kind(name, {"type": "string"}, draw, "YYYY-MM-DD HH:MM:SS")


def listing(name: str, item: Kind, low: int, high: int, joints: Seq[str]) -> Kind:
    """Returns a kind of arrays without repetition. joints: before the last item, such as "and"."""

    def draw(scene: Scene) -> Said:
        found: dict[str, Said] = {}
        for _ in range(scene.rng.randint(low, high)):
            said = item.draw(scene)
            found.setdefault(str(said.value), said)
        *first, last = [said.text for said in found.values()]
        joined = f"{', '.join(first)} {scene.rng.choice(joints)} {last}" if first else last
        return Said([said.value for said in found.values()], joined)

    return Kind(name, {"type": "array", "items": dict(item.schema)}, draw)


def record(name: str, fields: Mapping[str, Kind], form: str) -> Kind:
    """Returns a kind of objects. form: says it, such as "{street} in {city}"."""

    def draw(scene: Scene) -> Said:
        found = {key: kind.draw(scene) for key, kind in fields.items()}
        value = {key: said.value for key, said in found.items()}
        return Said(value, form.format_map({key: said.text for key, said in found.items()}))

    properties = {key: dict(kind.schema) for key, kind in fields.items()}
    schema = {"type": "object", "properties": properties, "required": list(fields)}
    return Kind(name, schema, draw)


def _draw_day(
    scene: Scene, forms: Seq[Callable[[date], str]], relative: Mapping[str, int]
) -> tuple[date, str]:
    if scene.today is not None and scene.rng.random() < 0.6:
        scene.today_matters = True
        said = scene.rng.choice(list(relative))
        return scene.today + timedelta(relative[said]), said
    value = any_day(scene.rng)
    return value, scene.rng.choice(forms)(value)


def any_day(rng: Random) -> date:
    """Returns a date within ten years."""
    return _FIRST_DAY + timedelta(rng.randrange(_NUM_DAYS))


def _draw_time(rng: Random) -> tuple[int, int]:
    return rng.randrange(24), rng.choice((0, 0, 0, 15, 30, 30, 45, rng.randrange(60)))


@dataclass(frozen=True)
class Pool:
    """Texts to draw from, and made-up ones, so that copying is learnt rather than a list.

    syllables: of made-up words; invented: how often one is taken; patterns: around it, "{}".
    """

    texts: Seq[str]
    syllables: Seq[str] = ()
    invented: float = 0.4
    patterns: Seq[str] = field(default=("{}",))

    def __call__(self, rng: Random) -> str:
        if self.syllables and rng.random() < self.invented:
            word = "".join(rng.choice(self.syllables) for _ in range(rng.randint(2, 3)))
            return rng.choice(self.patterns).format(word.capitalize())
        return rng.choice(self.texts)


def made_up(rng: Random) -> str:
    """Returns a word that nobody has heard."""
    return "".join(
        rng.choice("bcdfghjklmnprstvwz") + rng.choice(("a", "e", "i", "o", "u", "ai", "el", "or"))
        for _ in range(rng.randint(2, 3))
    )


def code(*patterns: str, mixed: float = 0.0) -> Callable[[Random], str]:
    """Returns a pool of codes: ^ stands for a capital, ? for a letter, # for a digit, % for a hex
    digit, * for a letter or digit; anything else for itself. mixed: share of other patterns.
    """
    signs = {
        "^": "ABCDEFGHJKLMNPQRSTUVWXYZ",
        "?": "abcdefghijkmnopqrstuvwxyz",
        "#": "0123456789",
        "%": "0123456789abcdef",
        "*": "abcdefghijklmnopqrstuvwxyz0123456789",
    }

    def pool(rng: Random) -> str:
        pattern = _mixed(rng) if rng.random() < mixed else rng.choice(patterns)
        return "".join(rng.choice(signs[sign]) if sign in signs else sign for sign in pattern)

    return pool


def _mixed(rng: Random) -> str:
    """Returns a pattern of two to four groups of one sign each."""
    groups = [rng.choice("^^?##%*") * rng.randint(1, 5) for _ in range(rng.randint(2, 4))]
    return rng.choice(("", "-", "_", "/", ".", ":")).join(groups)
