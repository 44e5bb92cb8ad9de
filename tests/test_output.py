# SPDX-License-Identifier: Apache-2.0
"""Where answers end, and text that grows byte by byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ooospec.output import Output, Usage
from ooospec.sampling import SamplingParams

PIECES = [bytes([i]) for i in range(256)] + [b" ha", b"<|end|>", "🧪".encode(), b""]
EOS = 257


def ids_of(text: str) -> list[int]:
    return list(text.encode())


def run(tokens: list[int], sizes: list[int], max_tokens: int = 999, **fields: Any) -> Output:
    """Feeds `tokens` in blocks of the given sizes (the last one repeats); checks each delta."""
    output = Output(PIECES, SamplingParams(**fields), [EOS], max_tokens)
    sent, start = "", 0
    for i in range(len(tokens) + 1):
        stop = start + sizes[min(i, len(sizes) - 1)]
        block = tokens[start:stop]
        num_taken = output.add(block)
        sent += output.delta()
        assert output.text.startswith(sent)
        if num_taken < len(block) or stop >= len(tokens):
            break
        start = stop
    if output.finish_reason is not None:
        assert sent == output.text
        assert output.add([65]) == 0
    assert output.delta() == ""
    return output


def cut(tokens: list[int], max_tokens: int, **fields: Any) -> tuple[list[int], str, str | None]:
    """The same by definition: try every prefix, decode it whole, look for the first that ends."""
    for count in range(1, len(tokens) + 1):
        kept = tokens[:count]
        if kept[-1] == EOS:
            return kept, b"".join(PIECES[t] for t in kept[:-1]).decode(errors="replace"), "stop"
        data = b"".join(PIECES[t] for t in kept)
        text = data.decode(errors="ignore") if _is_partial(data) else data.decode(errors="replace")
        found = [i for stop in fields.get("stop", ()) if (i := text.find(stop)) >= 0]
        if found:
            return kept, text[: min(found)], "stop"
        if count == max_tokens:
            return kept, data.decode(errors="replace"), "length"
    return tokens, "", None


def _is_partial(data: bytes) -> bool:
    """Returns whether `data` is UTF-8 but for a last character that is not complete."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return False


texts = st.text(st.sampled_from("ab ha<|end|>é漢🧪"), max_size=12)


@given(
    st.lists(st.sampled_from([*ids_of("ab ha"), *"é🧪".encode(), 256, EOS, 258, 259]), max_size=16),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(1, 14),
    st.lists(st.sampled_from(["ha", " ha", "aba", "🧪", "é", "ab ha ha"]), max_size=2),
)
@example([97, 256, 256, 98, 98, 98], [6], 14, [" ha ha"])
def test_the_cut_is_the_first_token_that_ends_the_answer(
    tokens: list[int], sizes: list[int], max_tokens: int, stop: list[str]
) -> None:
    """B04, B06, B07, B16, B17: however tokens come in blocks, ids, text and reason are the same."""
    data = b"".join(PIECES[token] for token in tokens if token != EOS)
    try:
        data.decode()
    except UnicodeDecodeError:
        stop = []  # what a stop string means inside broken text is not defined
    expected = cut(tokens, max_tokens, stop=stop)
    output = run(tokens, sizes, max_tokens, stop=stop)
    if expected[2] is None:
        assert (output.token_ids, output.finish_reason) == (tokens, None)
    else:
        assert (output.token_ids, output.text, output.finish_reason) == expected


def test_a_stop_string_inside_a_block() -> None:
    """B04: the match ends at the third of six tokens; text, ids and counts end there too."""
    tokens = [65, 256, 256, 66, 66, 66]
    output = run(tokens, [6], stop=[" ha ha"])
    assert (output.text, output.token_ids, output.finish_reason) == ("A", tokens[:3], "stop")
    assert output.num_left == 0


@pytest.mark.parametrize("size", [1, 2, 7])
def test_only_a_proper_prefix_is_held_back(size: int) -> None:
    """B17: what began a stop string but did not become one is sent when the answer ends."""
    output = run([*ids_of("text <|e"), EOS], [size], stop=["<|end|>"])
    assert output.text == "text <|e"
    held = Output(PIECES, SamplingParams(stop=["<|end|>"]), [EOS], 99)
    held.add(ids_of("text <|e"))
    assert held.delta() == "text "
    held.add(ids_of("!"))
    assert held.delta() == "<|e!"
    for length in range(1, len("<|end|>")):  # all but its last character too
        held.add(ids_of("<|end|>"[:length]))
        assert held.delta() == ""
        held.add(ids_of("!"))
        assert held.delta() == "<|end|>"[:length] + "!"
    early = Output(PIECES, SamplingParams(stop=["<|end|>"], min_tokens=99), [EOS], 99)
    early.add(ids_of("<|end|>"))  # whole, where it ends nothing: no prefix any more
    assert early.delta() == "<|end|>"


def test_the_earliest_of_several_stops_and_early_ones_are_ignored() -> None:
    tokens = ids_of("one two three")
    assert run(tokens, [3], stop=["three", "two"]).text == "one "
    assert run(tokens, [3], stop=["ne two", "two"]).text == "o"
    late = run(tokens, [13], stop=["one", "two"], min_tokens=5)
    assert (late.text, late.finish_reason) == ("one ", "stop")  # "one" is over before five tokens


def test_an_end_of_sequence_that_is_ignored_is_text() -> None:
    output = run([65, EOS, 66], [1], ignore_eos=True)
    assert (output.text, output.finish_reason) == ("A<|end|>B", None)


def test_an_end_at_the_last_token_is_a_stop() -> None:
    """The limit and the end of sequence fall on one token: it ended by itself."""
    assert run([65, EOS], [2], max_tokens=2).finish_reason == "stop"
    assert run([65, 66], [2], max_tokens=2).finish_reason == "length"
    assert run(ids_of("ab"), [2], max_tokens=2, stop=["b"]).finish_reason == "stop"


@given(st.text(max_size=30), st.lists(st.integers(1, 6), min_size=1, max_size=5))
@example("🧪 naïve 汉字 e\u0301", [1])
@example("🏳️‍🌈✔️", [1])
@example("a\ufffdb", [1])
def test_text_comes_out_as_it_is(text: str, sizes: list[int]) -> None:
    """E15, E16, E17, E18: one byte a token, cut anywhere: no U+FFFD but those of the text."""
    output = run([*ids_of(text), EOS], sizes)
    assert output.text == text


@pytest.mark.parametrize("stop", [(), ("zzz",)])
def test_broken_bytes_become_replacement_characters_at_the_end_only(stop: tuple[str, ...]) -> None:
    """E18: a character that is never completed is one U+FFFD, once it is certain."""
    output = Output(PIECES, SamplingParams(stop=stop), [EOS], 9)
    output.add([65, 0xF0, 0x9F])
    assert output.delta() == "A"
    output.add([EOS])
    assert output.delta() == "\ufffd"


def test_ids_without_a_tokenizer_have_no_text() -> None:
    output = Output(None, SamplingParams(), [EOS], 3)
    assert output.add([1, 2, 3, 4]) == 3
    assert (output.text, output.token_ids, output.finish_reason) == ("", [1, 2, 3], "length")


def test_usage_adds_up() -> None:
    assert Usage(3, 4, 2).total_tokens == 7
