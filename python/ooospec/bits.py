# SPDX-License-Identifier: Apache-2.0
"""Proof that a row's logits depend on its own path alone, bit for bit, in this very backend.

The same tokens are run one by one, as plain decoding runs them, and then as paths of random trees:
alone, beside other sequences, over scattered pages, behind a shared prefix. Equal bits mean that no
draft can change what the target says.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch

from ooospec.backends.base import Backend, Segment
from ooospec.config import LAUNCH_ROWS
from ooospec.kv import PagePool, Sequence

NUM_PATH = 24  # tokens whose logits are compared, a case
MAX_STEP = 12  # of them at most in one launch
BORDER = 64  # attention changes its course at multiples of this position


@dataclass(frozen=True)
class BitDifference:
    """Logits that differ. row: token of the path. largest: greatest difference of two logits."""

    case: str
    length: int
    row: int
    largest: float


@dataclass
class BitsReport:
    """num_rows: rows of logits compared, each of the whole vocabulary."""

    num_cases: int = 0
    num_rows: int = 0
    differences: list[BitDifference] = field(default_factory=list)


def check_bits(
    backend: Backend,
    lengths: Seq[int],
    *,
    seed: int = 0,
    beside: Callable[[], None] = lambda: None,
    on_case: Callable[[str, int], None] = lambda case, length: None,
) -> BitsReport:
    """Compares the logits of random paths behind prompts of `lengths` tokens in every way of CASES.

    beside: called before every launch of a tree, to put other work on the device.
    on_case: called with (case, length) before each. Raises what the backend raises.
    """
    report = BitsReport()
    for length in lengths:
        rng = random.Random(f"{seed} {length}")
        prompt = _tokens(rng, backend, length)
        path = _tokens(rng, backend, NUM_PATH)
        expected = _plain(backend, prompt, path)
        for case, run in CASES.items():
            on_case(case, length)
            got = run(_Trial(backend, prompt, path, rng, beside))
            report.num_cases += 1
            report.num_rows += len(path)
            equal = (got == expected).all(dim=1)
            if not bool(equal.all()):
                row = int((~equal).nonzero()[0])
                largest = float((got[row] - expected[row]).abs().max())
                report.differences.append(BitDifference(case, length, row, largest))
    return report


def busy_device(device: torch.device) -> Callable[[], None]:
    """Returns what puts other work on a GPU, on a stream of its own; nothing on a CPU."""
    if device.type != "cuda":
        return lambda: None
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    a = torch.randn(2048, 2048, device=device, dtype=torch.bfloat16)
    b, out = torch.randn_like(a), torch.empty_like(a)

    def work() -> None:
        with torch.cuda.stream(stream):
            for _ in range(20):
                torch.mm(a, b, out=out)

    return work


def border_lengths(rng: random.Random, limit: int, count: int) -> list[int]:
    """Returns `count` lengths up to `limit`, most within a few tokens of a border."""
    borders = list(range(BORDER, limit - LAUNCH_ROWS, BORDER))
    large = [border for border in borders if border & (border - 1) == 0]
    found = []
    for _ in range(count):
        border = rng.choice(large if rng.random() < 0.5 else borders)
        found.append(
            max(1, min(limit - 2 * LAUNCH_ROWS, border + rng.randint(-NUM_PATH, NUM_PATH)))
        )
    return found


def _plain(backend: Backend, prompt: Seq[int], path: Seq[int]) -> torch.Tensor:
    """Returns float32[path, V]: the logits of plain decoding, a token a launch."""
    sequence = _prefilled(backend, _pool(backend, prompt, path), prompt)
    found = []
    for token in path:
        position = sequence.length
        found.append(backend.forward([Segment(sequence, [token], [position])])[0])
        sequence.keep([0])
    return torch.cat(found)


@dataclass
class _Trial:
    """A path to be run in a way of its own."""

    backend: Backend
    prompt: Seq[int]
    path: Seq[int]
    rng: random.Random
    beside: Callable[[], None]

    def run(self, sequence: Sequence, others: Seq[Sequence] = ()) -> torch.Tensor:
        """Returns float32[path, V]: the path as part of random trees, some tokens a launch."""
        found, done = [], 0
        while done < len(self.path):
            count = min(self.rng.randint(1, MAX_STEP), len(self.path) - done)
            room = LAUNCH_ROWS - 8 * len(others)
            tree, rows = self._tree(sequence, self.path[done : done + count], room)
            segments = [tree] + [self._tree(other, [0], 8)[0] for other in others]
            order = self.rng.sample(range(len(segments)), len(segments))
            self.beside()
            logits = self.backend.forward([segments[i] for i in order])
            found.append(logits[order.index(0)][rows])
            sequence.keep(rows)
            done += count
        return torch.cat(found)

    def _tree(self, sequence: Sequence, path: Seq[int], room: int) -> tuple[Segment, list[int]]:
        """Returns a random tree of at most `room` rows with `path` in it, and the path's rows."""
        rng, size = self.rng, self.rng.randint(len(path), room)
        on_path = sorted([0, *rng.sample(range(1, size), len(path) - 1)])
        parents, depths = [-1], [0]
        for row in range(1, size):
            before = [i for i in on_path if i < row]
            parents.append(before[-1] if row in on_path else rng.randrange(row))
            depths.append(depths[parents[row]] + 1)
        tokens = _tokens(rng, self.backend, size)
        for row, token in zip(on_path, path, strict=True):
            tokens[row] = token
        mask = torch.eye(size, dtype=torch.bool)
        for row in range(1, size):
            mask[row] |= mask[parents[row]]
        positions = [sequence.length + depth for depth in depths]
        return Segment(sequence, tokens, positions, mask), on_path


