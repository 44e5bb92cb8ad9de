# SPDX-License-Identifier: Apache-2.0
"""BPE done by the core gives what the tokenizer gives."""

from __future__ import annotations

import functools
import gc
import json
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import decoders, pre_tokenizers, trainers

from ooospec._core import _C
from ooospec.tokens import _WORDS, TokenTable
from tiny_models import TEXT

JSON = json.dumps({"name": "get_weather", "arguments": {"days": 12, "city": "Oslo"}}, indent=2)
SPECIAL = ["<|endoftext|>", "<|end|>", "<tool_call>", "<tool_call"]
PARTS = [
    "'s",
    "'LL",
    "don't",
    " {",
    '"',
    '":',
    "\n",
    "\r\n",
    "  ",
    "\t",
    "12",
    "3456",
    "\x0b",
    "\x7f",
]


def trained(digits: str) -> Any:
    """Returns a tokenizer with the words of Qwen or Llama 3."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    pattern = tokenizers.Regex(_WORDS % digits)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([*TEXT, JSON, "1234 don't  \n\n x\t"] * 4, trainer)
    backend.add_special_tokens(SPECIAL)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend)


def ids(tokenizer: Any, text: str) -> list[int]:
    """Returns the tokens of a text by the tokenizer's own means."""
    found: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return found


@functools.cache
def encoders(digits: str) -> list[tuple[Callable[[str], list[int]], Callable[[str], list[int]]]]:
    """Returns what the core does and what the tokenizer does, with added tokens and without."""
    tokenizer = trained(digits)
    table = TokenTable(tokenizer)
    encode, spell = table.drafting_encoders(_C.Vocab(table.pieces))
    assert isinstance(encode, _C.ByteBpe)
    assert isinstance(spell, _C.ByteBpe)
    own = functools.partial(ids, tokenizer)
    return [(encode, own), (table.encode, own), (spell, table.spell)]


texts = st.lists(
    st.one_of(
        st.sampled_from([*PARTS, *SPECIAL, *JSON.split(), *TEXT]), st.text("aZ9 '\n{é", max_size=6)
    ),
    max_size=12,
).map("".join)


@pytest.mark.parametrize("digits", [r"\p{N}", r"\p{N}{1,3}"])
@given(text=texts)
@example(text="")
@example(text="<tool_call>\n" + JSON + "\n</tool_call><|end|>")
@example(text="Zürich, 12345 \n\n  x")
@example(text="a" * 200)
def test_the_core_gives_what_the_tokenizer_gives(digits: str, text: str) -> None:
    for fast, slow in encoders(digits):
        assert fast(text) == slow(text)


def test_only_what_the_core_cannot_do_is_asked() -> None:
    table = TokenTable(trained(r"\p{N}"))
    asked: list[str] = []

    def otherwise(text: str) -> list[int]:
        asked.append(text)
        return table.encode(text)

    fast = _C.ByteBpe(_C.Vocab(table.pieces), 1, [], otherwise)
    fast(JSON)
    assert asked == []
    fast("Zürich")
    fast("ab" * 100)
    assert asked == ["Zürich", "ab" * 100]


def test_a_table_that_the_core_serves_goes_when_nobody_has_it() -> None:
    table = TokenTable(trained(r"\p{N}"))
    table.drafting_encoders(_C.Vocab(table.pieces))
    gone = weakref.ref(table)
    del table
    gc.collect()
    assert gone() is None


def test_words_cut_in_another_way_are_left_to_the_tokenizer() -> None:
    table = TokenTable(trained(r"\p{N}{2}"))
    assert table.drafting_encoders(_C.Vocab(table.pieces))[0] == table.encode


def test_a_core_that_gives_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    table = TokenTable(trained(r"\p{N}{1,3}"))
    monkeypatch.setattr(table, "_most_digits", lambda: 2)
    assert table.drafting_encoders(_C.Vocab(table.pieces))[0] == table.encode


def test_bad_arguments() -> None:
    vocab = _C.Vocab([b"a"])
    with pytest.raises(ValueError, match="most_digits: expected at least 1, got 0"):
        _C.ByteBpe(vocab, 0, [], list)
    with pytest.raises(IndexError, match=r"expected a token in \[0, 1\), got 1"):
        _C.ByteBpe(vocab, 1, [1], list)


@pytest.mark.real
def test_a_real_tokenizer_is_done_by_the_core() -> None:
    folder = Path(os.environ["OOOSPEC_CHECKPOINTS"]) / "qwen2.5-coder-0.5b"
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    table = TokenTable(tokenizer)
    encode, spell = table.drafting_encoders(_C.Vocab(table.pieces))
    assert isinstance(encode, _C.ByteBpe)
    source = Path(__file__).read_text()
    for at in range(0, len(source), 97):
        text = source[at : at + 300]
        assert encode(text) == table.encode(text) == ids(tokenizer, text)
        assert spell is not None
        assert spell(text) == table.spell(text)
    assert len(table.encode("<tool_call>")) == 1 < len(table.spell("<tool_call>"))
