# SPDX-License-Identifier: Apache-2.0
"""Choices and the eight likeliest ids of rows of logits: against sorting, and against Chooser."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from ooospec import ops
from ooospec.sampling import Chooser, SamplingParams, request_key
from op_cases import DEVICE, DTYPES, PROVIDERS, guarded

pytestmark = pytest.mark.parametrize("provider", PROVIDERS)


def run(
    provider: ops.Provider,
    logits: torch.Tensor,
    decodable: int | None = None,
    sampling: ops.RowSampling | None = None,
    limits: ops.RowLimits | None = None,
) -> tuple[list[int], list[list[int]]]:
    """Returns choices and top8, of logits between guards of NaN."""
    with guarded() as put, ops.using(provider):
        inputs = put.put(logits, pad=3)
        choices = put.empty(len(logits), dtype=torch.int32)
        top8 = put.empty(len(logits), 8, dtype=torch.int32, pad=2)
        if sampling is not None:
            sampling = ops.RowSampling(*(put.put(one) for one in vars(sampling).values()))
        if limits is not None:
            tensors = vars(limits).values()
            limits = ops.RowLimits(*(None if one is None else put.put(one) for one in tensors))
        ops.sample(inputs, decodable or logits.shape[1], choices, top8, sampling, limits)
    return choices.tolist(), top8.tolist()


def ranked(row: torch.Tensor, allowed: range | list[int]) -> list[int]:
    """Returns the eight likeliest of `allowed`, by sorting them all."""
    numbers = row.tolist()
    finite = [i for i in allowed if abs(numbers[i]) < float("inf")]
    return [*sorted(finite, key=lambda i: (-numbers[i], i))[:8], *[-1] * 8][:8]


def with_ties(num_rows: int, vocab: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Returns logits that are rounded to halves, zeros of both signs among them."""
    logits = (torch.randn(num_rows, vocab) * 6).round() / 2
    return torch.where(torch.rand(num_rows, vocab) < 0.5, logits, -logits).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab", [1, 7, 8, 127, 128, 129, 1000, 2049, 5000])
def test_the_highest_logit_wins_and_eight_are_ranked(
    provider: ops.Provider, dtype: torch.dtype, vocab: int
) -> None:
    torch.manual_seed(vocab)
    logits = torch.cat((torch.randn(2, vocab).to(dtype), with_ties(2, vocab, dtype)))
    choices, top8 = run(provider, logits)
    expected = [ranked(row, range(vocab)) for row in logits]
    assert top8 == expected
    assert choices == [ids[0] for ids in expected]


def test_only_decodable_ids_count(provider: ops.Provider) -> None:
    torch.manual_seed(0)
    for decodable in (1, 128, 300, 399, 400):
        logits = with_ties(2, 400)
        logits[:, decodable:] = 99.0
        choices, top8 = run(provider, logits, decodable)
        assert top8 == [ranked(row, range(decodable)) for row in logits]
        assert choices == [ids[0] for ids in top8]


def test_what_is_not_finite_loses(provider: ops.Provider) -> None:
    logits = torch.full((5, 300), torch.nan)
    logits[0] = -torch.inf
    logits[1, 290] = -3.0
    logits[2, ::2] = torch.arange(150.0)
    logits[3] = torch.arange(300.0)
    logits[3, 299] = torch.inf
    choices, top8 = run(provider, logits)
    assert choices == [-1, 290, 298, 298, -1]
    assert top8[0] == [-1] * 8
    assert top8[1] == [290, *[-1] * 7]
    assert top8[2] == list(range(298, 282, -2))
    noise = rows_of([SamplingParams(temperature=1.0, seed=1)] * 5, [0] * 5)
    choices, _ = run(provider, logits, sampling=noise)
    assert choices[:2] == [-1, 290]
    assert choices[2] % 2 == 0
    assert choices[4] == -1


