# SPDX-License-Identifier: Apache-2.0
"""The engine against Hugging Face `generate`, on tiny random models of each family."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
import torch

import hostile
from equality import CHUNK, Counts, assert_same, drafting, make_engine, reference
from hostile import ScriptedDrafter
from ooospec.backends.load import load_backend
from ooospec.config import EngineConfig
from ooospec.engine import Delta, Engine, Generation
from ooospec.errors import EngineClosed, InvalidRequest, OutOfPages, PromptTooLong
from tiny_models import FAMILIES, tiny_model, tiny_tokenizer

SLOW = ["shifted", "wrong_one", "noise", "empty", "wrong_root"]  # one token a round
FAST = [kind for kind in hostile.HOSTILE if kind not in SLOW]

ENDS = ["right", "all_eos", "too_long", "last_sibling", "out_of_range", "changing"]
MIXED = ["last_sibling", "binary", "all_eos", "out_of_range", "changing"]


def prompt_of(size: int) -> list[int]:
    return [20 + (7 * i) % 400 for i in range(size)]


def plain_parts(text: str) -> list[str]:
    """Returns two short pieces of ASCII from the middle of a text, the later one first."""
    pieces = re.findall(r"[ -~]{2,}", text[8:])
    return [pieces[1][:4], pieces[0][:2]]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return make_engine("qwen2")


def test_hostile_drafts_change_nothing() -> None:
    """A01, A15, B02, B08, C08, C09, C11, C13, E03: whatever is drafted, every family gives
    Hugging Face's ids. A06, A08, D05, D06: a prompt of one token, and prompts around the borders of
    chunks and windows (16), three windows long.
    """
    counts = Counts()
    for family in FAMILIES:
        engine = make_engine(family)
        for size in (1, CHUNK - 1, CHUNK, CHUNK + 1, 50):
            prompt = prompt_of(size)
            expected = reference(family, prompt, max_new_tokens=48)
            thorough = family in ("qwen2", "gemma3")
            kinds = {1: FAST + SLOW, 50: FAST}.get(size, MIXED) if thorough else MIXED
            assert_same(engine, prompt, expected, counts, kinds, max_tokens=48)
    counts.check(5000, 1000, 3000)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_stop_condition(family: str) -> None:
    """B01, B15: the first of several end-of-sequence ids stops, in the middle of a block too;
    B04: a stop string ends text, ids and usage at one token; B06, B07, B08: exactly max_tokens;
    C01: the context ends the answer. All as Hugging Face does it.
    """
    counts = Counts()
    prompt = prompt_of(20)
    free = reference(family, prompt, max_new_tokens=40)
    assert len(set(free[:12])) > 8
    for eos in ([free[6]], [free[9], free[3]], [free[0], free[5]]):
        engine = make_engine(family)
        engine.backend.eos_ids |= frozenset(eos)
        expected = reference(family, prompt, max_new_tokens=40, eos_token_id=[*eos, 2])
        assert expected[-1] in eos
        assert_same(engine, prompt, expected, counts, ENDS, free, max_tokens=40)
        assert engine.generate_ids(prompt, max_tokens=40).finish_reason == "stop"
    engine = make_engine(family)
    for max_tokens in (1, 2, 8, 9):
        assert_same(engine, prompt, free[:max_tokens], counts, ENDS, free, max_tokens=max_tokens)
    tokenizer = tiny_tokenizer()
    text = engine.generate_ids(prompt, max_tokens=40).text
    stops = plain_parts(text)
    expected = reference(family, prompt, max_new_tokens=40, stop_strings=stops, tokenizer=tokenizer)
    assert_same(engine, prompt, expected, counts, ENDS, free, max_tokens=40, stop=stops)
    stopped = engine.generate_ids(prompt, max_tokens=40, stop=stops)
    assert stopped.text == text[: min(text.find(stop) for stop in stops)]
    small = make_engine(family, max_position_embeddings=32)
    assert_same(small, prompt, free[:12], counts, ENDS, free)
    assert small.generate_ids(prompt).finish_reason == "length"
    counts.check(300, 150, 300)


def test_min_tokens_holds_at_each_node_of_a_tree() -> None:
    """B11: an end of sequence is masked by the place of its own node, not by that of the round."""
    prompt = prompt_of(20)
    free = reference("qwen2", prompt, max_new_tokens=30)
    eos = [free[3], 2]
    expected = reference("qwen2", prompt, max_new_tokens=30, min_new_tokens=10, eos_token_id=eos)
    assert len(expected) > 10
    assert expected[3] != free[3]
    engine = make_engine("qwen2")
    engine.backend.eos_ids |= {free[3]}
    counts = Counts()
    assert_same(engine, prompt, expected, counts, ENDS, max_tokens=30, min_tokens=10)
    assert_same(engine, prompt, expected, counts, ENDS, free, max_tokens=30, min_tokens=10)
    assert free[6] not in free[:6]
    late = make_engine("qwen2")
    late.backend.eos_ids |= {free[6]}  # allowed at its node, though not yet at the root
    assert_same(late, prompt, free[:7], counts, ENDS, free, max_tokens=30, min_tokens=5)


def test_an_answer_may_end_with_its_first_token() -> None:
    """B15: the token that prefill gives is tested too; the answer then has no text."""
    prompt = prompt_of(20)
    engine = make_engine("qwen2")
    first = engine.generate_ids(prompt, max_tokens=1).token_ids
    engine.backend.eos_ids |= frozenset(first)
    got = engine.generate_ids(prompt, max_tokens=5)
    assert (got.token_ids, got.text, got.finish_reason) == (first, "", "stop")
    assert got.metrics.num_rounds == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_cold_warm_and_second_turn(family: str) -> None:
    """D09: a prefix from the cache, short or long, gives what a cold run gives; I08: drafts are
    accepted as often; a second turn that repeats the first answer is prefilled anew.
    """
    counts = Counts()
    engine = make_engine(family)
    prompt = prompt_of(3 * CHUNK + 5)
    expected = reference(family, prompt, max_new_tokens=24)
    method = drafting(hostile.right, expected, engine)
    cold = engine.generate_ids(prompt, method=method, max_tokens=24)
    warm = engine.generate_ids(prompt, method=method, max_tokens=24)
    assert (cold.usage.cached_tokens, warm.usage.cached_tokens) == (0, 3 * CHUNK)
    assert cold.token_ids == warm.token_ids == expected
    assert cold.metrics.accepted == warm.metrics.accepted
    for shared in (CHUNK - 1, CHUNK, 2 * CHUNK + 3):
        other = prompt[:shared] + prompt_of(30)[::-1]
        expected = reference(family, other, max_new_tokens=24)
        assert_same(engine, other, expected, counts, ["last_sibling"], max_tokens=24)
    whole = engine.generate_ids(prompt[: 3 * CHUNK], max_tokens=24)  # all of it is in the cache
    assert whole.usage.cached_tokens == 2 * CHUNK  # but the last token has to be run
    assert whole.token_ids == reference(family, prompt[: 3 * CHUNK], max_new_tokens=24)
    second = prompt + cold.token_ids + prompt_of(9)
    expected = reference(family, second, max_new_tokens=24)
    fresh = engine.generate_ids(second, max_tokens=24)
    assert fresh.usage.cached_tokens == 3 * CHUNK  # what rounds wrote is computed anew
    assert fresh.token_ids == expected
    assert_same(engine, second, expected, counts, ["changing", "binary"], max_tokens=24)
    assert engine.generate_ids(second, max_tokens=1).usage.cached_tokens == 5 * CHUNK
    assert engine.generate_ids(second, tenant="b", max_tokens=1).usage.cached_tokens == 0
    counts.check(200, 90, 300)


def test_the_rounds_of_requests_may_alternate(engine: Engine) -> None:
    """I19: streams that take turns, in one thread or many, do not touch each other."""
    prompts = [prompt_of(size) for size in (9, 33, 50)]
    expected = [engine.generate_ids(prompt, max_tokens=20).token_ids for prompt in prompts]
    streams = [
        engine.stream_ids(
            prompt, method=drafting(hostile.last_sibling, answer, engine), max_tokens=20
        )
        for prompt, answer in zip(prompts, expected, strict=True)
    ]
    found: list[list[int]] = [[] for _ in streams]
    live = list(range(len(streams)))
    while live:
        for i in list(live):
            item = next(streams[i])
            if isinstance(item, Generation):
                live.remove(i)
            else:
                found[i] += item.token_ids
    assert found == expected

    results: dict[int, list[int]] = {}

    def work(i: int) -> None:
        results[i] = engine.generate_ids(prompts[i % 3], max_tokens=20).token_ids

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[i] for i in range(6)] == expected * 2


def test_drafting_right_takes_as_few_rounds_as_it_can() -> None:
    """C13, C14: the answer as draft is accepted whole, noise not at all; D03: after each round the
    cached length is that of the committed tokens but the last.
    """
    engine = make_engine("qwen2")
    prompt = prompt_of(20)
    expected = reference("qwen2", prompt, max_new_tokens=46)
    right = engine.generate_ids(
        prompt, method=drafting(hostile.right, expected, engine), max_tokens=46
    )
    assert right.metrics.num_rounds == 5  # 45 tokens after the first, 8 drafted + 1 a round
    assert sum(right.metrics.accepted.values()) == 40
    assert right.metrics.rejected == {}
    assert right.metrics.tokens_per_round == 9
    assert right.sources == ([0] + [hostile.SOURCE] * 8) * 5 + [0]
    wrong = engine.generate_ids(
        prompt, method=drafting(hostile.wrong_one, expected, engine), max_tokens=46
    )
    assert wrong.metrics.accepted == {}
    assert wrong.metrics.rejected == {hostile.SOURCE: 44}  # A07: none is taken unchecked
    assert wrong.metrics.num_rounds == 45


def test_what_lies_behind_the_end_counts_nowhere() -> None:
    """B10: [a, b, end, d, e] verified in one round is three committed tokens, two of them
    drafted.
    """
    prompt = prompt_of(20)
    free = reference("qwen2", prompt, max_new_tokens=12)
    engine = make_engine("qwen2")
    engine.backend.eos_ids |= {free[3]}
    got = engine.generate_ids(prompt, method=drafting(hostile.right, free, engine), max_tokens=12)
    assert got.token_ids == free[:4]
    assert got.metrics.num_committed == 3
    assert got.metrics.accepted == {hostile.SOURCE: 3}
    assert got.metrics.rejected == {hostile.SOURCE: 5}
    assert got.usage.completion_tokens == 4


def test_positions_and_lengths_follow_what_was_accepted() -> None:
    """A06: logged at the model; a node's position is the committed length plus its depth."""
    engine = make_engine("qwen2")
    prompt = prompt_of(1)
    expected = engine.generate_ids(prompt, max_tokens=30).token_ids
    launches: list[tuple[int, list[int]]] = []
    forward = engine.backend.forward

    def logged(segments: Any) -> Any:
        launches.append((segments[0].sequence.length, list(segments[0].positions)))
        return forward(segments)

    engine.backend.forward = logged  # type: ignore[method-assign]
    got = engine.generate_ids(
        prompt, method=drafting(hostile.half_right, expected, engine), max_tokens=30
    )
    committed = 1
    for (length, positions), one in zip(launches[1:], got.metrics.rounds, strict=True):
        assert length == positions[0] == committed  # the root is not cached yet
        assert positions == sorted(positions)
        assert set(positions) == set(range(length, length + len(set(positions))))
        committed += one.num_committed
    assert committed == len(expected)


