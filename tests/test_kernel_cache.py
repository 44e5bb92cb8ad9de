# SPDX-License-Identifier: Apache-2.0
"""Where compiled kernels are kept: K06."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from test_kernels_compile import KERNELS, start_compiler

pytest.importorskip("triton")

UNWRITABLE = "/proc"  # for root too


@pytest.fixture
def triton_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Triton's own settings, which are set back."""
    from triton import knobs

    monkeypatch.setenv("TRITON_CACHE_DIR", "")  # the setting sets it too
    with knobs.cache.scope():
        yield knobs.cache


@pytest.mark.parametrize("home", ["unwritable", "fresh"])
def test_processes_that_start_together_all_compile(home: str, tmp_path: Path) -> None:
    """With a home that cannot be written each has a folder of its own, gone when it ends, and says
    which variable helps; in a fresh one they share what they compile.
    """
    shared = tmp_path / "home"
    shared.mkdir()
    folders = tmp_path / "tmp"
    folders.mkdir()
    variables = {"HOME": UNWRITABLE if home == "unwritable" else str(shared)}
    variables |= {"TMPDIR": str(folders)}
    together = [start_compiler(90, KERNELS["kv_compact"], **variables) for _ in range(2)]
    own = []
    for process in together:
        out, err = process.communicate()
        assert process.returncode == 0, err
        assert len(re.findall(r"compiled \w+ shared \d+", out)) == 1
        said = re.search(r"/proc/\.triton/cache cannot be written .* into (\S+), .*", err)
        assert (said is not None) == (home == "unwritable")
        if said is not None:
            assert "set TRITON_CACHE_DIR to a folder that can be written" in said.group()
            own.append(said.group(1))
    assert len(set(own)) == len(own)
    assert not list(folders.glob("ooospec-triton-*"))
    assert bool(list(shared.glob(".triton/cache/*/*.cubin"))) == (home == "fresh")


def test_what_a_cache_that_cannot_be_written_holds_is_found(
    triton_cache: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    from ooospec.triton_kernels.cache import ensure_writable

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with caplog.at_level(logging.WARNING, "ooospec"):
        triton_cache.dir = str(tmp_path / "new" / "cache")
        ensure_writable()
        assert not caplog.records
        assert triton_cache.dir == str(tmp_path / "new" / "cache")
        triton_cache.dir = f"{UNWRITABLE}/self/fd"
        ensure_writable()
    own = Path(triton_cache.dir)
    assert own.parent == tmp_path
    assert own.stat().st_mode & 0o777 == 0o700
    assert {"0", "1", "2"} <= set(os.listdir(own))
    assert os.environ["TRITON_CACHE_DIR"] == str(own)
    assert "/proc/self/fd cannot be written" in caplog.text


def test_a_kernel_that_is_half_there_can_be_compiled(
    triton_cache: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is this process's own, with what there is of it."""
    from ooospec.triton_kernels import cache

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "shared" / "hash").mkdir(parents=True)
    (tmp_path / "shared" / "hash" / "kernel.ttir").write_text("known")

    def refuse(**how: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache.tempfile, "TemporaryFile", refuse)
    triton_cache.dir = str(tmp_path / "shared")
    cache.ensure_writable()
    own = Path(triton_cache.dir) / "hash"
    assert (own / "kernel.ttir").read_text() == "known"
    (own / "kernel.cubin").write_text("new")
    assert not (tmp_path / "shared" / "hash" / "kernel.cubin").exists()
