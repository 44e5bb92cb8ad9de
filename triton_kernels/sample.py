# SPDX-License-Identifier: Apache-2.0
"""Choosing a token for each row of logits, and its eight likeliest ids.

Logits are read in blocks of 128 ids. The eight best ids lie in the eight blocks with the best
maxima, so that a second look at those is enough, for logits as for noisy logits. What decides is
always the order (value, lower id) packed into one integer, a count, or a sum of integers: nothing
depends on which program is first. Greedy: two launches. With noise: two more, in which rows that
are greedy end at once.

Where noise differs from `sampling.Chooser`: masses of top-p are integers in units of 2^-40, and
exp and log are the device's. Both are in float64, so that choices differ only where two ids are
closer than that.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 128  # ids whose maximum is taken together
BLOCKS = 16  # blocks of one program
CANDIDATES = 4096  # most ids that filters look at before they look at all of them
TILE = 2048  # ids that a filter looks at in one step

_SHIFTS = {torch.float32: 0, torch.bfloat16: 16, torch.float16: 13}
_NONE: tl.constexpr = tl.constexpr(-(1 << 63))  # below every packed value
_GOLDEN: tl.constexpr = tl.constexpr(0x9E3779B97F4A7C15)
_MIX_1: tl.constexpr = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX_2: tl.constexpr = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def _load(
    logits_ptr, bitmask_ptr, eos_ptr, no_eos, ids, decodable,
    HAS_BITMASK: tl.constexpr, NUM_EOS: tl.constexpr, VOCAB: tl.constexpr,
):  # fmt: skip
    """Returns the logits of one row at `ids`; -inf where they are not finite or not allowed."""
    inside = ids < VOCAB  # known when compiled: loads stay wide, whatever is decodable
    x = tl.load(logits_ptr + ids, mask=inside, other=float("-inf")).to(tl.float32)
    allowed = (ids < decodable) & (tl.abs(x) < float("inf"))
    if HAS_BITMASK:
        words = tl.load(bitmask_ptr + ids // 32, mask=inside, other=0)
        allowed = allowed & (((words >> (ids % 32)) & 1) == 1)
    for i in tl.static_range(NUM_EOS):
        allowed = allowed & ((ids != tl.load(eos_ptr + i)) | (no_eos == 0))
    x = tl.where(x == 0.0, 0.0, x)  # -0 is 0
    return tl.where(allowed, x, float("-inf"))


@triton.jit
def _ordered(x):
    """Returns int32 in the order of float32 `x`."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _pack(x, ids, SHIFT: tl.constexpr, ID_BITS: tl.constexpr):
    """Returns int64: larger for a larger x, then for a lower id; _NONE for -inf.

    SHIFT: so many last bits of x as float32 are always 0.
    """
    value = (_ordered(x) >> SHIFT).to(tl.int64) << ID_BITS
    packed = value | ((1 << ID_BITS) - 1 - ids).to(tl.int64)
    return tl.where(x == float("-inf"), _NONE, packed)


@triton.jit
def _id_of(packed, missing, ID_BITS: tl.constexpr):
    """Returns the int32 id in a packed value; `missing` for _NONE."""
    last: tl.constexpr = (1 << ID_BITS) - 1
    return tl.where(packed == _NONE, missing, last - (packed & last)).to(tl.int32)


@triton.jit
def _best_ids(packed, missing, ID_BITS: tl.constexpr):
    """Returns int32[8]: the ids of the eight largest of `packed`, largest first."""
    best = tl.full((8,), 0, tl.int32)
    for i in tl.static_range(8):
        largest = tl.max(packed)
        best = tl.where(tl.arange(0, 8) == i, _id_of(largest, missing, ID_BITS), best)
        packed = tl.where(packed == largest, _NONE, packed)
    return best


@triton.jit
def _load_maxima(maxima_ptr, NUM_BLOCKS: tl.constexpr):
    blocks = tl.arange(0, triton.next_power_of_2(NUM_BLOCKS))
    return tl.load(maxima_ptr + blocks, mask=blocks < NUM_BLOCKS, other=float("-inf"))