def test_masks_and_ends_of_sequence(provider: ops.Provider) -> None:
    torch.manual_seed(3)
    vocab, eos = 333, [5, 200, 331]
    logits = with_ties(4, vocab)
    logits[:, eos] = 50.0
    allowed = torch.rand(4, vocab) < 0.3
    allowed[1] = False
    allowed[:, eos] = True
    words = torch.zeros(4, 11 * 32, dtype=torch.int64)
    words[:, :vocab] = allowed
    words = (words.view(4, 11, 32) << torch.arange(32)).sum(-1)
    bitmask = torch.where(words >= 1 << 31, words - (1 << 32), words).int()
    no_eos = torch.tensor([1, 1, 0, 0], dtype=torch.int32)
    limits = ops.RowLimits(bitmask, torch.tensor(eos, dtype=torch.int32), no_eos)
    lists = [allowed[i].nonzero()[:, 0].tolist() for i in range(4)]
    banned = [[i for i in lists[row] if i not in eos or not no_eos[row]] for row in range(4)]
    choices, top8 = run(provider, logits, limits=limits)
    assert top8 == [ranked(logits[row], banned[row]) for row in range(4)]
    assert choices == [ids[0] for ids in top8]
    assert choices[1] == -1
    _, top8 = run(provider, logits, limits=ops.RowLimits(bitmask=bitmask))
    assert top8 == [ranked(logits[row], lists[row]) for row in range(4)]
    params = [SamplingParams(temperature=5.0, top_k=k, top_p=p) for k, p in ((0, 1), (9, 1))] * 2
    for seed in range(2):
        params = [replace(one, seed=seed) for one in params]
        choices, _ = run(provider, logits, None, rows_of(params, [0] * 4), limits)
        for row, choice in enumerate(choices):
            assert choice in (banned[row] or [-1])


# --- with noise ---------------------------------------------------------------------------------


def rows_of(params: list[SamplingParams], indices: list[int]) -> ops.RowSampling:
    keys = [request_key(one.seed or 0, one.choice) for one in params]
    return ops.RowSampling(
        torch.tensor([one.temperature for one in params], dtype=torch.float64),
        torch.tensor([one.top_k for one in params], dtype=torch.int32),
        torch.tensor([one.top_p for one in params], dtype=torch.float64),
        torch.tensor([key - (1 << 64) if key >> 63 else key for key in keys]),
        torch.tensor(indices, dtype=torch.int32),
    )


SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.02},
    {"temperature": 4.0, "choice": 3},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 2.0, "top_k": 50},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 3.0, "top_p": 0.999},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.8},
    {"temperature": 9.0, "top_k": 2500, "top_p": 0.97},
    {"temperature": 1.0, "top_k": 10**6},
]
LOGITS = {
    "peaked": lambda vocab: torch.randn(vocab) * 5,
    "flat": lambda vocab: torch.randn(vocab) * 0.1,
    "equal": lambda vocab: torch.full((vocab,), 0.25),
    "tied": lambda vocab: with_ties(1, vocab)[0],
}


@pytest.mark.parametrize(
    ("kind", "vocab"), [("peaked", 5), ("tied", 400), ("flat", 700), ("equal", 6000)]
)
def test_rows_choose_as_a_chooser_does(provider: ops.Provider, kind: str, vocab: int) -> None:
    """Every setting in one launch. 6000 equal ids are more than the list of candidates holds."""
    torch.manual_seed(vocab)
    decodable = vocab - 1
    logits = torch.stack([LOGITS[kind](vocab) for _ in SETTINGS]).bfloat16()
    logits[:, decodable:] = 99.0
    params = [SamplingParams(seed=vocab, **fields) for fields in SETTINGS]
    indices = [7 * row for row in range(len(params))]
    choices, top8 = run(provider, logits, decodable, rows_of(params, indices))
    expected = [
        Chooser(one, decodable, []).choose(row.float(), index)
        for one, row, index in zip(params, logits, indices, strict=True)
    ]
    assert choices == expected
    assert top8 == [ranked(row, range(decodable)) for row in logits]