@pytest.mark.parametrize(
    ("answer", "max_tokens", "reason"),
    [
        ('{"name": "get_weather", "arguments": {"city": "Paris"}}', 60, "tool_calls"),
        ('{"name": "get_weather", "arguments": {"city": "Paris"}}', 8, "length"),
        ('{"name": "another", "arguments": {"city": "Paris"}}', 60, "stop"),
        ("Paris.", 60, "stop"),
    ],
)
def test_an_answer_with_calls_says_so(answer: str, max_tokens: int, reason: str) -> None:
    """The target is made to write `answer`: its logits are raised where they are to win."""
    engine = make_engine("qwen2")
    tools = [{"type": "function", "function": {"name": "get_weather"}}]
    messages = [{"role": "user", "content": "hi"}]
    start = len(engine.prompt_ids(messages, tools))
    assert engine.tokens is not None
    script = [*engine.tokens.encode(answer), min(engine.backend.eos_ids)]
    forward = engine.backend.forward

    @torch.inference_mode()
    def scripted(segments: Any) -> Any:
        found = forward(segments)
        for segment, logits in zip(segments, found, strict=True):
            for back in range(1, len(logits) + 1):  # of a prefill, only the last row has logits
                written = segment.positions[-back] + 1 - start
                if written >= 0:
                    logits[-back, script[written]] = 1e9
        return found

    engine.backend.forward = scripted  # type: ignore[method-assign]
    got = engine.generate(messages, tools, method="ar", max_tokens=max_tokens)
    assert got.finish_reason == reason
    assert bool(got.tool_calls) is (reason == "tool_calls")


