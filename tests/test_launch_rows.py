# SPDX-License-Identifier: Apache-2.0
"""The rows of a launch: packed by the core, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ooospec._core import _C

NUM_ROWS, NUM_SEQUENCES, SPARE, PAGE = 12, 3, 640, 5
TYPES: dict[str, Any] = {
    "tokens": np.int32,
    "positions": np.int32,
    "parents": np.int32,
    "sequences": np.int32,
    "lengths": np.int32,
    "mask": np.uint64,
    "slots": np.int64,
    "index": np.int32,
    "no_eos": np.int32,
    "top_k": np.int32,
    "temperature": np.float64,
    "top_p": np.float64,
    "key": np.uint64,
}


def new_rows() -> tuple[dict[str, np.ndarray], Any]:
    arrays = {
        name: np.full(NUM_SEQUENCES if name == "lengths" else NUM_ROWS, 77, dtype=dtype)
        for name, dtype in TYPES.items()
    }
    return arrays, _C.LaunchRows(arrays, spare_slot=SPARE, page_size=PAGE)


def add_two(rows: Any) -> None:
    assert rows.add([5, 6, 7], [40, 41, 41], [-1, 0, 0], [1, 3, 5], [(100, 102), (9, 10)], 40) == 0
    assert rows.add(np.array([8, 9]), range(70, 72), [-1, 0], [1, 3], [(20, 22)], 70) == 3


def test_rows_of_two_sequences() -> None:
    arrays, rows = new_rows()
    for _ in range(2):  # the second launch forgets the first
        rows.begin()
        add_two(rows)
    unused = NUM_ROWS - 5
    assert arrays["tokens"].tolist() == [5, 6, 7, 8, 9] + [0] * unused
    assert arrays["positions"].tolist() == [40, 41, 41, 70, 71] + [0] * unused
    assert arrays["parents"].tolist() == [-1, 0, 0, -1, 3] + [-1] * unused
    assert arrays["sequences"].tolist() == [0, 0, 0, 1, 1] + [-1] * unused
    assert arrays["mask"].tolist() == [1, 3, 5, 8, 24] + [0] * unused
    spare = [SPARE + row % PAGE for row in range(5, NUM_ROWS)]
    assert arrays["slots"].tolist() == [100, 101, 9, 20, 21, *spare]
    assert arrays["lengths"].tolist() == [40, 70, 0]
    assert rows.num_sequences == 2


def test_a_draft_is_added_with_how_it_chooses() -> None:
    arrays, rows = new_rows()
    rows.begin()
    add_two(rows)
    draft = _C.DraftRows([3, 4, 5], [-1, 0, 0], [0, 1, 1], [0, 1, 2], [1, 3, 5], [0, 1, 2], 3)
    choice = _C.RowChoice(min_tokens=11, temperature=0.5, top_k=40, top_p=0.9, key=2**64 - 1)
    assert rows.add_draft(draft, [(60, 63)], 20, 10, choice) == 5
    part = slice(5, 8)
    assert arrays["tokens"][part].tolist() == [3, 4, 5]
    assert arrays["positions"][part].tolist() == [20, 21, 21]
    assert arrays["parents"][part].tolist() == [-1, 5, 5]
    assert arrays["mask"][part].tolist() == [1 << 5, 3 << 5, 5 << 5]
    assert arrays["slots"][part].tolist() == [60, 61, 62]
    assert arrays["sequences"][part].tolist() == [2, 2, 2]
    assert arrays["lengths"].tolist() == [40, 70, 20]
    assert arrays["index"][part].tolist() == [10, 11, 11]
    assert arrays["no_eos"][part].tolist() == [1, 0, 0]
    assert arrays["temperature"][part].tolist() == [0.5] * 3
    assert arrays["top_k"][part].tolist() == [40] * 3
    assert arrays["top_p"][part].tolist() == [0.9] * 3
    assert arrays["key"][part].tolist() == [2**64 - 1] * 3
    assert arrays["index"][8:].tolist() == [77] * (NUM_ROWS - 8)


def test_the_highest_bit_of_a_mask() -> None:
    arrays, rows = new_rows()
    rows.begin()
    rows.add([1], [0], [-1], [1 << 63], [(0, 1)], 0)
    assert arrays["mask"][0] == 1 << 63


def test_what_does_not_fit_changes_nothing() -> None:
    arrays, rows = new_rows()
    rows.begin()
    add_two(rows)
    before = {name: array.copy() for name, array in arrays.items()}
    many = list(range(8))
    with pytest.raises(ValueError, match="at most 12 rows of 3 sequences, got 13 rows"):
        rows.add(many, many, [-1] * 8, [1] * 8, [(0, 8)], 0)
    with pytest.raises(ValueError, match="expected 2, one a token, got 1 positions"):
        rows.add([1, 2], [0], [-1, 0], [1, 3], [(0, 2)], 0)
    with pytest.raises(ValueError, match="got 2 positions, 2 parents, 2 masks, 1 slots"):
        rows.add([1, 2], [0, 1], [-1, 0], [1, 3], [(0, 1)], 0)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    rows.add([1], [0], [-1], [1], [(0, 1)], 0)
    with pytest.raises(ValueError, match="got 7 rows, 4 sequences"):
        rows.add([1], [0], [-1], [1], [(0, 1)], 0)


def test_buffers_must_fit_each_other() -> None:
    arrays, _ = new_rows()
    with pytest.raises(ValueError, match="expected 12 numbers, one a row, got 11"):
        _C.LaunchRows(arrays | {"top_k": arrays["top_k"][:11]}, spare_slot=SPARE, page_size=PAGE)
    with pytest.raises(ValueError, match="key: expected a contiguous array of its own type"):
        _C.LaunchRows(arrays | {"key": arrays["slots"]}, spare_slot=SPARE, page_size=PAGE)
    with pytest.raises(ValueError, match="page_size: expected at least 1, got 0"):
        _C.LaunchRows(arrays, spare_slot=SPARE, page_size=0)