def test_many_draws_are_those_of_a_chooser(provider: ops.Provider) -> None:
    torch.manual_seed(5)
    num_rows = 64 if DEVICE == "cuda" else 12
    row = torch.randn(1500) * 2
    params = SamplingParams(temperature=1.3, seed=99)
    chooser = Chooser(params, 1500, [])
    indices = list(range(num_rows))
    rows = rows_of([params] * num_rows, indices)
    choices, _ = run(provider, row.expand(num_rows, -1).clone(), sampling=rows)
    assert choices == [chooser.choose(row, index) for index in indices]
    assert len(set(choices)) > num_rows // 2


def test_a_row_does_not_depend_on_others(provider: ops.Provider) -> None:
    torch.manual_seed(6)
    row = torch.randn(700)
    params = SamplingParams(temperature=1.5, top_p=0.9, seed=4)
    other = SamplingParams(temperature=0.5, seed=8)
    results = set()
    for num_rows, place in ((1, 0), (4, 3)):
        logits = torch.full((num_rows, 700), torch.nan)
        logits[place] = row
        all_params = [params if i == place else other for i in range(num_rows)]
        choices, top8 = run(provider, logits, sampling=rows_of(all_params, [2] * num_rows))
        results.add((choices[place], *top8[place]))
    assert len(results) == 1


@pytest.mark.gpu
def test_one_graph_serves_every_setting(provider: ops.Provider) -> None:
    if provider == "reference":
        pytest.skip("the reference reads numbers on the host")
    torch.manual_seed(7)
    vocab, num_rows = 151_936, 4
    logits = torch.randn(num_rows, vocab, device="cuda").bfloat16() * 3
    rows = rows_of([SamplingParams()] * num_rows, [0] * num_rows)
    rows = ops.RowSampling(*(one.cuda() for one in vars(rows).values()))
    choices = torch.empty(num_rows, dtype=torch.int32, device="cuda")
    top8 = torch.empty(num_rows, 8, dtype=torch.int32, device="cuda")
    scratch = ops.sample_scratch(logits)
    ops.sample(logits, vocab, choices, top8, rows, scratch=scratch)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ops.sample(logits, vocab, choices, top8, rows, scratch=scratch)
    for fields in SETTINGS:
        params = [SamplingParams(seed=seed, **fields) for seed in range(num_rows)]
        now = rows_of(params, [3] * num_rows)
        for one, new in zip(vars(rows).values(), vars(now).values(), strict=True):
            one.copy_(new)
        graph.replay()
        expected = [
            Chooser(one, vocab, []).choose(row.float(), 3)
            for one, row in zip(params, logits.cpu(), strict=True)
        ]
        assert choices.tolist() == expected


def test_wrong_arguments_are_named(provider: ops.Provider) -> None:
    logits, choices = torch.zeros(2, 40), torch.zeros(2, dtype=torch.int32)
    top8 = torch.zeros(2, 8, dtype=torch.int32)
    rows = rows_of([SamplingParams()] * 2, [0, 0])
    eos = torch.zeros(1, dtype=torch.int32)
    with ops.using(provider):
        with pytest.raises(
            ValueError, match=r"decodable: expected an integer in \[1, 40\], got 41"
        ):
            ops.sample(logits, 41, choices, top8)
        with pytest.raises(ValueError, match="choices: expected"):
            ops.sample(logits, 40, choices.long(), top8)
        with pytest.raises(ValueError, match="top8: expected"):
            ops.sample(logits, 40, choices, top8[:, :7])
        with pytest.raises(ValueError, match="top_p: expected"):
            ops.sample(logits, 40, choices, top8, replace(rows, top_p=rows.top_p.float()))
        limits = ops.RowLimits(bitmask=torch.zeros(2, 1, dtype=torch.int32))
        with pytest.raises(ValueError, match="bitmask: expected"):
            ops.sample(logits, 40, choices, top8, limits=limits)
        with pytest.raises(ValueError, match="eos_ids, no_eos: expected both or neither"):
            ops.sample(logits, 40, choices, top8, limits=ops.RowLimits(eos_ids=eos))