@triton.jit
def _ids_of_best_blocks(
    maxima, NUM_BLOCKS: tl.constexpr, BLOCK: tl.constexpr, ID_BITS: tl.constexpr
):
    """Returns int32[8 * BLOCK]: the ids of the eight blocks with the largest maxima."""
    blocks = tl.arange(0, triton.next_power_of_2(NUM_BLOCKS))
    best = _best_ids(
        _pack(maxima, blocks, 0, ID_BITS), NUM_BLOCKS, ID_BITS
    )  # a block NUM_BLOCKS has no decodable id
    return tl.reshape(best[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :], (8 * BLOCK,))


@triton.jit
def _middle(low, high):
    """Returns their mean, rounded up; the sum of both may not fit."""
    return (low | high) - ((low ^ high) >> 1)


@triton.jit
def _nth_largest(values, n):
    """Returns the n-th largest of int32 `values`; the smallest int32 if there are fewer."""
    low = tl.full((), -(1 << 31), tl.int32)
    high = tl.max(values)
    while low < high:
        middle = _middle(low, high)
        enough = tl.sum((values >= middle).to(tl.int32)) >= n
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle - 1)
    return low


@triton.jit
def _mix(value):
    """The finaliser of splitmix64, on uint64."""
    value = (value ^ (value >> 30)) * _MIX_1
    value = (value ^ (value >> 27)) * _MIX_2
    return value ^ (value >> 31)


@triton.jit
def _place_key(key, index):
    place = _mix((index + 1).to(tl.uint64) + _GOLDEN)
    return _mix((key.to(tl.uint64) ^ place) + _GOLDEN)


@triton.jit
def _uniform_bits(place_key, ids):
    """Returns int64 in [0, 2^40)."""
    return (_mix(ids.to(tl.uint64) * _GOLDEN + place_key) >> 24).to(tl.int64)


@triton.jit
def _gumbel(place_key, ids):
    """As `sampling.gumbel`, in float64."""
    uniform = (_uniform_bits(place_key, ids).to(tl.float64) + 0.5) * 9.094947017729282e-13
    return -tl.log(-tl.log(uniform))


@triton.jit
def _fast_gumbel(place_key, ids):
    """The same in float32, right to 1e-5. Near 1, where it matters, -log(u) is the series of
    -log(1 - v).
    """
    bits = _uniform_bits(place_key, ids)
    u = (2 * bits + 1).to(tl.float32) * 4.547473508864641e-13
    v = (2199023255551 - 2 * bits).to(tl.float32) * 4.547473508864641e-13
    series = v * (1.0 + v * (0.5 + v * (0.33333334 + v * 0.25)))
    return -tl.log(tl.where(v < 0.015625, series, -tl.log(u)))


