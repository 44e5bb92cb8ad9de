# SPDX-License-Identifier: Apache-2.0
"""A tokenizer that an option names."""

from __future__ import annotations

from typing import Any

from ooospec.errors import ModelNotFound
from ooospec.shipped import shipped_folder


def load_tokenizer(name: str) -> Any:
    """Returns the tokenizer of a folder, a hub id or a model of the package.

    Raises ModelNotFound.
    """
    import transformers

    try:
        return transformers.AutoTokenizer.from_pretrained(str(shipped_folder(name) or name))
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelNotFound(
            f"--tokenizer: expected a folder or hub id, got {name!r} ({reason})"
        ) from error
