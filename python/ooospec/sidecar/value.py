# SPDX-License-Identifier: Apache-2.0
"""The answer to a slot's question: where it ends, and what JSON value its schema makes of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_OPEN, _CLOSE = b"{[", b"}]"
_LITERALS = frozenset((b"null", b"true", b"false"))
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_BOOLEANS = {"true": "true", "yes": "true", "false": "false", "no": "false"}


class ValueReader:
    """Follows an answer as it is written. It ends with a complete JSON value or with its line.

    answer: what was read so far, without leading spaces and what follows its end. ended: it is
    complete.
    """

    def __init__(self) -> None:
        self._read = bytearray()
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.ended = False

    @property
    def answer(self) -> bytes:
        return bytes(self._read).strip()

    def feed(self, data: bytes) -> bool:
        """Reads on; returns `ended`. Nothing is read after the end."""
        for byte in data:
            if self.ended:
                break
            if byte == 0x20 and not self._read:
                continue
            self._step(byte)
        self.ended = self.ended or bytes(self._read) in _LITERALS
        return self.ended

    def _step(self, byte: int) -> None:
        if self._in_string:
            if byte == 0x0A:  # a string has one line: this one will not be valid
                self.ended = True
                return
            self._read.append(byte)
            closes = byte == 0x22 and not self._escaped
            self._escaped = byte == 0x5C and not self._escaped
            if closes:
                self._in_string = False
                self.ended = self._depth == 0
            return
        nested = self._depth > 0
        if byte == 0x0A and not nested:
            self.ended = True
            return
        self._read.append(byte)
        starts = nested or len(self._read) == 1
        if byte == 0x22 and starts:
            self._in_string = True
        elif byte in _OPEN and starts:
            self._depth += 1
        elif byte in _CLOSE and nested:
            self._depth -= 1
            self.ended = self._depth == 0


def to_hint(answer: bytes, schema: Mapping[str, Any]) -> str | None:
    """Returns the compact JSON that `answer` stands for under `schema`; None where it is no value.

    A bare word is a string where a string may stand; numbers, booleans and enum members are brought
    to the type of the schema; numbers keep their digits. A type that cannot be meant is no value.
    """
    try:
        value, literal = _parse(answer.decode())
    except (ValueError, RecursionError):  # broken, half a character, or nested without end
        return None
    if literal == "null":
        return "null"
    if "const" in schema:
        return _one_of([schema["const"]], value, literal)
    if isinstance(schema.get("enum"), list):
        return _one_of(schema["enum"], value, literal)
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else [None]
    hints = (_to_kind(kind, value, literal) for kind in kinds)
    return next((hint for hint in hints if hint is not None), None)


def is_nullable(schema: Mapping[str, Any]) -> bool:
    """Returns whether `null` is a value of `schema`, rather than a sign that there is none."""
    kinds, members = schema.get("type"), schema.get("enum")
    return (isinstance(kinds, list) and "null" in kinds) or (
        isinstance(members, list) and None in members
    )


def _parse(text: str) -> tuple[Any, str]:
    """Returns (value, JSON text) of `text`; a bare word is a string, with empty JSON text."""
    if text and text[0] not in '"{[' and not _NUMBER.fullmatch(text):
        return (json.loads(text), text) if text.encode() in _LITERALS else (text, "")
    value = json.loads(text, parse_constant=_reject)
    compact = _compact(value)
    compact.encode()  # raises UnicodeEncodeError, a ValueError, for half a character
    return value, text if _NUMBER.fullmatch(text) else compact


def _to_kind(kind: Any, value: Any, literal: str) -> str | None:
    if kind == "string":
        if isinstance(value, str):
            return _compact(value)
        return _compact(literal) if literal and not isinstance(value, list | dict) else None
    if kind == "boolean":
        return _BOOLEANS.get(str(value).strip().lower())
    if kind in ("integer", "number"):
        number = literal if not isinstance(value, str) else value.strip()
        if isinstance(value, bool) or not _NUMBER.fullmatch(number):
            return None
        return _integer(number) if kind == "integer" else number
    if kind == "array":
        return literal if isinstance(value, list) else None
    if kind == "object":
        return literal if isinstance(value, dict) else None
    if kind is None:  # no type, or one of the ways to say it that we do not read: take it as it is
        return literal or (_compact(value) if isinstance(value, str) else None)
    return None


def _integer(number: str) -> str | None:
    if number.lstrip("-").isdecimal():
        return number
    value = float(number)
    return str(int(value)) if math.isfinite(value) and value == int(value) else None


def _one_of(members: list[Any], value: Any, literal: str) -> str | None:
    """Returns the member of an enum that is meant: equal as JSON, or else as words."""
    written = {_compact(member): member for member in members}
    if (literal or _compact(value)) in written:
        return literal or _compact(value)
    word = str(value).strip().casefold()
    for text, member in written.items():
        if str(member).casefold() == word:
            return text
    return None


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _reject(name: str) -> Any:
    raise ValueError(name)
