# SPDX-License-Identifier: Apache-2.0
"""The makers of the tiny models: their text, their training, and how their answers are counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from ooospec._core import _C
from ooospec.backends.load import load_backend
from ooospec.cli.main import run
from ooospec.errors import InvalidRequest
from ooospec.sidecar.prompt import was_trained
from ooospec.synth.generate import generate
from ooospec.target_text import TEMPLATE_SHARE, call_styles
from ooospec.tiny.__main__ import app
from ooospec.tiny.build import NUMBERS, Builder
from ooospec.tiny.card import CARD
from ooospec.tiny.evaluation import answers, shares
from ooospec.tiny.examples import ChatExamples, Recipe, WaveExamples, chat_texts, prepare
from ooospec.tiny.model import CONTEXT, Shape, new_model
from ooospec.tiny.tokenizer import train_tokenizer
from ooospec.tiny.training import Run, Settings, Steps, seconds_a_step, with_text
from ooospec.tokens import TokenTable
from ooospec.train.branches import Scorer, make_batch
from ooospec.train.rows import Example

SHAPE = Shape(700, 32, 64, 1, 2, 1, 16)


@pytest.fixture(scope="module")
def requests() -> list[Any]:
    return list(generate(60, seed=3))


@pytest.fixture(scope="module", params=[True, False], ids=["target", "sidecar"])
def tokenizer(request: pytest.FixtureRequest, requests: list[Any]) -> Any:
    return train_tokenizer(map(json.dumps, requests), SHAPE.num_tokens, chat=request.param)


def maker(tokenizer: Any) -> Callable[[Any], Example]:
    return ChatExamples(tokenizer) if tokenizer.chat_template else WaveExamples(tokenizer)


def test_tokenizers_write_any_text_and_say_what_they_are_for(
    tokenizer: Any, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert len(loaded) == len(tokenizer) == SHAPE.num_tokens
    table = TokenTable(loaded)
    for text in ("Zürich 12.5 € <tool_call>\n", "日本語 🧪\r\n  x", '{"a": [1, null]}'):
        assert table.decode_bytes(table.encode(text)) == text.encode()
    assert table.encode("907") == [*table.encode("9"), *table.encode("0"), *table.encode("7")]
    assert was_trained(loaded) == (not loaded.chat_template)
    vocab = _C.Vocab(table.pieces)
    assert isinstance(table.drafting_encoders(vocab)[0], _C.ByteBpe)


def test_answers_are_what_the_chat_template_and_the_call_reader_make_of_calls(
    requests: list[Any],
) -> None:
    tokenizer = train_tokenizer(map(json.dumps, requests), SHAPE.num_tokens, chat=True)
    assert call_styles(tokenizer)[0].probability == pytest.approx(TEMPLATE_SHARE)
    texts = []
    for request in requests:
        prompt, answer = chat_texts(tokenizer, request)
        assert prompt.endswith("<|im_start|>assistant\n")
        assert answer.endswith("<|im_end|>")
        texts.append(answer.removesuffix("<|im_end|>"))
        example = ChatExamples(tokenizer)(request)
        assert tokenizer.decode(example.prefix) == prompt
        assert tokenizer.decode(example.rows[0].answer) == answer
    found = shares(requests, texts)
    for name, one in found.items():
        assert all(what["share"] == 1.0 for what in one.values()), name
    assert found["all"]["right"]["asked"] == len(requests)
    assert found["all"]["function"]["asked"] == sum(bool(one["calls"]) for one in requests)


def test_words_are_cut_in_other_ways_that_say_the_same(requests: list[Any]) -> None:
    tokenizer = train_tokenizer(map(json.dumps, requests), SHAPE.num_tokens, chat=True)
    plain, varied = ChatExamples(tokenizer), ChatExamples(tokenizer, cuts=4)
    num_same, more = 0, 0
    for request in requests:
        one, other = plain(request), varied(request)
        for was, now in ((one.prefix, other.prefix), (one.rows[0].answer, other.rows[0].answer)):
            assert tokenizer.decode(now) == tokenizer.decode(was)
        num_same += one == other
        more += other.num_tokens - one.num_tokens
        name = request["calls"][0]["name"] if request["calls"] else ""
        pieces = varied.table_of(request).encode(f'"{name}"')
        assert len(pieces) >= len(TokenTable(tokenizer).encode(f'"{name}"'))
    assert 15 < num_same < 45  # of 60
    assert more > 1000
    assert prepare(Recipe(8, (), 4, cuts=4), varied, 2) == prepare(Recipe(8, (), 4), varied, 1)


def test_broken_and_wrong_calls_are_counted_as_such() -> None:
    request = next(generate(1, families=["one"]))
    call = json.dumps(request["calls"][0])
    good = f"<tool_call>\n{call}\n</tool_call>"
    other = good.replace(request["calls"][0]["name"], "no_such_tool")
    cut = good[: len(good) // 2]
    texts = [
        good,
        other,
        cut,
        "I cannot.",
        good.replace('"arguments": {', '"arguments": {"x": 1, '),
    ]
    found = shares([request] * 5, texts)["all"]
    assert (found["parsed"]["right"], found["parsed"]["asked"]) == (2, 4)
    assert (found["right"]["right"], found["right"]["asked"]) == (1, 5)
    assert found["function"]["right"] == 2


def test_examples_are_the_same_by_any_number_of_processes(tokenizer: Any) -> None:
    more = list(generate(5, seed=9))
    foreign = [{**more[0], "messages": [{"role": "user", "content": "天気" * 4000}]}]
    recipe = Recipe(20, [*more, *foreign], 4, repeat=2)
    once = prepare(recipe, maker(tokenizer), 1)
    assert len(once) == 30
    assert once[-5:] == once[:5]
    assert prepare(recipe, maker(tokenizer), 2) == once


def test_prefixes_are_asked_for_beside_the_answers(tokenizer: Any, requests: list[Any]) -> None:
    examples = [maker(tokenizer)(request) for request in requests[:3]]
    plain = make_batch(examples)
    batch = with_text(plain, examples, 0.5)
    more = len(batch.targets) - len(plain.targets)
    assert more == sum(len(example.prefix) - 1 for example in examples)
    assert batch.weights[-more:].unique().tolist() == [0.5]
    wanted = torch.tensor([token for one in examples for token in one.prefix[1:]])
    assert torch.equal(batch.targets[-more:], wanted)
    before = torch.tensor([token for one in examples for token in one.prefix[:-1]])
    assert torch.equal(batch.ids[batch.sequence, batch.index][-more:], before)


def start(tokenizer: Any, requests: list[Any], settings: Settings, folder: Path) -> tuple[Any, Run]:
    model = new_model(SHAPE, tokenizer, 0)
    examples = [maker(tokenizer)(request) for request in requests[:6]]
    return model, Run(Scorer(model), examples, settings, folder)


SETTINGS = Settings(num_steps=96, step_tokens=900, learning_rate=2e-2)


def test_training_learns_and_goes_on_where_it_was_ended(
    tokenizer: Any, requests: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ooospec.tiny.training.CHECKPOINT_SECONDS", 0.0)
    model, run = start(tokenizer, requests, SETTINGS, tmp_path / "whole")
    losses = list(run.run())
    assert len(losses) == SETTINGS.num_steps
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])
    _, ended = start(tokenizer, requests, SETTINGS, tmp_path / "parts")
    assert len(list(zip(range(33), ended.run(), strict=False))) == 33
    again, rest = start(tokenizer, requests, SETTINGS, tmp_path / "parts")
    assert 0 < len(rest.losses) < SETTINGS.num_steps
    assert [*rest.losses, *rest.run()] == losses
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    assert not list((tmp_path / "parts").iterdir())


def test_a_checkpoint_of_other_settings_is_refused(
    tokenizer: Any, requests: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ooospec.tiny.training.CHECKPOINT_SECONDS", 0.0)
    settings = replace(SETTINGS, num_steps=34, step_tokens=64)
    _, run = start(tokenizer, requests, settings, tmp_path)
    assert len(list(zip(range(33), run.run(), strict=False))) == 33
    with pytest.raises(InvalidRequest, match="expected a checkpoint of these settings"):
        start(tokenizer, requests, replace(settings, seed=1), tmp_path)
    with pytest.raises(InvalidRequest, match="expected at least one to train on"):
        start(tokenizer, [], settings, tmp_path / "none")


def test_steps_hold_every_example_once_an_epoch(tokenizer: Any, requests: list[Any]) -> None:
    examples = [maker(tokenizer)(request) for request in requests]
    steps = Steps(examples, Settings(num_steps=1000, step_tokens=2000))
    assert len(steps) == 1000
    seen: list[int] = []
    while len(seen) < len(examples):
        seen += steps._packs.pop(0)
    assert sorted(seen) == list(range(len(examples)))


def test_steps_are_timed_without_training(tokenizer: Any, requests: list[Any]) -> None:
    model = new_model(SHAPE, tokenizer, 0)
    before = [weights.clone() for weights in model.parameters()]
    examples = [maker(tokenizer)(request) for request in requests[:8]]
    assert seconds_a_step(Scorer(model), examples, SETTINGS) > 0
    for was, now in zip(before, model.parameters(), strict=True):
        assert torch.equal(was, now)
        assert now.grad is None


def test_answers_are_greedy_whatever_stands_beside_them(requests: list[Any]) -> None:
    tokenizer = train_tokenizer(map(json.dumps, requests), SHAPE.num_tokens, chat=True)
    model = new_model(SHAPE, tokenizer, 0).double().eval()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    few = requests[:3]
    assert answers(model, tokenizer, few, 3) == answers(model, tokenizer, few, 1)


@pytest.mark.parametrize("part", ["target", "sidecar"])
def test_the_command_writes_a_model_that_loads_and_its_numbers(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TARGET", "SIDECAR"):
        monkeypatch.setattr(f"ooospec.tiny.build.{name}", SHAPE)
    monkeypatch.setattr("ooospec.tiny.build._DEV_REQUESTS", 8)
    more = tmp_path / "more.jsonl"
    more.write_text("".join(json.dumps(one) + "\n" for one in generate(4, seed=8)))
    folder = tmp_path / part
    args = ["train", part, "--out", str(folder), "--synth", "30", "--requests", str(more)]
    args += ["--steps", "3", "--step-tokens", "1000", "--device", "cpu"]
    args += ["--strange", "0.5", "--unclear", "0.25", "--cuts", "3"]
    assert CliRunner().invoke(app, args).exit_code == 0
    numbers = json.loads((folder / NUMBERS).read_text())
    assert 30 <= numbers["sources"]["synth"] <= 38  # cut up, some are too long
    assert [numbers[name] for name in ("strange", "unclear", "cuts")] == [0.5, 0.25, 3]
    assert len(numbers["losses"]) == numbers["settings"]["num_steps"] == 3
    assert numbers["dev"]["synth, held out"]["loss"] > 0
    assert "--steps 3" in (folder / CARD).read_text()
    backend = load_backend(folder, device="cpu")
    assert backend.tokenizer is not None
    assert backend.context_limit >= CONTEXT
    further = tmp_path / "further"
    args[3] = str(further)
    assert CliRunner().invoke(app, [*args, "--start", str(folder)]).exit_code == 0
    assert json.loads((further / NUMBERS).read_text())["before"] == numbers
    assert (further / CARD).read_text().count(f"ooospec.tiny train {part} ") == 2
    begun = Builder(part, Recipe(1, ()), further, device="cpu", start=folder)
    for name, weight in load_backend(folder, device="cpu").model.state_dict().items():
        assert torch.equal(begun.model.state_dict()[name], weight), name
    other = "sidecar" if part == "target" else "target"
    for start, got in ((folder, f"got a {part} in"), (tmp_path, "got no")):
        with pytest.raises(InvalidRequest, match=f"expected the folder of a tiny {other}, {got}"):
            Builder(other, Recipe(1, ()), tmp_path / "further", device="cpu", start=start)
    if part == "target":
        out = tmp_path / "evaluation.json"
        args = ["evaluate", str(folder), "--out", str(out), "--held-out", "3", "--device", "cpu"]
        args += ["--requests", str(more), "--limit", "2"]
        assert CliRunner().invoke(app, args).exit_code == 0
        found = json.loads(out.read_text())
        assert found["held-out"]["shares"]["all"]["right"]["asked"] == 3
        assert found["more.jsonl"]["shares"]["all"]["right"]["asked"] == 2


def test_a_shipped_target_is_evaluated_by_its_name(tmp_path: Path) -> None:
    out = tmp_path / "evaluation.json"
    args = ["evaluate", "ooospec/tiny-target", "--out", str(out), "--held-out", "1"]
    assert CliRunner().invoke(app, [*args, "--device", "cpu"]).exit_code == 0
    assert json.loads(out.read_text())["held-out"]["shares"]["all"]["right"]["asked"] == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["train", "target", "--strange", "2"], "strange: expected a share from 0 to 1, got 2.0"),
        (["train", "target", "--nope"], "No such option: --nope"),
        (["train", "target", "--steps", "0"], "--steps"),
        (["train", "target", "--processes", "0"], "--processes"),
        (["evaluate", "nowhere"], "expected a folder or ooospec/tiny-target, got 'nowhere'"),
    ],
)
def test_wrong_options_are_one_sentence(
    args: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*args, "--out", str(tmp_path / "out")], app, "python -m ooospec.tiny") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
