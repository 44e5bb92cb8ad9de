# SPDX-License-Identifier: Apache-2.0
"""The operations of a fused round; the only module that imports the Triton kernels.

Every operation works row by row: what a row gets depends on that row's own numbers, never on how
many rows there are, where it stands or what the others hold. Outputs are given, nothing is
allocated, and a launch goes to the current stream, so that a CUDA graph can hold it.

Tensors on a GPU, or any with TRITON_INTERPRET=1, go to the kernels; others to `reference`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, Protocol

import torch

from ooospec import reference
from ooospec._core import cuda_core, has_cuda_core

Provider = Literal["triton", "reference"]
ACTIVATIONS = ("silu", "gelu_tanh")
TOP = 8  # ids that `sample` ranks

_MASK64 = (1 << 64) - 1
_forced: Provider | None = None


@contextmanager
def using(provider: Provider) -> Iterator[None]:
    """Sends every operation inside the `with` block to one provider, whatever the tensors."""
    global _forced
    before, _forced = _forced, provider
    try:
        yield
    finally:
        _forced = before


def _has_kernel(tensor: torch.Tensor) -> bool:
    if _forced is not None:
        return _forced == "triton"
    return tensor.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"


def _require(name: str, tensor: torch.Tensor, dtype: torch.dtype, *shape: int) -> None:
    """Raises ValueError unless `tensor` is of this dtype and shape and dense in its last axis."""
    valid = tensor.dtype == dtype and tuple(tensor.shape) == shape
    if not valid or (tensor.shape[-1] > 1 and tensor.stride(-1) != 1):
        raise ValueError(
            f"{name}: expected {dtype}{list(shape)} with last stride 1, got {tensor.dtype}"
            f"{list(tensor.shape)} with strides {tensor.stride()}"
        )


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor,
    residual: torch.Tensor | None = None,
    offset: float = 0.0,
) -> None:
    """Writes the RMS norm of each row times (offset + weight), computed in float32, to `out`.

    x: dtype[N, C]. weight: dtype[C]. out: dtype[N, C], may be x.
    residual: dtype[N, C]; x is added to it first, rounded to its dtype, and the sum is normed.
    Mutates out, residual. Raises ValueError for other dtypes, shapes or strides. Cost: one launch.
    """
    num_rows, dim = x.shape
    _require("x", x, x.dtype, num_rows, dim)
    _require("weight", weight, weight.dtype, dim)
    _require("out", out, x.dtype, num_rows, dim)
    if residual is not None:
        _require("residual", residual, residual.dtype, num_rows, dim)
    if _has_kernel(x):
        from ooospec.triton_kernels.rms_norm import rms_norm as launch

        launch(x, weight, eps, out, residual, offset)
        return
    if residual is not None:
        residual.copy_(residual.float() + x.float())
        x = residual
    out.copy_(reference.rms_norm_ref(x, weight, eps, offset))


def qkv_rope_store(
    qkv: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    q_out: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    bias: torch.Tensor | None = None,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 1e-6,
    offset: float = 0.0,
) -> None:
    """Turns rows of the fused product into rotated queries, and stores their keys and values.

    Bias, norm of each head of q and k, rotation of pairs (i, i + D/2); in float32, rounded once.
    qkv: dtype[N, (H + 2 G) * D]. cos_sin: float32[positions, D]: D/2 cosines, then D/2 sines.
    positions: int32[N] in [0, positions). slots: int64[N], flat slots of the cache.
    q_out: dtype[N, H, D]. keys, values: dtype[slots, G, D].
    bias: dtype[(H + 2 G) * D]. q_norm, k_norm: dtype[D], both or neither, as in `rms_norm`.
    Mutates q_out, keys, values. Raises ValueError for other dtypes, shapes or strides; positions
    and slots are not looked at. Cost: one launch.
    """
    num_rows, num_heads, dim = q_out.shape
    num_kv_heads = keys.shape[1]
    width = (num_heads + 2 * num_kv_heads) * dim
    _require("qkv", qkv, qkv.dtype, num_rows, width)
    _require("cos_sin", cos_sin, torch.float32, cos_sin.shape[0], dim)
    _require("positions", positions, torch.int32, num_rows)
    _require("slots", slots, torch.int64, num_rows)
    _require("q_out", q_out, qkv.dtype, num_rows, num_heads, dim)
    _require("keys", keys, qkv.dtype, keys.shape[0], num_kv_heads, dim)
    _require("values", values, qkv.dtype, keys.shape[0], num_kv_heads, dim)
    if bias is not None:
        _require("bias", bias, bias.dtype, width)
    if (q_norm is None) != (k_norm is None):
        raise ValueError("q_norm, k_norm: expected both or neither, got one")
    for name, norm in (("q_norm", q_norm), ("k_norm", k_norm)):
        if norm is not None:
            _require(name, norm, norm.dtype, dim)
    if _has_kernel(qkv):
        from ooospec.triton_kernels.qkv_rope_store import qkv_rope_store as launch

        tensors = (qkv, cos_sin, positions, slots, q_out, keys, values)
        launch(*tensors, bias, q_norm, k_norm, eps, offset)
        return
    q, k, v = reference.qkv_rope_ref(
        qkv,
        cos_sin[positions.long()],
        num_heads,
        num_kv_heads,
        bias=bias,
        q_norm=q_norm,
        k_norm=k_norm,
        eps=eps,
        offset=offset,
    )
    q_out.copy_(q)
    keys[slots] = k.to(keys.dtype)
    values[slots] = v.to(values.dtype)


def swiglu(gate_up: torch.Tensor, out: torch.Tensor, activation: str = "silu") -> None:
    """Writes activation(gate) * up, computed in float32, to `out`.

    gate_up: dtype[N, 2 I], gate first. out: dtype[N, I]. activation: "silu" or "gelu_tanh".
    Mutates out. Raises ValueError for another activation, dtype, shape or stride. Cost: one launch.
    """
    num_rows, dim = out.shape
    _require("gate_up", gate_up, out.dtype, num_rows, 2 * dim)
    _require("out", out, out.dtype, num_rows, dim)
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation: expected one of {ACTIVATIONS}, got {activation!r}")
    if _has_kernel(out):
        from ooospec.triton_kernels.swiglu import swiglu as launch

        launch(gate_up, out, activation)
        return
    out.copy_(reference.swiglu_ref(gate_up, activation))


def linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """Writes x @ weight^T, summed in float32, to `out`.

    x: dtype[N, K]. weight: dtype[M, K]. out: dtype[N, M], or float32.
    On Hopper, up to 64 rows in bfloat16 or float16 go to a kernel of our own, whose rows depend on
    nothing but themselves and the weight: a row has the same bits among any others. It reads the
    weight before the launches ahead have ended: a weight that was just written needs a
    synchronisation first. Elsewhere torch.mm does it, of which this is so at one number of rows.
    Mutates out. Raises ValueError for other dtypes, shapes or strides. Cost: one launch; the weight
    is read once.
    """
    (num_rows, num_inputs), num_outputs = x.shape, weight.shape[0]
    _require("x", x, x.dtype, num_rows, num_inputs)
    _require("weight", weight, x.dtype, num_outputs, num_inputs)
    _require("out", out, out.dtype, num_rows, num_outputs)
    if out.dtype not in (x.dtype, torch.float32):
        raise ValueError(f"out: expected {x.dtype} or {torch.float32}, got {out.dtype}")
    if _has_linear(x, weight, out):
        _launch_linear(x, weight, out, is_swiglu=False)
    elif out.dtype == x.dtype:
        torch.mm(x, weight.t(), out=out)
    elif x.is_cuda:
        torch.mm(x, weight.t(), out_dtype=out.dtype, out=out)
    else:
        torch.mm(x.to(out.dtype), weight.t().to(out.dtype), out=out)


def linear_swiglu(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    out: torch.Tensor,
    scratch: torch.Tensor | None = None,
) -> None:
    """Writes silu(x @ gate^T) * (x @ up^T) to `out`: `linear` and `swiglu` in one launch on Hopper.

    x: dtype[N, K]. gate_up: dtype[2 M, K], gate first. out: dtype[N, M].
    scratch: dtype[N, 2 M], for where there are two launches; None allocates it there.
    Mutates out, scratch. Raises ValueError for other dtypes, shapes or strides. What `linear` says
    of rows and weights holds; in one launch, gate and up are multiplied before they are rounded.
    """
    (num_rows, num_inputs), num_outputs = x.shape, out.shape[1]
    _require("x", x, x.dtype, num_rows, num_inputs)
    _require("gate_up", gate_up, x.dtype, 2 * num_outputs, num_inputs)
    _require("out", out, x.dtype, num_rows, num_outputs)
    if scratch is not None:
        _require("scratch", scratch, x.dtype, num_rows, 2 * num_outputs)
    if _has_linear(x, gate_up, out):
        _launch_linear(x, gate_up, out, is_swiglu=True)
        return
    if scratch is None:
        scratch = torch.empty(num_rows, 2 * num_outputs, dtype=x.dtype, device=x.device)
    linear(x, gate_up, scratch)
    swiglu(scratch, out)


@cache
def _is_hopper(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] == 9


def _has_linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> bool:
    """Returns whether the kernel does this product: by what never changes within an engine."""
    if _forced == "reference" or not x.is_cuda or not _is_hopper(x.device):
        return False
    aligned = all(
        tensor.data_ptr() % 16 == 0 and tensor.stride(0) % 8 == 0 for tensor in (x, weight, out)
    )
    sized = len(x) <= 64 and x.shape[1] % 8 == 0 and out.shape[1] % 8 == 0
    return aligned and sized and x.dtype in (torch.bfloat16, torch.float16) and has_cuda_core()


def _launch_linear(
    x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, is_swiglu: bool
) -> None:
    cuda_core().linear(
        x=x.data_ptr(),
        x_stride=x.stride(0),
        weight=weight.data_ptr(),
        weight_stride=weight.stride(0),
        out=out.data_ptr(),
        out_stride=out.stride(0),
        num_rows=len(x),
        num_inputs=x.shape[1],
        num_outputs=out.shape[1],
        is_bfloat16=x.dtype == torch.bfloat16,
        has_float_out=out.dtype == torch.float32,
        is_swiglu=is_swiglu,
        stream=torch.cuda.current_stream(x.device).cuda_stream,
    )


@dataclass(frozen=True)
class RowSampling:
    """How each row of a launch chooses. All of it is data: one graph serves every setting.

    temperature: float64[N]; 0 is greedy. top_k: int32[N]; 0 keeps all. top_p: float64[N]; 1 keeps
    all. key: int64[N], bits of `sampling.request_key`. index: int32[N], place in the answer.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    key: torch.Tensor
    index: torch.Tensor


