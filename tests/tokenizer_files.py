# SPDX-License-Identifier: Apache-2.0
"""Hugging Face tokenizers from the tokenizer files that other packages carry."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, LlamaTokenizer, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter
from transformers.tokenization_utils_sentencepiece import SentencePieceExtractor

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def load_tokenizer(path: Path) -> Any:
    """Returns the tokenizer of a Hugging Face folder, a tiktoken or SentencePiece `.model`, or a
    tekken `.json`.
    """
    if path.is_dir():
        return AutoTokenizer.from_pretrained(path)
    if path.suffix == ".json":
        return _from_tekken(json.loads(path.read_text()))
    if path.read_bytes()[:1] == b"\n":  # a protobuf
        vocab, _, merges = SentencePieceExtractor(str(path)).extract()
        return LlamaTokenizer(vocab=vocab, merges=merges)
    return _from_tiktoken(path, LLAMA3_PATTERN)


def _from_tiktoken(path: Path, pattern: str) -> Any:
    converted = TikTokenConverter(vocab_file=str(path), pattern=pattern).converted()
    return PreTrainedTokenizerFast(tokenizer_object=converted)


def _from_tekken(tekken: dict[str, Any]) -> Any:
    config = tekken["config"]
    num_ranks = config["default_vocab_size"] - config["default_num_special_tokens"]
    lines = [f"{entry['token_bytes']} {entry['rank']}" for entry in tekken["vocab"][:num_ranks]]
    with tempfile.NamedTemporaryFile("w", suffix=".model") as file:
        file.write("\n".join(lines))
        file.flush()
        return _from_tiktoken(Path(file.name), config["pattern"])
