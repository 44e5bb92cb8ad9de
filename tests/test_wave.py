# SPDX-License-Identifier: Apache-2.0
"""The wave: the same answers as each slot alone, sent once, in a useful order, and nothing held."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ooospec import HintKind
from ooospec._core import _C
from ooospec.backends.load import load_backend
from ooospec.errors import OutOfPages
from ooospec.sidecar.prompt import PromptBuilder, WavePrompt
from ooospec.sidecar.value import value_schema
from ooospec.sidecar.wave import WaveReport, WaveRunner
from ooospec.tokens import TokenTable
from tiny_models import tiny_model, tiny_tokenizer
from tiny_sidecar import FUNCTION, HINTS, MESSAGES, TOOLS, trained_model

MAX_TOKENS = 16  # of a value, where models are random
Hint = tuple[HintKind, int, int, str]


def make_runner(model: Any, *, chunk: int = 64, **settings: Any) -> WaveRunner:
    backend = load_backend(model, tokenizer=tiny_tokenizer(), chunk=chunk)
    limit = backend.context_limit
    builder = PromptBuilder(backend.tokenizer, max_tokens=limit, examples=False)
    return WaveRunner(backend, builder, **{"likely_within": math.inf} | settings)


def run_wave(
    runner: WaveRunner, prompt: WavePrompt, **settings: Any
) -> tuple[list[Hint], WaveReport]:
    ring, report = _C.HintRing(), WaveReport(7)
    runner.run(prompt, ring, report, **settings)
    hints: list[Hint] = []
    while (record := ring.try_pop()) is not None:
        assert record.request_id == 7
        hints.append((record.kind, record.tool, record.parameter, record.text))
    return hints, report


def num_held(runner: WaveRunner) -> int:
    """Pages that are neither free nor those of a cached prefix."""
    runner.prefixes.clear()
    return runner.pool.num_pages - runner.pool.num_free


@pytest.fixture(scope="module")
def trained() -> Any:
    return trained_model()


@pytest.fixture
def runner(trained: Any) -> Iterator[WaveRunner]:
    runner = make_runner(trained)
    yield runner
    runner.backend.close()


def string_tools(num_tools: int, num_parameters: int) -> list[dict[str, Any]]:
    """Tools whose parameters take any bare word, so that what a random model writes is a value."""
    parameters = {f"p{i}": {"type": "string"} for i in range(num_parameters)}
    schema = {"type": "object", "properties": parameters, "required": ["p1"]}
    return [{"function": {"name": f"tool_{i}", "parameters": schema}} for i in range(num_tools)]


def wandering_model(family: str, **overrides: Any) -> Any:
    """A random model that writes ASCII and likes line ends, so that it answers with short words."""
    model = tiny_model(family, **overrides)
    pieces = TokenTable(tiny_tokenizer()).pieces
    head = model.get_output_embeddings().weight
    with torch.no_grad():
        head[pieces.index(b"\n")] *= 3
        head[[i for i, piece in enumerate(pieces) if not piece.isascii()]] = 0
        head[tiny_tokenizer().all_special_ids] = 0
    return model


def answers_alone(model: Any, runner: WaveRunner, prompt: WavePrompt) -> dict[tuple[int, int], str]:
    """What Hugging Face's own decoding answers to each slot by itself, as hints."""
    found = {}
    for slot in prompt.slots:
        ids = torch.tensor([[*prompt.prefix, *slot.question]])
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=MAX_TOKENS
        )
        reader = _C.ValueReader()
        ended = False
        for token in output[0, ids.shape[1] :].tolist():
            ended = token in runner.backend.eos_ids or reader.feed(runner.builder.decode([token]))
            if ended:
                break
        hint = value_schema(slot.schema).to_hint(reader.answer) if ended else None
        if hint is not None:
            found[slot.tool, slot.parameter] = hint
    return found


def function_alone(model: Any, prompt: WavePrompt) -> int | None:
    """The likeliest function, each name scored by a plain pass over the whole text."""
    scores = {}
    for answer, tokens in prompt.options.items():
        ids = torch.tensor([[*prompt.prefix, *prompt.question, *tokens]])
        with torch.no_grad():
            logits = model(ids).logits[0].log_softmax(-1)
        rows = range(ids.shape[1] - len(tokens) - 1, ids.shape[1] - 1)
        scores[answer] = sum(float(logits[row, t]) for row, t in zip(rows, tokens, strict=True))
    return max(scores, key=lambda answer: scores[answer])