@dataclass(frozen=True)
class RowLimits:
    """Ids that a row must not choose.

    bitmask: int32[N, ceil(V / 32)]; id v is allowed where bit v % 32 of word v // 32 is set.
    eos_ids: int32[E], forbidden in rows where no_eos, int32[N], is not 0. Give both or neither.
    """

    bitmask: torch.Tensor | None = None
    eos_ids: torch.Tensor | None = None
    no_eos: torch.Tensor | None = None


def sample(
    logits: torch.Tensor,
    decodable: int,
    choices: torch.Tensor,
    top8: torch.Tensor,
    sampling: RowSampling | None = None,
    limits: RowLimits | None = None,
    scratch: torch.Tensor | None = None,
) -> None:
    """Chooses a token for each row and ranks the eight likeliest.

    logits: dtype[N, V]. Only finite ones count, of ids below `decodable` that `limits` allows.
    choices: int32[N]; greedy the highest logit, lowest id on a tie; else as `sampling.Chooser`
    chooses. -1: no logit counts.
    top8: int32[N, 8]; ids by logit, highest first, lower ids first on a tie; -1 where there are
    fewer. Not touched by temperature and noise.
    scratch: from `sample_scratch`, not to be used by two launches at a time; None allocates it.
    Mutates choices, top8, scratch. Raises ValueError for other dtypes, shapes or strides.
    Cost: two launches; four with `sampling`.
    """
    num_rows, vocab = logits.shape
    _require("logits", logits, logits.dtype, num_rows, vocab)
    _require("choices", choices, torch.int32, num_rows)
    _require("top8", top8, torch.int32, num_rows, TOP)
    if not 1 <= decodable <= vocab:
        raise ValueError(f"decodable: expected an integer in [1, {vocab}], got {decodable}")
    _check_rows(num_rows, vocab, sampling, limits or RowLimits())
    if _has_kernel(logits):
        from ooospec.triton_kernels.sample import sample as launch

        scratch = sample_scratch(logits) if scratch is None else scratch
        limits = limits or RowLimits()
        rows = None
        if sampling is not None:
            s = sampling
            rows = (s.temperature, s.top_k, s.top_p, s.key, s.index)
        bans = (limits.bitmask, limits.eos_ids, limits.no_eos)
        launch(logits, decodable, choices, top8, scratch, rows, *bans)
        return
    for row in range(num_rows):
        allowed = _allowed(row, logits, decodable, limits or RowLimits())
        choices[row], ids = reference.sample_ref(logits[row], allowed, **_of_row(row, sampling))
        top8[row] = torch.tensor(ids)


