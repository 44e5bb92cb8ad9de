# SPDX-License-Identifier: Apache-2.0
"""The examples build and run, and say what the guide says they say."""

from __future__ import annotations

import random
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from ooospec import DraftTree
from ooospec.chains import best_chain
from tiny_models import tiny_model, tiny_tokenizer
from tiny_taught import taught_model

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "embedding.md").read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
def test_the_one_in_cpp(tmp_path: Path) -> None:
    """It needs CMake and a compiler, no Python."""
    settings = ["-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O0 -Wall -Wextra -Werror"]
    source = ROOT / "examples" / "cpp"
    for step in (
        ["cmake", "-S", str(source), "-B", str(tmp_path), *settings],
        ["cmake", "--build", str(tmp_path)],
        [str(tmp_path / "embed")],
    ):
        done = subprocess.run(step, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() in GUIDE


def test_the_one_in_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ROOT / "examples" / "python" / "embed.py"
    tiny_tokenizer().save_pretrained(tmp_path)
    tiny_model("qwen2").save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)  # of the class that goes with the model
    answer = (
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}\n'
        "</tool_call>"
    )
    properties = {"city": {"type": "string"}, "days": {"type": "integer"}}
    schema = {"type": "object", "properties": properties}
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Weather in Zürich, 3 days?"}],
        tools=[{"type": "function", "function": {"name": "get_weather", "parameters": schema}}],
        add_generation_prompt=True,
        return_dict=True,
    )["input_ids"]
    expected = [*tokenizer.encode(answer), tokenizer.eos_token_id]
    taught_model([(prompt, expected)]).save_pretrained(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), str(tmp_path)])
    found = runpy.run_path(str(path), run_name="__main__")
    assert found["ids"][len(prompt) :] == expected
    *text, count = capsys.readouterr().out.strip().split("\n")
    assert "\n".join(text) == answer + tokenizer.eos_token
    num_tokens, num_passes = map(int, re.findall(r"\d+", count))
    assert num_tokens == len(expected) > 4 * num_passes


@given(st.integers(0, 1 << 32), st.integers(0, 6))
def test_the_best_chain_is_the_best_of_all(seed: int, max_tokens: int) -> None:
    rng = random.Random(seed)
    tree = DraftTree(root=7)
    for _ in range(rng.randrange(12)):
        path = [rng.randrange(3) for _ in range(rng.randrange(1, 5))]
        tree.insert(rng.randrange(len(tree)), path, [rng.random() for _ in path], 1)
    tokens, parents = tree.tokens.tolist(), tree.parents.tolist()
    chains: list[tuple[list[int], float]] = [([], 0.0)]
    for node in range(1, len(tree)):
        above, expected = chains[parents[node]]
        chains.append(([*above, tokens[node]], expected + float(tree.probabilities[node])))
    best = max(expected for chain, expected in chains if len(chain) <= max_tokens)
    got = best_chain(tree, max_tokens)
    assert len(got) <= max_tokens
    assert {tuple(chain): e for chain, e in chains}[tuple(got)] == pytest.approx(best)
