# SPDX-License-Identifier: Apache-2.0
"""Loads a model, its tokenizer and an adapter from a folder or a hub id."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from safetensors import SafetensorError

from ooospec.backends.fused import FusedBackend
from ooospec.backends.kernels import trouble
from ooospec.backends.modules import ModuleBackend, unsuited
from ooospec.backends.support import head_dim
from ooospec.backends.transformers import CHUNK, TransformersBackend
from ooospec.backends.weights import unsupported
from ooospec.errors import AdapterMismatch, ModelNotFound, needs_extra
from ooospec.model_files import first_line, load_tokenizer, located

logger = logging.getLogger("ooospec")


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
) -> FusedBackend | ModuleBackend | TransformersBackend:
    """Returns a backend over a model. Weights are safetensors; remote code is never run.

    source: folder, hub id, or a loaded Hugging Face model (which the backend then owns until
    close()).
    tokenizer: Hugging Face tokenizer; None: that of `source`, or none for a loaded model.
    dtype: None: float32 on a CPU, bfloat16 on a GPU, or what a loaded model has. device: None: a
    GPU if there is one, and the model fits.
    adapter: folder of a PEFT adapter, merged into the weights. progress: show bars while loading.
    chunk, num_padded_rows: see TransformersBackend; num_sequences: see FusedBackend.
    backend: "auto" takes the fused one on a GPU in half precision where it knows the model.
    "transformers" runs the model's own modules: with our attention kernels and CUDA graphs there,
    by plain torch elsewhere, with num_padded_rows, and where the kernels do not run, which the log
    says.
    Raises ModelNotFound, UnsupportedModel, AdapterMismatch, and ValueError for an unknown dtype,
    device or backend.
    """
    if backend not in ("auto", "fused", "transformers"):
        raise ValueError(f"backend: expected auto, fused or transformers, got {backend!r}")
    if isinstance(source, str | os.PathLike):
        place = find_device(device)
        if dtype is None:
            dtype = torch.float32 if place.type == "cpu" else torch.bfloat16
        model, found = load_model(os.fspath(source), _dtype(dtype), tokenizer, progress=progress)
        model = _placed(model, place, may_stay=device is None)
    elif not isinstance(source, torch.nn.Module):
        raise ModelNotFound(
            f"model: expected a folder, a hub id or a loaded model, got {source!r:.80}"
        )
    else:
        model, found = source, tokenizer
        if dtype is not None or device is not None:
            where = None if device is None else find_device(device)
            model = model.to(device=where, dtype=None if dtype is None else _dtype(dtype))
    if adapter is not None:
        with _bars(progress):
            model = merge_adapter(model, adapter)
    sizes: Any = {"chunk": chunk, "num_sequences": num_sequences}
    if backend == "fused":
        return FusedBackend(model, found, **sizes)
    with_kernels = num_padded_rows is None and _is_for_kernels(model)
    if backend == "auto" and with_kernels and unsupported(model) is None:
        config = model.config.get_text_config()
        heads = config.num_attention_heads, config.num_key_value_heads, head_dim(config)
        if _runs(model, *heads):
            return FusedBackend(model, found, **sizes)
        with_kernels = False
    plain = TransformersBackend(model, found, chunk=chunk, num_padded_rows=num_padded_rows)
    if not with_kernels:
        return plain
    reason = unsuited(plain)
    if reason is not None:
        logger.warning("%s runs without attention kernels: %s", type(model).__name__, reason)
        return plain
    layer = plain.layers[0]
    if not _runs(model, max(plain.num_heads), layer.num_heads, layer.key_dim):
        return plain
    return ModuleBackend(plain, num_sequences=num_sequences)


def _is_for_kernels(model: Any) -> bool:
    """Returns whether `model` lies where the kernels are for: on a GPU, in half precision."""
    return model.device.type == "cuda" and model.dtype in (torch.bfloat16, torch.float16)


def _runs(model: Any, num_heads: int, num_kv_heads: int, dim: int) -> bool:
    """Returns whether the kernels run for heads like these; says in the log why not."""
    reason = trouble(model.device, model.dtype, num_heads, num_kv_heads, dim)
    if reason is not None:
        logger.warning("%s runs without attention kernels: %s", type(model).__name__, reason)
    return reason is None


def wrap_with_adapter(model: Any, config: Any) -> Any:
    """Returns `model` with adapters as a PEFT config says, without a warning that PEFT raises by an
    attribute of transformers which it only looks at. Mutates: model. Raises what PEFT does.
    """
    import peft

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        return peft.get_peft_model(model, config)


def merge_adapter(model: Any, adapter: str | os.PathLike[str]) -> Any:
    """Merges the PEFT adapter in folder `adapter` into `model` and returns it. Mutates: model.

    Raises AdapterMismatch if the adapter was made for another base, ModelNotFound if there is no
    adapter.
    """
    with needs_extra("adapter", "adapter"):
        import peft
        from safetensors import safe_open
    folder = Path(adapter)
    weights = folder / "adapter_model.safetensors"
    if not weights.is_file():
        raise ModelNotFound(
            f"adapter: expected a folder with adapter_model.safetensors, got {folder}"
        )
    try:
        with safe_open(weights, framework="pt") as file:
            stored = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        config = peft.PeftConfig.from_pretrained(str(folder))
    except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        raise ModelNotFound(
            f"adapter: expected a folder that PEFT wrote, got {folder} ({first_line(error)})"
        ) from error
    base = config.base_model_name_or_path or "an unnamed base"
    config.base_model_name_or_path = None  # PEFT warns where a folder is not the name of the base
    try:
        wrapped = wrap_with_adapter(model, config)
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
        count = len(wanted.keys() | stored.keys())
        wrapped.unload()
        raise AdapterMismatch(
            f"adapter: made for {base}; expected {odd[0]} of shape {wanted.get(odd[0])}, "
            f"got {stored.get(odd[0])} ({len(odd)} of {count} tensors differ)"
        )
    wrapped.load_adapter(str(folder), "default", is_trainable=False)
    return wrapped.merge_and_unload()


def _placed(model: Any, device: torch.device, *, may_stay: bool) -> Any:
    """Returns `model` on `device`, or on the CPU in float32 where it may stay and does not fit."""
    try:
        return model.to(device)
    except torch.OutOfMemoryError:
        if not may_stay:
            raise
        name = type(model).__name__
        logger.warning("%s does not fit the memory of the GPU: it runs on the CPU", name)
        return model.to("cpu", torch.float32)


def load_model(
    source: str, dtype: torch.dtype, tokenizer: Any = None, *, progress: bool = False
) -> tuple[Any, Any]:
    """Returns the Hugging Face model of a folder, a hub id or the name of a model that comes with
    the package, on the CPU, and its tokenizer.

    Raises ModelNotFound.
    """
    path = located(source)
    wanted = (
        "model: expected a folder or hub id of a causal language model in safetensors, got "
        f"{source!r}"
    )
    try:
        with _bars(progress), _quiet():
            model, found = transformers.AutoModelForCausalLM.from_pretrained(
                path,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelNotFound(f"{wanted} ({first_line(error)})") from error
    for name, *shapes in sorted(found["mismatched_keys"]):
        stored, own = map(list, shapes)
        raise ModelNotFound(f"{wanted}, where {name} is {stored} and by its config {own}")
    for name in sorted(found["missing_keys"]):
        raise ModelNotFound(f"{wanted} without {name}, which its config asks for")
    if tokenizer is None:
        tokenizer = load_tokenizer(path)
    return model, tokenizer


def find_device(device: torch.device | str | None, option: str = "device") -> torch.device:
    """Returns the device that an option names; None: a GPU if there is one, else the CPU.

    Raises ValueError for one that is not here, torch.OutOfMemoryError for one that is full.
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.zeros(1, device=found).item()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise ValueError(
            f"{option}: expected one that is here, such as 'cpu' or 'cuda:0', got {device!r} "
            f"({first_line(error)})"
        ) from error
    return found


def _dtype(dtype: torch.dtype | str) -> torch.dtype:
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ValueError(
            f"dtype: expected a floating point type such as 'float32' or 'bfloat16', got {dtype!r}"
        )
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what transformers reports of tensors that do not fit to ourselves: it is an error."""
    logging = transformers.utils.logging
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


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
