# SPDX-License-Identifier: Apache-2.0
"""The weights of a decoder, taken from a Hugging Face model and packed for few, large products."""

from __future__ import annotations

import inspect
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import torch

from ooospec.backends.support import (
    HEAD_DIMS,
    MAX_GROUP,
    head_dim,
    layer_windows,
    rope_types,
)
from ooospec.errors import UnsupportedModel

FAMILIES = frozenset({"qwen2", "qwen3", "llama", "mistral", "gemma2", "gemma3_text"})
ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}  # by the name in a config


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer. Products are [out, in], as torch.nn.Linear has them.

    qkv: [(H + 2 G) D, C], queries, keys and values in this order. gate_up: [2 I, C], gate first.
    q_norm, k_norm: [D], where queries and keys are normalised head by head.
    out_norm, down_norm: [C], of the products by `out` and `down` before they are added; None: they
    are added as they are.
    window: how many positions a row sees, itself included; None: all.
    cos_sin: float32[positions, D], cosines before sines, scaling of the RoPE variant included.
    """

    input_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    out: torch.Tensor
    post_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    out_norm: torch.Tensor | None
    down_norm: torch.Tensor | None
    window: int | None
    cos_sin: torch.Tensor


@dataclass(frozen=True)
class DecoderWeights:
    """A whole decoder: embed and head [V, C], norm [C], layers, and what its shapes do not say.

    norm_offset: added to the weights of all norms. embed_scale: of embedded rows, rounded as the
    weights are. softcap, final_softcap: of scores of attention and of logits; None: no cap.
    max_smem: that products may take; see ops.linear.
    """

    embed: torch.Tensor
    layers: list[LayerWeights]
    norm: torch.Tensor
    head: torch.Tensor
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    eps: float
    activation: str
    norm_offset: float
    embed_scale: float | None
    softcap: float | None
    final_softcap: float | None
    max_smem: int = 0

    @property
    def num_round_bytes(self) -> int:
        """Bytes of the weights that a round reads: the embedding only where it is the head."""
        tensors = [self.norm, self.head]
        for layer in self.layers:
            tensors += [
                value
                for name, value in vars(layer).items()
                if torch.is_tensor(value) and name != "cos_sin"
            ]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def unsupported(model: Any) -> str | None:
    """Returns why no DecoderWeights can be made of `model`, or None if they can."""
    config = model.config.get_text_config()
    if config.model_type not in FAMILIES:
        return f"{config.model_type} is none of {', '.join(sorted(FAMILIES))}"
    return _odd_config(config) or _odd_module(model)


def _odd_config(config: Any) -> str | None:
    activation = _activation(config)
    if activation not in ACTIVATIONS:
        return f"its activation is {activation}, none of {', '.join(ACTIVATIONS)}"
    for rope_type in rope_types(getattr(config, "rope_parameters", None)):
        if rope_type in ("dynamic", "longrope"):
            return f"its rotary embedding ({rope_type}) depends on the length of the text"
    if getattr(config, "use_bidirectional_attention", False):
        return "its attention is not causal"
    dim, group = head_dim(config), config.num_attention_heads / config.num_key_value_heads
    if dim not in HEAD_DIMS:
        return f"its head_dim is {dim}, no multiple of 8 from 16 to 256"
    if not group.is_integer() or group > MAX_GROUP:
        return f"{group:g} query heads share a kv head, not one of 1 to {MAX_GROUP}"
    return None


def _odd_module(model: Any) -> str | None:
    layers = model.get_decoder().layers
    for name, module in layers.named_modules():
        is_product = name.endswith("_proj")
        if is_product and type(module) is not torch.nn.Linear:
            return f"{name} is no plain linear layer"
        has_bias = getattr(module, "bias", None) is not None
        if is_product and has_bias and name.split(".")[-1] not in ("q_proj", "k_proj", "v_proj"):
            return f"{name} has a bias"
    return "lm_head has a bias" if model.lm_head.bias is not None else None


def take_weights(model: Any, max_positions: int) -> DecoderWeights:
    """Packs the weights of a Hugging Face model; its modules become views of the packed ones.

    max_positions: rows of the tables of cosines and sines. Mutates: model, whose weights lie in
    memory once, before and after. Cost: a second copy of one layer at a time.
    Raises UnsupportedModel for what unsupported() names.
    """
    reason = unsupported(model)
    if reason is not None:
        raise UnsupportedModel(f"fused backend: expected a decoder that it knows, but {reason}")
    config, body = model.config.get_text_config(), model.get_decoder()
    tables = _cos_sin(body.rotary_emb, config, max_positions, model.device)
    embed_scale = getattr(body.embed_tokens, "embed_scale", None)
    weights = DecoderWeights(
        embed=body.embed_tokens.weight.data,
        layers=[
            _layer(layer, window, cos_sin)
            for layer, window, cos_sin in zip(
                body.layers, layer_windows(config), tables, strict=True
            )
        ],
        norm=body.norm.weight.data,
        head=model.lm_head.weight.data,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=head_dim(config),
        scale=float(body.layers[0].self_attn.scaling),
        eps=float(config.rms_norm_eps),
        activation=ACTIVATIONS[_activation(config)],
        norm_offset=1.0 if config.model_type.startswith("gemma") else 0.0,
        embed_scale=None if embed_scale is None else float(embed_scale.to(model.dtype)),
        # Gemma 3 has the setting too, but its model does not heed it.
        softcap=config.attn_logit_softcapping if config.model_type == "gemma2" else None,
        final_softcap=getattr(config, "final_logit_softcapping", None),
    )
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)  # ops.linear reads weights ahead of its turn
    return weights


def _activation(config: Any) -> str:
    return str(getattr(config, "hidden_activation", None) or config.hidden_act)


def _layer(layer: Any, window: int | None, cos_sin: torch.Tensor) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    bias = None
    if attention.q_proj.bias is not None:
        bias = _pack([projection.bias for projection in projections])
    is_sandwich = hasattr(layer, "pre_feedforward_layernorm")
    after = layer.post_attention_layernorm
    return LayerWeights(
        input_norm=layer.input_layernorm.weight.data,
        qkv=_pack([projection.weight for projection in projections]),
        qkv_bias=bias,
        q_norm=_weight(attention, "q_norm"),
        k_norm=_weight(attention, "k_norm"),
        out=attention.o_proj.weight.data,
        post_norm=(layer.pre_feedforward_layernorm if is_sandwich else after).weight.data,
        gate_up=_pack([mlp.gate_proj.weight, mlp.up_proj.weight]),
        down=mlp.down_proj.weight.data,
        out_norm=after.weight.data if is_sandwich else None,
        down_norm=_weight(layer, "post_feedforward_layernorm"),
        window=window,
        cos_sin=cos_sin,
    )


def _pack(parameters: Seq[torch.nn.Parameter]) -> torch.Tensor:
    """Joins parameters along their first axis; they become views of the result."""
    packed = torch.cat([parameter.data for parameter in parameters])
    start = 0
    for parameter in parameters:
        stop = start + parameter.shape[0]
        parameter.data = packed[start:stop]
        start = stop
    return packed


def _weight(module: Any, name: str) -> torch.Tensor | None:
    """Returns the weight of a norm that some families have."""
    norm = getattr(module, name, None)
    return None if norm is None else norm.weight.data


def _cos_sin(
    rotary: Any, config: Any, max_positions: int, device: torch.device
) -> list[torch.Tensor]:
    """Returns the table of each layer, by the model's own rotary embedding, in float32.

    Layers of one kind share a table; where the kinds differ, the rotary embedding asks for one.
    """
    kinds: list[str | None] = [None] * config.num_hidden_layers
    if "layer_type" in inspect.signature(rotary.forward).parameters:
        kinds = config.layer_types
    tables: dict[str | None, torch.Tensor] = {}
    with torch.inference_mode():
        positions = torch.arange(max_positions, device=device)[None]
        empty = torch.empty(0, dtype=torch.float32, device=device)
        for kind in sorted(set(kinds), key=str):
            cos, sin = rotary(empty, positions, *([] if kind is None else [kind]))
            half = cos.shape[-1] // 2
            halves = cos[0, :, :half], sin[0, :, :half]
            tables[kind] = torch.cat(halves, dim=-1).float().contiguous()
    return [tables[kind] for kind in kinds]
