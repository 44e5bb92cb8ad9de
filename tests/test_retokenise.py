# SPDX-License-Identifier: Apache-2.0
"""Drafted text as tokens: what merges across a border, markers that are special or are not, and
vocabularies of one size.
"""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import numpy as np
import pytest
import tokenizers
import transformers
from tokenizers import decoders, pre_tokenizers, trainers

from ooospec import _C
from ooospec.draft import Drafter, TargetText
from ooospec.formats import answer_calls
from ooospec.methods import METHODS, Method
from ooospec.output import Output
from ooospec.replay import replay, slot_records
from ooospec.sampling import SamplingParams
from ooospec.tokens import TokenTable
from test_tokens import all_tokenizers

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "put",
            "parameters": {
                "type": "object",
                "properties": {"value": {}, "note": {"type": "string"}},
                "required": ["value", "note"],
            },
        },
    }
]
VALUES = [{"a": 1}, [1, 2], "plain", '"quoted"', "  spaces", 12, -0.5, True, "é🧪", ""]
HINTS_ONLY = Method("hints only", schema=True, hint=True)


@functools.cache
def merging_tokenizer() -> Any:
    """Returns a tokenizer whose tokens reach over quotes, commas and braces wherever they can."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        max_token_length=4,  # else whole answers are one token
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    texts = [written(call_of(value, note)) for value in VALUES for note in ("Paris", "{", '"', "7")]
    backend.train_from_iterator(texts, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>")


def call_of(value: Any, note: str) -> dict[str, Any]:
    return {"name": "put", "arguments": {"value": value, "note": note}}


def written(call: dict[str, Any]) -> str:
    arguments = json.dumps(call["arguments"], ensure_ascii=False)
    return _C.render_calls([(call["name"], arguments)], _C.CallStyle("tags"))


def text_of(tokenizer: Any) -> TargetText:
    table = TokenTable(tokenizer)
    styles = list(_C.usual_styles())
    return TargetText(_C.Vocab(table.pieces), table.encode, -1, styles, spell=table.spell)


@pytest.mark.parametrize("name", ["byte_level", "gemma", "llama2", "merging"])
def test_the_next_token_is_drafted_at_every_border(name: str) -> None:
    """E09: whatever follows a forced part, a brace, quote, digit, letter or space, the token of the
    whole text is among those drafted next, and the likeliest path goes on as it nearly always.
    """
    text = text_of(merging_tokenizer() if name == "merging" else all_tokenizers()[name])
    total = alike = 0
    for value in VALUES:
        call = call_of(value, "Paris")
        ids = list(text.encode(written(call)))
        for done in range(1, len(ids)):
            drafter = Drafter(text, TOOLS, HINTS_ONLY, [1])
            drafter.commit(ids[:done])
            for record in slot_records(1, [call], TOOLS):
                drafter.offer_hint(record)
            tree = drafter.propose(64)
            first = tree.tokens[tree.parents == 0].tolist()
            assert ids[done] in first, (value, text.vocab.bytes(ids[done]), first)
            total += 1
            alike += list(drafter.core.main_path) == ids[done:]
    assert alike >= 0.97 * total > 97, f"{alike} of {total}"


def test_a_target_that_cuts_its_text_otherwise_is_drafted_for() -> None:
    """Where no border of the tokenizer's falls on the committed end, the rest is encoded alone."""
    text = text_of(merging_tokenizer())
    tokens = {text.vocab.bytes(token): token for token in range(len(text.vocab))}
    call = call_of("plain", "Paris")
    answer = written(call).encode()
    for done in range(1, len(answer)):
        drafter = Drafter(text, TOOLS, HINTS_ONLY, [1])
        drafter.commit([tokens[answer[k : k + 1]] for k in range(done)])
        for record in slot_records(1, [call], TOOLS):
            drafter.offer_hint(record)
        drafter.propose(64)
        drafted = b"".join(map(text.vocab.bytes, drafter.core.main_path))
        assert drafted == answer[done:]


def likeliest_path(tree: Any) -> list[float]:
    """Returns the probabilities along a tree's likeliest path."""
    found, node = [], 0
    while (children := np.flatnonzero(tree.parents == node)).size:
        node = children[tree.probabilities[children].argmax()]
        found.append(float(tree.probabilities[node]))
    return found


def test_a_quote_that_merges_with_what_it_opens_costs_a_token() -> None:
    """E10: without a hint the text is forced up to the opening quote of a value; the token that the
    quote shares with the value is held back or drafted in vain, those before it are right.
    """
    text = text_of(merging_tokenizer())
    schema_only = Method("schema only", schema=True)
    num_merged = 0
    for note in ("Paris", "{", "7", '"'):
        ids = list(text.encode(written(call_of(12, note))))
        pieces = [text.vocab.bytes(token) for token in ids]
        merged = next(i for i in range(len(ids)) if b'"note": "' in b"".join(pieces[: i + 1]))
        num_merged += not pieces[merged].endswith(b'"')
        begin = next(i for i in range(len(ids)) if b"12" in b"".join(pieces[: i + 1])) + 1
        drafter = Drafter(text, TOOLS, schema_only, [1])
        drafter.commit(ids[:begin])
        tree = drafter.propose(64)
        drafted = list(drafter.core.main_path)
        assert len(drafted) > merged - begin > 0, note
        assert drafted[: merged - begin] == ids[begin:merged], note
        *_, before, last = likeliest_path(tree)
        assert last < 0.75 * before, note  # of the tokens that are forced, this one may not stay
    assert num_merged > 0