def sample_scratch(logits: torch.Tensor) -> torch.Tensor:
    """Returns uint8 memory for `sample` on logits of this shape and device."""
    if not _has_kernel(logits):
        return torch.empty(0, dtype=torch.uint8)
    from ooospec.triton_kernels.sample import scratch_bytes

    num_bytes = scratch_bytes(*logits.shape)
    return torch.empty(num_bytes, dtype=torch.uint8, device=logits.device)


def _check_rows(num_rows: int, vocab: int, sampling: RowSampling | None, limits: RowLimits) -> None:
    if sampling is not None:
        _require("temperature", sampling.temperature, torch.float64, num_rows)
        _require("top_k", sampling.top_k, torch.int32, num_rows)
        _require("top_p", sampling.top_p, torch.float64, num_rows)
        _require("key", sampling.key, torch.int64, num_rows)
        _require("index", sampling.index, torch.int32, num_rows)
    if limits.bitmask is not None:
        _require("bitmask", limits.bitmask, torch.int32, num_rows, -(-vocab // 32))
    if (limits.eos_ids is None) != (limits.no_eos is None):
        raise ValueError("eos_ids, no_eos: expected both or neither, got one")
    if limits.eos_ids is not None and limits.no_eos is not None:
        _require("eos_ids", limits.eos_ids, torch.int32, len(limits.eos_ids))
        _require("no_eos", limits.no_eos, torch.int32, num_rows)


def _allowed(row: int, logits: torch.Tensor, decodable: int, limits: RowLimits) -> torch.Tensor:
    """Returns bool[V]: the ids that `row` may choose."""
    ids = torch.arange(logits.shape[1], device=logits.device)
    allowed = ids < decodable
    if limits.bitmask is not None:
        allowed &= (limits.bitmask[row, ids // 32] >> (ids % 32)) & 1 == 1
    if limits.eos_ids is not None and limits.no_eos is not None and limits.no_eos[row]:
        allowed &= ~torch.isin(ids, limits.eos_ids)
    return allowed


def _of_row(row: int, sampling: RowSampling | None) -> dict[str, Any]:
    """Returns the arguments of `sample_ref` for `row`."""
    if sampling is None:
        return {}
    return {
        "temperature": float(sampling.temperature[row]),
        "top_k": int(sampling.top_k[row]),
        "top_p": float(sampling.top_p[row]),
        "key": int(sampling.key[row]) & _MASK64,
        "index": int(sampling.index[row]),
    }


# --- attention ------------------------------------------------------------------------------------

BLOCK = 64  # positions that attention takes at once; slots of a page
MAX_DEPTH = 63  # of a draft row below its root; attention looks up so many ancestors


class LaunchRows(Protocol):
    """The packed rows of a launch, as data on the device.

    positions, sequences: int32[N]; mask, slots: int64[N]; lengths: int32[S]; page_table:
    int32[S, P], pages of 64 slots. Rows of a sequence stand together. sequences: row of page_table,
    -1 for padding. Bit j of a row's mask: row j is the row itself or above it. slots: where the
    row's key and value lie. lengths: committed tokens.
    """

    @property
    def positions(self) -> torch.Tensor: ...
    @property
    def sequences(self) -> torch.Tensor: ...
    @property
    def mask(self) -> torch.Tensor: ...
    @property
    def slots(self) -> torch.Tensor: ...
    @property
    def lengths(self) -> torch.Tensor: ...
    @property
    def page_table(self) -> torch.Tensor: ...


class TreePlan:
    """What `tree_attention` derives from the rows of a launch once a round, and its scratch.

    Allocates about 4 * N * H * (D + 2) bytes for each of at most 16 splits; one plan serves all
    layers of a shape.
    """

    def __init__(
        self,
        rows: LaunchRows,
        num_heads: int,
        num_kv_heads: int,
        dim: int,
        *,
        leaders: torch.Tensor | None = None,
        num_shared: torch.Tensor | None = None,
        **tiling: Any,
    ) -> None:
        """Checks the rows' tensors, whose addresses are kept; their data may change every round.

        leaders, num_shared: int32[S], both or neither; the first num_shared[s] tokens of sequence
        s are committed and lie in the same pages as those of sequence leaders[s]. Sequences of one
        leader whose rows stand together read them once.
        tiling: fields of `triton_kernels.tree_attention.Tiling` that differ from the shape's own.
        Raises ValueError for other dtypes, shapes or strides.
        """
        num_rows = len(rows.positions)
        num_sequences, num_pages = rows.page_table.shape
        if not 1 <= num_rows <= 64 or num_heads % num_kv_heads or num_heads > 16 * num_kv_heads:
            raise ValueError(
                "plan: expected 1 to 64 rows and 1 to 16 heads a kv head, got "
                f"{num_rows} rows, {num_heads} heads, {num_kv_heads} kv heads"
            )
        for name, tensor in (("positions", rows.positions), ("sequences", rows.sequences)):
            _require(name, tensor, torch.int32, num_rows)
        for name, tensor in (("mask", rows.mask), ("slots", rows.slots)):
            _require(name, tensor, torch.int64, num_rows)
        _require("lengths", rows.lengths, torch.int32, num_sequences)
        _require("page_table", rows.page_table, torch.int32, num_sequences, num_pages)
        if (leaders is None) != (num_shared is None):
            raise ValueError("leaders, num_shared: expected both or neither, got one")
        if leaders is not None and num_shared is not None:
            _require("leaders", leaders, torch.int32, num_sequences)
            _require("num_shared", num_shared, torch.int32, num_sequences)
        self.rows, self.leaders, self.num_shared = rows, leaders, num_shared
        self.shape = num_rows, num_heads, num_kv_heads, dim
        if _has_kernel(rows.positions):
            self._allocate(tiling)

    def _allocate(self, changes: dict[str, Any]) -> None:
        from ooospec.triton_kernels import head_work, tree_attention
        from ooospec.triton_kernels.pdl import starts_early

        num_rows, num_heads, num_kv_heads, dim = self.shape
        changes = {"pdl": starts_early(self.rows.positions), **changes}
        if not self.rows.positions.is_cuda:  # interpreted, one program after the other
            changes = {"num_programs": 8, **changes}
        self.tiling = replace(tree_attention.tiling(num_heads, num_kv_heads, dim), **changes)
        splits = self.tiling.max_splits

        def buffer(dtype: torch.dtype, *shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.rows.positions.device)

        self.tails = buffer(torch.int32, num_rows, BLOCK)
        self.split_blocks = buffer(torch.int32, num_rows)
        self.work = buffer(torch.int32, num_rows * splits + head_work.ENDS, 8)
        self.states = buffer(torch.float32, num_rows, num_heads, splits, dim)
        self.maxima = buffer(torch.float32, num_rows, num_heads, splits)
        self.totals = torch.zeros_like(self.maxima)


def tail_slots(plan: TreePlan) -> None:
    """Derives from the rows what `tree_attention` needs; once a round, before the first layer.

    Mutates plan. Cost: two launches.
    """
    rows = plan.rows
    if not _has_kernel(rows.positions):
        return  # the reference looks slots up itself
    from ooospec.triton_kernels import head_work, tail_slots

    head_work.head_work(
        rows.positions,
        rows.sequences,
        rows.page_table,
        plan.split_blocks,
        plan.work,
        tile_rows=plan.tiling.tile_rows,
        max_splits=plan.tiling.max_splits,
        few_splits=plan.tiling.few_splits,
        enough_blocks=plan.tiling.enough_blocks,
        leaders=plan.leaders,
        num_shared=plan.num_shared,
    )
    tail_slots.tail_slots(
        rows.positions,
        rows.mask,
        rows.sequences,
        rows.slots,
        rows.lengths,
        rows.page_table,
        plan.tails,
    )


def tree_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    plan: TreePlan,
    out: torch.Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> None:
    """Writes the attention of each row over the committed tokens and its ancestors to `out`.

    q, out: dtype[N, H, D], rows and heads may be strided. keys, values: dtype[slots, G, D], of
    equal strides, those of the rows included. plan: of this shape, after `tail_slots`.
    A row lies at most 63 positions behind the committed tokens; rows of padding get 0.
    window: a row at p sees positions above p - window only. softcap: scores s become
    softcap * tanh(s / softcap).
    Mutates out, the plan's scratch. Raises ValueError for other dtypes, shapes or strides.
    Cost: two launches.
    """
    num_rows, num_heads, num_kv_heads, dim = plan.shape
    _check_attention(q, keys, values, out, num_rows, num_heads, num_kv_heads, dim)
    if _has_kernel(q):
        from ooospec.triton_kernels.tree_attention import tree_attention as launch

        launch(
            q,
            keys,
            values,
            plan.rows.positions,
            plan.rows.page_table,
            plan.tails,
            plan.split_blocks,
            plan.work,
            plan.states,
            plan.maxima,
            plan.totals,
            out,
            plan.tiling,
            scale=scale,
            window=window,
            softcap=softcap,
        )
        return
    rows = plan.rows
    seen = reference.seen_slots_ref(
        rows.positions, rows.mask, rows.sequences, rows.slots, rows.lengths, rows.page_table
    )
    out.copy_(
        reference.paged_attention_ref(
            q, keys, values, seen, scaling=scale, window=window, softcap=softcap
        )
    )


def prefill_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    rows: LaunchRows,
    out: torch.Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> None:
    """Writes the causal attention of a chunk of one sequence to `out`; mask and slots are not read.

    As `tree_attention`, except that rows stand at consecutive positions from a border of chunks on,
    padding behind them, and may be more than 64. Cost: one launch.
    """
    num_rows, num_heads, dim = q.shape
    _check_attention(q, keys, values, out, num_rows, num_heads, keys.shape[1], dim)
    _require("positions", rows.positions, torch.int32, num_rows)
    _require("sequences", rows.sequences, torch.int32, num_rows)
    if _has_kernel(q):
        from ooospec.triton_kernels.prefill_attention import prefill_attention as launch

        tensors = (q, keys, values, rows.positions, rows.sequences, rows.page_table, out)
        launch(*tensors, scale=scale, window=window, softcap=softcap)
        return
    stored = torch.full_like(rows.positions, int(rows.positions.max()) + 1)
    seen = reference.seen_slots_ref(
        rows.positions, stored, rows.sequences, stored, stored, rows.page_table
    )
    out.copy_(
        reference.paged_attention_ref(
            q, keys, values, seen, scaling=scale, window=window, softcap=softcap
        )
    )


def _check_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    out: torch.Tensor,
    num_rows: int,
    num_heads: int,
    num_kv_heads: int,
    dim: int,
) -> None:
    _require("q", q, q.dtype, num_rows, num_heads, dim)
    _require("out", out, q.dtype, num_rows, num_heads, dim)
    for name, tensor in (("keys", keys), ("values", values)):
        _require(name, tensor, q.dtype, keys.shape[0], num_kv_heads, dim)
    if keys.stride() != values.stride():
        raise ValueError(
            f"keys, values: expected equal strides, got {keys.stride()} and {values.stride()}"
        )
    if any(stride * q.element_size() % 16 for stride in keys.stride()[:2]):
        raise ValueError(
            f"keys, values: expected slots and heads at multiples of 16 bytes, got {keys.stride()}"
        )


def kv_compact(
    keys: torch.Tensor,
    values: torch.Tensor,
    sources: torch.Tensor,
    targets: torch.Tensor,
    count: torch.Tensor,
) -> None:
    """Copies slots sources[i] to targets[i], i < count, of all layers, as if at once.

    keys, values: dtype[layers, slots, G, D]. sources, targets: int64[M], M <= 64, targets distinct.
    count: int32[1]. Mutates keys, values. Raises ValueError for other dtypes, shapes or strides.
    Cost: one launch.
    """
    for name, tensor in (("keys", keys), ("values", values)):
        _require(name, tensor, keys.dtype, *keys.shape[:3], tensor.shape[-1])
        if tensor.stride(2) != tensor.shape[3]:
            raise ValueError(f"{name}: expected dense slots, got strides {tensor.stride()}")
    num_moves = len(sources)
    _require("sources", sources, torch.int64, num_moves)
    _require("targets", targets, torch.int64, num_moves)
    _require("count", count, torch.int32, 1)
    if num_moves > 64:
        raise ValueError(f"sources: expected at most 64, got {num_moves}")
    if _has_kernel(keys):
        from ooospec.triton_kernels.kv_compact import kv_compact as launch

        launch(keys, values, sources, targets, count)
        return
    moves = int(count)
    for cached in (keys, values):
        cached[:, targets[:moves]] = cached[:, sources[:moves]]