def _alone(trial: _Trial) -> torch.Tensor:
    pool = _pool(trial.backend, trial.prompt, trial.path)
    return trial.run(_prefilled(trial.backend, pool, trial.prompt))


def _packed(trial: _Trial) -> torch.Tensor:
    """Two other sequences, of other lengths, in every launch."""
    pool = _pool(trial.backend, trial.prompt, trial.path, copies=3)
    others = []
    for _ in range(2):
        length = trial.rng.randint(1, len(trial.prompt))
        others.append(_prefilled(trial.backend, pool, _tokens(trial.rng, trial.backend, length)))
    return trial.run(_prefilled(trial.backend, pool, trial.prompt), others)


def _scattered(trial: _Trial) -> torch.Tensor:
    """Pages in any order, all others full of NaN."""
    pool = _pool(trial.backend, trial.prompt, trial.path, copies=2)
    for block in pool.blocks:
        block.fill_(torch.nan)
    held = pool.allocate(pool.num_pages)
    needed = -(-(len(trial.prompt) + len(trial.path) + LAUNCH_ROWS) // pool.page_size)
    pool.release(trial.rng.sample(held, needed))
    return trial.run(_prefilled(trial.backend, pool, trial.prompt))


def _shared(trial: _Trial) -> torch.Tensor:
    """The whole chunks of the prompt come from another sequence, which rides along with a fork."""
    pool = _pool(trial.backend, trial.prompt, trial.path, copies=3)
    first = _prefilled(trial.backend, pool, trial.prompt)
    chunk = trial.backend.chunk
    num_shared = (len(trial.prompt) - 1) // chunk * chunk
    second = Sequence(pool)
    second.share(first.pages[: num_shared // pool.page_size])
    second.reserve(len(trial.prompt) + len(trial.path) + LAUNCH_ROWS)
    trial.backend.prefill(second, trial.prompt[num_shared:])
    return trial.run(second, [first, second.fork(second.length + LAUNCH_ROWS)])


CASES: dict[str, Callable[[_Trial], torch.Tensor]] = {
    "tree": _alone,
    "packed": _packed,
    "scattered": _scattered,
    "shared": _shared,
}


def _pool(backend: Backend, prompt: Seq[int], path: Seq[int], copies: int = 1) -> PagePool:
    """Returns a pool for `copies` sequences of this size."""
    return backend.new_pool(copies * (len(prompt) + len(path) + 2 * LAUNCH_ROWS))


def _prefilled(backend: Backend, pool: PagePool, prompt: Seq[int]) -> Sequence:
    sequence = Sequence(pool)
    sequence.reserve(len(prompt) + NUM_PATH + LAUNCH_ROWS)
    backend.prefill(sequence, prompt)
    return sequence


def _tokens(rng: random.Random, backend: Backend, count: int) -> list[int]:
    return [rng.randrange(backend.decodable) for _ in range(count)]
