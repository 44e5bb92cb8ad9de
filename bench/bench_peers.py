# SPDX-License-Identifier: Apache-2.0
"""Our index and ring beside what others use for the same: every provider is checked, then timed.

A step of retrieval: take up a committed token, then draft what may follow. A record of a sidecar:
85 bytes of text with its numbers, there and back in one process, and a look at nothing. A peer that
is not installed is listed as missing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import struct
from collections.abc import Callable
from typing import Any

from _harness import Report, parse_args, time_calls
from ooospec import HintKind, HintRing, SuffixIndex
from ooospec.synth.generate import generate

DRAFTED = 16  # tokens
DEPTH = 64  # of arctic's tree, its default
TEXT = "x" * 85
RECORD = struct.Struct("<QIHHHH")


def documents(count: int) -> list[list[int]]:
    """Returns earlier calls as numbers of their words."""
    known: dict[str, int] = {}
    found = []
    for row in generate(count, families=["one", "several"]):
        words = re.findall(r"\w+|\W", json.dumps(row["calls"], ensure_ascii=False))
        found.append([known.setdefault(word, len(known)) for word in words])
    return found


class Ours:
    """The suffix automaton."""

    def __init__(self, earlier: list[list[int]]) -> None:
        self.index = SuffixIndex(256 << 20)
        for document in earlier:
            self.index.append(document)
        self.start()

    def start(self) -> None:
        self.cursor = SuffixIndex.Cursor()

    def step(self, token: int) -> list[int]:
        """Returns what is drafted behind `token`."""
        self.index.advance(self.cursor, token)
        found = self.index.continuations(self.cursor, 1, DRAFTED, 1)
        return found[0].tokens if found else []


class Arctic:
    """The suffix tree of arctic-inference."""

    def __init__(self, earlier: list[list[int]]) -> None:
        from arctic_inference.suffix_decoding import _C as core

        self.tree = core.SuffixTree(DEPTH)
        for number, document in enumerate(earlier):
            self.tree.extend(number, document)
        self.start()

    def start(self) -> None:
        self.context: list[int] = []

    def step(self, token: int) -> list[int]:
        """Returns what is drafted behind `token`."""
        self.context.append(token)
        draft = self.tree.speculate(self.context[-DEPTH:], DRAFTED, 100.0, 100.0, 0.0, False)
        tokens: list[int] = draft.token_ids
        return tokens


def bench_index(report: Report, count: int, num_steps: int) -> None:
    """Adds the time of a step behind `count` earlier calls."""
    earlier = documents(count)
    walks = [document for document in earlier if len(document) > 2 * DRAFTED][:200]
    for name, make in (("ooospec", Ours), ("arctic-inference", Arctic)):
        case = f"step behind {count} earlier calls, {name}"
        try:
            provider: Any = make(earlier)
        except ImportError:
            report.add(case, "missing: pip install arctic-inference", 1, "")
            continue
        check_index(name, provider, walks, set(map(tuple, windows(earlier))))
        tokens = (token for _ in range(10**9) for document in walks for token in document)
        report.add_times(case, time_calls(lambda p=provider, t=tokens: p.step(next(t)), num_steps))


def windows(documents: list[list[int]]) -> list[list[int]]:
    """Returns all pairs of neighbours."""
    return [d[i : i + 2] for d in documents for i in range(len(d) - 1)]


def check_index(name: str, provider: Any, walks: list[list[int]], pairs: set[Any]) -> None:
    """Raises RuntimeError unless drafts follow somewhere, and at the end of a call's head it."""
    right = 0
    for document in walks[:20]:
        provider.start()
        for i, token in enumerate(document[:-1]):
            draft = provider.step(token)
            if draft and (token, draft[0]) not in pairs:
                raise RuntimeError(f"{name}: drafted what never followed {token}")
            right += bool(draft) and draft[0] == document[i + 1]
    asked = sum(len(document) - 1 for document in walks[:20])
    if right < asked // 2:
        raise RuntimeError(f"{name}: expected most drafts to go on right, got {right} of {asked}")
    provider.start()


def bench_ring(report: Report, num_calls: int) -> None:
    """Adds the time of a record there and back, and of a look at nothing."""
    ring = HintRing(shared=True)
    reader, writer = multiprocessing.Pipe(duplex=False)
    queue: Any = multiprocessing.SimpleQueue()
    packed = RECORD.pack(1, 0, 1, 0, 0, 0) + TEXT.encode()

    def through_ring() -> str:
        ring.try_push(1, HintKind.VALUE, 0, 0, 0, TEXT)
        record = ring.try_pop()
        assert record is not None
        return record.text

    def through_pipe() -> str:
        writer.send_bytes(packed)
        data = reader.recv_bytes()
        RECORD.unpack_from(data)
        return data[RECORD.size :].decode()

    def through_queue() -> str:
        queue.put((1, 0, 1, 0, 0, 0, TEXT))
        return str(queue.get()[-1])

    names = "ooospec, shared memory", "multiprocessing.Pipe", "multiprocessing.SimpleQueue"
    whole: tuple[Callable[[], str], ...] = through_ring, through_pipe, through_queue
    looks: tuple[Callable[[], object], ...] = ring.try_pop, reader.poll, queue.empty
    for name, call, look in zip(names, whole, looks, strict=True):
        if call() != TEXT:
            raise RuntimeError(f"{name}: expected the record that was sent")
        report.add_times(f"record there and back, {name}", time_calls(call, num_calls))
        report.add_times(f"look at nothing, {name}", time_calls(look, num_calls))


def main() -> None:
    args = parse_args(__doc__ or "", argparse.ArgumentParser())
    report = Report("peers", args)
    num_calls = 200 if args.smoke else 20_000
    for count in (50,) if args.smoke else (100, 10_000):
        bench_index(report, count, num_calls)
    bench_ring(report, num_calls)
    report.finish()


if __name__ == "__main__":
    main()
