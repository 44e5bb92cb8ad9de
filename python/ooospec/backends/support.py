# SPDX-License-Identifier: Apache-2.0
"""Decides at load whether a model can be run exactly: by its config, then by a probe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ooospec.backends.attention import attend_pieces
from ooospec.errors import UnsupportedModel
from ooospec.kv import LayerShape

ATTENTION = "ooospec_paged"  # name of our function in transformers' AttentionInterface
HEAD_DIMS = range(16, 257, 8)  # that the attention kernels are for
MAX_GROUP = 16  # query heads of one kv head, at most, of these kernels
LAYER_TYPES = frozenset({"full_attention", "sliding_attention", "attention"})
# Arguments of an attention call that do not change its result, or that we already heed.
KNOWN_ARGUMENTS = frozenset(
    {
        "cache",
        "dropout",
        "is_causal",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "past_key_values",
        "position_ids",
        "return_dict",
        "use_cache",
    }
)


class Probe:
    """Stands in for a launch once: causal attention over the rows themselves; records each call."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.windows: list[int | None] = []
        self.layers: list[LayerShape] = []
        self.num_heads: set[int] = set()
        self.unknown: set[str] = set()
        self.is_causal = True

    def attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        window: int | None,
        softcap: float | None,
        arguments: dict[str, Any],
    ) -> torch.Tensor:
        """Records one call of a layer; returns [N, H, D], as attention.attend does."""
        layer_idx = getattr(module, "layer_idx", None)
        self.calls.append(-1 if layer_idx is None else int(layer_idx))
        self.windows.append(window)
        self.num_heads.add(query.shape[0])
        self.layers.append(LayerShape(key.shape[0], key.shape[2], value.shape[2]))
        self.is_causal &= bool(
            getattr(module, "is_causal", True) and arguments.get("is_causal") is not False
        )
        self.unknown |= {
            name
            for name, value in arguments.items()
            if name not in KNOWN_ARGUMENTS and value is not None
        }
        num_rows = query.shape[1]
        hidden = torch.ones(num_rows, num_rows, dtype=torch.bool, device=query.device).triu(1)
        if window is not None:
            hidden |= torch.ones_like(hidden).tril(-window)
        return attend_pieces(query, [key], [value], hidden, scaling=scaling, softcap=softcap)


def check_config(model: Any) -> None:
    """Raises UnsupportedModel for a model whose state cannot roll back or depends on its rows."""
    name, config = type(model).__name__, model.config.get_text_config()
    if getattr(model.config, "is_encoder_decoder", False):
        raise UnsupportedModel(f"{name} is an encoder-decoder; ooospec runs decoder-only models.")
    if getattr(model, "_is_stateful", False):
        raise UnsupportedModel(
            f"{name} keeps a recurrent state, which cannot roll back rejected drafts."
        )
    odd = set(getattr(config, "layer_types", None) or ()) - LAYER_TYPES
    if odd:
        raise UnsupportedModel(
            f"{name} has layers of type {', '.join(sorted(odd))}, which cannot roll back."
        )
    for rope_type in rope_types(getattr(config, "rope_parameters", None)):
        if rope_type in ("dynamic", "longrope"):
            raise UnsupportedModel(
                f"{name} uses RoPE of type {rope_type}, whose angles depend on the longest row of "
                "a launch."
            )
    if not isinstance(getattr(config, "max_position_embeddings", None), int):
        raise UnsupportedModel(f"{name} does not say its context length (max_position_embeddings).")


def check_probe(
    probe: Probe, config: Any, expected: torch.Tensor, got: torch.Tensor, dtype: torch.dtype
) -> None:
    """Raises UnsupportedModel unless every layer called us once, with the stock result."""
    if probe.calls != list(range(config.num_hidden_layers)):
        raise UnsupportedModel(
            f"{config.model_type}: expected one attention call from each of "
            f"{config.num_hidden_layers} layers through AttentionInterface, got calls from layers "
            f"{probe.calls}."
        )
    if not probe.is_causal:
        raise UnsupportedModel(f"{config.model_type}: its attention is not causal.")
    if probe.unknown:
        raise UnsupportedModel(
            f"{config.model_type}: its attention takes {', '.join(sorted(probe.unknown))}, "
            "unknown to ooospec."
        )
    if probe.windows != layer_windows(config):
        raise UnsupportedModel(
            f"{config.model_type}: expected sliding windows {layer_windows(config)} by its "
            f"config, got {probe.windows}."
        )
    error = float((got - expected).norm() / expected.norm())
    if not error <= torch.finfo(dtype).eps ** 0.5:
        raise UnsupportedModel(
            f"{config.model_type}: its logits differ from its own attention's by {error:.2g} "
            "(relative)."
        )


def layer_windows(config: Any) -> list[int | None]:
    """Returns how many positions a row of each layer sees, by its config; None: all."""
    window = getattr(config, "sliding_window", None)
    if getattr(config, "use_sliding_window", True) is False:
        window = None
    types = getattr(config, "layer_types", None)
    if types is None:
        return [window] * config.num_hidden_layers
    return [window if kind == "sliding_attention" else None for kind in types]


def head_dim(config: Any) -> int:
    """Returns how many numbers a head has, by a config."""
    return int(
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )


def rope_types(parameters: Any) -> Iterator[str]:
    """Yields the RoPE types in rope_parameters, which may be one set or one a layer type."""
    if not isinstance(parameters, dict):
        return
    for name, value in parameters.items():
        if name in ("rope_type", "type"):
            yield str(value)
        elif isinstance(value, dict):
            yield from rope_types(value)


def decodable_ids(model: Any, tokenizer: Any) -> int:
    """Returns from which id on ids are padding of the embedding, never chosen."""
    num_embeddings = int(model.get_input_embeddings().weight.shape[0])
    if tokenizer is None:
        return num_embeddings
    return min(num_embeddings, 1 + int(max(tokenizer.get_vocab().values())))


def eos_ids(model: Any, tokenizer: Any, decodable: int) -> frozenset[int]:
    """Returns every id that ends an answer, by generation config or tokenizer."""
    found: set[int] = set()
    generation = getattr(model, "generation_config", None)
    for owner in (generation, tokenizer):
        ids = getattr(owner, "eos_token_id", None)
        found.update([] if ids is None else [ids] if isinstance(ids, int) else ids)
    return frozenset(token for token in found if 0 <= token < decodable)
