# SPDX-License-Identifier: Apache-2.0
"""The bytes of every token of a Hugging Face tokenizer, and an encoder that changes nothing."""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ooospec._core import _C
from ooospec.errors import UnsupportedModel

SPACE = "▁"  # how SentencePiece writes a space
_LEADS = ("\n", "(", "a")  # one of them does not merge with what follows
# How text is cut into words before BPE by Qwen and, with groups of three digits, by Llama 3.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_MOST_DIGITS = {_WORDS % r"\p{N}": 1, _WORDS % r"\p{N}{1,3}": 3}
_NUM_PROBES = 200
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenTable:
    """Token ids to bytes and text to token ids, for one tokenizer. Thread-safe.

    pieces: bytes of each id; empty for ids that are not in the tokenizer. num_tokens: ids below it
    are real.
    """

    def __init__(self, tokenizer: Any) -> None:
        """Raises UnsupportedModel if the tokenizer's tokens cannot be read as bytes."""
        self._backend: Any = None
        self._speller: Any = None
        self._slow = tokenizer
        self._lock = threading.Lock()
        backend = getattr(tokenizer, "backend_tokenizer", None)
        byte_level, byte_fallback = False, True
        if backend is not None:
            kinds = _decoder_kinds(backend)
            byte_level = "ByteLevel" in kinds
            byte_fallback = "ByteFallback" in kinds
            if not byte_level and not kinds & {"Metaspace", "Replace"}:
                raise UnsupportedModel(
                    f"{type(tokenizer).__name__}: expected a byte-level or SentencePiece "
                    f"tokenizer, got one that decodes by {', '.join(sorted(kinds)) or 'nothing'}."
                )
            self._backend = _plain_copy(tokenizer)
            self._speller = _speller(backend)
        elif not hasattr(tokenizer, "sp_model"):
            raise UnsupportedModel(
                f"{type(tokenizer).__name__}: expected a tokenizer of the tokenizers or "
                "SentencePiece library."
            )
        vocab: dict[str, int] = tokenizer.get_vocab()
        self._added = {int(i): token for i, token in tokenizer.added_tokens_decoder.items()}
        self._byte_level = byte_level
        self.num_tokens = max(vocab.values(), default=-1) + 1
        self.pieces: list[bytes] = [b""] * self.num_tokens
        for token, token_id in vocab.items():
            if byte_level:
                whole = token_id in self._added
                self.pieces[token_id] = token.encode() if whole else _from_byte_level(token)
            else:
                self.pieces[token_id] = _from_sentence_piece(token, byte_fallback)
        self.special_ids = frozenset(int(i) for i in tokenizer.all_special_ids)
        self._adds_space = self.decode_bytes(self._encode("a")) == b" a"
        self._fast: _C.ByteBpe | None = None

    def decode_bytes(self, tokens: list[int]) -> bytes:
        """Returns the bytes of `tokens`; ids outside the tokenizer have none."""
        return b"".join(self.pieces[token] for token in tokens if 0 <= token < self.num_tokens)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text` as it stands: no special tokens around it, no space before it.

        Special tokens that are written out in `text` become their ids, as in a rendered chat.
        """
        if self._fast is not None:
            return self._fast(text)
        if not self._adds_space or not text:
            return self._encode(text)
        for lead in _LEADS:  # something before the text takes the space
            tokens = self._encode(lead + text)
            prefix = b""
            for i, token in enumerate(tokens):
                if prefix.removeprefix(b" ") == lead.encode():
                    return tokens[i:]
                prefix += self.pieces[token]
        return self._encode(text)

    def spell(self, text: str) -> list[int]:
        """Returns the ids of `text` as if no token had been added: some models write tags so."""
        return list(self._speller.encode(text).ids)

    def drafting_encoders(
        self, vocab: _C.Vocab
    ) -> tuple[Callable[[str], list[int]], Callable[[str], list[int]] | None]:
        """Returns encode() and spell(), done by the core where that gives the same: it takes
        microseconds. None where a tokenizer cannot spell. Mutates: encode() is that one then.

        vocab: of `pieces`.
        """
        spell = self.spell if self._speller is not None else None
        most_digits = self._most_digits()
        if most_digits is None or spell is None:
            return self.encode, spell
        # It must not hold this table, which holds it: nobody would see that both are garbage.
        asked = partial(_encode_by, self._backend)
        fast = _C.ByteBpe(vocab, most_digits, sorted(self._added), asked)
        fast_spell = fast.spelled(spell)
        same = all(
            fast(text) == self.encode(text) and fast_spell(text) == spell(text)
            for text in self._probes()
        )
        if not same:
            return self.encode, spell
        self._fast = fast
        return fast, fast_spell

    def _most_digits(self) -> int | None:
        """Returns how many digits a word may have, or None if words are cut in another way."""
        if not self._byte_level or self._backend is None or self._adds_space:
            return None
        if any(t.lstrip or t.rstrip or t.single_word for t in self._added.values()):
            return None
        steps = json.loads(self._backend.pre_tokenizer.__getstate__()).get("pretokenizers", [])
        if [step["type"] for step in steps] != ["Split", "ByteLevel"]:
            return None
        split, bytes_ = steps
        plain = split["behavior"] == "Isolated" and not split["invert"]
        if not plain or bytes_["use_regex"] or bytes_["add_prefix_space"]:
            return None
        return _MOST_DIGITS.get(split["pattern"].get("Regex", ""))

    def _probes(self) -> Iterator[str]:
        """Yields texts in which pieces of all kinds stand side by side."""
        rng = random.Random(0)
        pieces = [piece.decode() for piece in self.pieces if piece.isascii() and piece]
        added = [self.pieces[token_id].decode() for token_id in self._added]
        for _ in range(_NUM_PROBES if pieces else 0):
            around = rng.choices(added, k=1) if added else []
            yield "".join([*rng.choices(pieces, k=6), *around, *rng.choices(pieces, k=2)])

    def _encode(self, text: str) -> list[int]:
        if self._backend is not None:
            return _encode_by(self._backend, text)
        with self._lock:
            return list(self._slow.encode(text, add_special_tokens=False))


def _encode_by(backend: Any, text: str) -> list[int]:
    return list(backend.encode(text).ids)


def _speller(backend: Any) -> Any:
    """Returns a tokenizer over the same model without added tokens."""
    import tokenizers

    speller: Any = tokenizers.Tokenizer(backend.model)
    if backend.normalizer is not None:
        speller.normalizer = backend.normalizer
    if backend.pre_tokenizer is not None:
        speller.pre_tokenizer = backend.pre_tokenizer
    return speller


def _plain_copy(tokenizer: Any) -> Any:
    """Returns a tokenizer over the same model that neither pads, truncates, nor adds specials."""
    import tokenizers

    backend = tokenizer.backend_tokenizer
    copy = _speller(backend)
    added = tokenizer.added_tokens_decoder
    copy.add_tokens([added[token_id] for token_id in sorted(added)])
    if any(copy.id_to_token(token_id) != str(token) for token_id, token in added.items()):
        # Ids with gaps: slower, but as they are.
        copy = tokenizers.Tokenizer.from_str(backend.to_str())
        copy.post_processor = None
        copy.no_padding()
        copy.no_truncation()
    return copy


def _decoder_kinds(backend: Any) -> set[str]:
    """Returns the types of the decoders of a tokenizer of the tokenizers library."""
    if backend.decoder is None:
        return set()
    settings = json.loads(backend.decoder.__getstate__())
    parts = settings["decoders"] if settings["type"] == "Sequence" else [settings]
    return {part["type"] for part in parts}


def _byte_level_alphabet() -> dict[str, int]:
    """Returns the character that stands for each byte in byte-level BPE (as in GPT-2), inverted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + i): byte for i, byte in enumerate(rest)
    }


_ALPHABET = _byte_level_alphabet()


def _from_byte_level(token: str) -> bytes:
    try:
        return bytes(_ALPHABET[character] for character in token)
    except KeyError:  # a token that was added as text
        return token.encode()


def _from_sentence_piece(token: str, byte_fallback: bool) -> bytes:
    if byte_fallback and (match := _BYTE.fullmatch(token)):
        return bytes([int(match[1], 16)])
    return token.replace(SPACE, " ").encode()
