# SPDX-License-Identifier: Apache-2.0
"""What the name of a model stands for, and the tokenizer that lies there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ooospec.errors import ModelNotFound
from ooospec.shipped import PREFIX, SIDECAR, TARGET, shipped_folder


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
    if source.startswith(PREFIX):
        raise ModelNotFound(
            f"{role}: expected a model of the package, {TARGET} or {SIDECAR}, got {source!r}"
        )
    try:
        validate_repo_id(source)
    except HFValidationError as error:
        raise ModelNotFound(f"{wanted}, got {source!r}: no such folder") from error
    return source


def located(source: str, role: str = "model", file: str = "config.json") -> str:
    """Returns what is to be loaded for a name: the folder of a model, or a hub id.

    Asks the hub once, for at most HF_HUB_ETAG_TIMEOUT seconds: where there is no network, Hugging
    Face's loaders take half a minute a file to say so. A model of the cache is its folder then.
    role: as of model_path(). file: that has to be there. Raises ModelNotFound for what is neither
    here nor there.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import (  # type: ignore[attr-defined]
        EntryNotFoundError,
        HfHubHTTPError,
        HTTPError,  # whatever goes wrong on the way, by the library that it speaks HTTP with
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    path = model_path(source, role)
    if Path(path).is_dir():
        return path
    url = hf_hub_url(source, file)
    wait = constants.HF_HUB_ETAG_TIMEOUT
    try:
        get_hf_file_metadata(url, timeout=wait)
        return source
    except (RepositoryNotFoundError, EntryNotFoundError) as error:
        failed: Exception = error
        why = f"of the hub: {first_line(error)}"
    except HfHubHTTPError:  # it is there, and busy: the loaders try again
        return source
    except OfflineModeIsEnabled as error:
        failed = error
        why = "it is not in the cache, and HF_HUB_OFFLINE is set"
    except (HTTPError, OSError) as error:
        failed = error
        slow = f"see HF_HUB_ETAG_TIMEOUT, {wait} seconds, if the network is slow"
        why = f"of {url}: {first_line(error)} ({slow})"
    cached = cached_folder(source, file)
    if cached is not None:
        return str(cached)
    raise ModelNotFound(
        f"{role}: expected a folder or hub id of a model, got {source!r}: no such folder, and {why}"
    ) from failed


def cached_folder(source: str, file: str = "config.json") -> Path | None:
    """Returns the folder of a hub id in the cache of Hugging Face that has `file`, or None."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(source, file)
    return Path(found).parent if isinstance(found, str) else None


def load_tokenizer(source: str, role: str = "model") -> Any:
    """Returns the tokenizer of a folder, a hub id or a model of the package.

    role: as of model_path(). Raises ModelNotFound.
    """
    import transformers

    path = located(source, role, "tokenizer_config.json")
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
