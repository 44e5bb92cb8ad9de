# SPDX-License-Identifier: Apache-2.0
"""The prompt builder: deterministic, consistent in its tokens, and never longer than it may be."""

from __future__ import annotations

from typing import Any

import pytest

from ooospec.errors import InvalidRequest, PromptTooLong
from ooospec.sidecar.prompt import MIN_DIALOGUE_TOKENS, PromptBuilder, WavePrompt
from tiny_models import tiny_tokenizer
from tiny_sidecar import MESSAGES, TOOLS


def make_builder(max_tokens: int = 8192, **settings: Any) -> PromptBuilder:
    return PromptBuilder(tiny_tokenizer(), max_tokens=max_tokens, **settings)


def text_of(builder: PromptBuilder, prompt: WavePrompt) -> str:
    return builder.decode(prompt.prefix).decode(errors="replace")


def test_the_prefix_ends_where_the_sidecar_answers() -> None:
    builder = make_builder(examples=False)
    prompt = builder.build(MESSAGES, TOOLS)
    assert text_of(builder, prompt) == (
        "<|im_start|>user\nRead the tools and the dialogue. Fill in the form for the next tool "
        "call: which function is called, and the value of each parameter as JSON, or null if the "
        "dialogue does not give it.\n\n"
        "# Tools\n"
        "1. set_alarm: Sets an alarm.\n"
        "   time (string)\n   repeat (boolean, optional)\n   label (string)\n"
        "2. get_weather: The weather of some days.\n"
        '   unit (one of "celsius", "kelvin", optional)\n   days (integer)\n   city (string)\n'
        "   near (array of string, optional)\n"
        "3. stop\n\n"
        "# Dialogue\nuser: What is the weather in Zürich, three days?\n\n"
        "# Form<|im_end|>\n<|im_start|>assistant\n"
    )


def test_questions_and_answers_are_a_line_each() -> None:
    builder = make_builder()
    prompt = builder.build(MESSAGES, TOOLS)
    assert builder.decode(prompt.question) == b"function:"
    assert {answer: builder.decode(tokens) for answer, tokens in prompt.options.items()} == {
        0: b" set_alarm\n",
        1: b" get_weather\n",
        2: b" stop\n",
        None: b" none\n",
    }
    assert [(slot.tool, slot.parameter, slot.required) for slot in prompt.slots] == [
        *((0, 0, True), (0, 1, False), (0, 2, True)),
        *((1, 0, False), (1, 1, True), (1, 2, True), (1, 3, False)),
    ]
    assert builder.decode(prompt.slots[0].question) == b"set_alarm.time:"
    assert builder.decode(builder.value_answer("Zürich")).decode() == ' "Zürich"\n'
    assert builder.decode(builder.value_answer(None)) == b" null\n"


def test_two_builders_build_the_same_tokens() -> None:
    first, second = make_builder().build(MESSAGES, TOOLS), make_builder().build(MESSAGES, TOOLS)
    assert first == second


def test_worked_examples_can_be_left_out() -> None:
    shown = make_builder()
    with_examples = text_of(shown, shown.build(MESSAGES, TOOLS))
    assert "# Example form\nfunction: book_table\n" in with_examples
    hidden = make_builder(examples=False)
    assert "Example" not in text_of(hidden, hidden.build(MESSAGES, TOOLS))


def test_requests_with_the_same_tools_share_all_up_to_the_dialogue() -> None:
    builder = make_builder()
    first = builder.build(MESSAGES, TOOLS).prefix
    second = builder.build([{"role": "user", "content": "Something else?"}], TOOLS).prefix
    shared = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert "# Dialogue\nuser: " in builder.decode(first[:shared]).decode()


def test_a_dialogue_with_calls_results_and_content_parts() -> None:
    call = {"type": "function", "function": {"name": "stop", "arguments": '{"now": true}'}}

    def part(text: str) -> dict[str, str]:
        return {"type": "text", "text": text}

    messages = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Stop "}, {"type": "text", "text": "it."}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": '{"ok": true}'},
        {"role": "assistant", "content": "Done."},
    ]
    builder = make_builder(examples=False)
    text = text_of(builder, builder.build(messages, TOOLS))
    assert text.split("# Dialogue\n")[1].split("\n\n# Form")[0] == (
        'system: Be brief.\nuser: Stop it.\nassistant: stop {"now": true}\n'
        'tool: {"ok": true}\nassistant: Done.'
    )


def test_without_a_chat_template_the_prompt_is_plain_text() -> None:
    tokenizer = tiny_tokenizer()
    template, tokenizer.chat_template = tokenizer.chat_template, None
    try:
        builder = PromptBuilder(tokenizer, max_tokens=8192, examples=False)
    finally:
        tokenizer.chat_template = template
    text = text_of(builder, builder.build(MESSAGES, TOOLS))
    assert text.startswith("Read the tools")
    assert text.endswith("\n\n# Form\n")