def test_no_row_lies_behind_the_last_token_there_may_be() -> None:
    """C01: near the end of the context or of max_tokens the drafts get shallower."""
    for engine, max_tokens in (
        (make_engine("qwen2", max_position_embeddings=32), 99),
        (make_engine("qwen2"), 12),
    ):
        expected = reference("qwen2", prompt_of(20), max_new_tokens=30)
        highest = 0
        forward = engine.backend.forward

        def logged(segments: Any, forward: Any = forward) -> Any:
            nonlocal highest
            highest = max(highest, *segments[0].positions)
            return forward(segments)

        engine.backend.forward = logged  # type: ignore[method-assign]
        method = drafting(hostile.too_long, expected, engine)
        got = engine.generate_ids(prompt_of(20), method=method, max_tokens=max_tokens)
        assert got.token_ids == expected[:12]
        assert highest == 30  # the last of 32 tokens is chosen there, and does not run


@pytest.mark.parametrize("budget", [1, 2, 3, 64])
def test_any_budget_works(budget: int) -> None:
    """C10: one node (plain decoding) up to all."""
    engine = make_engine("qwen2", EngineConfig(max_nodes=budget))
    prompt = prompt_of(20)
    expected = reference("qwen2", prompt, max_new_tokens=20)
    counts = Counts()
    assert_same(engine, prompt, expected, counts, ["right", "too_long", "binary"], max_tokens=20)
    assert (counts.accepted > 0) == (budget > 1)


