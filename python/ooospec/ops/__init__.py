# SPDX-License-Identifier: Apache-2.0
"""The operations of a fused round; the only package that imports the Triton kernels.

Every operation works row by row: what a row gets depends on that row's own numbers, never on how
many rows there are, where it stands or what the others hold. Outputs are given, nothing is
allocated, and a launch goes to the current stream, so that a CUDA graph can hold it.

Tensors on a GPU, or any with TRITON_INTERPRET=1, go to the kernels; others to `reference`.
"""

from ooospec.ops.attention import (
    BLOCK,
    MAX_DEPTH,
    LaunchRows,
    TreePlan,
    prefill_attention,
    tail_slots,
    tree_attention,
)
from ooospec.ops.choice import TOP, RowLimits, RowSampling, sample, sample_scratch
from ooospec.ops.compaction import kv_compact
from ooospec.ops.dispatch import Provider, using
from ooospec.ops.layer import ACTIVATIONS, qkv_rope_store, rms_norm, swiglu
from ooospec.ops.products import linear, linear_swiglu
from ooospec.ops.replay import BENT, HASH_PARTS, bend

__all__ = [
    "ACTIVATIONS",
    "BENT",
    "BLOCK",
    "HASH_PARTS",
    "MAX_DEPTH",
    "TOP",
    "LaunchRows",
    "Provider",
    "RowLimits",
    "RowSampling",
    "TreePlan",
    "bend",
    "kv_compact",
    "linear",
    "linear_swiglu",
    "prefill_attention",
    "qkv_rope_store",
    "rms_norm",
    "sample",
    "sample_scratch",
    "swiglu",
    "tail_slots",
    "tree_attention",
    "using",
]
