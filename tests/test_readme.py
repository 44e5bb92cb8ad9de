# SPDX-License-Identifier: Apache-2.0
"""What the README shows is there: its Python runs, its commands and files exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ooospec.cli.main import run
from tiny_models import tiny_model, tiny_tokenizer

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Returns the code blocks of a language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [code for name, code in found if name == language]


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_model("qwen2", max_position_embeddings=4096).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    code, num_models = re.subn(r'"Qwen/[^"]+"', repr(str(tmp_path)), code)
    assert num_models > 0
    code = code.replace("[get_weather]\n", "[get_weather], max_tokens=16\n")
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out


def test_commands_have_the_options_they_are_shown_with(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for block in blocks("") for line in block.splitlines()]
    shown = [line.partition("#")[0] for line in lines if line.startswith("ooospec ")]
    assert shown
    for line in shown:
        assert run([line.split()[1], "--help"]) == 0
        known = capsys.readouterr().out
        for option in re.findall(r" (--[a-z-]+)", line):
            assert option in known, line


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_files_that_are_named_exist() -> None:
    for name in re.findall(r"`((?:bench|csrc|python|tests)/[\w/.-]+)`", README):
        assert (ROOT / name).exists(), name


def test_it_says_where_it_runs() -> None:
    assert "Windows is not supported" in README
    assert re.search(r"macOS builds from source and is\s+untested", README)