def test_a_cache_that_just_fits() -> None:
    """C01, D23: pages for prompt, answer and drafts are taken at the start; size changes
    nothing.
    """
    prompt = prompt_of(20)
    expected = reference("qwen2", prompt, max_new_tokens=28)
    engine = make_engine("qwen2", EngineConfig(cache_tokens=48))
    assert_same(engine, prompt, expected, Counts(), FAST, max_tokens=28)
    assert engine.generate_ids(prompt).token_ids == expected  # no limit given: what fits
    with pytest.raises(OutOfPages, match=r"within 48 tokens \(cache_tokens\), got 20 \+ 29"):
        engine.generate_ids(prompt, max_tokens=29)
    with pytest.raises(OutOfPages, match=r"got 48 \+ 1"):
        engine.generate_ids(prompt_of(48))


def test_a_full_cache_forgets_prefixes_before_it_refuses() -> None:
    engine = make_engine("qwen2", EngineConfig(cache_tokens=96))
    for start in range(5):
        prompt = [start + 3, *prompt_of(63)]
        expected = reference("qwen2", prompt, max_new_tokens=8)
        assert engine.generate_ids(prompt, max_tokens=8).token_ids == expected
    held = engine.stream_ids(prompt_of(40), max_tokens=40)
    next(held)
    with pytest.raises(OutOfPages, match="free pages"):
        engine.generate_ids(prompt_of(64), max_tokens=20)
    held.close()
    assert len(engine.generate_ids(prompt_of(64), max_tokens=20).token_ids) == 20


