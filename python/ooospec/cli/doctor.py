# SPDX-License-Identifier: Apache-2.0
"""`ooospec doctor`: what this machine has, what is missing, and how to mend it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

import ooospec.cli.options as opt
from ooospec.version import VERSION

DEFAULT_MODELS_BYTES = 6e9  # target, sidecar, their caches and graphs


@dataclass(frozen=True)
class Finding:
    """One line. state: "ok", "note" (works, but could be better) or "missing" (does not work)."""

    name: str
    state: str
    value: str
    advice: str = ""


def doctor(as_json: opt.Json = False) -> None:
    """Say what is here, what is missing and how to mend it; exit code 1 if something is missing.

    ooospec doctor

    ooospec doctor --json > doctor.json  (worth adding to a bug report)
    """
    findings = [finding for examine in EXAMINATIONS for finding in examine()]
    missing = [finding for finding in findings if finding.state == "missing"]
    if as_json:
        print(json.dumps({"ok": not missing, "findings": [asdict(one) for one in findings]}))
    else:
        _print(Console(), findings)
        print(f"missing: {', '.join(one.name for one in missing) or 'nothing'}")
    raise typer.Exit(1 if missing else 0)


def _print(console: Console, findings: list[Finding]) -> None:
    styles = {"ok": "green", "note": "yellow", "missing": "bold red"}
    for one in findings:
        mark = f"[{styles[one.state]}]{one.state:>7}[/]"
        console.print(
            f"{mark}  {one.name:<14} {escape(one.value)}", highlight=False, soft_wrap=True
        )
        if one.advice:
            console.print(f"{'':25}{escape(one.advice)}", style="dim", highlight=False)


def _versions() -> Iterator[Finding]:
    yield Finding("ooospec", "ok", f"{VERSION} in {Path(__file__).parents[1]}")
    yield Finding("Python", "ok", f"{platform.python_version()} in {sys.executable}")
    yield Finding(
        "system", "ok", f"{platform.platform()}, {' '.join(platform.libc_ver())}".strip(", ")
    )
    for name, needed in (
        ("torch", True),
        ("transformers", True),
        ("peft", False),
        ("triton", False),
    ):
        try:
            yield Finding(name, "ok", version(name))
        except PackageNotFoundError:
            what = {"peft": "needed for adapters", "triton": "needed for the GPU's fast path"}
            advice = f"{what.get(name, 'needed')}: pip install {name}"
            yield Finding(name, "missing" if needed else "note", "not installed", advice)


def _processor() -> Iterator[Finding]:
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((x.partition(": ")[2] for x in lines if x.startswith("model name")), name)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("CPU", "ok", f"{name}, {usable} cores to use")
    with suppress(OSError, ValueError, IndexError):
        found = dict(x.split(":", 1) for x in Path("/proc/meminfo").read_text().splitlines())
        total, free = (int(found[key].split()[0]) / 1e6 for key in ("MemTotal", "MemAvailable"))
        yield Finding("memory", "ok", f"{total:.1f} GB, {free:.1f} GB of it free")


def _gpu() -> Iterator[Finding]:
    try:
        import torch
    except ImportError as error:
        yield Finding("torch works", "missing", str(error), "reinstall torch: see pytorch.org")
        return
    if not torch.cuda.is_available():
        advice = ""
        if shutil.which("nvidia-smi"):
            advice = "there is a driver, but this torch has no CUDA: install torch for CUDA"
        yield Finding("GPU", "note" if advice else "ok", "none; models run on the CPU", advice)
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        card = torch.cuda.get_device_properties(index)
        memory = f"{card.total_memory / 1e9:.0f} GB, compute capability {card.major}.{card.minor}"
        advice = ""
        if card.total_memory < DEFAULT_MODELS_BYTES:
            advice = "too small for the default models: take smaller ones, or --device cpu"
        what = f"{card.name}, {memory}, CUDA {torch.version.cuda}"
        yield Finding(f"GPU {index}", "note" if advice else "ok", what, advice)
        yield _kernels(index)
    yield Finding("threads", "ok", f"{torch.get_num_threads()} of torch")


def _kernels(index: int) -> Finding:
    """Whether our kernels run on a GPU; they are tried out, at the largest shape."""
    import torch

    from ooospec.backends.kernels import trouble

    reason = trouble(torch.device("cuda", index), torch.bfloat16, 8, 4, 256)
    name = f"kernels {index}"
    if reason is None:
        return Finding(name, "ok", "tried out, they run")
    advice = "models run by torch's own operations there, which is slower but as exact"
    return Finding(name, "note", reason, advice)


def _core() -> Iterator[Finding]:
    try:
        from ooospec._core import _C
    except ImportError as error:
        advice = "pip install ooospec, or pip install . in a checkout; not from the source folder"
        yield Finding("core", "missing", str(error), advice)
        return
    yield Finding("core", "ok", str(_C.__file__))
    yield _cuda_core()
    try:
        yield Finding("hint ring", "ok", ring_test())
    except (AssertionError, OSError, RuntimeError) as error:
        advice = "hints between processes need memfd_create; --placement thread works without"
        yield Finding("hint ring", "missing", f"{type(error).__name__}: {error}", advice)


def _cuda_core() -> Finding:
    from ooospec._core import cuda_core

    try:
        core = cuda_core()
    except ImportError:
        has_gpu = shutil.which("nvidia-smi") is not None
        advice = "for the GPU's fast path install nvcc (CUDA 12 or newer), then pip install . anew"
        state = "note" if has_gpu else "ok"
        return Finding("CUDA core", state, "built without nvcc", advice if has_gpu else "")
    major, minor = divmod(core.RUNTIME_VERSION // 10, 100)
    archs = core.ARCHS.replace(";", ", ")
    return Finding("CUDA core", "ok", f"CUDA {major}.{minor}, for compute capability {archs}")


def ring_test() -> str:
    """Sends hints through shared memory, as a sidecar of its own process does; says how many."""
    from ooospec._core import _C

    ring = _C.HintRing(1 << 16, shared=True)
    writer = _C.HintRing.attach(ring.fd)
    num_sent = 1000
    for number in range(num_sent):
        pushed = writer.try_push(number, _C.HintKind.VALUE, 0, 1, 2, '"text"')
        assert pushed, f"record {number} was refused"
        got = ring.try_pop()
        assert got is not None, f"record {number} did not arrive"
        assert (got.request_id, got.text) == (number, '"text"'), f"record {number} arrived as {got}"
    return f"{num_sent} hints sent and read through shared memory"


def _models() -> Iterator[Finding]:
    try:
        from huggingface_hub import constants
    except ImportError:
        return
    cache = Path(constants.HF_HUB_CACHE)
    place = next(path for path in (cache, *cache.parents) if path.exists())
    free = shutil.disk_usage(place).free / 1e9
    if not os.access(place, os.W_OK):
        advice = "set HF_HOME to a folder that can be written"
        yield Finding("model cache", "note", f"{cache} cannot be written", advice)
    else:
        offline = ", offline" if constants.HF_HUB_OFFLINE else ""
        advice = "the default models need 4 GB; set HF_HOME to another disk" if free < 5 else ""
        state = "note" if advice else "ok"
        yield Finding("model cache", state, f"{cache}, {free:.0f} GB free{offline}", advice)


EXAMINATIONS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _versions,
    _processor,
    _gpu,
    _core,
    _models,
)
