# SPDX-License-Identifier: Apache-2.0
"""Loads a model, its tokenizer and an adapter from a folder or a hub id."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
import transformers

from ooospec.backends.fused import FusedBackend
from ooospec.backends.transformers import CHUNK, TransformersBackend
from ooospec.backends.weights import unsupported
from ooospec.errors import AdapterMismatch, ModelNotFound

MIN_CAPABILITY = (8, 0)  # of a GPU that the fused backend's kernels are for


def load_backend(
    source: str | os.PathLike[str] | Any,
    *,
    tokenizer: Any = None,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    adapter: str | os.PathLike[str] | None = None,
    chunk: int = CHUNK,
    num_padded_rows: int | None = None,
    backend: Literal["auto", "fused", "transformers"] = "auto",
    num_sequences: int = 8,
    progress: bool = False,
) -> FusedBackend | TransformersBackend:
    """Returns a backend over a model. Weights are safetensors; remote code is never run.

    source: folder, hub id, or a loaded Hugging Face model (which the backend then owns until
    close()).
    tokenizer: Hugging Face tokenizer; None: that of `source`, or none for a loaded model.
    dtype: None: float32 on a CPU, bfloat16 on a GPU, or what a loaded model has. device: None: a
    GPU if there is one.
    adapter: folder of a PEFT adapter, merged into the weights. progress: show bars while loading.
    chunk, num_padded_rows: see TransformersBackend; num_sequences: see FusedBackend.
    backend: "auto" takes the fused one on a GPU in half precision where it knows the model.
    Raises ModelNotFound, UnsupportedModel, AdapterMismatch, and ValueError for an unknown dtype.
    """
    if isinstance(source, str | os.PathLike):
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if dtype is None:
            dtype = torch.float32 if torch.device(device).type == "cpu" else torch.bfloat16
        with _bars(progress):
            model, found = _load(os.fspath(source), _dtype(dtype), torch.device(device), tokenizer)
    else:
        model, found = source, tokenizer
        if dtype is not None or device is not None:
            model = model.to(device=device, dtype=None if dtype is None else _dtype(dtype))
    if adapter is not None:
        with _bars(progress):
            model = merge_adapter(model, adapter)
    if backend == "fused" or (backend == "auto" and num_padded_rows is None and _is_fast(model)):
        return FusedBackend(model, found, chunk=chunk, num_sequences=num_sequences)
    return TransformersBackend(model, found, chunk=chunk, num_padded_rows=num_padded_rows)


def _is_fast(model: Any) -> bool:
    """Returns whether the fused backend runs `model` by kernels: on this GPU, in half precision."""
    if model.device.type != "cuda" or model.dtype not in (torch.bfloat16, torch.float16):
        return False
    able = torch.cuda.get_device_capability(model.device) >= MIN_CAPABILITY
    return able and find_spec("triton") is not None and unsupported(model) is None


def merge_adapter(model: Any, adapter: str | os.PathLike[str]) -> Any:
    """Merges the PEFT adapter in folder `adapter` into `model` and returns it. Mutates: model.

    Raises AdapterMismatch if the adapter was made for another base, ModelNotFound if there is no
    adapter.
    """
    try:
        import peft
        from safetensors import safe_open
    except ImportError as error:
        raise ImportError("an adapter needs PEFT: pip install 'ooospec[adapter]'") from error
    folder = Path(adapter)
    weights = folder / "adapter_model.safetensors"
    if not weights.is_file():
        raise ModelNotFound(
            f"adapter: expected a folder with adapter_model.safetensors, got {folder}"
        )
    with safe_open(weights, framework="pt") as file:
        stored = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    config = peft.PeftConfig.from_pretrained(str(folder))
    base = config.base_model_name_or_path or "an unnamed base"
    try:
        wrapped = peft.get_peft_model(model, config)
    except ValueError as error:
        raise AdapterMismatch(
            f"adapter: made for {base}, which has other modules ({error})"
        ) from error
    wanted = {
        name: list(tensor.shape) for name, tensor in peft.get_peft_model_state_dict(wrapped).items()
    }
    odd = sorted(
        name for name in wanted.keys() | stored.keys() if wanted.get(name) != stored.get(name)
    )
    if odd:
        wrapped.unload()
        raise AdapterMismatch(
            f"adapter: made for {base}; expected {odd[0]} of shape {wanted.get(odd[0])}, "
            f"got {stored.get(odd[0])} ({len(odd)} of {len(wanted)} tensors differ)"
        )
    wrapped.load_adapter(str(folder), "default", is_trainable=False)
    return wrapped.merge_and_unload()


def _load(source: str, dtype: torch.dtype, device: torch.device, tokenizer: Any) -> tuple[Any, Any]:
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
        if tokenizer is None:
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise ModelNotFound(
            f"model: expected a folder or hub id of a causal language model in safetensors, got "
            f"{source!r} ({first})"
        ) from error
    return model.to(device), tokenizer


def _dtype(dtype: torch.dtype | str) -> torch.dtype:
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ValueError(
            f"dtype: expected a floating point type such as 'float32' or 'bfloat16', got {dtype!r}"
        )
    return found


@contextmanager
def _bars(shown: bool) -> Iterator[None]:
    """Shows or hides the progress bars of transformers, and puts its setting back."""
    logging = transformers.utils.logging
    before = logging.is_progress_bar_enabled()
    (logging.enable_progress_bar if shown else logging.disable_progress_bar)()
    try:
        yield
    finally:
        (logging.enable_progress_bar if before else logging.disable_progress_bar)()
