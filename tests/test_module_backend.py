# SPDX-License-Identifier: Apache-2.0
"""Any model's own modules in launches of fixed shape: against Hugging Face, and bit by bit.

On a CPU the operations are their references; on a GPU they are the kernels, in CUDA graphs.
"""

from __future__ import annotations

import functools
import logging
import random
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import equality
from ooospec import ops
from ooospec.backends import kernels, load, program
from ooospec.backends.base import Segment
from ooospec.backends.fused import FusedBackend
from ooospec.backends.load import load_backend
from ooospec.backends.modules import ModuleBackend, unsuited
from ooospec.backends.program import Program
from ooospec.backends.transformers import TransformersBackend
from ooospec.bits import check_bits
from ooospec.engine import Engine
from ooospec.errors import UnsupportedModel
from ooospec.kv import Sequence
from ooospec.selfcheck import level_after
from tiny_models import FAMILIES, tiny_model, tiny_tokenizer

CHUNK = 64


@pytest.fixture(autouse=True)
def references() -> Iterator[None]:
    with ops.using("reference") if not torch.cuda.is_available() else nullcontext():
        yield


def module_backend(model: Any, tokenizer: Any = None) -> ModuleBackend:
    return ModuleBackend(TransformersBackend(model, tokenizer, chunk=CHUNK))


@functools.cache
def of_family(family: str) -> ModuleBackend:
    return module_backend(tiny_model(family), tiny_tokenizer())


def random_tokens(count: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(len(tiny_tokenizer())) for _ in range(count)]


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_hugging_face(family: str) -> None:
    backend, tokens = of_family(family), random_tokens(100)
    expected = tiny_model(family)(torch.tensor([tokens])).logits[0]
    sequence = Sequence(backend.new_pool(256))
    sequence.reserve(200)
    last = backend.prefill(sequence, tokens[:70])
    torch.testing.assert_close(last, expected[69], atol=1e-4, rtol=1e-4)
    rows = backend.forward([Segment(sequence, tokens[70:], range(70, 100))])[0]
    torch.testing.assert_close(rows, expected[70:], atol=1e-4, rtol=1e-4)
    assert backend.level == "self-checked"


@pytest.mark.parametrize("family", FAMILIES)
def test_hostile_drafts_change_nothing(family: str) -> None:
    engine, counts = Engine(of_family(family)), equality.Counts()
    prompt = random_tokens(67, seed=1)
    expected = equality.reference(family, prompt, max_new_tokens=8)
    equality.assert_same(engine, prompt, expected, counts, max_tokens=8)
    counts.check(80, 20, 150)


def test_bits_are_equal_over_other_borders_too() -> None:
    report = check_bits(of_family("qwen3"), [63, 129])
    assert (report.num_cases, report.differences) == (8, [])


