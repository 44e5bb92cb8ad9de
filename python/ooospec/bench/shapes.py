# SPDX-License-Identifier: Apache-2.0
"""Models in the shapes of real ones, with random weights, and whether they fit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from ooospec.errors import InvalidRequest

HEADROOM = 1.25  # of the weights: KV cache, buffers of launches, workspaces


@dataclass(frozen=True)
class Shape:
    """A published model's sizes. family: its config class in transformers. name: as published."""

    name: str
    family: str
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool = False
    rope_theta: float = 1e6
    context: int = 40960

    def config(self) -> Any:
        """Returns its transformers config."""
        return getattr(transformers, self.family)(
            num_hidden_layers=self.layers,
            hidden_size=self.hidden,
            intermediate_size=self.inner,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            vocab_size=self.vocab,
            tie_word_embeddings=self.tied,
            rope_parameters={"rope_type": "default", "rope_theta": self.rope_theta},
            max_position_embeddings=self.context,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )

    def num_bytes(self, dtype: torch.dtype) -> int:
        """Returns the bytes of its weights."""
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(self.config(), dtype=dtype)
        return int(sum(one.numel() for one in model.parameters())) * dtype.itemsize

    def model(self, device: str, dtype: torch.dtype, seed: int = 0) -> Any:
        """Returns a model of this shape with random weights."""
        torch.manual_seed(seed)
        with torch.device(device):
            made = transformers.AutoModelForCausalLM.from_config(self.config(), dtype=dtype)
        return made.eval()


QWEN2, QWEN3, LLAMA = "Qwen2Config", "Qwen3Config", "LlamaConfig"
SHAPES = {
    shape.name: shape
    for shape in (
        Shape("Qwen2.5-0.5B", QWEN2, 24, 896, 4864, 14, 2, 64, 151936, tied=True),
        Shape("Qwen2.5-7B", QWEN2, 28, 3584, 18944, 28, 4, 128, 152064),
        Shape("Qwen2.5-14B", QWEN2, 48, 5120, 13824, 40, 8, 128, 152064),
        Shape("Qwen2.5-32B", QWEN2, 64, 5120, 27648, 40, 8, 128, 152064),
        Shape("Qwen3-0.6B", QWEN3, 28, 1024, 3072, 16, 8, 128, 151936, tied=True),
        Shape("Qwen3-4B", QWEN3, 36, 2560, 9728, 32, 8, 128, 151936, tied=True),
        Shape("Qwen3-8B", QWEN3, 36, 4096, 12288, 32, 8, 128, 151936),
        Shape("Qwen3-14B", QWEN3, 40, 5120, 17408, 40, 8, 128, 151936),
        Shape("Qwen3-32B", QWEN3, 64, 5120, 25600, 64, 8, 128, 151936),
        Shape("Llama-3.1-8B", LLAMA, 32, 4096, 14336, 32, 8, 128, 128256, rope_theta=5e5),
        Shape("tiny", QWEN3, 2, 64, 96, 4, 2, 16, 640, context=4096),
    )
}


def shape_of(name: str) -> Shape:
    """Returns a shape by its name. Raises InvalidRequest for one that is not known."""
    if name not in SHAPES:
        raise InvalidRequest(f"shape: expected one of {', '.join(SHAPES)}, got {name!r}")
    return SHAPES[name]


def misfit(shape: Shape, tokenizer: Any, device: str, dtype: torch.dtype) -> str | None:
    """Returns why a shape cannot be replayed there with a tokenizer, or None if it can."""
    if len(tokenizer) > shape.vocab:
        return f"its vocabulary has {shape.vocab} ids, the tokenizer {len(tokenizer)}"
    needed = int(shape.num_bytes(dtype) * HEADROOM)
    if device.startswith("cuda"):
        free, _ = torch.cuda.mem_get_info(torch.device(device))
    else:
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    if needed > free:
        return f"it needs {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free"
    return None