def test_a_shuffled_vocabulary_of_the_same_size_drafts_its_own_ids() -> None:
    """E14: what a sidecar says is text; the ids are those of the target's own vocabulary."""
    text = text_of(all_tokenizers()["byte_level"])
    size = len(text.vocab)
    order = random.Random(0).sample(range(size), size)  # id in `text` -> id in `other`
    pieces = [b""] * size
    for token, moved in enumerate(order):
        pieces[moved] = text.vocab.bytes(token)
    other = TargetText(
        _C.Vocab(pieces), lambda said: [order[t] for t in text.encode(said)], -1, text.styles
    )
    call = call_of("plain", "Paris")
    ids = list(text.encode(written(call)))
    trees = []
    for target, answer in ((text, ids), (other, [order[token] for token in ids])):
        drafter = Drafter(target, TOOLS, METHODS["ooo"], [1])
        for record in slot_records(1, [call], TOOLS):
            drafter.offer_hint(record)
        drafter.commit(answer[:1])
        trees.append(drafter.propose(64).tokens.tolist())
        drafter.commit(answer[1:2])
        assert len(replay(drafter, answer[2:])) <= 3
    assert trees[1] == [order[token] for token in trees[0]]


def tokenizer_with_markers(kind: str) -> Any:
    """Returns one in which `<tool_call>` is a special token, an added one or "plain" text."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(
            all_tokenizers()["byte_level"].backend_tokenizer.to_str()
        ),
        eos_token="<|im_end|>",
    )
    if kind != "plain":
        markers = ["<tool_call>", "</tool_call>"]
        tokenizer.add_tokens(markers, special_tokens=kind == "special")
    return tokenizer


@pytest.mark.parametrize("kind", ["special", "added", "plain"])
def test_markers_are_seen_whether_they_are_special_or_not(kind: str) -> None:
    """F26, G26: `<tool_call>` as a special token, as an added one, or as ordinary text: drafted,
    read, kept in the text, and parsed.
    """
    tokenizer = tokenizer_with_markers(kind)
    text, table = text_of(tokenizer), TokenTable(tokenizer)
    call = call_of("plain", "Paris")
    ids = list(text.encode(written(call)))
    assert (table.pieces[ids[0]] == b"<tool_call>") == (kind != "plain")
    drafter = Drafter(text, TOOLS, METHODS["ooo"], [1])
    for record in slot_records(1, [call], TOOLS):
        drafter.offer_hint(record)
    assert len(replay(drafter, ids)) <= 3
    assert [found.name for found in drafter.core.reader.calls] == ["put"]
    assert drafter.core.reader.style.wrapper == "tags"
    output = Output(table.pieces, SamplingParams(), [tokenizer.eos_token_id], len(ids))
    output.add(ids)
    assert output.text == written(call)
    (parsed,) = answer_calls(output.text, TOOLS)
    assert json.loads(parsed["function"]["arguments"]) == call["arguments"]


@pytest.mark.parametrize("kind", ["special", "added"])
@pytest.mark.parametrize("spelled", [True, False])
def test_a_target_may_spell_its_markers(kind: str, spelled: bool) -> None:
    """The first token of a marker tells whether the target spells it; the closing one is drafted
    alike. A rehearsal that was mistaken is forgotten.
    """
    text = text_of(tokenizer_with_markers(kind))
    call = call_of("plain", "Paris")
    assert text.spell is not None
    ids = list((text.spell if spelled else text.encode)(written(call)))
    other = list((text.encode if spelled else text.spell)(written(call)))
    assert ids[0] != other[0]
    for begun in (0, 1, 4):
        drafter = Drafter(text, TOOLS, HINTS_ONLY, [1])
        for record in slot_records(1, [call], TOOLS):
            drafter.offer_hint(record)
        drafter.commit(ids[:begun])
        drafter.propose(64)
        drafter.prepare()
        drafter.propose(64)
        drafted = list(drafter.core.main_path)
        assert drafted == (ids[begun:] if begun else other if spelled else ids), begun


def test_a_target_may_spell_one_marker_and_not_the_next() -> None:
    text = text_of(tokenizer_with_markers("added"))
    calls = [call_of(value, "Paris") for value in ("plain", 12)]
    assert text.spell is not None
    ids = [*text.spell(written(calls[0])), *text.encode("\n" + written(calls[1]))]
    drafter = Drafter(text, TOOLS, HINTS_ONLY, [1])
    for record in slot_records(1, calls, TOOLS):
        drafter.offer_hint(record)
    assert len(replay(drafter, ids)) <= 4
