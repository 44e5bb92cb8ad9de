# SPDX-License-Identifier: Apache-2.0
"""Logits of a replay: hashes that see every bit, and rows bent by sequence and position alone."""

from __future__ import annotations

import pytest
import torch

from ooospec import ops
from ooospec.sampling import spread_ids
from op_cases import DEVICE, PROVIDERS, guarded, same_bits

pytestmark = pytest.mark.parametrize("provider", PROVIDERS)
MASK = (1 << 64) - 1


def bend(
    provider: ops.Provider,
    logits: torch.Tensor,
    positions: list[int],
    *answers: list[int],
    sequences: list[int] | None = None,
) -> tuple[torch.Tensor, list[int]]:
    """Returns the bent logits and the hash of each row. answers: of each sequence."""
    with guarded() as put, ops.using(provider):
        given = put.put(logits)
        places = put.put(torch.tensor(positions, dtype=torch.int32))
        owners = put.put(torch.tensor(sequences or [0] * len(positions), dtype=torch.int32))
        record = put.put(torch.tensor(answers, dtype=torch.int32))
        hashes = put.empty(len(positions), ops.HASH_PARTS, dtype=torch.int64)
        ops.bend(given, places, owners, record, hashes)
    return given.cpu(), [int(h) & MASK for h in hashes.sum(dim=1)]


@pytest.mark.parametrize(("num_rows", "vocab"), [(1, 8), (3, 300), (64, 2049), (2, 5000)])
def test_the_record_decides_by_position(provider: ops.Provider, num_rows: int, vocab: int) -> None:
    torch.manual_seed(vocab)
    logits = torch.randn(num_rows, vocab)
    positions = [(7 * i) % 13 - 1 for i in range(num_rows)]  # also in front, and behind the end
    answer = [-1, 3, vocab - 1, 0, -1, 5, 2, vocab // 2]
    bent, _ = bend(provider, logits, positions, answer)
    for row, position in enumerate(positions):
        expected = logits[row].clone()
        if 0 <= position < len(answer) and answer[position] >= 0:
            expected[answer[position]] = ops.BENT
        assert same_bits(bent[row], expected)


def test_each_sequence_has_its_own_record(provider: ops.Provider) -> None:
    torch.manual_seed(3)
    logits = torch.randn(64, 50)
    answers = [[i * 16 + place for place in range(4)] for i in range(3)]
    answers[1][2] = -1
    positions = [i % 6 - 1 for i in range(64)]  # also in front, and behind the end
    sequences = [i % 5 - 1 for i in range(64)]  # padding, and one that is not there, too
    bent, hashes = bend(provider, logits, positions, *answers, sequences=sequences)
    assert hashes == bend(provider, logits, [-1] * 64, *answers)[1]
    for row, (sequence, position) in enumerate(zip(sequences, positions, strict=True)):
        expected = logits[row].clone()
        if 0 <= sequence < 3 and 0 <= position < 4 and answers[sequence][position] >= 0:
            expected[answers[sequence][position]] = ops.BENT
        assert same_bits(bent[row], expected)


def test_hashes_are_of_the_raw_bits(provider: ops.Provider) -> None:
    torch.manual_seed(1)
    row = torch.randn(777)
    weights = (spread_ids(torch.arange(1, 778)) | 1).tolist()
    bits = row.view(torch.int32).tolist()
    by_hand = sum(b * w for b, w in zip(bits, weights, strict=True)) & MASK
    for num_rows, place, record in ((1, 0, [5]), (7, 3, [-1]), (64, 63, [776])):
        logits = torch.randn(num_rows, 777)
        logits[place] = row
        assert bend(provider, logits, [0] * num_rows, record)[1][place] == by_hand


def test_any_other_bit_is_another_hash(provider: ops.Provider) -> None:
    torch.manual_seed(2)
    row = torch.randn(1000)
    row[7] = 0.0
    others = row.repeat(8, 1)
    others[1, 7] = -0.0
    others[2, [3, 4]] = others[2, [4, 3]]  # two changed places
    for i, place in ((3, 0), (4, 124), (5, 125), (6, 999)):
        others[i].view(torch.int32)[place] ^= 1
    others[7, 500] = torch.nan
    hashes = bend(provider, others, [0] * 8, [-1])[1]
    assert len(set(hashes)) == 8


def test_wrong_arguments_are_named(provider: ops.Provider) -> None:
    ints = torch.zeros(2, dtype=torch.int32, device=DEVICE)
    hashes = torch.zeros(2, ops.HASH_PARTS, dtype=torch.int64, device=DEVICE)
    answer = torch.zeros(3, 2, dtype=torch.int32, device=DEVICE)
    good = torch.zeros(2, 9, device=DEVICE), ints, ints, answer, hashes
    bad = [
        ("logits", 0, torch.zeros(2, 9, dtype=torch.bfloat16)),
        ("logits", 0, torch.zeros(2, 18)[:, :9]),
        ("positions", 1, torch.zeros(2, dtype=torch.int64)),
        ("sequences", 2, torch.zeros(3, dtype=torch.int32)),
        ("answer", 3, torch.zeros(2, dtype=torch.int32)),
        ("answer", 3, torch.zeros(3, 4, dtype=torch.int32)[:, :2]),
        ("hashes", 4, torch.zeros(2, 1, dtype=torch.int64)),
    ]
    with ops.using(provider):
        for name, place, tensor in bad:
            arguments = [*good]
            arguments[place] = tensor.to(DEVICE)
            with pytest.raises(ValueError, match=f"^{name}: expected"):
                ops.bend(*arguments)