def test_bad_requests_get_one_error_and_leave_the_engine_usable() -> None:
    """I17: nothing is cut silently; negative limits, unknown options and ids are named."""
    engine = make_engine("qwen2", max_position_embeddings=64)
    prompt = prompt_of(10)
    expected = engine.generate_ids(prompt, max_tokens=5).token_ids
    num_free = engine.pool.num_free
    cases: list[tuple[list[int], dict[str, Any], type[Exception], str]] = [
        ([], {}, InvalidRequest, "at least one token"),
        ([1, -1], {}, InvalidRequest, "ids in"),
        ([1, engine.backend.decodable], {}, InvalidRequest, "ids in"),
        (prompt_of(64), {}, PromptTooLong, "fewer than the 64 tokens of the context, got 64"),
        (prompt, {"max_tokens": -1}, InvalidRequest, "max_tokens: .* got -1"),
        (prompt, {"max_tokens": 0}, InvalidRequest, "max_tokens"),
        (prompt, {"min_tokens": -1}, InvalidRequest, "min_tokens"),
        (prompt, {"temperature": -0.1}, InvalidRequest, "temperature"),
        (prompt, {"temperature": float("nan")}, InvalidRequest, "temperature"),
        (prompt, {"top_p": 0.0}, InvalidRequest, "top_p"),
        (prompt, {"top_k": -1}, InvalidRequest, "top_k"),
        (prompt, {"stop": [""]}, InvalidRequest, "stop"),
        (prompt, {"repetition_penalty": 1.1}, InvalidRequest, "repetition_penalty"),  # H11
        (prompt, {"method": "warp"}, InvalidRequest, "expected one of ar, got 'warp'"),
        (prompt, {"method": []}, InvalidRequest, r"expected one of ar, got \[\]"),
        ("text", {}, InvalidRequest, "a list of token ids, got 'text'"),  # type: ignore[list-item]
        (None, {}, InvalidRequest, "a list of token ids, got None"),  # type: ignore[list-item]
        ([1.5], {}, InvalidRequest, r"a list of token ids, got \[1.5\]"),  # type: ignore[list-item]
    ]
    for ids, settings, kind, message in cases:
        with pytest.raises(kind, match=message):
            engine.stream_ids(ids, **settings)  # at once, not with the first item
    assert engine.generate_ids(prompt, max_tokens=5).token_ids == expected
    assert engine.pool.num_free == num_free


def test_a_target_without_a_tokenizer_takes_ids_alone() -> None:
    engine = Engine(load_backend(tiny_model("qwen2"), chunk=CHUNK))
    for prompt in (None, "Hello"):
        with pytest.raises(InvalidRequest, match=r"expected a t.* with .*, got"):
            engine.request([{"role": "user", "content": "Hello"}], prompt=prompt)
    assert engine.generate_ids([1, 2, 3], max_tokens=2).token_ids


def test_a_closed_engine_says_so() -> None:
    engine = make_engine("qwen2")
    under_way = engine.stream_ids(prompt_of(10), max_tokens=9)
    next(under_way)
    not_begun = engine.stream_ids(prompt_of(10), max_tokens=1)
    engine.close()
    engine.close()
    num_free = engine.pool.num_free
    for ask in (
        lambda: next(under_way),
        lambda: next(not_begun),
        lambda: engine.generate_ids(prompt_of(10)),
    ):
        with pytest.raises(
            EngineClosed, match=r"expected one that is open, got one that was closed"
        ):
            ask()
    assert engine.pool.num_free > num_free


class Failing(ScriptedDrafter):
    def propose(self, budget: int) -> Any:
        raise MemoryError("drafter")


def test_whatever_goes_wrong_pages_come_back_and_the_drafter_hears_of_the_end() -> None:
    """I16: a stream that is closed early, a drafter or model that raises, leave nothing held."""
    engine = make_engine("qwen2")
    prompt = prompt_of(20)
    expected = engine.generate_ids(prompt, max_tokens=20).token_ids
    num_free = engine.pool.num_free
    drafters: list[ScriptedDrafter] = []

    def method(request: Any, kind: type[ScriptedDrafter] = ScriptedDrafter) -> ScriptedDrafter:
        drafters.append(kind(hostile.right, request.prompt_ids, expected, 400, 2))
        return drafters[-1]

    unused = engine.stream_ids(prompt, method=method)
    unused.close()
    assert not drafters
    early = engine.stream_ids(prompt, method=method)
    next(early)
    next(early)
    assert engine.pool.num_free < num_free
    early.close()
    early.close()
    assert engine.pool.num_free == num_free
    with pytest.raises(MemoryError):
        engine.generate_ids(prompt, method=lambda request: method(request, Failing))
    forward = engine.backend.forward
    engine.backend.forward = lambda segments: forward(segments)[:0]  # type: ignore[method-assign]
    with pytest.raises(IndexError):
        engine.generate_ids(prompt, method=method)
    engine.backend.forward = forward  # type: ignore[method-assign]
    assert [drafter.finished for drafter in drafters] == [1, 1, 1]
    assert engine.pool.num_free == num_free
    assert engine.generate_ids(prompt, method=method, max_tokens=20).token_ids == expected


