# SPDX-License-Identifier: Apache-2.0
"""A byte-level BPE tokenizer of our own, and the chat template of the tiny target."""

from __future__ import annotations

import json
from collections.abc import Iterable
from random import Random
from typing import Any

from ooospec.sidecar.prompt import TRAINED

END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CALL_MARKS = ("<tool_call>", "</tool_call>")

# Words as Qwen cuts them, every digit apart: what is copied digit by digit is copied right.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = """\
{%- set first = messages[0].content if messages[0].role == "system" else "" -%}
{%- if tools or first -%}
<|im_start|>system
{{ first }}
{%- if tools %}{{ "\\n" if first }}# Tools
{% for tool in tools %}{{ (tool.function or tool) | tojson }}
{% endfor %}
{%- endif %}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role != "system" or not loop.first -%}
<|im_start|>{{ message.role }}
{{ message.content or "" }}
{%- for call in message.tool_calls or [] %}
{%- set call = call.function or call %}{{ "\\n" if message.content or not loop.first -}}
<tool_call>
{"name": "{{ call.name }}", "arguments": {{ call.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def train_tokenizer(texts: Iterable[str], num_tokens: int, *, chat: bool) -> Any:
    """Returns a Hugging Face tokenizer of `num_tokens` ids that is trained on `texts`.

    chat: with a chat template with tools, and marks of calls; else of a sidecar, for plain text.
    """
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = tokenizers.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(tokenizers.Regex(_WORDS), "isolated")
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, whole])
    backend.decoder = decoders.ByteLevel()
    marks = [*(CALL_MARKS if chat else ())]
    trainer = trainers.BpeTrainer(
        vocab_size=num_tokens - len(marks),
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[END, START, STOP] if chat else [END],
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    backend.add_tokens([tokenizers.AddedToken(mark, normalized=False) for mark in marks])
    how: dict[str, Any] = {"tokenizer_object": backend, "pad_token": END}
    if chat:
        return PreTrainedTokenizerFast(**how, eos_token=STOP, chat_template=CHAT_TEMPLATE)
    return PreTrainedTokenizerFast(**how, eos_token=END, **{TRAINED: True})


def with_fewer_merges(tokenizer: Any, share: float, seed: int) -> Any:
    """Returns a tokenizer of the same ids that cuts words into more pieces: it lacks `share` of the
    merges.
    """
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    rng = Random(seed)
    told = json.loads(tokenizer.backend_tokenizer.to_str())
    merges = told["model"]["merges"]
    told["model"]["merges"] = [merge for merge in merges if rng.random() >= share]
    backend = tokenizers.Tokenizer.from_str(json.dumps(told))
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=tokenizer.eos_token)
