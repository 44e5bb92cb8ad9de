# SPDX-License-Identifier: Apache-2.0
"""Bytes of tokens and plain encoding, for byte-level and SentencePiece tokenizers."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
import tokenizers
import transformers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from ooospec.errors import UnsupportedModel
from ooospec.tokens import TokenTable
from tiny_models import TEXT, tiny_tokenizer

HARD = [
    "  two leading spaces",
    "    indent\n\t\ttabs\n        8",
    "🧪 naïve 汉字 🏳️‍🌈✔️",
    '{"name": "x", "arguments": {}}',
    "plain",
    "",
]


def sentence_piece(*, dummy_prefix: bool) -> Any:
    """Returns a tokenizer like Gemma's (no dummy prefix) or Llama 2's (with one)."""
    steps: list[Any] = [normalizers.Prepend("▁")] if dummy_prefix else []
    backend = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    ends = [decoders.Strip(" ", 1, 0)] if dummy_prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *ends]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁▁", "▁▁▁▁"]
    trainer = trainers.BpeTrainer(vocab_size=520, special_tokens=special, show_progress=False)
    backend.train_from_iterator([text.replace("日", "") for text in TEXT] * 3, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    return start_with(tokenizer, "<s>")


def start_with(tokenizer: Any, special: str) -> Any:
    """Returns `tokenizer`, which now puts a special token in front of what it encodes."""
    special_id = tokenizer.convert_tokens_to_ids(special)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{special} $A", special_tokens=[(special, special_id)]
    )
    assert tokenizer("a").input_ids[0] == special_id
    return tokenizer


def all_tokenizers() -> dict[str, Any]:
    return {
        "byte_level": tiny_tokenizer(),
        "gemma": sentence_piece(dummy_prefix=False),
        "llama2": sentence_piece(dummy_prefix=True),
    }


@pytest.fixture(scope="module", params=["byte_level", "gemma", "llama2"])
def table(request: pytest.FixtureRequest) -> TokenTable:
    return TokenTable(all_tokenizers()[request.param])


@pytest.mark.parametrize("text", HARD)
def test_encoding_holds_the_bytes_of_the_text(table: TokenTable, text: str) -> None:
    """E06, E07, E08, E11: spaces stay, nothing becomes an unknown token; E04: no BOS in front."""
    tokens = table.encode(text)
    assert table.decode_bytes(tokens) == text.encode()
    assert not table.special_ids & set(tokens)


@pytest.mark.parametrize("text", HARD)
def test_a_lead_that_takes_a_space_with_it_is_not_used(text: str) -> None:
    """E06: what is put before a text to keep its spaces must not merge with the first of them."""
    tokenizer = sentence_piece(dummy_prefix=True)
    tokenizer.add_tokens(["\n ", "( "])
    table = TokenTable(tokenizer)
    assert table.decode_bytes(table.encode(text)) == text.encode()


def test_pieces_are_what_the_tokenizer_decodes_to() -> None:
    for name, tokenizer in all_tokenizers().items():
        table = TokenTable(tokenizer)
        assert table.num_tokens == len(tokenizer) == len(table.pieces)
        for text in TEXT:
            tokens = tokenizer.encode(text, add_special_tokens=False)
            joined = table.decode_bytes(tokens).decode()
            assert joined.removeprefix(" " * (name == "llama2")) == tokenizer.decode(tokens), name
    assert table.decode_bytes([-1, 10**6]) == b""


def test_special_tokens_written_out_become_their_ids() -> None:
    tokenizer = tiny_tokenizer()
    text = "<|im_start|>user\nhi<|im_end|>\n"
    assert TokenTable(tokenizer).encode(text) == tokenizer.encode(text, add_special_tokens=False)


@given(st.text(max_size=20))
@example("▁")
@example(" \n ")
def test_encoding_equals_that_of_the_tokenizer(text: str) -> None:
    """E07: where a tokenizer maps characters together, the bytes say so."""
    tokenizer = tiny_tokenizer()
    table = TokenTable(tokenizer)
    tokens = table.encode(text)
    assert tokens == tokenizer.encode(text, add_special_tokens=False)
    assert table.decode_bytes(tokens).decode(errors="replace") == tokenizer.decode(tokens)


def test_threads_with_different_options_do_not_disturb_each_other() -> None:
    """K10: others may pad, truncate and add special tokens on the same tokenizer meanwhile."""
    tokenizer = sentence_piece(dummy_prefix=False)
    table = TokenTable(tokenizer)
    expected = [table.encode(text) for text in TEXT]
    failures: list[Any] = []
    stop = threading.Event()

    def encode() -> None:
        for _ in range(250):
            for text, tokens in zip(TEXT, expected, strict=True):
                if table.encode(text) != tokens:
                    failures.append(text)

    def disturb() -> None:
        i = 0
        while not stop.is_set():
            tokenizer.backend_tokenizer.enable_truncation(3 + i % 5)
            tokenizer.backend_tokenizer.enable_padding(length=30)
            i += 1

    threads = [threading.Thread(target=encode) for _ in range(8)]
    other = threading.Thread(target=disturb)
    for thread in (other, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    other.join()
    assert not failures


def test_nothing_about_the_tokenizer_or_the_environment_changes() -> None:
    """K11: no variable is set, no state of the tokenizer is touched."""
    tokenizer = sentence_piece(dummy_prefix=True)
    tokenizer.backend_tokenizer.enable_truncation(5)
    before = (dict(os.environ), tokenizer.backend_tokenizer.to_str())
    table = TokenTable(tokenizer)
    assert len(table.encode(TEXT[0])) > 5
    assert (dict(os.environ), tokenizer.backend_tokenizer.to_str()) == before


def test_tokenizers_without_bytes_are_refused() -> None:
    backend = tokenizers.Tokenizer(models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend)
    with pytest.raises(UnsupportedModel, match="one that decodes by WordPiece"):
        TokenTable(tokenizer)
