# SPDX-License-Identifier: Apache-2.0
"""Training runs: the order of work, going on after a kill, early stop, and the adapter folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from ooospec.backends.load import merge_adapter
from ooospec.errors import InvalidRequest
from ooospec.train import trainer as trainer_module
from ooospec.train.branches import make_batch
from ooospec.train.config import TrainConfig
from ooospec.train.plan import epoch_steps, learning_rate, padded_tokens, passes
from ooospec.train.report import write_report
from ooospec.train.run import DEV, Run, open_run
from tiny_models import tiny_model, tiny_tokenizer
from tiny_sidecar import MESSAGES, TOOLS

WEATHER = {"name": "get_weather", "arguments": {"days": 3, "city": "Zürich"}}
ALARM = {"name": "set_alarm", "arguments": {"time": "06:30"}}


def rows() -> list[dict[str, Any]]:
    """Twelve requests; those of two tools with names of their own can be a dev split."""
    found: list[dict[str, Any]] = []
    for i in range(10):
        call = WEATHER if i % 2 else ALARM
        messages = [{"role": "user", "content": f"Number {i}, please."}]
        found.append({"id": f"r{i}", "messages": messages, "tools": TOOLS[: 2 + i % 2]})
        found[-1]["calls"] = [call]
    for i in range(2):
        tool = {"type": "function", "function": {"name": f"rare{i}"}}
        call = {"name": f"rare{i}", "arguments": {}}
        found.append({"id": f"d{i}", "messages": MESSAGES, "tools": [tool], "calls": [call]})
    return found


SETTINGS: dict[str, Any] = {
    "rank": 4,
    "alpha": 8.0,
    "where": "linear",
    "learning_rate": 5e-3,
    "step_requests": 4,
    "epochs": 3,
    "num_evaluations": 1,
    "dev_share": 0.17,
    "max_tokens": 1024,
    "steps": False,
}


def start(folder: Path, **settings: Any) -> Run:
    model = tiny_model("qwen2", num_hidden_layers=1, initializer_range=0.1)
    config = TrainConfig(**{**SETTINGS, **settings})
    return open_run((model, tiny_tokenizer()), rows(), [], config, folder, device="cpu")


def losses(run: Run) -> list[float]:
    list(run.trainer.run())
    return run.trainer.history.losses


def test_a_loss_that_is_no_number_ends_the_run_with_a_reason(tmp_path: Path) -> None:
    run = start(tmp_path)
    with torch.no_grad():
        next(weights for weights in run.model.parameters() if weights.requires_grad).fill_(
            torch.nan
        )
    with pytest.raises(InvalidRequest, match=r"finite loss, got nan at step 1.*learning-rate"):
        losses(run)
    assert not run.trainer.history.losses


def test_later_calls_are_trained_on_unless_told_otherwise(tmp_path: Path) -> None:
    several = [{**row, "calls": [*row["calls"], *row["calls"]]} for row in rows()]
    counts = []
    for steps in (False, True):
        config = TrainConfig(**{**SETTINGS, "steps": steps})
        model = tiny_model("qwen2", num_hidden_layers=1)
        run = open_run(
            (model, tiny_tokenizer()), several, [], config, tmp_path / str(steps), device="cpu"
        )
        counts.append((sum(run.data.train.values()), run.data.num_further, len(run.trainer.train)))
    num_train = counts[0][0]
    assert counts == [(num_train, 0, num_train), (num_train, num_train, 2 * num_train)]


def test_a_killed_run_goes_on_with_the_same_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = start(tmp_path / "whole", dropout=0.1)
    wanted = losses(whole)
    assert len(wanted) == whole.trainer.num_steps == 9
    assert wanted[-1] < wanted[0]
    monkeypatch.setattr(trainer_module, "CHECKPOINT_SECONDS", 0.0)
    first = start(tmp_path / "cut", dropout=0.1)
    running = first.trainer.run()
    for _ in range(4):
        next(running)
    del running
    second = start(tmp_path / "cut", dropout=0.1)
    assert second.trainer.history.losses == wanted[:4]
    assert losses(second) == wanted
    assert second.trainer.history.evaluations == whole.trainer.history.evaluations
    for name, tensor in whole.trainer.best_state.items():
        assert torch.equal(tensor, second.trainer.best_state[name])
    third = start(tmp_path / "cut", dropout=0.1)  # it has ended: nothing is left to do
    assert losses(third) == wanted
    with pytest.raises(InvalidRequest, match="a checkpoint of these settings and data"):
        start(tmp_path / "cut", dropout=0.2)


def test_separate_rows_and_layers_computed_again_give_the_losses_of_branches(
    tmp_path: Path,
) -> None:
    shared = start(tmp_path / "a", epochs=1)
    assert shared.trainer.shared
    assert shared.why_apart == ""
    wanted = losses(shared)
    apart = start(tmp_path / "b", epochs=1, rows="separate")
    assert apart.why_apart == "as told"
    assert losses(apart) == pytest.approx(wanted, rel=1e-3)
    again = start(tmp_path / "c", epochs=1, gradient_checkpointing=True)
    assert losses(again) == pytest.approx(wanted, rel=1e-4)


def test_it_stops_where_the_dev_split_gains_no_more(tmp_path: Path) -> None:
    run = start(tmp_path, learning_rate=1e-30, patience=1)  # too small to change a weight
    before = run.trainer.best_state
    assert len(losses(run)) < run.trainer.num_steps
    history = run.trainer.history
    assert history.stopped == "no better dev loss in 1 evaluations"
    assert history.best is history.evaluations[0]
    for name, tensor in before.items():
        torch.testing.assert_close(tensor, run.trainer.best_state[name], atol=1e-20, rtol=1e-6)


def test_the_folder_is_an_adapter_that_answers_as_the_trained_model(tmp_path: Path) -> None:
    run = start(tmp_path)
    losses(run)
    num_bytes = run.save("some/base")
    write_report(
        tmp_path,
        base="some/base",
        command="ooospec train",
        config=TrainConfig(**SETTINGS),
        data=run.data,
        history=run.trainer.history,
        num_bytes=num_bytes,
        shared=True,
    )
    with safe_open(tmp_path / "adapter_model.safetensors", framework="pt") as file:
        kinds = {file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
    assert kinds == {torch.bfloat16}
    assert json.loads((tmp_path / "adapter_config.json").read_text())["r"] == SETTINGS["rank"]
    base = tiny_model("qwen2", num_hidden_layers=1, initializer_range=0.1)
    merged = merge_adapter(base, tmp_path)
    batch = make_batch([run.trainer.train[0]])
    trained = run.trainer.scorer.logits(batch)
    run.trainer.scorer._base = merged
    found = run.trainer.scorer.logits(batch)
    torch.testing.assert_close(found, trained, atol=0.05, rtol=0.05)  # weights rounded to bfloat16
    assert [json.loads(line)["id"] for line in (tmp_path / DEV).read_text().splitlines()] == [
        "d0",
        "d1",
    ]
    card = (tmp_path / "README.md").read_text()
    assert "base_model: some/base" in card
    assert "learning_rate: 0.005" in card
    assert "![Loss and exact answers](curves.svg)" in card
    assert "<svg" in (tmp_path / "curves.svg").read_text()
    numbers = json.loads((tmp_path / "training.json").read_text())
    assert numbers["history"]["losses"] == run.trainer.history.losses


def test_bad_rows_are_counted_and_none_at_all_is_refused(tmp_path: Path) -> None:
    tiny = (tiny_model("qwen2", num_hidden_layers=1), tiny_tokenizer())
    bad = {"id": "x", "messages": MESSAGES, "tools": TOOLS, "calls": [{"name": "unknown"}]}
    with pytest.raises(InvalidRequest, match="expected a row to train on, got none"):
        open_run(tiny, [bad], [], TrainConfig(), tmp_path, device="cpu")
    run = open_run(tiny, [*rows(), bad], [], TrainConfig(max_tokens=1024), tmp_path, device="cpu")
    assert run.data.skipped == {"arguments that are no JSON object": 1}


def test_every_request_is_in_one_step_of_an_epoch_and_passes_keep_to_their_size(
    tmp_path: Path,
) -> None:
    config = TrainConfig(**SETTINGS)
    steps = epoch_steps(10, 0, config)
    assert sorted(i for step in steps for i in step) == list(range(10))
    assert steps != epoch_steps(10, 1, config)
    run = start(tmp_path)
    train = run.trainer.train
    for shared in (True, False):
        found = passes(train, 1024, shared=shared)
        assert all(len(one) == 1 or padded_tokens(one) <= 1024 for one in found)
        num_rows = sum(len(example.rows) for one in found for example in one)
        assert num_rows == sum(len(example.rows) for example in train)
    assert run.estimate.num_steps == run.trainer.num_steps
    assert run.estimate.memory_bytes > 0
    assert run.trainer.measure() > 0
    assert not run.trainer.history.losses


def test_the_rate_goes_up_and_then_down_to_nothing() -> None:
    config = TrainConfig(warmup=0.2, learning_rate=1.0)
    rates = [learning_rate(step, 10, config) for step in range(11)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[10] == pytest.approx(0)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rank": 0}, "rank: expected at least 1, got 0"),
        ({"alpha": 0.0}, "alpha: expected more than 0"),
        ({"dev_share": 1.0}, "dev_share: expected a share below 1"),
        ({"where": "all"}, "where: expected one of attention, linear, got 'all'"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TrainConfig(**settings)
