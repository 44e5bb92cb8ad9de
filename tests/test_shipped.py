# SPDX-License-Identifier: Apache-2.0
"""Models that come with the package: their names are taken wherever a folder or hub id is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ooospec import shipped
from ooospec.backends.load import load_model
from ooospec.cli.main import run
from ooospec.cli.samples import TOOLS
from ooospec.shipped import SIDECAR, TARGET, shipped_folder
from ooospec.sidecar.prompt import was_trained
from ooospec.tiny.model import Shape, new_model
from ooospec.tiny.tokenizer import train_tokenizer

SHAPE = Shape(400, 32, 64, 1, 2, 1, 16)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with random models in the place of those that come with the package."""
    for name in (TARGET, SIDECAR):
        tokenizer = train_tokenizer([json.dumps(TOOLS)], SHAPE.num_tokens, chat=name == TARGET)
        folder = tmp_path / name.rpartition("/")[2]
        new_model(SHAPE, tokenizer, 0).to(torch.bfloat16).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    return tmp_path


def test_names_are_folders_where_the_package_has_them(
    pair: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert shipped_folder(TARGET) == pair / "tiny-target"
    assert shipped_folder(SIDECAR) == pair / "tiny-sidecar"
    assert shipped_folder("Qwen/Qwen3-8B") is None
    assert shipped_folder("tiny-target") is None
    tokenizers = [load_model(name, torch.float32)[1] for name in (TARGET, SIDECAR)]
    assert [was_trained(tokenizer) for tokenizer in tokenizers] == [False, True]
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "none")
    assert shipped_folder(TARGET) is None


@pytest.mark.parametrize(
    ("is_toy", "told", "expected"), [(True, None, [1, 7]), (True, "2", [7]), (False, None, [7])]
)
def test_toys_leave_the_other_cores_alone(
    is_toy: bool, told: str | None, expected: list[int], pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if told is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", told)
    num_threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", num_threads.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)  # as it is left
    sidecar = SIDECAR if is_toy else str(pair / "tiny-sidecar")
    options = ["--target", TARGET, "--sidecar", sidecar, "--device", "cpu"]
    assert run(["generate", "Hi", *options, "--max-tokens", "1"]) == 0
    assert num_threads == expected


def test_a_toy_of_your_own_choice_downloads_nothing(
    pair: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "--target", SIDECAR, "--device", "cpu"]) == 2
    captured = capsys.readouterr()
    assert f"sidecar: {SIDECAR} (a toy of" in captured.out
    assert "expected a tokenizer with a chat template" in captured.err


def test_the_demo_takes_the_toys_and_a_request_of_your_own(
    pair: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    args = ["demo", "Weather in Oslo on 3 May 2026?", "--tools", str(tools), "--device", "cpu"]
    assert run([*args, "--max-tokens", "24", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["equal"]
    assert [answer["method"] for answer in found["answers"]] == ["ooo", "toolspec", "ar"]
    assert f"target: {TARGET} (a toy of 0.0 million parameters" in captured.err
    assert "wave=always" in captured.err  # or the answer would be over before the hints are there
    assert "for a real one: --target Qwen/" in captured.err
    assert f"sidecar: {SIDECAR} (a toy of" in captured.err
