# SPDX-License-Identifier: Apache-2.0
"""Tiny random models of each supported family, and a small byte-level tokenizer with a chat
template for tools.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import decoders, pre_tokenizers, trainers

CHAT_TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n# Tools\n{% for tool in tools %}{{ tool | tojson }}\n{% "
    "endfor %}"
    'Answer a call as <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call><|im_end|>\n{% '
    "endif %}"
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    '{%- for call in message.tool_calls or [] %}\n<tool_call>\n{"name": "{{ call.function.name '
    '}}", '
    '"arguments": {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor '
    "%}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = [
    'Call {"name": "get_weather", "arguments": {"city": "Paris", "days": 3, "unit": "celsius"}} '
    "now.",
    "The quick brown fox jumps over the lazy dog, and then it naps in the sun until evening comes.",
    '<tool_call>\n{"name": "set_alarm", "arguments": {"time": "06:30", "repeat": '
    "true}}\n</tool_call>",
    "What is the weather in Zürich? Bitte auf Deutsch. 日本語のテキスト, naïve café, 🧪🏳️‍🌈.",
]


@functools.cache
def tiny_tokenizer() -> Any:
    """Returns a byte-level BPE tokenizer of about 500 ids that is trained on a few sentences."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    backend.train_from_iterator(TEXT * 4, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


COMMON: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "initializer_range": 0.35,  # wide, so that greedy answers wander instead of repeating one token
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 24}),
    "llama": ("LlamaConfig", {"num_key_value_heads": 1}),
    "mistral": ("MistralConfig", {"sliding_window": 16, "head_dim": 16}),
    "gemma2": ("Gemma2Config", {"sliding_window": 16, "head_dim": 16}),
    "gemma3": (
        "Gemma3TextConfig",
        {
            "sliding_window": 16,
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
}
FAMILIES = ("qwen2", "qwen3", "llama", "mistral", "gemma3")


def tiny_model(family: str, *, seed: int = 0, **overrides: Any) -> Any:
    """Returns a fresh float32 model of `family` with random weights that `seed` fixes."""
    name, own = CONFIGS[family]
    tokenizer = tiny_tokenizer()
    special = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    settings = (
        COMMON | own | {"vocab_size": len(tokenizer), "bos_token_id": None} | special | overrides
    )
    config = getattr(transformers, name)(**settings)
    torch.manual_seed(seed)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def save_tiny(folder: Path, family: str = "qwen2", **overrides: Any) -> str:
    """Writes a tiny model and its tokenizer as Hugging Face folders are; returns the folder."""
    tiny_model(family, **overrides).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)
