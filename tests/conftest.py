# SPDX-License-Identifier: Apache-2.0
"""Settings that all tests share."""

import torch
from hypothesis import settings

# The same examples on every machine, however slow or busy it is.
settings.register_profile("ooospec", deadline=None, derandomize=True)
settings.load_profile("ooospec")

# Models in these tests are so small that a second thread costs more than it brings.
torch.set_num_threads(1)
