# SPDX-License-Identifier: Apache-2.0
"""The end of a round: acceptance, moves and publication; and the host's wait for it."""

from __future__ import annotations

import random
import threading
import time
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from ooospec import DraftTree
from ooospec.reference import RoundEnd, end_of_round_ref
from oracles import NaiveTree

PAGE_SIZE = 4


@pytest.fixture(scope="module")
def cuda_core() -> ModuleType:
    return pytest.importorskip("ooospec._C_cuda", exc_type=ImportError)


class Rows:
    """Random trees of some sequences in one launch, with few different tokens, so that much is
    accepted; rows lie behind the committed part in row order, pages are shuffled.
    """

    def __init__(self, seed: int, num_rows: int = 64) -> None:
        rng = random.Random(seed)
        self.random = rng
        self.num_rows = num_rows
        self.tokens = [rng.randrange(9)] * num_rows
        self.parents = [-1] * num_rows
        self.positions = [0] * num_rows
        self.sequences = [-1] * num_rows
        self.slots = [10_000 + row for row in range(num_rows)]
        num_sequences = rng.choice([1, 2, 8, 32])
        pages = list(range(40 * num_sequences))
        rng.shuffle(pages)
        self.page_table = [pages[40 * i : 40 * i + 40] for i in range(num_sequences)]
        row = 0
        for sequence in rng.sample(range(num_sequences), num_sequences):
            count = min(rng.randint(1, 1 + 2 * num_rows // num_sequences), num_rows - row)
            self._add(sequence, row, count)
            row += count
        self.choices = [self._choice(row) for row in range(num_rows)]
        self.top8 = np.array([[rng.randrange(99) for _ in range(8)] for _ in range(num_rows)])

    def _add(self, sequence: int, first: int, count: int) -> None:
        length = self.random.randrange(80)
        for row in range(first, first + count):
            chain = self.random.random() < 0.5
            parent = row - 1 if chain else self.random.randrange(first, max(row, first + 1))
            self.parents[row] = parent if row > first else -1
            self.positions[row] = length if row == first else self.positions[parent] + 1
            self.sequences[row] = sequence
            self.tokens[row] = self.random.randrange(3)
            page, slot = divmod(length + row - first, PAGE_SIZE)
            self.slots[row] = self.page_table[sequence][page] * PAGE_SIZE + slot

    def _choice(self, row: int) -> int:
        children = [self.tokens[i] for i in range(self.num_rows) if self.parents[i] == row]
        wrong = not children or self.random.random() < 0.2
        return self.random.randrange(-1, 3) if wrong else self.random.choice(children)

    def end(self) -> RoundEnd:
        lists = (self.choices, self.tokens, self.parents, self.positions, self.sequences)
        return end_of_round_ref(*lists, self.slots, self.page_table, PAGE_SIZE)


# --- the reference ------------------------------------------------------------------------------


def test_a_small_round_by_hand() -> None:
    #      0        sequence 1, committed up to position 5; two rows of another after it
    #     / \.
    #    1   2      1 and 3 have the same token as 2 and 4
    #   / \.
    #  3   4
    ended = end_of_round_ref(
        choices=[7, 8, 8, 9, 5, 6, -1],
        tokens=[1, 7, 7, 8, 8, 2, 6],
        parents=[-1, 0, 0, 1, 1, -1, 5],
        positions=[5, 6, 6, 7, 7, 0, 1],
        sequences=[1, 1, 1, 1, 1, 0, 0],
        slots=[21, 22, 23, 12, 13, 0, 1],
        page_table=[[0, 1], [2, 5]],
        page_size=4,
    )
    assert ended.committed == {0: ([0, 1, 3], [7, 8, 9]), 5: ([5, 6], [6, -1])}
    assert ended.moves == [(12, 23)]


def test_trees_are_accepted_as_a_draft_tree_accepts() -> None:
    rng = random.Random(0)
    for _ in range(50):
        tree, naive = DraftTree(0), NaiveTree(0)
        for _ in range(12):
            path = [rng.randrange(3) for _ in range(rng.randint(1, 6))]
            parent = rng.randrange(len(tree))
            tree.insert(parent, path, [0.5] * len(path), source=2)
            naive.insert(parent, path, [0.5] * len(path))
        size = len(tree)
        choices = [rng.randrange(3) for _ in range(size)]
        parents, tokens = tree.parents.tolist(), tree.tokens.tolist()
        ended = end_of_round_ref(
            choices, tokens, parents, [0] * size, [0] * size, [0] * size, [[0]], 64
        )
        rows, chosen = ended.committed[0]
        assert rows[1:] == naive.accept(choices) == list(tree.accept(choices))
        assert chosen == [choices[row] for row in rows]
        assert ended.moves == []


def test_moves_can_be_made_one_after_another() -> None:
    """No move's target is the source of a later one, so that any order within a launch will do."""
    some = 0
    for seed in range(100):
        moves = Rows(seed).end().moves
        some += len(moves)
        for i, (_, target) in enumerate(moves):
            assert target not in [source for source, _ in moves[i + 1 :]]
        assert len({target for _, target in moves}) == len(moves)
    assert some > 200


# --- the wait -----------------------------------------------------------------------------------


def test_a_wait_ends_when_the_number_is_reached(cuda_core: ModuleType) -> None:
    number = np.zeros(1, dtype=np.uint64)
    address = number.ctypes.data
    assert cuda_core.wait(address, 0, 0)
    assert not cuda_core.wait(address, 1, 1000)
    started = threading.Event()

    def publish() -> None:
        started.wait()
        number[0] = 7

    thread = threading.Thread(target=publish)
    thread.start()
    started.set()  # publish() needs the GIL, which a waiting call must not hold
    assert cuda_core.wait(address, 7, 60_000_000)
    thread.join()
    assert cuda_core.wait(address, 6, 0)
    assert not cuda_core.wait(address, 8, 0)


def test_a_wait_lasts_as_long_as_it_says(cuda_core: ModuleType) -> None:
    number = np.zeros(1, dtype=np.uint64)
    begin = time.perf_counter()
    assert not cuda_core.wait(number.ctypes.data, 1, 20_000)
    assert time.perf_counter() - begin >= 0.02


def test_wrong_arguments_are_named(cuda_core: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"address: expected .* multiple of 8, got 0"):
        cuda_core.wait(0, 1, 1)
    with pytest.raises(ValueError, match=r"address: expected .* multiple of 8"):
        cuda_core.wait(np.zeros(2, dtype=np.uint64).ctypes.data + 4, 1, 1)
    with pytest.raises(ValueError, match="timeout_us: expected"):
        cuda_core.wait(np.zeros(1, dtype=np.uint64).ctypes.data, 1, -1)
    with pytest.raises(ValueError, match="num_bytes: expected at least 1"):
        cuda_core.MappedMemory(0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="only where CUDA has nothing to give")
def test_without_a_gpu_memory_and_waits_on_streams_raise(cuda_core: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="cudaHostAlloc: expected success, got cudaError"):
        cuda_core.MappedMemory(100)
    with pytest.raises(RuntimeError, match="cudaHostAlloc"):
        cuda_core.RoundReport()
    number = np.zeros(1, dtype=np.uint64)
    with pytest.raises(RuntimeError, match="a round on the device: expected success, got cudaErr"):
        cuda_core.wait(number.ctypes.data, 1, 60_000_000, stream=0)
    assert not cuda_core.wait(number.ctypes.data, 1, 20_000)  # the error is forgotten


# --- on a GPU -----------------------------------------------------------------------------------


class DeviceRound:
    """The buffers of a launch on the device, and a graph that ends it."""

    def __init__(self, core: ModuleType, num_rows: int, num_pages: int = 40) -> None:
        def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device="cuda")

        self.report = core.RoundReport()
        self.data = {
            **{
                name: zeros(num_rows)
                for name in ("choices", "tokens", "parents", "positions", "sequences")
            },
            "slots": zeros(num_rows, dtype=torch.int64),
            "top8": zeros(num_rows, 8),
            "page_table": zeros(32, num_pages),
            "path_sources": zeros(64, dtype=torch.int64),
            "path_targets": zeros(64, dtype=torch.int64),
            "path_count": zeros(1),
            "round": zeros(1, dtype=torch.int64),
        }
        self.arguments: dict[str, Any] = {
            **{name: tensor.data_ptr() for name, tensor in self.data.items()},
            "report": self.report,
            "num_rows": num_rows,
            "num_pages": num_pages,
            "page_size": PAGE_SIZE,
        }
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            core.end_of_round(**self.arguments, stream=torch.cuda.current_stream().cuda_stream)

    def fill(self, rows: Rows) -> None:
        for name in ("choices", "tokens", "parents", "positions", "sequences", "slots", "top8"):
            tensor = self.data[name]
            tensor.copy_(torch.tensor(np.array(getattr(rows, name))).to(tensor.dtype))
        self.data["page_table"][: len(rows.page_table)] = torch.tensor(rows.page_table).int().cuda()
        torch.cuda.synchronize()

    def ended(self) -> RoundEnd:
        counts, path, tokens = (
            one.tolist() for one in (self.report.counts, self.report.rows, self.report.tokens)
        )
        committed = {
            first: (path[first : first + count], tokens[first : first + count])
            for first, count in enumerate(counts)
            if count
        }
        torch.cuda.synchronize()
        num_moves = int(self.data["path_count"])
        sources, targets = (
            self.data[name][:num_moves].tolist() for name in ("path_sources", "path_targets")
        )
        return RoundEnd(committed, list(zip(sources, targets, strict=True)))


@pytest.mark.gpu
@pytest.mark.parametrize("num_rows", [1, 31, 33, 64])
def test_the_device_ends_rounds_as_the_reference_does(cuda_core: ModuleType, num_rows: int) -> None:
    device = DeviceRound(cuda_core, num_rows)
    accepted = 0
    for number in range(1, 301):
        rows = Rows(number, num_rows)
        device.fill(rows)
        device.graph.replay()
        stream = torch.cuda.current_stream().cuda_stream
        assert device.report.wait(number, 10_000_000, stream)
        ended = device.ended()
        assert ended == rows.end()
        assert np.array_equal(device.report.top8[:num_rows], rows.top8)
        accepted += sum(len(path) - 1 for path, _ in ended.committed.values())
    assert num_rows == 1 or accepted > 300


@pytest.mark.gpu
def test_the_report_is_whole_when_its_round_is_published(cuda_core: ModuleType) -> None:
    """Without any synchronisation but the wait; a chain in which everything is accepted."""
    device = DeviceRound(cuda_core, 64)
    rows = Rows(1)
    rows.parents, rows.sequences = list(range(-1, 63)), [0] * 64
    rows.positions = list(range(64))
    for number in range(1, 2001):
        token = number % 1000
        rows.tokens = rows.choices = [token] * 64
        if number % 100 == 1:
            device.fill(rows)
        else:
            device.data["tokens"].fill_(token)
            device.data["choices"].fill_(token)
        device.graph.replay()
        assert device.report.wait(number, 10_000_000)
        assert device.report.counts[0] == 64
        assert (device.report.tokens == token).all()


@pytest.mark.gpu
def test_mapped_memory_is_a_buffer_of_zeros(cuda_core: ModuleType) -> None:
    memory = cuda_core.MappedMemory(64)
    seen = np.frombuffer(memory, dtype=np.uint8)
    assert len(memory) == len(seen) == 64
    assert not seen.any()
    assert memory.address == seen.ctypes.data
    assert memory.device_address != 0


@pytest.mark.gpu
def test_arguments_of_a_launch_are_checked(cuda_core: ModuleType) -> None:
    device = DeviceRound(cuda_core, 4)
    for name, wrong, message in (
        ("num_rows", 65, r"num_rows: expected an integer in \[1, 64\], got 65"),
        ("num_pages", 0, "num_pages: expected at least 1"),
        ("page_size", 0, "page_size: expected at least 1"),
        ("slots", 0, "slots: expected an address"),
        ("choices", 2, "choices: expected an address that is a multiple of 4"),
    ):
        with pytest.raises(ValueError, match=message):
            cuda_core.end_of_round(**{**device.arguments, name: wrong}, stream=0)