def test_schemas_as_users_write_them() -> None:
    parameters = {
        "properties": {
            "a": {"type": ["string", "null"]},
            "b": {"const": 3},
            "c": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "d": True,
            "e": {"type": "array"},
        }
    }
    tools = [
        {"type": "function", "function": {"name": "odd", "parameters": parameters}},
        {"type": "function", "function": {"name": "bare", "parameters": None}},
        {"name": "flat", "parameters": {"type": "object"}},
    ]
    builder = make_builder(examples=False)
    prompt = builder.build(MESSAGES, tools)
    assert len(prompt.slots) == 5
    assert (
        "1. odd\n   a (string or null, optional)\n   b (3, optional)\n   c (any, optional)\n"
        "   d (any, optional)\n   e (array, optional)\n2. bare\n3. flat\n"
    ) in text_of(builder, prompt)


def longest_branch(prompt: WavePrompt) -> int:
    branches = [len(prompt.question) + len(answer) for answer in prompt.options.values()]
    branches += [len(slot.question) + 48 for slot in prompt.slots]
    return len(prompt.prefix) + max(branches)


def test_c02_a_long_dialogue_keeps_its_end() -> None:
    builder = make_builder(512, examples=False)
    messages = [{"role": "user", "content": "lorem ipsum dolor " * 500}, *MESSAGES]
    prompt = builder.build(messages, TOOLS)
    assert longest_branch(prompt) == 512
    text = text_of(builder, prompt)
    assert "user: What is the weather in Zürich, three days?\n\n# Form" in text
    assert "set_alarm: Sets an alarm." in text
    assert prompt.num_cut > 1000


def many_tools(count: int) -> list[dict[str, Any]]:
    tools = []
    for i in range(count):
        described = {"type": "string", "description": "A rather long description of it. " * 3}
        tools.append(
            {
                "type": "function",
                "function": {
                    "name": f"tool_{i}",
                    "description": "Does this and that. " * 3,
                    "parameters": {"type": "object", "properties": {"argument": described}},
                },
            }
        )
    tools[count // 2]["function"]["name"] = "weatherReport"
    return tools


def test_tools_lose_their_descriptions_before_any_is_left_out() -> None:
    builder = make_builder(700, examples=False)
    prompt = builder.build(MESSAGES, many_tools(8))
    text = text_of(builder, prompt)
    assert "this and that" not in text
    assert {slot.tool for slot in prompt.slots} == set(range(8))
    assert longest_branch(prompt) <= 700


def test_of_too_many_tools_those_are_asked_about_that_the_dialogue_speaks_of() -> None:
    builder = make_builder(512, examples=False)
    prompt = builder.build(MESSAGES, many_tools(100))
    asked = {slot.tool for slot in prompt.slots}
    assert 50 in asked  # weatherReport
    assert 1 < len(asked) < 100
    assert set(prompt.options) == asked | {None}
    assert "51. weatherReport" in text_of(builder, prompt)  # under its own number
    assert longest_branch(prompt) <= 512


@pytest.mark.parametrize("max_tokens", [1, 128, 200])
def test_c02_what_does_not_fit_at_all_is_refused(max_tokens: int) -> None:
    with pytest.raises(PromptTooLong, match=f"of {max_tokens} tokens"):
        make_builder(max_tokens, examples=False).build(MESSAGES, many_tools(3))


def test_every_limit_is_kept_or_refused() -> None:
    messages = [{"role": "user", "content": "All the weather. " * 40}]
    num_built = 0
    for max_tokens in range(200, 900, 7):
        builder = make_builder(max_tokens, examples=False)
        try:
            prompt = builder.build(messages, many_tools(6))
        except PromptTooLong:
            assert num_built == 0, "a longer limit was refused after a shorter one"
            continue
        num_built += 1
        assert longest_branch(prompt) <= max_tokens
        assert len(text_of(builder, prompt).split("# Dialogue\n")[1]) >= MIN_DIALOGUE_TOKENS
    assert num_built > 50


def test_a_name_longer_than_any_value_counts() -> None:
    builder = make_builder(400, examples=False)
    tools = [{"function": {"name": "x1" * 40, "parameters": {}}}]
    prompt = builder.build([{"role": "user", "content": "lorem ipsum " * 200}], tools)
    assert longest_branch(prompt) == 400


def test_no_tools_are_an_error() -> None:
    with pytest.raises(InvalidRequest, match="at least one tool"):
        make_builder().build(MESSAGES, [])
