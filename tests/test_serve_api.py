# SPDX-License-Identifier: Apache-2.0
"""What the server answers to OpenAI's client: every option, streamed and not."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ooospec.formats import nesting
from ooospec.serve.choice import WithoutMarkers
from ooospec.serve.limits import Limits
from tiny_server import (
    CALL,
    STOP,
    TOOLS,
    WEATHER,
    Serving,
    joined,
    make_engine,
    plain,
    serving,
    user,
)
from waiting import wait_for

WEATHER_CALL = ("get_weather", WEATHER)
STOP_CALL = ("stop", "{}")
PROSE = "The quick brown fox naps in the sun until evening comes."


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    with serving(make_engine(), limits=Limits(max_body_bytes=1 << 16, max_tools=4)) as found:
        yield found


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def ask_both(served: Serving, text: str, **fields: Any) -> tuple[Any, str | None, Any]:
    """Returns (content, thinking, calls), finish reason and usage: the same, streamed and whole."""
    whole = served.ask(text, **fields)
    stream = served.ask(text, stream=True, stream_options={"include_usage": True}, **fields)
    message, reason, usage = joined(stream)
    assert plain(message) == plain(whole.choices[0].message)
    assert reason == whole.choices[0].finish_reason
    counts = usage.completion_tokens, usage.prompt_tokens
    assert counts == (whole.usage.completion_tokens, whole.usage.prompt_tokens)
    ids = [call["id"] for call in message.get("tool_calls", [])]
    assert len(set(ids)) == len(ids)
    return plain(message), reason, usage


@pytest.mark.parametrize(
    ("text", "expected", "reason"),
    [
        ("Weather?", (None, None, [WEATHER_CALL]), "tool_calls"),
        ("Weather, then stop.", ("Sure.", None, [WEATHER_CALL, STOP_CALL]), "tool_calls"),
        ("Tell me.", (PROSE, None, []), "stop"),
        ("Think.", (None, f"The weather, {STOP}.", [WEATHER_CALL]), "tool_calls"),
    ],
)
def test_answers_streamed_and_whole(served: Serving, text: str, expected: Any, reason: str) -> None:
    """G01, G06, G19, G20, G22, G24, G31, G36, B14."""
    got, got_reason, usage = ask_both(served, text)
    assert (got, got_reason) == (expected, reason)
    served.wait_until_idle()
    alone = served.service.engine.generate(user(text), TOOLS, method="ar")
    assert usage.completion_tokens == len(alone.token_ids)


def test_a_call_of_no_tool_is_content_and_its_neighbour_a_call(served: Serving) -> None:
    """G18."""
    (content, _, calls), reason, _ = ask_both(served, "Unknown.")
    assert content == '<tool_call>\n{"name": "go", "arguments": {}}\n</tool_call>'
    assert (calls, reason) == ([STOP_CALL], "tool_calls")


def test_tool_choice(served: Serving) -> None:
    """G22, G27: none has no call and no markers; required and named have one."""
    got, reason, _ = ask_both(served, "Weather?", tool_choice="none")
    assert (got, reason) == (("I may not call it.", None, []), "stop")
    got, reason, _ = ask_both(served, "Weather?", tool_choice="auto")
    assert (got, reason) == ((None, None, [WEATHER_CALL]), "tool_calls")
    got, reason, _ = ask_both(served, "Weather?", tool_choice="required")
    assert (got, reason) == ((None, None, [WEATHER_CALL]), "tool_calls")
    got, reason, usage = ask_both(served, "Weather?", tool_choice=named("stop"))
    assert (got, reason) == ((None, None, [STOP_CALL]), "tool_calls")
    assert usage.completion_tokens < 6  # cut behind the call, whatever a round had in it


def test_thinking_is_counted_in_the_tokens_and_nowhere_else(served: Serving) -> None:
    """B09: of an answer that is cut in its thoughts."""
    (content, thinking, calls), reason, usage = ask_both(served, "Think.", max_tokens=16)
    assert (content, calls, reason) == (None, [], "length")
    assert thinking
    assert f"The weather, {STOP}.".startswith(thinking)
    assert usage.completion_tokens == 16
    assert usage.total_tokens == usage.prompt_tokens + 16
    assert usage.completion_tokens_details is None


def test_one_call_at_most(served: Serving) -> None:
    text = "Weather, then stop."
    got, reason, usage = ask_both(served, text, parallel_tool_calls=False)
    assert (got, reason) == (("Sure.", None, [WEATHER_CALL]), "tool_calls")
    served.wait_until_idle()
    tokens = served.service.engine.tokens
    assert tokens is not None
    answer = served.service.engine.generate(user(text), TOOLS, method="ar").token_ids
    kept = b"".join(tokens.pieces[token] for token in answer[: usage.completion_tokens])
    before = b"".join(tokens.pieces[token] for token in answer[: usage.completion_tokens - 1])
    assert b"}}" in kept
    assert b"}}" not in before
    got, _, _ = ask_both(served, text, parallel_tool_calls=True)
    assert len(got[2]) == 2


def test_the_end_of_an_answer(served: Serving) -> None:
    """B06, B16: max_tokens and stop strings, in prose, in a call and in what may become one."""
    got, reason, usage = ask_both(served, "Tell me.", max_tokens=5)
    assert (reason, usage.completion_tokens) == ("length", 5)
    assert PROSE.startswith(got[0])
    assert ask_both(served, "Tell me.", max_completion_tokens=5)[0] == got
    got, reason, _ = ask_both(served, "Tell me.", stop=[" naps", "sun"])
    assert (got, reason) == (("The quick brown fox", None, []), "stop")
    got, reason, _ = ask_both(served, "Weather?", stop=' "get')
    assert (got, reason) == (('<tool_call>\n{"name":', None, []), "stop")
    got, reason, _ = ask_both(served, "Weather?", stop="rich")
    assert (got, reason) == ((None, None, [("get_weather", '{"city": "Zü')]), "stop")
    got, reason, _ = ask_both(served, "Weather?", max_tokens=24)
    assert reason == "length"
    assert WEATHER.startswith(got[2][0][1])


def test_sampling_is_that_of_the_engine(served: Serving) -> None:
    """H04, H05: the same seed, the same tokens; another seed, other ones."""
    texts = set()
    for seed in (1, 2, 3):
        fields = {"temperature": 1.6, "top_p": 0.97, "seed": seed, "max_tokens": 20}
        got, _, _ = ask_both(served, "Tell me.", tools=None, **fields)
        served.wait_until_idle()
        alone = served.service.engine.generate(user("Tell me."), None, method="ar", **fields)
        assert got[0] == alone.text
        texts.add(got[0])
    assert len(texts) > 1


def test_history_with_calls_is_tolerated(served: Serving) -> None:
    """G28, G38: arguments as text, broken ones too; what we said can be sent back."""
    first = served.ask("Weather?").choices[0].message
    messages = [
        *user("Weather?"),
        first.model_dump(),
        {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "Sunny."},
    ]
    assert served.ask("", messages=messages, max_tokens=4).usage.completion_tokens > 0
    messages[1]["tool_calls"][0]["function"]["arguments"] = '{"city": '
    assert served.ask("", messages=messages, max_tokens=4).usage.completion_tokens > 0


NEUTRAL = {
    "n": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0.0,
    "logit_bias": {},
    "logprobs": False,
    "response_format": {"type": "text"},
    "store": False,
    "user": "somebody",
    "service_tier": "auto",
}
REFUSED: list[tuple[str, Any]] = [
    ("n", 2),
    ("logprobs", True),
    ("top_logprobs", 5),
    ("frequency_penalty", 0.5),
    ("presence_penalty", -1),
    ("logit_bias", {"7": 1}),
    ("response_format", {"type": "json_object"}),
    ("functions", [{"name": "f"}]),
    ("function_call", "auto"),
    ("store", True),
    ("reasoning_effort", "low"),
    ("modalities", ["audio"]),
    ("min_p", 0.1),
    ("repetition_penalty", 1.1),
    ("echo", True),
    ("temperature", -1),
    ("temperature", "hot"),
    ("top_p", 0),
    ("max_tokens", 0),
    ("max_tokens", 1 << 20),
    ("max_tokens", 2.5),
    ("max_tokens", True),
    ("stop", ""),
    ("stop", ["a"] * 99),
    ("messages", []),
    ("messages", [{"role": "nobody", "content": "x"}]),
    ("messages", [{"role": "user", "content": 7}]),
    ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
    ("tools", [{"type": "function"}]),
    ("tools", [TOOLS[0], TOOLS[0]]),
    ("tools", [{"type": "function", "function": {"name": "f", "strict": True}}]),
    ("tools", [{"type": "custom", "custom": {"name": "f"}}]),
    ("tools", [{"type": "function", "function": {"name": "f", "parameters": 7}}]),
    ("tools", [TOOLS[1]] * 5),
    ("tool_choice", "always"),
    ("tool_choice", named("other")),
    ("tool_choice", {"type": "allowed_tools", "allowed_tools": {}}),
    ("parallel_tool_calls", "yes"),
    ("stream_options", {"include_usage": True}),
]


def test_what_asks_for_nothing_is_taken(served: Serving) -> None:
    body = {"model": "tiny", "messages": user("Tell me."), "max_tokens": 2, **NEUTRAL}
    assert served.http.post("/v1/chat/completions", json=body).status_code == 200


def test_whole_numbers_may_be_written_with_a_point(served: Serving) -> None:
    """As JSON Schema, by which the route is described, has it."""
    body = {"max_tokens": 3.0, "min_tokens": 0.0, "top_k": 9.0, "seed": 7.0, "temperature": 1}
    given, plainly = (
        served.ask("Tell me.", extra_body={name: kind(value) for name, value in body.items()})
        for kind in (float, int)
    )
    assert given.usage.completion_tokens == 3
    assert given.choices[0].message == plainly.choices[0].message


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_what_is_not_supported_is_refused_by_name(served: Serving, name: str, value: Any) -> None:
    """H09, H11, F27, I17: never ignored; the error says which field it was."""
    with pytest.raises(openai.BadRequestError) as refused:
        served.ask("Tell me.", extra_body={name: value})
    assert refused.value.param == name, refused.value
    assert name in refused.value.body["message"]  # type: ignore[index]


def test_an_answer_that_may_have_no_length_is_refused(served: Serving) -> None:
    with pytest.raises(openai.BadRequestError, match=r"at most max_tokens \(4\), got 5") as refused:
        served.ask("Tell me.", max_tokens=4, extra_body={"min_tokens": 5})
    assert refused.value.param == "min_tokens"


def test_other_models_paths_and_bodies(served: Serving) -> None:
    with pytest.raises(openai.NotFoundError, match="model: expected 'tiny', got 'other'"):
        served.ask("Tell me.", model="other")
    assert served.http.get("/v1/nothing").json()["error"]["message"] == "Not Found"
    for body in (b"", b"nonsense", b"[]", b'{"model": ', b'"\\ud800"', b"\xff\xfe", b"{" * 70_000):
        answer = served.http.post("/v1/chat/completions", content=body)
        assert answer.status_code in (400, 413)
        assert answer.json()["error"]["message"].startswith("body")
    lone = b'{"model": "tiny", "messages": [{"role": "user", "content": "\\ud800"}]}'
    assert served.http.post("/v1/chat/completions", content=lone).status_code == 400
    deep = {"model": "tiny", "messages": user("x"), "tools": json.loads("[" * 80 + "]" * 80)}
    answer = served.http.post("/v1/chat/completions", json=deep)
    assert answer.json()["error"]["code"] == "too_deep"


def test_a_prompt_that_does_not_fit(served: Serving) -> None:
    """I17, C03: no silent cut."""
    with pytest.raises(openai.BadRequestError) as refused:
        served.ask("fox " * 2000)
    assert refused.value.code == "context_length_exceeded"
    assert served.ask("Tell me.").choices[0].message.content == PROSE


def test_one_odd_schema_spoils_nothing_else(served: Serving) -> None:
    """F20, F21, F27: keywords that nobody knows, broken and circular references."""
    odd = {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}, "b": {"$ref": ""}}}
    loop = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "properties": {"a": {"$ref": "#/$defs/a"}}}
    tools = [
        TOOLS[0],
        {"type": "function", "function": {"name": "odd", "parameters": {**odd, "frob": [1]}}},
        {"type": "function", "function": {"name": "loop", "parameters": loop}},
    ]
    assert served.ask("Weather?", tools=tools, max_tokens=8).usage.completion_tokens > 0


def test_keys_keep_tenants_apart() -> None:
    """I18: a key is needed; nothing that is cached for one is used for another."""
    with serving(make_engine(), keys=["one", "two"]) as served:
        for key in ("none", "onetwo"):
            assert served.http.get("/health").status_code == 200
            with pytest.raises(openai.AuthenticationError):
                served.as_client(key).models.list()
            with pytest.raises(openai.AuthenticationError):
                served.as_client(key).chat.completions.create(model="tiny", messages=[])
        cached = []
        for key in ("one", "one", "two", "two"):
            client = served.as_client(key)
            answer = client.chat.completions.create(
                model="tiny",
                messages=user("Weather?"),  # type: ignore[arg-type]
                tools=TOOLS,  # type: ignore[arg-type]
            )
            assert plain(answer.choices[0].message)[2] == [WEATHER_CALL]
            cached.append(answer.usage.prompt_tokens_details.cached_tokens)  # type: ignore[union-attr]
            client.close()
    assert cached[0] == cached[2] == 0
    assert cached[1] == cached[3] > 0


def endless(served: Serving, **fields: Any) -> Any:
    """Starts a stream that goes on for long; returns it behind its first chunk."""
    stream = served.ask(
        "Tell me.", tools=None, stream=True, max_tokens=700, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    return stream


def test_the_queue_has_an_end_and_pages_come_back() -> None:
    """I16: who goes away, running or waiting, gives back what he had."""
    engine = make_engine()
    with serving(engine, limits=Limits(max_running=1, max_queue=1)) as served:
        served.ask("Tell me.")
        served.wait_until_idle()
        engine.prefix_cache.clear()
        free = engine.pool.num_free
        running = endless(served)
        waiting = threading.Thread(target=served.ask, args=("Tell me.",), daemon=True)
        waiting.start()
        while not served.service.scheduler.num_waiting:
            pass
        with pytest.raises(openai.RateLimitError) as refused:
            served.ask("Tell me.")
        assert refused.value.code == "queue_full"
        assert "ooospec_waiting 1.0" in served.http.get("/metrics").text
        assert engine.pool.num_free < free
        with engine.lock:  # no round runs meanwhile
            (job,) = served.service.scheduler._running
            running.close()
            wait_for(lambda: job.cancelled)
        waiting.join()
        served.wait_until_idle()
        assert len(job.run.loop.output.token_ids) < 700
        engine.prefix_cache.clear()
        assert engine.pool.num_free == free == engine.pool.num_pages


def test_an_answer_is_cut_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    step = engine.step

    def slow_step(runs: Any) -> None:
        time.sleep(0.05)  # ten rounds of at most 65 tokens fit into the time, on any machine
        step(runs)

    monkeypatch.setattr(engine, "step", slow_step)
    with serving(engine, limits=Limits(max_seconds=0.5)) as served:
        answer = served.ask("Tell me.", tools=None, max_tokens=700, extra_body={"ignore_eos": True})
        assert answer.choices[0].finish_reason == "length"
        assert 0 < answer.usage.completion_tokens < 700


def test_the_limit_of_tokens_holds_for_who_asks_for_no_number_too() -> None:
    with serving(make_engine(), limits=Limits(max_answer_tokens=5)) as served:
        answer = served.ask("Tell me.")
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage.completion_tokens == 5
        with pytest.raises(openai.BadRequestError, match="max_tokens: expected at most 5, got 6"):
            served.ask("Tell me.", max_tokens=6)


@pytest.mark.parametrize("part", ["prefill", "round"])
def test_what_fails_in_the_engine_is_told_and_ends(
    served: Serving, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I12: the client hears of it, and the next request is answered."""

    class Broken(Exception):
        pass

    def fail(*_: Any, **__: Any) -> Any:
        raise Broken("planted")

    engine = served.service.engine
    with monkeypatch.context() as broken:
        if part == "prefill":
            broken.setattr(engine.backend, "forward", fail)
        else:
            broken.setattr(engine, "step", fail)
        with pytest.raises(openai.InternalServerError) as failed:
            served.ask("Tell me.")
        assert "planted" not in str(failed.value)  # it is in the log
    assert served.ask("Tell me.").choices[0].message.content == PROSE


