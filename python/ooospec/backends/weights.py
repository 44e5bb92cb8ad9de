# SPDX-License-Identifier: Apache-2.0
"""The weights of a decoder, taken from a Hugging Face model and packed for few, large products."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import torch

from ooospec.backends.support import layer_windows
from ooospec.errors import UnsupportedModel

FAMILIES = frozenset({"qwen2", "qwen3", "llama", "mistral"})


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer. Products are [out, in], as torch.nn.Linear has them.

    qkv: [(H + 2 G) D, C], queries, keys and values in this order. gate_up: [2 I, C], gate first.
    q_norm, k_norm: [D], where queries and keys are normalised head by head.
    window: how many positions a row sees, itself included; None: all.
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
    window: int | None


@dataclass(frozen=True)
class DecoderWeights:
    """A whole decoder: embed and head [V, C], norm [C], layers, and what its shapes do not say.

    cos_sin: float32[positions, D], cosines before sines, scaling of the RoPE variant included.
    """

    embed: torch.Tensor
    layers: list[LayerWeights]
    norm: torch.Tensor
    head: torch.Tensor
    cos_sin: torch.Tensor
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    eps: float

    @property
    def num_round_bytes(self) -> int:
        """Bytes of the weights that a round reads: the embedding only where it is the head."""
        tensors = [self.norm, self.head]
        for layer in self.layers:
            tensors += [value for value in vars(layer).values() if torch.is_tensor(value)]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def unsupported(model: Any) -> str | None:
    """Returns why no DecoderWeights can be made of `model`, or None if they can."""
    config = model.config.get_text_config()
    if config.model_type not in FAMILIES:
        return f"{config.model_type} is none of {', '.join(sorted(FAMILIES))}"
    if getattr(config, "hidden_act", "silu") != "silu":
        return f"its activation is {config.hidden_act}, not silu"
    rope_type = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope_type in ("dynamic", "longrope"):
        return f"its rotary embedding ({rope_type}) depends on the length of the text"
    biased = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module.bias is not None
    ]
    odd = [name for name in biased if name.split(".")[-1] not in ("q_proj", "k_proj", "v_proj")]
    if odd:
        return f"{odd[0]} has a bias"
    strange = [
        name
        for name, module in model.model.layers.named_modules()
        if name.endswith("_proj") and type(module) is not torch.nn.Linear
    ]
    if strange:
        return f"{strange[0]} is no plain linear layer"
    return None


def take_weights(model: Any, max_positions: int) -> DecoderWeights:
    """Packs the weights of a Hugging Face model; its modules become views of the packed ones.

    max_positions: rows of the table of cosines and sines. Mutates: model, whose weights lie in
    memory once, before and after. Cost: a second copy of one layer at a time.
    Raises UnsupportedModel for what unsupported() names.
    """
    reason = unsupported(model)
    if reason is not None:
        raise UnsupportedModel(f"fused backend: expected a decoder that it knows, but {reason}")
    config, body = model.config.get_text_config(), model.model
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    weights = DecoderWeights(
        embed=body.embed_tokens.weight.data,
        layers=[
            _layer(layer, window)
            for layer, window in zip(body.layers, layer_windows(config), strict=True)
        ],
        norm=body.norm.weight.data,
        head=model.lm_head.weight.data,
        cos_sin=_cos_sin(body.rotary_emb, max_positions, model.device),
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        scale=float(body.layers[0].self_attn.scaling),
        eps=float(config.rms_norm_eps),
    )
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)  # ops.linear reads weights ahead of its turn
    return weights


def _layer(layer: Any, window: int | None) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    bias = None
    if attention.q_proj.bias is not None:
        bias = _pack([projection.bias for projection in projections])
    return LayerWeights(
        input_norm=layer.input_layernorm.weight.data,
        qkv=_pack([projection.weight for projection in projections]),
        qkv_bias=bias,
        q_norm=_norm_weight(attention, "q_norm"),
        k_norm=_norm_weight(attention, "k_norm"),
        out=attention.o_proj.weight.data,
        post_norm=layer.post_attention_layernorm.weight.data,
        gate_up=_pack([mlp.gate_proj.weight, mlp.up_proj.weight]),
        down=mlp.down_proj.weight.data,
        window=window,
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


def _norm_weight(attention: Any, name: str) -> torch.Tensor | None:
    norm = getattr(attention, name, None)
    return None if norm is None else norm.weight.data


def _cos_sin(rotary: Any, max_positions: int, device: torch.device) -> torch.Tensor:
    """Returns the cosines and sines of the model's own rotary embedding, in float32."""
    with torch.inference_mode():
        positions = torch.arange(max_positions, device=device)[None]
        cos, sin = rotary(torch.empty(0, dtype=torch.float32, device=device), positions)
    half = cos.shape[-1] // 2
    return torch.cat((cos[0, :, :half], sin[0, :, :half]), dim=-1).float().contiguous()