def test_a_stream_adds_up_to_the_answer(engine: Engine) -> None:
    """B03, B14, B17, E15: deltas hold no token after the end, no half character, no stop string."""
    prompt = prompt_of(20)
    whole = engine.generate_ids(prompt, max_tokens=40)
    for stop in ([], [whole.text[10:14]], ["\x00never", whole.text[-3:] + "x"]):
        expected = engine.generate_ids(prompt, max_tokens=40, stop=stop)
        for kind in ("right", "half_right", "noise"):
            method = drafting(hostile.HOSTILE[kind], whole.token_ids, engine)
            items = list(engine.stream_ids(prompt, method=method, max_tokens=40, stop=stop))
            deltas = [item for item in items if isinstance(item, Delta)]
            final = items[-1]
            assert isinstance(final, Generation)
            assert len(items) == len(deltas) + 1 == final.metrics.num_rounds + 2
            assert "".join(delta.text for delta in deltas) == final.text == expected.text
            ids = [token for delta in deltas for token in delta.token_ids]
            assert ids == final.token_ids == expected.token_ids
            assert [s for delta in deltas for s in delta.sources] == final.sources
            assert final.usage.completion_tokens == len(ids)


def test_messages_and_tools(engine: Engine) -> None:
    """A dialogue goes through the chat template and is answered like its ids; no BOS is added
    (E04).
    """
    messages = [{"role": "user", "content": "Wie wird das Wetter in Zürich?"}]
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {}}}]
    tokenizer = tiny_tokenizer()
    prompt = tokenizer.apply_chat_template(
        messages, tools=tools, add_generation_prompt=True, return_dict=False
    )
    expected = reference("qwen2", prompt, max_new_tokens=20)
    got = engine.generate(messages, tools, max_tokens=20)
    assert got.token_ids == expected
    assert got.usage.prompt_tokens == len(prompt)
    assert got.usage.total_tokens == len(prompt) + len(expected)
    bad: list[tuple[Any, Any, str, str]] = [
        ([], None, "", "at least one message"),
        (messages, tools * 2, "", "tools: expected every name once, got 'get_weather' twice"),
        (messages, [{"name": "f", "parameters": []}], "", "tool 'f': expected `parameters`"),
        (messages, tools, None, "tenant: expected text, got None"),
    ]
    for dialogue, known, tenant, message in bad:
        with pytest.raises(InvalidRequest, match=message):
            engine.stream(dialogue, known, tenant=tenant)  # before anything is computed
    for name in ("prompt", "opening"):
        with pytest.raises(InvalidRequest, match=f"{name}: expected Unicode text"):
            engine.request(messages, tools, **{name: "\ud800"})


def test_ids_that_only_pad_the_vocabulary_are_never_chosen() -> None:
    """E01, E12: the embedding has more rows than the tokenizer has ids, and they would win."""
    size = len(tiny_tokenizer())
    engine = make_engine("qwen2", vocab_size=size + 70)
    assert engine.backend.decodable == size
    head = engine.backend.model.lm_head.weight
    with torch.no_grad():
        head[size:] = head[:70] * 3
    prompt = prompt_of(20)
    plain = engine.generate_ids(prompt, max_tokens=30, ignore_eos=True).token_ids
    assert len(plain) == 30
    assert max(plain) < size
    assert_same(engine, prompt, plain, Counts(), FAST, max_tokens=30, ignore_eos=True)
    sampled = engine.generate_ids(prompt, max_tokens=30, temperature=2.0, seed=1, ignore_eos=True)
    assert max(sampled.token_ids) < size


def test_the_likeliest_successors_reach_a_drafter_that_wants_them() -> None:
    engine = make_engine("qwen2")
    prompt = prompt_of(20)
    expected = engine.generate_ids(prompt, max_tokens=10).token_ids
    heard: list[Any] = []

    class Curious(ScriptedDrafter):
        def commit(self, tokens: Any, top8: Any = None) -> None:
            super().commit(tokens)
            heard.append(top8)

    def method(request: Any) -> Curious:
        script = hostile.out_of_range
        drafter = Curious(script, request.prompt_ids, expected, engine.backend.decodable, 2)
        drafter.wants_top8 = True
        return drafter

    engine.generate_ids(prompt, method=method, max_tokens=10)
    assert heard[0] is None  # the first token follows the prompt
    first = heard[1]  # the second draft: root, -1, and three ids that hang on it
    assert first.shape == (5, 8)
    assert first[0, 0] == expected[1]
    assert (first[1:] == -1).all()