@triton.jit
def _maxima_kernel(
    logits_ptr, bitmask_ptr, eos_ptr, no_eos_ptr, maxima_ptr,
    logits_stride, bitmask_stride, decodable,
    NUM_BLOCKS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
    HAS_BITMASK: tl.constexpr, NUM_EOS: tl.constexpr, VOCAB: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1).to(tl.int64)
    no_eos = tl.load(no_eos_ptr + row) if NUM_EOS else 0
    bitmask = bitmask_ptr + row * bitmask_stride if HAS_BITMASK else bitmask_ptr
    blocks = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    ids = blocks[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    logits = logits_ptr + row * logits_stride
    x = _load(logits, bitmask, eos_ptr, no_eos, ids, decodable, HAS_BITMASK, NUM_EOS, VOCAB)
    tl.store(maxima_ptr + row * NUM_BLOCKS + blocks, tl.max(x, axis=1), mask=blocks < NUM_BLOCKS)


@triton.jit
def _rank_kernel(
    logits_ptr, bitmask_ptr, eos_ptr, no_eos_ptr, maxima_ptr, choices_ptr, top8_ptr,
    floors_ptr, totals_ptr, counts_ptr,
    logits_stride, bitmask_stride, top8_stride, decodable,
    NUM_BLOCKS: tl.constexpr, NUM_ABOVE: tl.constexpr, BLOCK: tl.constexpr,
    SHIFT: tl.constexpr, ID_BITS: tl.constexpr,
    HAS_BITMASK: tl.constexpr, NUM_EOS: tl.constexpr, VOCAB: tl.constexpr, HAS_NOISE: tl.constexpr,
):  # fmt: skip
    """Finds the eight likeliest ids; for filters, a logit that some hundreds of ids reach."""
    row = tl.program_id(0).to(tl.int64)
    no_eos = tl.load(no_eos_ptr + row) if NUM_EOS else 0
    bitmask = bitmask_ptr + row * bitmask_stride if HAS_BITMASK else bitmask_ptr
    logits = logits_ptr + row * logits_stride
    maxima = _load_maxima(maxima_ptr + row * NUM_BLOCKS, NUM_BLOCKS)
    ids = _ids_of_best_blocks(maxima, NUM_BLOCKS, BLOCK, ID_BITS)
    x = _load(logits, bitmask, eos_ptr, no_eos, ids, decodable, HAS_BITMASK, NUM_EOS, VOCAB)
    packed = _pack(x, ids, SHIFT, ID_BITS)
    tl.store(top8_ptr + row * top8_stride + tl.arange(0, 8), _best_ids(packed, -1, ID_BITS))
    tl.store(choices_ptr + row, _id_of(tl.max(packed), -1, ID_BITS))
    if HAS_NOISE:
        tl.store(floors_ptr + row, _nth_largest(_ordered(maxima), NUM_ABOVE))
        tl.store(totals_ptr + row, tl.zeros((), tl.int64))
        tl.store(counts_ptr + row, 0)


@triton.jit
def _spread_kernel(
    logits_ptr, bitmask_ptr, eos_ptr, no_eos_ptr, noisy_ptr,
    choices_ptr, temperature_ptr, top_k_ptr, top_p_ptr, key_ptr, index_ptr,
    floors_ptr, totals_ptr, counts_ptr, candidates_ptr,
    logits_stride, bitmask_stride, decodable,
    NUM_BLOCKS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
    CANDIDATES: tl.constexpr,
    HAS_BITMASK: tl.constexpr, NUM_EOS: tl.constexpr, VOCAB: tl.constexpr,
):  # fmt: skip
    """Looks at all ids of rows with noise: noisy maxima, or what filters may keep."""
    row = tl.program_id(1).to(tl.int64)
    temperature = tl.load(temperature_ptr + row)
    choice = tl.load(choices_ptr + row)
    if (temperature > 0) & (choice >= 0):
        top_k = tl.load(top_k_ptr + row)
        top_p = tl.load(top_p_ptr + row)
        no_eos = tl.load(no_eos_ptr + row) if NUM_EOS else 0
        bitmask = bitmask_ptr + row * bitmask_stride if HAS_BITMASK else bitmask_ptr
        logits = logits_ptr + row * logits_stride
        highest = tl.load(logits + choice).to(tl.float32)
        blocks = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
        ids = blocks[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        x = _load(logits, bitmask, eos_ptr, no_eos, ids, decodable, HAS_BITMASK, NUM_EOS, VOCAB)
        if (top_k == 0) & (top_p >= 1.0):
            place_key = _place_key(tl.load(key_ptr + row), tl.load(index_ptr + row))
            noise = _fast_gumbel(place_key, ids)
            # Noise spans 32: what is further down cannot win, however cold it is.
            tempered = (x - highest) / tl.maximum(temperature, 1e-30).to(tl.float32)
            noisy = tl.max(tl.where(tempered < -40.0, float("-inf"), tempered + noise), axis=1)
            tl.store(noisy_ptr + row * NUM_BLOCKS + blocks, noisy, mask=blocks < NUM_BLOCKS)
        else:
            if top_k == 0:
                tl.atomic_add(totals_ptr + row, tl.sum(_mass(x, highest, temperature)))
            kept = (_ordered(x) >= tl.load(floors_ptr + row)) & (x > float("-inf"))
            kept = tl.reshape(kept, (BLOCKS * BLOCK,)).to(tl.int32)
            place = tl.atomic_add(counts_ptr + row, tl.sum(kept)) + tl.cumsum(kept) - kept
            listed = candidates_ptr + row * CANDIDATES + place
            listed_ids = tl.reshape(ids, (BLOCKS * BLOCK,))
            tl.store(listed, listed_ids, mask=(kept == 1) & (place < CANDIDATES))


@triton.jit
def _mass(x, highest, temperature):
    """Returns int64: the probability of each id, not normalised, in units of 2^-40."""
    tempered = (x.to(tl.float64) - highest.to(tl.float64)) / temperature
    return (tl.exp(tempered) * 1099511627776.0 + 0.5).to(tl.int64)


@triton.jit
def _tile_ids(start, whole, num_ids, candidates, decodable, TILE: tl.constexpr):
    """Returns int32[TILE]: ids to look at; behind the last of them, one that is not decodable."""
    place = start + tl.arange(0, TILE)
    listed = tl.load(candidates + place, mask=(place < num_ids) & (whole == 0), other=decodable)
    return tl.where(whole != 0, place, listed)


@triton.jit
def _reach(
    least, whole, num_ids, candidates, logits, bitmask, eos_ptr, no_eos, decodable,
    highest, temperature,
    BY_MASS: tl.constexpr, TILE: tl.constexpr, SHIFT: tl.constexpr, ID_BITS: tl.constexpr,
    HAS_BITMASK: tl.constexpr, NUM_EOS: tl.constexpr, VOCAB: tl.constexpr,
):  # fmt: skip
    """Returns int64: how many ids, or what mass of them, are packed at `least` or above."""
    reached = tl.zeros((), tl.int64)
    start = num_ids * 0
    while start < num_ids:  # range() of a loaded number is more than Triton's interpreter can do
        ids = _tile_ids(start, whole, num_ids, candidates, decodable, TILE)
        x = _load(logits, bitmask, eos_ptr, no_eos, ids, decodable, HAS_BITMASK, NUM_EOS, VOCAB)
        above = (_pack(x, ids, SHIFT, ID_BITS) >= least) & (x > float("-inf"))
        weight = _mass(x, highest, temperature) if BY_MASS else tl.full((TILE,), 1, tl.int64)
        reached += tl.sum(tl.where(above, weight, 0))
        start += TILE
    return reached


@triton.jit
def _last_kept(
    low, high, target, whole, num_ids, candidates, logits, bitmask, eos_ptr, no_eos, decodable,
    highest, temperature,
    BY_MASS: tl.constexpr, TILE: tl.constexpr, SHIFT: tl.constexpr, ID_BITS: tl.constexpr,
    HAS_BITMASK: tl.constexpr, NUM_EOS: tl.constexpr, VOCAB: tl.constexpr,
):  # fmt: skip
    """Returns the largest packed value that, with all above it, reaches `target`; else `low`."""
    while low < high:
        middle = _middle(low, high)
        reached = _reach(
            middle, whole, num_ids, candidates, logits, bitmask, eos_ptr, no_eos, decodable,
            highest, temperature, BY_MASS, TILE, SHIFT, ID_BITS, HAS_BITMASK, NUM_EOS, VOCAB,
        )  # fmt: skip
        enough = reached.to(tl.float64) >= target
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle - 1)
    return low


@triton.jit
def _noisy(x, ids, highest, temperature, place_key):
    """Returns float64: tempered logits with noise, -inf where x is."""
    tempered = (x.to(tl.float64) - highest.to(tl.float64)) / temperature
    return tl.where(x == float("-inf"), float("-inf"), tempered + _gumbel(place_key, ids))


@triton.jit
def _draw_kernel(
    logits_ptr, bitmask_ptr, eos_ptr, no_eos_ptr, noisy_ptr,
    choices_ptr, temperature_ptr, top_k_ptr, top_p_ptr, key_ptr, index_ptr,
    floors_ptr, totals_ptr, counts_ptr, candidates_ptr,
    logits_stride, bitmask_stride, decodable,
    NUM_BLOCKS: tl.constexpr, BLOCK: tl.constexpr, CANDIDATES: tl.constexpr, TILE: tl.constexpr,
    SHIFT: tl.constexpr, ID_BITS: tl.constexpr,
    HAS_BITMASK: tl.constexpr, NUM_EOS: tl.constexpr, VOCAB: tl.constexpr,
):  # fmt: skip
    """Draws the choices of rows with noise: from the best noisy blocks, or what filters keep."""
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperature_ptr + row)
    choice = tl.load(choices_ptr + row)
    if (temperature > 0) & (choice >= 0):
        top_k = tl.load(top_k_ptr + row)
        top_p = tl.load(top_p_ptr + row)
        no_eos = tl.load(no_eos_ptr + row) if NUM_EOS else 0
        bitmask = bitmask_ptr + row * bitmask_stride if HAS_BITMASK else bitmask_ptr
        logits = logits_ptr + row * logits_stride
        highest = tl.load(logits + choice).to(tl.float32)
        place_key = _place_key(tl.load(key_ptr + row), tl.load(index_ptr + row))
        if (top_k == 0) & (top_p >= 1.0):
            maxima = _load_maxima(noisy_ptr + row * NUM_BLOCKS, NUM_BLOCKS)
            ids = _ids_of_best_blocks(maxima, NUM_BLOCKS, BLOCK, ID_BITS)
            x = _load(logits, bitmask, eos_ptr, no_eos, ids, decodable, HAS_BITMASK, NUM_EOS, VOCAB)
            score = _noisy(x, ids, highest, temperature, place_key)
            choice = tl.min(tl.where(score == tl.max(score), ids, 0x7FFFFFFF))
        else:
            candidates = candidates_ptr + row * CANDIDATES
            num_listed = tl.load(counts_ptr + row)
            target = top_p * tl.load(totals_ptr + row).to(tl.float64)
            lowest = (tl.load(floors_ptr + row) >> SHIFT).to(tl.int64) << ID_BITS
            # Are the ids that were listed enough?
            whole = ((num_listed > CANDIDATES) | (top_k > num_listed)).to(tl.int32)
            if (whole == 0) & (top_k == 0):
                reached = _reach(
                    lowest, 0, num_listed, candidates, logits, bitmask, eos_ptr, no_eos, decodable,
                    highest, temperature, True, TILE, SHIFT, ID_BITS, HAS_BITMASK, NUM_EOS, VOCAB,
                )  # fmt: skip
                whole = (reached.to(tl.float64) < target).to(tl.int32)
            num_ids = tl.where(whole != 0, decodable, num_listed)
            least = tl.where(whole != 0, -(1 << (31 - SHIFT + ID_BITS)), lowest)
            top = _pack(highest, choice, SHIFT, ID_BITS)
            if top_k > 0:
                least = _last_kept(
                    least, top, top_k.to(tl.float64), whole, num_ids, candidates,
                    logits, bitmask, eos_ptr, no_eos, decodable, highest, temperature,
                    False, TILE, SHIFT, ID_BITS, HAS_BITMASK, NUM_EOS, VOCAB,
                )  # fmt: skip
                if top_p < 1.0:
                    reached = _reach(
                        least, whole, num_ids, candidates, logits, bitmask, eos_ptr, no_eos,
                        decodable, highest, temperature,
                        True, TILE, SHIFT, ID_BITS, HAS_BITMASK, NUM_EOS, VOCAB,
                    )  # fmt: skip
                    target = top_p * reached.to(tl.float64)
            if top_p < 1.0:
                least = _last_kept(
                    least, top, target, whole, num_ids, candidates,
                    logits, bitmask, eos_ptr, no_eos, decodable, highest, temperature,
                    True, TILE, SHIFT, ID_BITS, HAS_BITMASK, NUM_EOS, VOCAB,
                )  # fmt: skip
            best = tl.full((), float("-inf"), tl.float64)
            start = num_ids * 0
            while start < num_ids:
                ids = _tile_ids(start, whole, num_ids, candidates, decodable, TILE)
                x = _load(
                    logits, bitmask, eos_ptr, no_eos, ids, decodable, HAS_BITMASK, NUM_EOS, VOCAB
                )
                score = _noisy(x, ids, highest, temperature, place_key)
                score = tl.where(_pack(x, ids, SHIFT, ID_BITS) >= least, score, float("-inf"))
                here = tl.max(score)
                winner = tl.min(tl.where(score == here, ids, 0x7FFFFFFF))
                better = (here > best) | ((here == best) & (winner < choice))
                choice = tl.where(better, winner, choice)
                best = tl.where(better, here, best)
                start += TILE
        tl.store(choices_ptr + row, choice)


