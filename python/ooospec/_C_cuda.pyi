# SPDX-License-Identifier: Apache-2.0
"""Types of the CUDA core; the docstrings are in csrc/bindings/cuda."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_ROWS: int
TOP: int
MAX_LINEAR_ROWS: int
RUNTIME_VERSION: int
ARCHS: str

class MappedMemory:
    def __init__(self, num_bytes: int) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def device_address(self) -> int: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview[Any]: ...

class RoundReport:
    def __init__(self) -> None: ...
    @property
    def counts(self) -> npt.NDArray[np.int32]: ...
    @property
    def tokens(self) -> npt.NDArray[np.int32]: ...
    @property
    def rows(self) -> npt.NDArray[np.int32]: ...
    @property
    def top8(self) -> npt.NDArray[np.int32]: ...
    def wait(self, round: int, timeout_us: int, stream: int | None = None) -> bool: ...

def wait(address: int, value: int, timeout_us: int, stream: int | None = None) -> bool: ...
def end_of_round(
    *,
    report: RoundReport,
    round: int,
    num_rows: int,
    choices: int,
    top8: int | None,
    tokens: int,
    parents: int,
    positions: int,
    sequences: int,
    slots: int,
    page_table: int,
    num_pages: int,
    page_size: int,
    path_sources: int,
    path_targets: int,
    path_count: int,
    stream: int,
) -> None: ...
def linear(
    *,
    x: int,
    x_stride: int,
    weight: int,
    weight_stride: int,
    out: int,
    out_stride: int,
    num_rows: int,
    num_inputs: int,
    num_outputs: int,
    is_bfloat16: bool,
    has_float_out: bool,
    is_swiglu: bool,
    max_smem: int,
    stream: int,
) -> None: ...

MAX_WAVE_ROWS: int
MAX_WAVE_PAIRS: int

class WaveReport:
    def __init__(self) -> None: ...
    @property
    def choices(self) -> npt.NDArray[np.int32]: ...
    @property
    def scores(self) -> npt.NDArray[np.float32]: ...

class GraphLauncher:
    def __init__(
        self,
        graphs: Sequence[int],
        stream: int,
        report: WaveReport,
        num_rounds: int,
        timeout_us: int,
    ) -> None: ...
    @property
    def address(self) -> int: ...
    def run(self, program: int) -> None: ...

def wave_end(
    *,
    report: WaveReport,
    round: int,
    choices: int | None,
    num_rows: int,
    scores: int | None,
    num_pairs: int,
    stream: int,
) -> None: ...
def fork(
    *,
    source: int,
    targets: int,
    num_targets: int,
    count: int,
    block: int,
    layer_bytes: int,
    slot_bytes: int,
    num_layers: int,
    stream: int,
) -> None: ...
