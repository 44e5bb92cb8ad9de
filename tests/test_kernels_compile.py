# SPDX-License-Identifier: Apache-2.0
"""Every kernel compiles for compute capability 9.0, on a machine without a GPU too.

A process of its own, in which kernels are not interpreted, calls the operations with tensors on the
CPU; each launch ends where it would go to a GPU.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

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
        return GPUTarget("cuda", 90, 32)
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
from tree_cases import Case, Shape, Tree
"""

ATTENTION = """
def attend(shape, dtype=torch.bfloat16):
    case = Case(shape, [Tree(10, [-1])], num_rows=64, dtype=dtype)
    with ops.using("triton"):
        plan = case.plan()
        ops.tail_slots(plan)
        tensors = case.q, case.keys, case.values
        options = dict(scale=0.1, window=shape.window, softcap=shape.softcap)
        ops.tree_attention(*tensors, plan, case.out, **options)
        ops.prefill_attention(*tensors, case.rows, case.out, **options)
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
with ops.using("triton"):
    ops.tail_slots(case.plan(shared, shared))
""",
    "kv_compact": """
pool = torch.zeros(2, 64, 8, 128, dtype=torch.bfloat16)
moves = torch.zeros(64, dtype=torch.int64)
with ops.using("triton"):
    ops.kv_compact(pool, pool.clone(), moves, moves, torch.zeros(1, dtype=torch.int32))
""",
}
NUM_KERNELS = {"wave": 2, "kv_compact": 1}
SHARED_BYTES = 232_448  # of one program, on a GPU of compute capability 9.0


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_compile_for_hopper(name: str, tmp_path: Path) -> None:
    env = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    code = HARNESS + ATTENTION + KERNELS[name]
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shared = [int(size) for size in re.findall(r"compiled \w+ shared (\d+)", done.stdout)]
    assert len(shared) == NUM_KERNELS.get(name, 5), done.stdout
    assert max(shared) <= SHARED_BYTES
