# SPDX-License-Identifier: Apache-2.0
"""Hashes that say of a result which requests and which checkpoint it is from."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

from ooospec.shipped import shipped_folder

CHECKPOINT_FILES = ("config.json", "tokenizer.json", "adapter_config.json")


def text_hash(text: str) -> str:
    """Returns the SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def requests_hash(path: Path) -> str:
    """Returns the SHA-256 of a request file's lines, the same plain and gzipped."""
    data = path.read_bytes()
    return hashlib.sha256(gzip.decompress(data) if path.suffix == ".gz" else data).hexdigest()


def checkpoint_hash(source: str | os.PathLike[str]) -> str:
    """Returns one SHA-256 over config, tokenizer and weights of a model or an adapter.

    source: as of ooospec.load; a hub id must have been downloaded. What is no folder and in no
    cache has the hash "unknown".
    """
    folder = _folder(os.fspath(source))
    if folder is None:
        return "unknown"
    names = {path.name for path in folder.glob("*.safetensors")} | {*CHECKPOINT_FILES}
    whole = hashlib.sha256()
    for name in sorted(names):
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            whole.update(f"{name} {digest}\n".encode())
    return whole.hexdigest()


def _folder(source: str) -> Path | None:
    shipped = shipped_folder(source)
    if shipped is not None or Path(source).is_dir():
        return Path(shipped or source)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source, local_files_only=True))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError):
        return None
