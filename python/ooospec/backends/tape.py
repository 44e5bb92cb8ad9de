# SPDX-License-Identifier: Apache-2.0
"""Replay targets: any model runs in full, and its logits are bent along a recorded answer.

Weights may be random: what the model would have said is hashed and forgotten, what was recorded is
chosen, by absolute position, whatever path of a draft a row lies on. A method is exact there if the
hashes of the raw logits that every committed token was chosen from are those of `ar`. That takes
launches of fixed shape, whose rows have the same bits in each. Rows that ride beside the answer are
bent along what their branch says, and count for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any

import torch

from ooospec import ops
from ooospec.backends.base import Ask, Verdict
from ooospec.backends.launch import Launch
from ooospec.backends.launched import Body, LaunchBackend
from ooospec.config import LAUNCH_ROWS
from ooospec.kv import Sequence

# What a branch says behind tokens that it is given, which come behind so many of the answer.
BranchTokens = Callable[[int, list[int]], list[int]]

MAX_ROUNDS = 4096  # of one request
_MASK64 = (1 << 64) - 1


class Tape:
    """What is replayed, and what the model said. For one sequence at a time.

    first: position of the first committed token's parent: the last of the prompt. answer: int32[S,
    L], see `ops.bend`: sequence 0 of a launch is the answer, the others ride beside it. All buffers
    keep their addresses, so a graph may hold them.
    """

    def __init__(self, num_sequences: int, num_positions: int, device: torch.device) -> None:
        self.first = 0
        shape = num_sequences, num_positions
        self.answer = torch.full(shape, -1, dtype=torch.int32, device=device)
        self.log = torch.zeros(MAX_ROUNDS, LAUNCH_ROWS, dtype=torch.int64, device=device)
        self.count = torch.zeros(1, dtype=torch.int64, device=device)
        self._place = torch.zeros_like(self.count)
        self._hashes = torch.zeros(1, LAUNCH_ROWS, dtype=torch.int64, device=device)
        self._paths: list[list[int]] = []
        self._branch_tokens: BranchTokens = _nothing
        self._told: dict[Sequence, tuple[int, list[int]]] = {}  # behind which position, by branch
        self._riding: list[Sequence | None] = [None] * num_sequences  # who has a row of `answer`

    def play(
        self, num_prompt: int, tokens: Seq[int], branch_tokens: BranchTokens | None = None
    ) -> None:
        """From now on `tokens` follow a prompt of `num_prompt`, and nothing is bent elsewhere, but
        for what branches say.

        Raises ValueError for more tokens than the tape has room for.
        """
        room = min(MAX_ROUNDS, self.answer.shape[1] - num_prompt)
        if len(tokens) > room:
            raise ValueError(f"replay: expected at most {room} tokens, got {len(tokens)}")
        self.first = num_prompt - 1
        self.answer.fill_(-1)
        recorded = torch.tensor(tokens, dtype=torch.int32, device=self.answer.device)
        self.answer[0, self.first : self.first + len(tokens)] = recorded
        self.count.zero_()
        self._paths = []
        self._branch_tokens = branch_tokens or _nothing
        self._told = {}
        self._riding = [None] * len(self.answer)

    def stop(self) -> None:
        """Bends nothing any more."""
        self.play(1, ())

    def tell(self, riders: Seq[Ask]) -> None:
        """Makes the rows of riders, sequences 1 on of the next launch, say what their branches say.

        A branch that rides for the first time has all that it is given in its rows, and behind it
        the tokens of the answer that it leaves.
        """
        for row, rider in enumerate(riders, 1):
            branch = rider.sequence
            if branch is self._riding[row]:
                continue
            if branch not in self._told:
                given = rider.rows.tokens[: rider.num_given + 1].tolist()
                said = self._branch_tokens(branch.length - self.first - 1, given)
                self._told[branch] = branch.length + rider.num_given, said
            first, said = self._told[branch]
            self.answer[row].fill_(-1)
            told = torch.tensor(said, dtype=torch.int32)
            self.answer[row, first : first + len(said)].copy_(told)
            self._riding[row] = branch

    def write(self, parts: torch.Tensor) -> None:
        """Logs the hashes of a launch, int64[N, 8]; part of its graph."""
        torch.sum(parts, dim=1, out=self._hashes[0, : len(parts)])
        torch.remainder(self.count, MAX_ROUNDS, out=self._place)
        self.log.index_copy_(0, self._place, self._hashes)
        self.count.add_(1)

    def note(self, path: Seq[int]) -> None:
        """Takes up which rows of the last launch that was logged came to be committed behind."""
        self._paths.append(list(path))

    def hashes(self, num_tokens: int) -> list[int]:
        """Returns the hash of the raw logits that each of the first `num_tokens` was chosen from.

        Raises RuntimeError if not every one of them was logged.
        """
        rounds = self.log[: len(self._paths)].cpu()
        found = [
            int(rounds[number, row]) & _MASK64
            for number, path in enumerate(self._paths)
            for row in path
        ]
        if int(self.count) != len(self._paths) or len(found) < num_tokens:
            raise RuntimeError(
                f"replay: expected the logits of {num_tokens} tokens in {int(self.count)} "
                f"launches, got those of {len(found)} in {len(self._paths)}"
            )
        return found[:num_tokens]


class TapedBody:
    """A Body whose logits are hashed, logged and bent behind its last operation; see Body."""

    def __init__(self, body: Body, tape: Tape) -> None:
        self._body, self._tape = body, tape
        self.layers, self.num_heads = body.layers, body.num_heads
        self.num_logits = body.num_logits
        device = tape.answer.device
        self._parts = torch.zeros(LAUNCH_ROWS, ops.HASH_PARTS, dtype=torch.int64, device=device)
        self._last = torch.zeros(1, dtype=torch.int32, device=device)
        self._only = torch.zeros_like(self._last)  # sequence of a prefill

    def step(self, launch: Launch, plan: ops.TreePlan, logits: torch.Tensor) -> None:
        """See Body."""
        self._body.step(launch, plan, logits)
        self._bend(logits, launch.positions, launch.sequences)

    def chunk(self, launch: Launch) -> None:
        """See Body."""
        self._body.chunk(launch)

    def last(self, launch: Launch, logits: torch.Tensor) -> None:
        """See Body."""
        self._body.last(launch, logits)
        torch.index_select(launch.positions, 0, launch.last_row, out=self._last)
        self._bend(logits[:1], self._last, self._only)

    def _bend(self, logits: torch.Tensor, positions: torch.Tensor, sequences: torch.Tensor) -> None:
        parts = self._parts[: len(positions)]
        ops.bend(logits, positions, sequences, self._tape.answer, parts)
        self._tape.write(self._parts)


class TapedBackend:
    """A backend that replays: all of `inner`, which is its own from now on, but for its logits.

    tape: what it is told to.
    """

    def __init__(self, inner: LaunchBackend) -> None:
        self._inner = inner
        self.tape = Tape(inner.num_sequences, inner.context_limit + LAUNCH_ROWS, inner.device)
        inner.body = TapedBody(inner.body, self.tape)
        self.description = f"{inner.description}, replayed"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def prefill(
        self, sequence: Sequence, tokens: Seq[int], progress: Callable[[int], None] | None = None
    ) -> torch.Tensor:
        """See Backend.prefill."""
        logits = self._inner.prefill(sequence, tokens, progress)
        self.tape.note([0])
        return logits

    def verify(self, *args: Any, riders: Seq[Ask] = (), **how: Any) -> Verdict:
        """See Backend.verify."""
        self.tape.tell(riders)
        verdict = self._inner.verify(*args, riders=riders, **how)
        self.tape.note(verdict.path)
        return verdict


def _nothing(num_before: int, given: list[int]) -> list[int]:
    return []
