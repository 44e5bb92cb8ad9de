# SPDX-License-Identifier: Apache-2.0
"""The adapters that come with the project: their files agree, and they say what their cards say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from ooospec.sidecar.placement import open_sidecar
from ooospec.sidecar.worker import SidecarConfig
from ooospec.train.evaluation import ask, wait_ready

ROOT = Path(__file__).parents[1]
ADAPTER = ROOT / "adapters" / "qwen2.5-coder-0.5b"
SETS = {  # of eval.json -> as README and card name them
    "dev split, all but synth": "dev split",
    "eval_apibank": "API-Bank",
    "eval_toolalpaca": "ToolAlpaca",
    "eval_bfcl_javajs": "BFCL Java and JavaScript",
}


def test_the_weights_are_small_and_of_the_rank_that_is_said() -> None:
    path = ADAPTER / "adapter_model.safetensors"
    assert path.stat().st_size <= 10_000_000
    config = json.loads((ADAPTER / "adapter_config.json").read_text())
    with safe_open(path, "pt") as tensors:  # type: ignore[no-untyped-call]
        names = list(tensors.keys())
        for name in names:
            tensor = tensors.get_tensor(name)
            assert tensor.dtype == torch.bfloat16
            assert config["r"] in tensor.shape
            assert torch.isfinite(tensor).all()
    modules = {name.split(".")[-3] for name in names}
    assert modules == set(config["target_modules"])


@pytest.mark.parametrize("file", [ROOT / "README.md", ADAPTER / "README.md"])
@pytest.mark.parametrize("key", SETS)
def test_its_numbers_are_those_of_the_evaluation(key: str, file: Path) -> None:
    found = json.loads((ADAPTER / "eval.json").read_text())["sets"][key]["sidecar"]
    lines = [line for line in file.read_text().splitlines() if line.startswith(f"| {SETS[key]}")]
    [line] = [line for line in lines if " % " in line]
    for what in ("function", "arguments"):
        share = found[what]["share"]
        assert share is None or f"{100 * share:.1f} %" in line
    assert f"| {found['bytes, arguments all right']:.0f} |" in line


def function(name: str, description: str, required: list[str], **types: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": required}
    named = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": named}


TOOLS = [
    function(
        "log_in", "Returns a session.", ["user", "password"], user="string", password="string"
    ),
    function(
        "send_parcel",
        "Sends a parcel. Needs a session.",
        ["session", "city"],
        session="string",
        city="string",
        weight_kg="number",
    ),
]
ASKED: list[tuple[list[dict[str, Any]], tuple[int | None, dict[int, Any]]]] = [
    (
        [{"role": "user", "content": "I am anna, my password is x7y. Send 3 kg to Ghent."}],
        (0, {0: "anna", 1: "x7y"}),
    ),
    (
        [
            {"role": "user", "content": "I am anna, my password is x7y. Send 3 kg to Ghent."},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "a",
                        "type": "function",
                        "function": {
                            "name": "log_in",
                            "arguments": '{"user": "anna", "password": "x7y"}',
                        },
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": '{"session": "s-4471"}'},
        ],
        (1, {0: "s-4471", 1: "Ghent", 2: 3}),
    ),
    ([{"role": "user", "content": "Thank you, that was all!"}], (None, {})),
]


@pytest.mark.real
def test_it_knows_what_comes_first() -> None:
    source = str(Path(os.environ["OOOSPEC_CHECKPOINTS"]) / "qwen2.5-coder-0.5b")
    sidecar = open_sidecar(
        SidecarConfig(source, adapter=str(ADAPTER), wave="always", device="cpu", dtype="float32")
    )
    try:
        wait_ready(sidecar)
        for number, (messages, (tool, values)) in enumerate(ASKED, 1):
            said = ask(sidecar, number, {"messages": messages, "tools": TOOLS})
            assert said.tool == tool, messages
            found = {i: json.loads(text) for (of, i), text in said.values.items() if of == tool}
            assert found == values
    finally:
        sidecar.close()