def values(hints: list[Hint]) -> dict[tuple[int, int], str]:
    found = {
        (tool, parameter): text for kind, tool, parameter, text in hints if kind == HintKind.VALUE
    }
    assert len(found) == sum(kind == HintKind.VALUE for kind, *_ in hints), "sent twice"
    return found


@pytest.mark.parametrize("kind", ["trained", "random"])
def test_a_packed_wave_answers_as_each_slot_alone(kind: str, trained: Any) -> None:
    model = trained if kind == "trained" else wandering_model("mistral")
    tools = TOOLS if kind == "trained" else string_tools(2, 4)
    alone_runner = make_runner(model, max_value_tokens=MAX_TOKENS)
    alone_runner.backend.close()
    prompt = alone_runner.builder.build(MESSAGES, tools)
    expected = answers_alone(model, alone_runner, prompt)
    function = function_alone(model, prompt)
    expected = {
        slot: text for slot, text in expected.items() if text != "null" or slot[0] == function
    }
    assert len(set(expected.values())) >= 2, "the model says too little to compare"
    for chunk, num_rows in ((512, 32), (64, 32), (64, 3), (16, 1)):
        runner = make_runner(model, chunk=chunk, num_rows=num_rows, max_value_tokens=MAX_TOKENS)
        for _ in range(2):  # cold and warm prefix
            hints, report = run_wave(runner, prompt)
            choice, tool, *_ = hints[0]
            assert (choice, tool) == (HintKind.FUNCTION, 0xFFFF if function is None else function)
            assert values(hints) == expected
            assert report.num_sent == len(expected)
        assert num_held(runner) == 0
        runner.backend.close()


def test_a_trained_sidecar_says_what_it_learnt_and_ends(runner: WaveRunner) -> None:
    prompt = runner.builder.build(MESSAGES, TOOLS)
    hints, report = run_wave(runner, prompt)
    assert hints[0] == (HintKind.FUNCTION, FUNCTION, 0, "")
    assert hints[-1] == (HintKind.END, 0, 0, "")
    assert values(hints[1:-1]) == HINTS
    assert report.outcome == "done"
    assert (report.num_slots, report.num_sent, report.num_unsaid) == (7, 6, 1)


@pytest.mark.parametrize("num_rows", [1, 32])
def test_functions_that_are_unlikely_are_not_asked_about(trained: Any, num_rows: int) -> None:
    runner = make_runner(trained, num_rows=num_rows, likely_within=7.0)
    hints, report = run_wave(runner, runner.builder.build(MESSAGES, TOOLS))
    wanted = {slot: text for slot, text in HINTS.items() if slot[0] == FUNCTION}
    assert values(hints) == wanted
    assert hints[-1] == (HintKind.END, 0, 0, "")
    assert (report.num_slots, report.num_sent, report.num_unsaid) == (7, 4, 3)
    assert num_held(runner) == 0
    runner.backend.close()


def test_slots_wait_for_rows_by_the_likelihood_of_their_function(trained: Any) -> None:
    runner = make_runner(trained, num_rows=1)
    hints, _ = run_wave(runner, runner.builder.build(MESSAGES, TOOLS))
    order = [(tool, parameter) for kind, tool, parameter, _ in hints if kind == HintKind.VALUE]
    # Those of the choice first, and of these the required ones.
    assert order == [(1, 1), (1, 2), (1, 0), (1, 3), (0, 0), (0, 1)]
    runner.backend.close()


@pytest.mark.parametrize("num_rows", [1, 4, 16])
def test_no_more_rows_than_asked_for_and_a_freed_row_is_refilled(num_rows: int) -> None:
    model = wandering_model("qwen2", max_position_embeddings=2048, num_hidden_layers=1)
    runner = make_runner(model, chunk=128, num_rows=num_rows, max_value_tokens=MAX_TOKENS)
    prompt = runner.builder.build(MESSAGES, string_tools(4, 10))
    widths: list[int] = []
    forward = runner.backend.forward

    def spy(segments: Any) -> Any:
        widths.append(sum(segment.logits == "last" for segment in segments))
        assert sum(len(segment.tokens) for segment in segments) <= 128
        return forward(segments)

    runner.backend.forward = spy  # type: ignore[method-assign]
    _, report = run_wave(runner, prompt)
    assert max(widths) == num_rows
    assert report.num_slots == 40
    full = [i for i, width in enumerate(widths) if width == num_rows]
    assert full[-1] - full[0] > 40 // num_rows, "rows ran dry while slots waited"
    runner.backend.close()


