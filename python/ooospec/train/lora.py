# SPDX-License-Identifier: Apache-2.0
"""LoRA by PEFT: put into a causal LM, and written as an adapter folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from ooospec.backends.load import wrap_with_adapter
from ooospec.errors import UnsupportedModel, needs_extra
from ooospec.files import make_folder, whole_file, writing

Where = Literal["attention", "linear"]
WEIGHTS_FILE = "adapter_model.safetensors"


def attach_lora(
    model: Any, where: Where, rank: int, alpha: float, *, dropout: float = 0.0, seed: int = 0
) -> Any:
    """Returns `model` with fresh adapters that do nothing yet; only they are trained.

    where: the products of attention, or all but the head. Mutates: model. Raises UnsupportedModel.
    """
    peft = _peft()
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules="all-linear" if where == "linear" else attention_modules(model),
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(seed)
    return wrap_with_adapter(model, config)


def attention_modules(model: Any) -> list[str]:
    """Returns the last names of the linear modules of attention. Raises UnsupportedModel."""
    found = set()
    for name, module in model.named_modules():
        *above, own = name.split(".")
        if isinstance(module, nn.Linear) and above and "att" in above[-1].lower():
            found.add(own)
    if not found:
        raise UnsupportedModel(
            f"{type(model).__name__}: expected linear modules of attention, got none; train all "
            "linear modules"
        )
    return sorted(found)


def recompute_layers(model: Any) -> None:
    """Makes a model with adapters keep only the inputs of its layers for the backward pass.

    Mutates: model.
    """
    base = model.get_base_model()
    enable = getattr(base, "activation_checkpointing_enable", None)  # as transformers 5.24 has it
    (enable or base.gradient_checkpointing_enable)({"use_reentrant": False})


def adapter_state(model: Any) -> dict[str, torch.Tensor]:
    """Returns the tensors of the adapter by name, on the CPU, apart from those in training."""
    state = _peft().get_peft_model_state_dict(model)
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}


def load_adapter_state(model: Any, state: dict[str, torch.Tensor]) -> None:
    """Puts tensors of adapter_state() back. Mutates: model."""
    _peft().set_peft_model_state_dict(model, state)


def save_adapter(model: Any, state: dict[str, torch.Tensor], folder: Path, *, base: str) -> int:
    """Writes an adapter folder in bfloat16; returns the bytes of its weights.

    base: name of the model it is for, as people should find it. Raises InvalidRequest where it
    cannot be written.
    """
    from safetensors.torch import save

    make_folder(folder)
    config = model.peft_config["default"]
    config.base_model_name_or_path = base
    config.inference_mode = True
    with writing(folder):
        config.save_pretrained(str(folder))
    config.inference_mode = False
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in state.items()}
    data = save(tensors, metadata={"format": "pt"})
    with whole_file(folder / WEIGHTS_FILE) as file:
        file.write(data)
    return len(data)


def _peft() -> Any:
    with needs_extra("train", "training"):
        import peft
    return peft