class PerLaunch(torch.nn.Linear):
    """Rounds its input by the largest number of the launch, as dynamic quantisation does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        unit = x.abs().max() / 127
        return super().forward((x / unit).round() * unit)


def test_a_model_whose_rows_see_each_other_decodes_without_drafts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = tiny_model("qwen2")
    for layer in model.model.layers:
        layer.mlp.down_proj.__class__ = PerLaunch
    with caplog.at_level(logging.WARNING, "ooospec"):
        backend = module_backend(model, tiny_tokenizer())
    assert backend.level.startswith("not row-independent: ")
    assert "decodes without drafts" in caplog.text
    engine, counts = Engine(backend), equality.Counts()
    prompt = random_tokens(20)
    expected = engine.generate_ids(prompt, max_tokens=8).token_ids
    equality.assert_same(engine, prompt, expected, counts, max_tokens=8)
    assert counts.accepted == counts.rejected == 0


def test_experts_give_the_answer_of_hugging_face() -> None:
    """What the probe makes of them depends on how their products are cut; answers stay equal."""
    tokenizer = tiny_tokenizer()
    config = transformers.Qwen3MoeConfig(
        hidden_size=64,
        intermediate_size=96,
        moe_intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_experts=4,
        num_experts_per_tok=2,
        vocab_size=len(tokenizer),
        initializer_range=0.35,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    prompt = random_tokens(30)
    inputs = torch.tensor([prompt])
    output = model.generate(
        inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=8
    )
    backend = module_backend(model, tokenizer)
    assert backend.level == "self-checked" or backend.max_tree_rows == 1
    expected = output[0, len(prompt) :].tolist()
    equality.assert_same(Engine(backend), prompt, expected, equality.Counts(), max_tokens=8)


def test_a_level_says_what_was_checked_and_no_more() -> None:
    plain = TransformersBackend(tiny_model("qwen2").to(torch.bfloat16))
    assert plain.level == "not checked"
    assert level_after(plain, equal=True, has_bits=False) == "self-checked"
    assert level_after(plain, equal=True, has_bits=True) == "self-checked"
    tested = TransformersBackend(tiny_model("qwen2"))
    assert level_after(tested, equal=True, has_bits=True) == "tested"
    fused = FusedBackend(tiny_model("qwen2"), chunk=CHUNK)
    assert fused.level == "not checked"
    assert level_after(fused, equal=True, has_bits=False) == "self-checked"
    assert level_after(fused, equal=True, has_bits=True) == "bit-exact"
    for backend in (plain, tested, fused, of_family("qwen2")):
        assert level_after(backend, equal=False, has_bits=True).startswith("not exact: ")
    assert level_after(of_family("qwen2"), equal=True, has_bits=True) == "self-checked"


def test_what_the_kernels_are_not_for_is_named() -> None:
    for odd, reason in (
        ({"head_dim": 20}, "head_dim is 20, no multiple of 8"),
        ({"num_attention_heads": 17, "num_key_value_heads": 1}, "17 query heads share 1 kv heads"),
    ):
        plain = TransformersBackend(tiny_model("qwen3", **odd))
        assert reason in (unsuited(plain) or "")
        with pytest.raises(UnsupportedModel, match=reason):
            ModuleBackend(plain)
    with pytest.raises(ValueError, match="chunk: expected a multiple of 64, got 16"):
        ModuleBackend(TransformersBackend(tiny_model("qwen2"), chunk=16))


def test_closing_gives_the_model_back() -> None:
    model = tiny_model("qwen2")
    expected = model(torch.tensor([[1, 2, 3]])).logits
    backend = module_backend(model)
    backend.close()
    backend.close()
    torch.testing.assert_close(model(torch.tensor([[1, 2, 3]])).logits, expected)


def test_what_cannot_be_captured_runs_launch_by_launch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """J05: a capture that fails costs speed, not the request; the log says so once."""

    def fail(run: Any, device: torch.device) -> Any:
        raise program.NotCaptured("operation not permitted when stream is capturing")

    monkeypatch.setattr(program, "capture", fail)
    program._say_once.cache_clear()
    runs: list[int] = []
    with caplog.at_level(logging.WARNING, "ooospec"):
        for _ in range(2):
            work = Program(lambda: runs.append(1), torch.device("cuda"))
            work.replay()
            work.replay()
    assert len(runs) == 4
    assert caplog.text.count("no CUDA graph, its launches go one by one: operation not") == 1


def out_of_shared_memory(*args: Any, **kwargs: Any) -> None:
    from triton.runtime.errors import OutOfResources

    raise OutOfResources(163_840, 101_376, "shared memory")


def no_compiler(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.")


interpreted = pytest.mark.skipif(torch.cuda.is_available(), reason="takes kernels to a CPU")


def missing(name: str) -> None:
    """Stands for importlib's find_spec where a package is not installed."""


