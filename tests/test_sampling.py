# SPDX-License-Identifier: Apache-2.0
"""Choosing tokens: the distribution is exact, and drafts and neighbours do not touch it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from equality import Counts, assert_same, make_engine
from ooospec.errors import InvalidRequest
from ooospec.sampling import Chooser, SamplingParams, gumbel, top_ids
from tiny_models import FAMILIES

PROMPT = [20 + (7 * i) % 400 for i in range(20)]
TOY = torch.tensor([1.5, -0.5, 0.7, 0.7, -2.0, 2.1])


def exact(logits: torch.Tensor, params: SamplingParams) -> np.ndarray:
    """Returns the probabilities by definition: temper, sort by logit and id, filter, normalise."""
    numbers = logits.double().numpy() / params.temperature
    order = sorted(range(len(numbers)), key=lambda i: (-numbers[i], i))
    if params.top_k:
        order = order[: params.top_k]
    weights = np.exp(numbers[order] - numbers.max())
    weights /= weights.sum()
    kept = 1 + int((np.cumsum(weights) < params.top_p - 1e-12).sum())
    result = np.zeros(len(numbers))
    result[order[:kept]] = weights[:kept]
    return result / result.sum()


def draw(logits: torch.Tensor, num: int, decodable: int | None = None, **fields: Any) -> np.ndarray:
    """Returns how often each id is drawn, at `num` places of an answer."""
    chooser = Chooser(SamplingParams(seed=11, **fields), decodable or len(logits), [])
    drawn = [chooser.choose(logits, index) for index in range(num)]
    return np.bincount(drawn, minlength=len(logits))


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 1.0},
        {"temperature": 3.0},
        {"temperature": 1.0, "top_k": 3},
        {"temperature": 1.0, "top_p": 0.8},
        {"temperature": 1.5, "top_k": 5, "top_p": 0.7},
        {"temperature": 1.0, "top_k": 99, "top_p": 1.0},
    ],
    ids=str,
)
def test_a_toy_vocabulary_is_drawn_from_exactly(fields: dict[str, Any]) -> None:
    """H01, H03, H04: chi-square against the exact distribution, and total variation."""
    num = 3000
    expected = exact(TOY, SamplingParams(**fields)) * num
    counts = draw(TOY, num, **fields)
    possible = expected > 0
    assert (counts[~possible] == 0).all()
    chi_square = float(((counts - expected)[possible] ** 2 / expected[possible]).sum())
    # Mean and deviation of chi-square: degrees of freedom, sqrt of twice as many.
    freedom = int(possible.sum()) - 1
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom)
    assert np.abs(counts - expected).sum() / (2 * num) < 0.03


@given(
    st.lists(st.integers(-8, 8), min_size=1, max_size=12),
    st.integers(0, 13),
    st.floats(0.05, 1.0),
    st.floats(0.2, 3.0),
)
def test_filters_keep_what_the_definition_keeps(
    numbers: list[int], top_k: int, top_p: float, temperature: float
) -> None:
    """Ties fall to the lower id, whether they are at the border of top-k, of top-p, or both."""
    logits = torch.tensor(numbers, dtype=torch.float32)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=1)
    chooser = Chooser(params, len(logits), [])
    ids, _ = chooser._filter(logits, float(logits.max()))
    expected = exact(logits, params)
    assert set(ids.tolist()) == set(np.flatnonzero(expected).tolist())


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_what_pruning_leaves_out_could_not_have_won(seed: int, far: bool) -> None:
    """Ids far below the highest are left out before noise; the winner over all ids is the same."""
    logits = torch.randn(3000, generator=torch.Generator().manual_seed(seed)) * (20 if far else 2)
    chooser = Chooser(SamplingParams(temperature=0.9, seed=seed), 3000, [])
    tempered = (logits.double() - logits.max()) / 0.9
    assert chooser.choose(logits, 7) == chooser._draw(torch.arange(3000), tempered, 7)
    top_p = Chooser(SamplingParams(temperature=0.9, top_p=0.9999, seed=seed), 3000, [])
    kept = torch.from_numpy(
        np.flatnonzero(exact(logits, SamplingParams(temperature=0.9, top_p=0.9999)))
    )
    assert top_p.choose(logits, 7) == chooser._draw(kept, tempered[kept], 7)


@pytest.mark.parametrize("size", [9, 128, 1023, 1024, 1025, 5000])
def test_the_highest_ids(size: int) -> None:
    logits = torch.randn(7, size, generator=torch.Generator().manual_seed(size))
    assert torch.equal(top_ids(logits, 8), logits.topk(8, dim=-1).indices)


def test_noise_is_bounded_even_and_keyed() -> None:
    ids = torch.arange(200_000)
    noise = gumbel(12345, ids)
    assert -3.4 < float(noise.min()) < float(noise.max()) < 28.5
    assert abs(float(noise.mean()) - 0.5772) < 0.01
    assert abs(float(noise.var()) - math.pi**2 / 6) < 0.03
    assert torch.equal(noise[77:99], gumbel(12345, ids[77:99]))  # of the id, not of its place
    other = gumbel(12346, ids)
    assert abs(float(torch.corrcoef(torch.stack((noise, other)))[0, 1])) < 0.01
    shifted = torch.corrcoef(torch.stack((noise[1:], noise[:-1])))[0, 1]
    assert abs(float(shifted)) < 0.01


def test_seed_choice_and_place_make_the_key() -> None:
    """H05: the same key gives the same token, another key others."""

    def row(**fields: Any) -> list[int]:
        chooser = Chooser(SamplingParams(temperature=1.0, **fields), 6, [])
        return [chooser.choose(TOY, index) for index in range(60)]

    assert row(seed=3) == row(seed=3)
    different = [row(seed=3), row(seed=4), row(seed=3, choice=1), row(seed=-3), row(seed=2**63)]
    assert len({tuple(one) for one in different}) == len(different)
    assert row() != row()  # no seed: one of its own each time


@pytest.mark.parametrize("temperature", [0.0, 1e-6])
def test_cold_is_greedy_and_ties_fall_to_the_lowest_id(temperature: float) -> None:
    """H08: temperature 0 takes the argmax; as it goes to 0, sampling does too."""
    logits = torch.tensor([0.0, 3.0, 1.0, 2.0])
    chooser = Chooser(SamplingParams(temperature=temperature, seed=5), 4, [])
    assert [chooser.choose(logits, i) for i in range(20)] == [1] * 20
    greedy = Chooser(SamplingParams(), 4, [])
    assert greedy.choose(torch.tensor([1.0, 3.0, 3.0, 3.0]), 0) == 1


def test_padding_and_early_ends_are_never_chosen() -> None:
    """E12: ids from `decodable` on, in every mode; B11: ends of sequence before min_tokens."""
    logits = torch.tensor([0.0, 1.0, 2.0, 9.0, 50.0])
    for fields in ({}, {"temperature": 1.0}, {"temperature": 5.0, "top_k": 4, "top_p": 0.99}):
        chooser = Chooser(SamplingParams(min_tokens=2, seed=0, **fields), 4, [3])
        tokens = [chooser.choose(logits, index) for index in range(4)]
        assert 3 not in tokens[:2]
        assert 4 not in tokens
        assert not fields or tokens[2:] != tokens[:2]
        assert fields or tokens == [2, 2, 3, 3]
    assert logits.tolist() == [0.0, 1.0, 2.0, 9.0, 50.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_model_that_gives_no_numbers_is_reported(bad: float) -> None:
    with pytest.raises(RuntimeError, match="expected a finite maximum"):
        Chooser(SamplingParams(), 3, []).choose(torch.full((3,), bad), 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": math.inf}, "temperature: expected a number from 0 on, got inf"),
        ({"top_p": 1.5}, "top_p: expected a number above 0 and up to 1, got 1.5"),
        ({"choice": -1}, "choice"),
        ({"top_k": 1 << 31}, r"top_k: expected 0 \(off\) to 2147483647, got 2147483648"),
        ({"min_tokens": 1 << 40}, "min_tokens: expected 0 to 2147483647, got 1099511627776"),
        ({"seed": 1.5}, "seed: expected an integer, got 1.5"),
        ({"stop": [1]}, "stop: expected strings"),
        ({"stop": None}, "stop: expected strings that are not empty, got None"),
        ({"temperature": "hot"}, "temperature: expected a number from 0 on, got 'hot'"),
        ({"top_p": None}, "top_p: expected a number above 0 and up to 1, got None"),
        ({"top_k": 2.5}, r"top_k: expected 0 \(off\) to 2147483647, got 2.5"),
        (
            {"min_tokens": 9, "max_tokens": 8},
            r"min_tokens: expected at most max_tokens \(8\), got 9",
        ),
        ({"min_tokens": 1.5}, "min_tokens: expected 0 to 2147483647, got 1.5"),
        ({"max_tokens": 1.5}, "max_tokens: expected an integer from 1 on, got 1.5"),
        ({"choice": 1.5}, "choice: expected an integer from 0 on, got 1.5"),
        ({"top_k": True}, r"top_k: expected 0 \(off\) to 2147483647, got True"),
    ],
)
def test_values_out_of_range_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        SamplingParams(**fields)


def test_integers_may_be_those_of_numpy() -> None:
    def drawn(of: Any) -> int:
        params = SamplingParams(temperature=1.0, seed=of(-3), choice=of(2), top_k=of(40))
        return Chooser(params, 50, []).choose(torch.zeros(50), 0)

    assert drawn(np.int64) == drawn(int)


def test_an_answer_may_have_one_length_alone() -> None:
    assert SamplingParams(min_tokens=8, max_tokens=8).max_tokens == 8
    assert SamplingParams(min_tokens=8).max_tokens is None


def test_stop_may_be_one_string() -> None:
    assert SamplingParams(stop="end").stop == ("end",)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", FAMILIES)
def test_drafts_do_not_change_a_sampled_answer(family: str) -> None:
    """H02, H05, I08: seed by seed, with every kind of draft and filter, on equals off."""
    engine = make_engine(family)
    counts = Counts()
    answers = set()
    for seed, fields in enumerate(
        [{"top_k": 40}, {"top_p": 0.9}, {}, {"top_k": 20, "top_p": 0.8, "min_tokens": 8}]
    ):
        sampling = {"temperature": 0.9, "seed": seed, "max_tokens": 24, **fields}
        expected = engine.generate_ids(PROMPT, **sampling).token_ids
        answers.add(tuple(expected))
        kinds = ["right", "last_sibling", "changing", "binary", "siblings", "all_eos"]
        assert_same(engine, PROMPT, expected, counts, kinds, **sampling)
    assert len(answers) == 4
    counts.check(400, 200, 500)