def scratch_bytes(num_rows: int, vocab: int) -> int:
    """Returns how many bytes `sample` needs beside its outputs."""
    return sum(4 * words for words in _scratch_words(num_rows, vocab))


def _scratch_words(num_rows: int, vocab: int) -> tuple[int, ...]:
    """Words of 4 bytes: totals (int64 first, for alignment), floors, counts, maxima, noisy maxima,
    candidates.
    """
    num_blocks = triton.cdiv(vocab, BLOCK)
    per_row = (2, 1, 1, num_blocks, num_blocks, CANDIDATES)
    return tuple(triton.cdiv(num_rows * words, 32) * 32 for words in per_row)


def sample(
    logits: torch.Tensor,
    decodable: int,
    choices: torch.Tensor,
    top8: torch.Tensor,
    scratch: torch.Tensor,
    noise: tuple[torch.Tensor, ...] | None,
    bitmask: torch.Tensor | None,
    eos_ids: torch.Tensor | None,
    no_eos: torch.Tensor | None,
) -> None:
    """See `ops.sample`. noise: temperature, top_k, top_p, key, index of each row."""
    num_rows, vocab = logits.shape
    words = scratch.view(torch.int32).split(_scratch_words(num_rows, vocab))
    floors, counts, candidates = words[1], words[2], words[5]
    totals = words[0].view(torch.int64)
    maxima, noisy = words[3].view(torch.float32), words[4].view(torch.float32)
    num_blocks = triton.cdiv(vocab, BLOCK)
    strides = (logits.stride(0), 0 if bitmask is None else bitmask.stride(0))
    row_of = (logits, bitmask, eos_ids, no_eos)
    limits = {
        "NUM_BLOCKS": num_blocks,
        "BLOCK": BLOCK,
        "VOCAB": vocab,
        "HAS_BITMASK": bitmask is not None,
        "NUM_EOS": 0 if eos_ids is None else len(eos_ids),
    }
    order = {"SHIFT": _SHIFTS[logits.dtype], "ID_BITS": vocab.bit_length()}
    wide = (triton.cdiv(num_blocks, BLOCKS), num_rows)
    _maxima_kernel[wide](*row_of, maxima, *strides, decodable, BLOCKS=BLOCKS, **limits)
    _rank_kernel[(num_rows,)](
        *row_of, maxima, choices, top8, floors, totals, counts,
        *strides, top8.stride(0), decodable,
        NUM_ABOVE=min(512, num_blocks // 2), HAS_NOISE=noise is not None, **order, **limits,
    )  # fmt: skip
    if noise is None:
        return
    found = (floors, totals, counts, candidates)
    _spread_kernel[wide](
        *row_of, noisy, choices, *noise, *found, *strides, decodable,
        BLOCKS=BLOCKS, CANDIDATES=CANDIDATES, **limits,
    )  # fmt: skip
    _draw_kernel[(num_rows,)](
        *row_of, noisy, choices, *noise, *found, *strides, decodable,
        CANDIDATES=CANDIDATES, TILE=TILE, num_warps=8, **order, **limits,
    )  # fmt: skip