def test_a_value_has_at_most_48_tokens(trained: Any) -> None:
    model = tiny_model("qwen2")
    space = tiny_tokenizer()("x")["input_ids"][0]
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()
        model.get_output_embeddings().weight[space] = 1  # or never, by the sign of the sum
    runner = make_runner(model)
    hints, report = run_wave(runner, runner.builder.build(MESSAGES, string_tools(1, 2)))
    assert [kind for kind, *_ in hints] == [HintKind.FUNCTION, HintKind.ERROR]
    assert report.num_invalid == 2
    assert hints[-1][3] == "2 of 2 slots have no valid value"
    questions = len(report.steps) - 48
    assert all(step.num_rows == 2 for step in report.steps[questions + 1 :])
    runner.backend.close()


def test_cancelled_between_steps(runner: WaveRunner) -> None:
    prompt = runner.builder.build(MESSAGES, TOOLS)
    _, whole = run_wave(runner, prompt)
    runner.prefixes.clear()
    for num_steps in range(len(whole.steps)):
        asked = iter(range(num_steps + 1))
        hints, report = run_wave(
            runner, prompt, cancelled=lambda asked=asked, last=num_steps: next(asked) == last
        )
        assert report.outcome == "cancelled"
        assert len(report.steps) == num_steps
        assert HintKind.END not in {kind for kind, *_ in hints}
        assert num_held(runner) == 0


def test_names_longer_than_a_launch_are_scored_too(trained: Any) -> None:
    runner = make_runner(trained, chunk=16)
    tools = [{"function": {"name": name * 40}} for name in ("x1", "y2", "z3")]
    prompt = runner.builder.build(MESSAGES, tools)
    assert len(prompt.options[0]) > 32
    hints, report = run_wave(runner, prompt)
    runner.backend.close()
    function = function_alone(trained, prompt)
    assert hints[0][:2] == (HintKind.FUNCTION, 0xFFFF if function is None else function)
    assert report.outcome == "done"


def test_a_wave_that_is_not_wanted_computes_nothing(runner: WaveRunner) -> None:
    prompt = runner.builder.build(MESSAGES, TOOLS)
    hints, report = run_wave(runner, prompt, wants=lambda work: False)
    assert (hints, report.outcome, report.steps) == ([], "skipped", [])
    assert num_held(runner) == 0


def test_a_prefix_is_reused_within_a_tenant_only(runner: WaveRunner) -> None:
    prompt = runner.builder.build(MESSAGES, TOOLS)
    cold, first = run_wave(runner, prompt, tenant="a")
    warm, second = run_wave(runner, prompt, tenant="a")
    other, third = run_wave(runner, prompt, tenant="b")
    assert (first.num_cached_tokens, third.num_cached_tokens) == (0, 0)
    assert second.num_cached_tokens >= len(prompt.prefix) - 64
    assert cold == warm == other


def test_an_error_anywhere_leaves_no_page_held(runner: WaveRunner) -> None:
    prompt = runner.builder.build(MESSAGES, TOOLS)
    _, whole = run_wave(runner, prompt)
    runner.prefixes.clear()
    num_left = 0

    def fail(module: Any, args: Any, kwargs: Any) -> None:
        nonlocal num_left
        num_left -= 1
        if num_left == 0:
            raise MemoryError("no memory left")

    hook = runner.backend.model.register_forward_pre_hook(fail, with_kwargs=True)
    for num_steps in range(len(whole.steps)):
        num_left = num_steps + 1
        with pytest.raises(MemoryError):
            run_wave(runner, prompt)
        assert num_held(runner) == 0
    hook.remove()
    assert values(run_wave(runner, prompt)[0]) == HINTS