def test_metrics_and_health(served: Serving) -> None:
    """I15: the state of the sidecar is to be seen; counters count."""
    served.ask("Weather?")
    served.wait_until_idle()
    known = served.http.get("/health").json()
    assert known == {"status": "ok", "model": "tiny", "sidecar": "no sidecar"}
    page = served.http.get("/metrics").text
    counts = {
        line.split(" ")[0]: float(line.split(" ")[1])
        for line in page.splitlines()
        if not line.startswith("#")
    }
    assert counts["ooospec_rounds_total"] > 0
    assert counts['ooospec_responses_total{status="200"}'] > 0
    assert counts['ooospec_tokens_total{source="schema"}'] > 0
    assert counts['ooospec_drafts_accepted_total{source="schema"}'] > 0
    assert counts["ooospec_first_token_seconds_count"] > 0
    assert counts["ooospec_running"] == 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)
roles = st.sampled_from(["user", "assistant", "tool", "system"])
words = st.text(st.characters(codec="utf-8"), max_size=9)
right: dict[str, Any] = {  # values that are taken, by field
    "messages": st.lists(
        st.fixed_dictionaries({"role": roles, "content": words}), min_size=1, max_size=3
    ),
    "tools": st.just(TOOLS),
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0.01, 1),
    "seed": st.integers(),
    "stop": st.text(min_size=1, max_size=4) | st.lists(st.text(min_size=1, max_size=4), max_size=3),
    "stream": st.booleans(),
    "parallel_tool_calls": st.booleans(),
}
wrong: dict[str, Any] = {name: value | json_values for name, value in right.items()} | {
    "messages": st.lists(st.fixed_dictionaries({"role": roles}, optional={"content": json_values})),
    "tool_choice": st.sampled_from(["auto", "none", "required", named("stop")]) | json_values,
}
base = {"model": st.just("tiny"), "max_tokens": st.integers(1, 3)}
fields = st.fixed_dictionaries(base, optional=right) | st.fixed_dictionaries(base, optional=wrong)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fields)
def test_no_body_is_a_server_error(served: Serving, body: dict[str, Any]) -> None:
    """Whatever comes, the answer is a 200 or says what is wrong with it."""
    body.setdefault("messages", user("Tell me."))
    content = json.dumps(body).encode()  # NaN and Infinity too, which are no JSON
    answer = served.http.post("/v1/chat/completions", content=content)
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert answer.json()["error"]["message"]


@given(st.lists(st.sampled_from(["<tool_call>", "</tool_", "call>", "<", "|python_tag|>", "a"])))
def test_markers_are_taken_out_at_any_cut(pieces: list[str]) -> None:
    """G27."""
    text = "".join(pieces)
    found = []
    for cuts in (pieces, [text], list(text)):
        without = WithoutMarkers()
        found.append("".join(map(without.feed, cuts)) + without.finish())
    assert found[0] == found[1] == found[2]
    assert WithoutMarkers().feed(f"a{CALL}b".replace("\n", "")).startswith('a{"name"')


def test_nesting_is_counted_outside_of_strings_in_linear_time() -> None:
    assert nesting(b'{"a": [[1], "]][[", {"\\"[": 1}]}') == 3
    assert nesting(b"}}") == 0
    assert nesting(b'"\\"' * (1 << 19)) == 0  # not one of them ends
