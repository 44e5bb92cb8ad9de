# SPDX-License-Identifier: Apache-2.0
"""Settings that all tests share."""

import os

import pytest
import torch
from hypothesis import settings

# The same examples on every machine, however slow or busy it is.
settings.register_profile("ooospec", deadline=None, derandomize=True)
settings.load_profile("ooospec")

# Without a GPU, Triton's kernels are interpreted. Triton reads this when it is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Models in these tests are so small that a second thread costs more than it brings.
torch.set_num_threads(1)

REAL = ("OOOSPEC_CHECKPOINTS", "OOOSPEC_DATA")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what this machine cannot run: tests marked gpu, and those marked real."""
    if not torch.cuda.is_available():
        without_gpu = [item for item in items if item.get_closest_marker("gpu") is None]
        config.hook.pytest_deselected(items=[item for item in items if item not in without_gpu])
        items[:] = without_gpu
    missing = [name for name in REAL if not os.environ.get(name)]
    for item in items:
        if missing and item.get_closest_marker("real"):
            item.add_marker(pytest.mark.skip(reason=f"{' and '.join(missing)} not set"))
