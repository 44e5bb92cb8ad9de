# SPDX-License-Identifier: Apache-2.0
"""Every kernel compiles for compute capability 9.0, on a machine without a GPU too; attention of
the widest heads for a GPU of little shared memory besides.

A process of its own, in which kernels are not interpreted, calls the operations with tensors on the
CPU; each launch ends where it would go to a GPU.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

pytest.importorskip("triton")

HARNESS = """
import sys
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

class Offline:
    def get_current_target(self):
        return GPUTarget("cuda", CAPABILITY, 32)
    def get_current_device(self):
        return 0
    def get_current_stream(self, device):
        return 0

def compile_only(self, *args, grid, warmup, **options):
    kernel = run(self, *args, grid=grid, warmup=True, **options)
    assert kernel.asm["cubin"]
    print("compiled", self.__name__, "shared", kernel.metadata.shared)

driver.set_active(Offline())
run, JITFunction.run = JITFunction.run, compile_only
from ooospec import ops
from ooospec.triton_kernels import pdl, stages
pdl.starts_early = lambda tensor: CAPABILITY >= 90  # as on the GPU that they are compiled for
stages.shared_bytes = lambda device: SHARED_BYTES
from ooospec.ops import RowLimits, RowSampling
from tree_cases import Case, Shape, Tree

def zeros(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype)

def ints(*shape):
    return zeros(*shape, dtype=torch.int32)

def doubles(*shape):
    return zeros(*shape, dtype=torch.float64)

def longs(*shape):
    return zeros(*shape, dtype=torch.int64)

N = 64
"""

ATTENTION = """
def attend(shape, dtype=torch.bfloat16):
    case = Case(shape, [Tree(10, [-1])], num_rows=64, dtype=dtype)
    plan = case.plan()
    ops.tail_slots(plan)
    tensors = case.q, case.keys, case.values
    options = dict(scale=0.1, window=shape.window, softcap=shape.softcap)
    ops.tree_attention(*tensors, plan, case.out, **options)
    ops.prefill_attention(*tensors, case.rows, case.out, **options)
"""

ROPE = """
def rope(heads, kv_heads, dim, **extras):
    qkv = zeros(N, (heads + 2 * kv_heads) * dim)
    cache = zeros(256, kv_heads, dim)
    table = zeros(256, dim, dtype=torch.float32)
    ops.qkv_rope_store(qkv, table, ints(N), longs(N), zeros(N, heads, dim), cache, cache, **extras)

"""

KERNELS = {
    "Qwen3-8B": "attend(Shape(32, 8, 128))",
    "Qwen2.5-0.5B": "attend(Shape(14, 2, 64))",
    "group of 1, dim 80, window": "attend(Shape(2, 2, 80, window=100))",
    "group of 2, dim 256, soft cap": "attend(Shape(8, 4, 256, window=512, softcap=50.0))",
    "group of 16, dim 96, fp16": "attend(Shape(16, 1, 96), torch.float16)",
    "wave": """
shared = torch.zeros(1, dtype=torch.int32)
case = Case(Shape(16, 8, 128), [Tree(10, [-1])], num_rows=32)
ops.tail_slots(case.plan(shared, shared))
""",
    "kv_compact": """
pool = zeros(2, 64, 8, 128)
ops.kv_compact(pool, pool.clone(), longs(64), longs(64), ints(1))
""",
    "rms_norm": """
for dim in (896, 1024, 4096, 5120):
    ops.rms_norm(zeros(N, dim), zeros(dim), 1e-6, zeros(N, dim))
ops.rms_norm(zeros(N, 4096), zeros(4096), 1e-6, zeros(N, 4096), zeros(N, 4096), 1.0)
""",
    "swiglu": """
for activation in ops.ACTIVATIONS:
    ops.swiglu(zeros(N, 2 * 4864), zeros(N, 4864), activation)
""",
    "qkv_rope_store": ROPE
    + """
rope(32, 8, 128, q_norm=zeros(128), k_norm=zeros(128))
rope(14, 2, 64, bias=zeros(18 * 64))
rope(32, 32, 80)
""",
    "sample": """
for dtype in (torch.bfloat16, torch.float16, torch.float32):
    ops.sample(zeros(N, 151936, dtype=dtype), 151669, ints(N), ints(N, 8))
noise = RowSampling(doubles(N), ints(N), doubles(N), longs(N), ints(N))
limits = RowLimits(ints(N, 4748), ints(2), ints(N))
ops.sample(zeros(N, 151936), 151669, ints(N), ints(N, 8), noise, limits)
""",
    "bend": """
for vocab in (151936, 128256):
    logits = zeros(N, vocab, dtype=torch.float32)
    ops.bend(logits, ints(N), ints(N), ints(8, 40960), longs(N, ops.HASH_PARTS))
""",
}
NUM_LAUNCHES = {
    "bend": 2,
    "wave": 2,
    "kv_compact": 1,
    "rms_norm": 5,
    "swiglu": 2,
    "qkv_rope_store": 3,
    "sample": 3 * 2 + 4,
}
SHARED_BYTES = {90: 232_448, 86: 101_376}  # of one program, by compute capability


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_compile_for_hopper(name: str, tmp_path: Path) -> None:
    compile_for(90, KERNELS[name], NUM_LAUNCHES.get(name, 5), tmp_path)


def test_wide_heads_fit_a_device_of_99_kib(tmp_path: Path) -> None:
    """D15: a head_dim of 256 asks for fewer blocks at a time there."""
    compile_for(86, "attend(Shape(4, 1, 256, window=512))", 5, tmp_path)


def compile_for(capability: int, calls: str, num_launches: int, tmp_path: Path) -> None:
    """Compiles the kernels of `calls`; asserts that each fits the shared memory of such a GPU."""
    compiler = start_compiler(capability, calls, TRITON_CACHE_DIR=str(tmp_path))
    out, err = compiler.communicate()
    assert compiler.returncode == 0, err
    shared = [int(size) for size in re.findall(r"compiled \w+ shared (\d+)", out)]
    assert len(shared) == num_launches, out
    assert max(shared) <= SHARED_BYTES[capability]


def start_compiler(capability: int, calls: str, **variables: str) -> subprocess.Popen[str]:
    """Starts a process that compiles the kernels of `calls`, which has these variables, and no
    other that says where to.
    """
    env = {key: value for key, value in os.environ.items() if key != "TRITON_CACHE_DIR"}
    env |= {"TRITON_INTERPRET": "0", **variables}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    code = f"CAPABILITY, SHARED_BYTES = {capability}, {SHARED_BYTES[capability]}\n"
    code += HARNESS + ATTENTION + ROPE + f"with ops.using('triton'):\n{indent(calls, '    ')}"
    command = [sys.executable, "-c", code]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
