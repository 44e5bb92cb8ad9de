# SPDX-License-Identifier: Apache-2.0
"""The toy models that come with the package, as they are: small, worth something, and answered
exactly by every method.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ooospec
from ooospec.backends.load import load_model
from ooospec.cli.main import run
from ooospec.cli.samples import TOOLS
from ooospec.methods import METHODS as ALL_METHODS
from ooospec.shipped import SIDECAR, TARGET, shipped_folder
from ooospec.sidecar.placement import open_sidecar
from ooospec.sidecar.ready import ReadySidecar
from ooospec.sidecar.worker import SidecarConfig
from ooospec.synth.generate import generate
from ooospec.tiny.card import write_card
from ooospec.tiny.evaluation import answers, shares
from ooospec.train.evaluation import Tally, evaluate, wait_ready

METHODS = [name for name in ALL_METHODS if name not in ("ar", "draft")]
MAX_TOKENS = 96
SEED = 77  # of requests that no training has seen
LEAST = {"tokens": 2_000, "accepted": 1_500, "rejected": 5_000}


@pytest.fixture
def sidecar() -> Iterator[Any]:
    found = ReadySidecar(open_sidecar(SidecarConfig(SIDECAR, wave="always", device="cpu")))
    wait_ready(found.sidecar)
    yield found
    found.close()


@pytest.fixture(scope="module")
def target() -> tuple[Any, Any]:
    return load_model(TARGET, torch.float32)


@pytest.mark.parametrize(("name", "most"), [(TARGET, 12e6), (SIDECAR, 5e6)])
def test_they_are_small_and_have_a_card(name: str, most: float, tmp_path: Path) -> None:
    folder = shipped_folder(name)
    assert folder is not None
    assert (folder / "model.safetensors").stat().st_size <= most
    card = (folder / "README.md").read_text()
    write_card(tmp_path, json.loads((folder / "training.json").read_text()))
    assert card == (tmp_path / "README.md").read_text()
    assert "license: apache-2.0" in card
    assert "To make it again, at revision" in card


def test_the_demo_needs_no_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--device", "cpu", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["equal"]
    by_method = {answer["method"]: answer for answer in found["answers"]}
    assert 2 * by_method["ooo"]["num_rounds"] < by_method["toolspec"]["num_rounds"]
    (call,) = by_method["ooo"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    arguments = {"city": "Oslo", "date": "2026-11-03", "unit": "celsius"}
    assert json.loads(call["function"]["arguments"]) == arguments
    assert "a toy of 5.8 million parameters, 12 MB; for a real one: --target" in captured.err


def test_a_wrong_answer_is_shown_equal_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    text = (
        "I need to book a flight from Paris to Tokyo. The departure date is March 14, 2027. "
        "Passengers: three."
    )
    assert run(["demo", text, "--tools", str(tools), "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"]
    (call,) = found["answers"][0]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["departure_date"] != "2027-03-14"


def test_every_method_gives_the_ids_of_hugging_face(
    target: tuple[Any, Any], sidecar: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    model, tokenizer = target
    engine = ooospec.load(TARGET, sidecar=sidecar, cost_model=False, device="cpu")
    counts = dict.fromkeys(LEAST, 0)
    for request in generate(8, seed=SEED, held_out=True):
        asked: Any = request["messages"], request["tools"]
        prompt = tokenizer.apply_chat_template(
            asked[0], tools=asked[1], add_generation_prompt=True, return_tensors="pt"
        )["input_ids"]
        written = model.generate(input_ids=prompt, max_new_tokens=MAX_TOKENS, do_sample=False)
        expected = written[0, prompt.shape[1] :].tolist()
        for method in ("ar", *METHODS):
            answer = engine.generate(*asked, method=method, max_tokens=MAX_TOKENS)
            assert answer.token_ids == expected, (request["id"], method)
            counts["tokens"] += len(expected)
            counts["accepted"] += sum(answer.metrics.accepted.values())
            counts["rejected"] += sum(answer.metrics.rejected.values())
    engine.close()
    with capsys.disabled():
        print(f"\ntoy pair: {counts}")
    assert all(counts[name] >= least for name, least in LEAST.items()), counts


def test_calls_parse_on_words_that_training_has_not(target: tuple[Any, Any]) -> None:
    requests = list(generate(60, seed=SEED, held_out=True))
    parsed = shares(requests, answers(*target, requests, 20))["all"]["parsed"]
    assert parsed["asked"] > 40
    assert parsed["share"] > 0.85  # 0.94 of 333 in bench/results/tiny.csv


def test_the_sidecar_knows_more_than_chance(sidecar: Any) -> None:
    requests = list(generate(40, seed=SEED))
    tally = Tally()
    tools = []
    for request, wanted, said in evaluate(sidecar.sidecar, requests):
        tally.add(request, wanted, said)
        tools.append(said.tool)
    again = [said.tool for _, _, said in evaluate(sidecar.sidecar, requests[:5])]
    assert again == tools[:5]  # of a sidecar that was asked before, too
    right, asked = tally.counts["function"]
    assert asked > 20
    assert right > 0.4 * asked  # of three tools or four
