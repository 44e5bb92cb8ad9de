# SPDX-License-Identifier: Apache-2.0
"""The shapes of the tiny models: Qwen3, a few million parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

CONTEXT = 4096  # tokens; longer dialogues are not for models of this size


@dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen3 model with tied embeddings. num_tokens: of the vocabulary. hidden, inner:
    width of the residual stream and of the MLP. layers, heads, kv_heads: how many.
    """

    num_tokens: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int = 64


TARGET = Shape(2048, 256, 512, 8, 4, 4)
SIDECAR = Shape(2048, 192, 512, 5, 3, 1)


def new_model(shape: Shape, tokenizer: Any, seed: int) -> Any:
    """Returns a model with random weights in float32 that `seed` fixes."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=shape.num_tokens,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(config)
    scale = (2 * shape.layers) ** -0.5  # of what is added to the residual
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(scale)
            layer.mlp.down_proj.weight.mul_(scale)
    return model