@interpreted
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (out_of_shared_memory, "OutOfResources: out of resource: shared memory, Required: 163840"),
        (no_compiler, "RuntimeError: Failed to find C compiler"),
        (missing, "Triton is not installed"),
    ],
)
def test_kernels_that_do_not_run_here_are_done_without(
    fault: Any,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """D16: found at load, not by the first request; one warning, and the answer is right."""
    pytest.importorskip("triton")
    monkeypatch.setattr(load, "_is_for_kernels", lambda model: True)
    if fault is missing:
        monkeypatch.setattr(kernels, "find_spec", missing)
    else:
        from ooospec.triton_kernels import tree_attention

        monkeypatch.setattr(tree_attention, "tree_attention", fault)
    with caplog.at_level(logging.WARNING, "ooospec"), ops.using("triton"):
        loaded = [
            load_backend(tiny_model("qwen2"), tokenizer=tiny_tokenizer(), backend=which)
            for which in ("auto", "transformers")
        ]
    assert [type(one) for one in loaded] == [TransformersBackend] * 2
    assert caplog.text.count("runs without attention kernels: ") == 2
    assert caplog.text.count(message) == 2
    prompt = random_tokens(20)
    expected = equality.reference("qwen2", prompt, max_new_tokens=6)
    for backend in loaded:
        assert Engine(backend).generate_ids(prompt, max_tokens=6).token_ids == expected


def test_a_model_too_large_for_the_gpu_runs_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless that very GPU was asked for."""
    tiny_model("qwen2").save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    move = torch.nn.Module.to

    def to(self: torch.nn.Module, *where: Any, **how: Any) -> torch.nn.Module:
        if torch.device("cuda") in where:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return move(self, *where, **how)

    monkeypatch.setattr(transformers.PreTrainedModel, "to", to)
    monkeypatch.setattr(load, "find_device", lambda device: torch.device(device or "cuda"))
    with caplog.at_level(logging.WARNING, "ooospec"):
        backend = load_backend(tmp_path)
    assert "does not fit the memory of the GPU" in caplog.text
    assert (backend.device.type, backend.dtype) == ("cpu", torch.float32)
    with pytest.raises(torch.OutOfMemoryError):
        load_backend(tmp_path, device="cuda")


def test_kernels_that_run_are_not_complained_about() -> None:
    pytest.importorskip("triton")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with ops.using("triton"):
        assert kernels.trouble(device, torch.float32, 2, 1, 16) is None


@pytest.mark.gpu
def test_on_a_gpu_a_capture_that_fails_leaves_the_stream_usable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x = torch.ones(4, device="cuda")
    stream = torch.cuda.current_stream()
    work = Program(lambda: x.mul_(float(x.sum()) / 4 + 1), x.device)
    program._say_once.cache_clear()
    with caplog.at_level(logging.WARNING, "ooospec"):
        work.replay()
    assert "no CUDA graph, its launches go one by one: " in caplog.text
    assert "stream is capturing" in caplog.text
    assert torch.randn(4, device="cuda").isfinite().all()
    assert torch.cuda.current_stream() == stream
    before = x.clone()
    work.replay()
    assert torch.equal(x, before * (before.mean() + 1))
    fine = Program(lambda: x.add_(1), x.device)
    fine.replay()
    assert bool(x.isfinite().all())


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_on_a_gpu_graphs_and_kernels_run_the_modules(family: str) -> None:
    model = tiny_model(family, head_dim=64, num_attention_heads=4).to("cuda", torch.bfloat16)
    tokens = random_tokens(100)
    with torch.inference_mode():
        half = model(torch.tensor([tokens], device="cuda")).logits[0].float()
    backend = load_backend(model, tokenizer=tiny_tokenizer(), backend="transformers")
    assert isinstance(backend, ModuleBackend)
    assert backend.level == "self-checked"
    sequence = Sequence(backend.new_pool(256))
    sequence.reserve(200)
    last = backend.prefill(sequence, tokens)
    assert float((last - half[-1]).norm() / half[-1].norm()) < 0.05
    engine, counts = Engine(backend), equality.Counts()
    expected = engine.generate_ids(tokens, max_tokens=30).token_ids
    equality.assert_same(engine, tokens, expected, counts, max_tokens=30)
    counts.check(300, 60, 400)
