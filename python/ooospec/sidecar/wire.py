# SPDX-License-Identifier: Apache-2.0
"""The messages between an engine and a sidecar elsewhere, byte by byte.

A message is one ZeroMQ frame; numbers are little endian. Header:

    offset  bytes  field
         0      4  magic       "OOSP"
         4      1  version     1
         5      1  kind        see Kind
         6      2  zero
         8      8  session     the engine's, drawn at random when it starts; answers repeat it
        16      8  request     id of a request of that session; 0 for HELLO and STATE
        24      4  length      bytes of the body
        28      4  checksum    CRC-32 of bytes 0 to 27 and the body
        32      -  body

Bodies, and the most bytes that each may have:

    HELLO   engine to sidecar; empty. It is answered by STATE. The last eight connections that sent
            it for a session get the session's hints, whichever of them asks.
    ASK     engine to sidecar; 4 MiB: JSON {"messages": [...], "tools": [...], "tenant": "..."}
    CANCEL  engine to sidecar; empty
    STATE   sidecar to engine; 1,028: 4 bytes, most tokens of a prompt (0: not known); then UTF-8
    HINT    sidecar to engine; 4,104: 2 bytes each for kind (as in the hint ring), call, tool and
            parameter; then up to 4,096 bytes of UTF-8
    DONE    sidecar to engine; 512: UTF-8, what became of the wave

What is not exactly so is dropped, without an answer. Nothing is ever resent: hints are advice.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from enum import IntEnum
from typing import Any, NamedTuple

from ooospec._core import _C

MAGIC = b"OOSP"
VERSION = 1
_HEAD = struct.Struct("<4sBBHQQI")
_CHECKSUM = struct.Struct("<I")
_STATE = struct.Struct("<I")
_HINT = struct.Struct("<HHHH")
HEADER_BYTES = _HEAD.size + _CHECKSUM.size


class Kind(IntEnum):
    """What a message is."""

    HELLO = 1
    ASK = 2
    CANCEL = 3
    STATE = 4
    HINT = 5
    DONE = 6


MAX_BODY_BYTES = {
    Kind.HELLO: 0,
    Kind.ASK: 4 << 20,
    Kind.CANCEL: 0,
    Kind.STATE: _STATE.size + 1024,
    Kind.HINT: _HINT.size + _C.HintRecord.MAX_TEXT_BYTES,
    Kind.DONE: 512,
}


class Message(NamedTuple):
    """A message; `body` is within the bounds of its kind."""

    kind: Kind
    session: int
    request: int = 0
    body: bytes = b""


class Hint(NamedTuple):
    """The body of a HINT; the fields of a HintRecord."""

    kind: _C.HintKind
    call: int
    tool: int
    parameter: int
    text: str


def pack(message: Message) -> bytes:
    """Returns the frame of a message. Raises ValueError for a body that is too long."""
    kind, session, request, body = message
    if len(body) > MAX_BODY_BYTES[kind]:
        raise ValueError(
            f"{kind.name}: expected at most {MAX_BODY_BYTES[kind]} bytes, got {len(body)}"
        )
    head = _HEAD.pack(MAGIC, VERSION, kind, 0, session, request, len(body))
    return head + _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))) + body


def parse(frame: bytes) -> Message | None:
    """Returns the message of a frame, None for one that is not exactly as the table says."""
    if not HEADER_BYTES <= len(frame) <= HEADER_BYTES + MAX_BODY_BYTES[Kind.ASK]:
        return None
    magic, version, number, zero, session, request, length = _HEAD.unpack_from(frame)
    if (magic, version, zero) != (MAGIC, VERSION, 0) or number not in Kind.__members__.values():
        return None
    kind, body = Kind(number), frame[HEADER_BYTES:]
    if length != len(body) or length > MAX_BODY_BYTES[kind]:
        return None
    (checksum,) = _CHECKSUM.unpack_from(frame, _HEAD.size)
    if checksum != zlib.crc32(body, zlib.crc32(frame[: _HEAD.size])):
        return None
    return Message(kind, session, request, body)


def ask_body(messages: Seq[Mapping[str, Any]], tools: Seq[Mapping[str, Any]], tenant: str) -> bytes:
    """Returns the body of an ASK. Raises TypeError or ValueError for what is no JSON."""
    asked = {"messages": list(messages), "tools": list(tools), "tenant": tenant}
    return json.dumps(asked, ensure_ascii=False).encode()


def read_ask(body: bytes) -> tuple[list[Any], list[Any], str] | None:
    """Returns messages, tools and tenant of an ASK; None for a body that is none."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(asked, dict) or set(asked) != {"messages", "tools", "tenant"}:
        return None
    messages, tools, tenant = asked["messages"], asked["tools"], asked["tenant"]
    fits = isinstance(messages, list) and isinstance(tools, list) and isinstance(tenant, str)
    return (messages, tools, tenant) if fits else None


def state_body(text: str, context_limit: int) -> bytes:
    """Returns the body of a STATE; what is too long of the text goes."""
    return _STATE.pack(max(0, context_limit)) + _cut(text, 1024)


def read_state(body: bytes) -> tuple[str, int] | None:
    """Returns text and context limit of a STATE; None for a body that is none."""
    if len(body) < _STATE.size:
        return None
    return body[_STATE.size :].decode(errors="replace"), int(_STATE.unpack_from(body)[0])


def hint_body(record: _C.HintRecord) -> bytes:
    """Returns the body of a HINT."""
    numbers = int(record.kind), record.call, record.tool, record.parameter
    return _HINT.pack(*numbers) + _cut(record.text, _C.HintRecord.MAX_TEXT_BYTES)


def read_hint(body: bytes) -> Hint | None:
    """Returns a HINT; None for a body that is none."""
    if len(body) < _HINT.size:
        return None
    number, call, tool, parameter = _HINT.unpack_from(body)
    known = {int(kind): kind for kind in _C.HintKind.__members__.values()}
    try:
        text = body[_HINT.size :].decode()
    except UnicodeDecodeError:
        return None
    return Hint(known[number], call, tool, parameter, text) if number in known else None


def done_body(outcome: str) -> bytes:
    """Returns the body of a DONE; what is too long goes."""
    return _cut(outcome, MAX_BODY_BYTES[Kind.DONE])


def _cut(text: str, num_bytes: int) -> bytes:
    """Returns the UTF-8 of as much of a text as fits, whole characters only."""
    return text.encode(errors="replace")[:num_bytes].decode(errors="ignore").encode()