def test_few_pages_mean_fewer_rows_and_the_same_hints(runner: WaveRunner) -> None:
    prompt = runner.builder.build(MESSAGES, TOOLS)
    run_wave(runner, prompt)  # a prefix of another wave, which has to make room
    per_branch = (len(prompt.prefix) + 20 + 48) // 16 - len(prompt.prefix) // 16 + 1
    needed = (len(prompt.prefix) + 64) // 16 + 1 + 2 * per_branch
    held = runner.pool.allocate(runner.pool.num_free - 4)
    runner.pool.release(held[: needed - 4 - len(runner.prefixes) * 4])
    hints, _ = run_wave(runner, prompt)
    assert values(hints) == HINTS
    with pytest.raises(OutOfPages):
        runner.pool.allocate(runner.pool.num_pages)


@pytest.mark.parametrize(
    ("text", "schema", "hint"),
    [
        ('"Paris"', {"type": "string"}, '"Paris"'),
        ("Paris", {"type": "string"}, '"Paris"'),
        ("85", {"type": "string"}, '"85"'),
        ("true", {"type": "string"}, '"true"'),
        ('"Zürich \\u00e9"', {"type": "string"}, '"Zürich é"'),
        ('"half', {"type": "string"}, None),
        ('"\\ud800"', {"type": "string"}, None),
        ("", {"type": "string"}, None),
        ("null", {"type": "string"}, "null"),
        ('"85"', {"type": "integer"}, "85"),
        ("85.0", {"type": "integer"}, "85"),
        ("85.5", {"type": "integer"}, None),
        ("many", {"type": "integer"}, None),
        ("1e999", {"type": "integer"}, None),
        ("NaN", {"type": "number"}, None),
        ("1.50", {"type": "number"}, "1.50"),
        ('"1.5"', {"type": "number"}, "1.5"),
        ("Yes", {"type": "boolean"}, "true"),
        ('"False"', {"type": "boolean"}, "false"),
        ("1", {"type": "boolean"}, None),
        ('[ "a", 1 ]', {"type": "array"}, '["a",1]'),
        ('"a"', {"type": "array"}, None),
        ('{ "a" : [ ] }', {"type": "object"}, '{"a":[]}'),
        ("[" * 3000, {"type": "array"}, None),
        ("[" * 900 + "]" * 900, {"type": "object"}, None),
        ("Celsius", {"enum": ["celsius", "kelvin"]}, '"celsius"'),
        ('"rankine"', {"enum": ["celsius", "kelvin"]}, None),
        ('"2"', {"enum": [1, 2]}, "2"),
        ("true", {"enum": [1, 2]}, None),
        ('"half', {"enum": [None]}, None),
        ('"b"', {"const": "B"}, '"B"'),
        ("3", {"type": ["integer", "null"]}, "3"),
        ("three", {"type": ["integer", "string"]}, '"three"'),
        ("three", {"anyOf": [{"type": "integer"}]}, '"three"'),
        ("[1]", {"$ref": "#/$defs/x"}, "[1]"),
        ("x", {"type": "unheard-of"}, None),
    ],
)
def test_what_a_schema_makes_of_an_answer(
    text: str, schema: dict[str, Any], hint: str | None
) -> None:
    assert value_schema(schema).to_hint(text.encode()) == hint


KINDS = ("string", "integer", "number", "boolean", "array", "object")
SCHEMAS = st.sampled_from(
    [{}, {"enum": ["a", 1, None, True]}, {"const": 2}, *({"type": kind} for kind in KINDS)]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.text() | JSON.map(json.dumps), SCHEMAS)
def test_a_hint_is_compact_json_and_one_line(text: str, schema: dict[str, Any]) -> None:
    hint = value_schema(schema).to_hint(text.encode())
    if hint is not None:
        json.loads(hint)
        assert "\n" not in hint
        assert value_schema(schema).to_hint(hint.encode()) == hint


@given(JSON, st.text(), st.lists(st.integers(0, 60)))
def test_a_reader_ends_with_the_value_however_it_is_cut(
    value: Any, behind: str, cuts: list[int]
) -> None:
    text = json.dumps(value)
    data = f" {text}\n{behind}".encode()
    reader = _C.ValueReader()
    borders = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, stop in itertools.pairwise(borders):
        reader.feed(data[start:stop])
    assert reader.ended
    assert json.loads(reader.answer) == value
