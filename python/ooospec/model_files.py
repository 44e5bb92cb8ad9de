# SPDX-License-Identifier: Apache-2.0
"""What the name of a model stands for, and the tokenizer that lies there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ooospec.errors import ModelNotFound
from ooospec.shipped import shipped_folder


def model_path(source: str, role: str = "model") -> str:
    """Returns what Hugging Face's loaders take for a name: the folder of a model that came with the
    package, or `source` itself, a folder or a hub id.

    role: what the model is for, in the error. Raises ModelNotFound for what can be neither.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    shipped = shipped_folder(source)
    if shipped is not None:
        return str(shipped)
    found = Path(source or "/nonexistent")  # the path "" is the current folder
    if found.is_dir():
        return source
    wanted = f"{role}: expected a folder or hub id of a model"
    if found.exists():
        raise ModelNotFound(f"{wanted}, got the file {source!r}")
    try:
        validate_repo_id(source)
    except HFValidationError as error:
        raise ModelNotFound(f"{wanted}, got {source!r}: no such folder") from error
    return source


def load_tokenizer(source: str, role: str = "model") -> Any:
    """Returns the tokenizer of a folder, a hub id or a model of the package.

    role: as of model_path(). Raises ModelNotFound.
    """
    import transformers

    path = model_path(source, role)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except Exception as error:  # tokenizers raises no narrower one for a broken file
        raise ModelNotFound(
            f"{role}: expected a folder or hub id with a tokenizer, got {source!r} "
            f"({first_line(error)})"
        ) from error
    if not tokenizer.get_vocab().keys() - tokenizer.get_added_vocab().keys():
        raise ModelNotFound(
            f"{role}: expected a folder or hub id with a tokenizer, got {source!r}, where it has "
            "special tokens only (is tokenizer.json there?)"
        )
    return tokenizer


def first_line(error: Exception) -> str:
    """Returns what an error says in its first line, and its type where that is no text."""
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said}" if isinstance(error, KeyError) or not said else said
