# SPDX-License-Identifier: Apache-2.0
"""The fused backend against Hugging Face, under hostile drafts, and bit by bit.

On a CPU the operations are their references and the weights float32; on a GPU they are the kernels,
in bfloat16, and the shapes those of real models.
"""

from __future__ import annotations

import copy
import functools
import gc
import random
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import transformers

import equality
import ooospec
from ooospec import DraftTree, ops
from ooospec.backends.base import Ask, Segment
from ooospec.backends.fused import FusedBackend
from ooospec.backends.load import load_backend
from ooospec.bits import border_lengths, busy_device, check_bits
from ooospec.config import EngineConfig
from ooospec.engine import Engine
from ooospec.errors import UnsupportedModel
from ooospec.kv import Sequence
from ooospec.rows import Rows
from ooospec.sampling import Chooser, SamplingParams
from tiny_models import FAMILIES, tiny_model, tiny_tokenizer

CHUNK = 64
LENGTHS = {
    "qwen2": (1, 63),
    "qwen3": (64, 150),
    "llama": (65, 127),
    "mistral": (62, 128),
    "gemma3": (63, 130),
}
LLAMA_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.fixture(autouse=True)
def references() -> Iterator[None]:
    """On a CPU the references stand for the kernels, which have tests of their own."""
    with ops.using("reference") if not torch.cuda.is_available() else nullcontext():
        yield


@functools.cache
def fused(family: str, **options: Any) -> FusedBackend:
    return FusedBackend(tiny_model(family), tiny_tokenizer(), chunk=CHUNK, **options)


def random_tokens(count: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(len(tiny_tokenizer())) for _ in range(count)]


def prefilled(backend: FusedBackend, tokens: list[int]) -> tuple[Sequence, torch.Tensor]:
    sequence = Sequence(backend.new_pool(len(tokens) + 256))
    sequence.reserve(len(tokens) + 128)
    return sequence, backend.prefill(sequence, tokens)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_hugging_face(family: str) -> None:
    tokens = random_tokens(150)
    expected = tiny_model(family)(torch.tensor([tokens])).logits[0]
    sequence, last = prefilled(fused(family), tokens[:100])
    torch.testing.assert_close(last, expected[99], atol=1e-4, rtol=1e-4)
    rows = fused(family).forward([Segment(sequence, tokens[100:], range(100, 150))])[0]
    torch.testing.assert_close(rows, expected[100:], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(last, expected[99], atol=1e-4, rtol=1e-4)  # not overwritten


GEMMA_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
}


@pytest.mark.parametrize(("family", "rope"), [("llama", LLAMA_ROPE), ("gemma3", GEMMA_ROPE)])
def test_scaled_rotary_embeddings_are_the_models_own(family: str, rope: dict[str, Any]) -> None:
    tokens = random_tokens(90)
    model = tiny_model(family, rope_parameters=rope)
    expected = model(torch.tensor([tokens])).logits[0, -1]
    plain = tiny_model(family)(torch.tensor([tokens])).logits[0, -1]
    assert not torch.allclose(plain, expected, atol=1e-2)
    last = prefilled(FusedBackend(model, chunk=CHUNK), tokens)[1]
    torch.testing.assert_close(last, expected, atol=1e-4, rtol=1e-4)


def test_soft_caps_are_the_models_own() -> None:
    """D10: of scores of attention and of logits, both in reach of what is capped."""
    tokens = random_tokens(90)
    model = tiny_model("gemma2", attn_logit_softcapping=2.0, final_logit_softcapping=3.0)
    model.set_attn_implementation("eager")  # older versions of the others drop the cap
    expected = model(torch.tensor([tokens])).logits[0]
    backend = FusedBackend(model, chunk=CHUNK)
    sequence, last = prefilled(backend, tokens[:80])
    torch.testing.assert_close(last, expected[79], atol=1e-4, rtol=1e-4)
    rows = backend.forward([Segment(sequence, tokens[80:], range(80, 90))])[0]
    torch.testing.assert_close(rows, expected[80:], atol=1e-4, rtol=1e-4)
    without = tiny_model("gemma2", attn_logit_softcapping=None, final_logit_softcapping=3.0)
    assert not torch.allclose(without(torch.tensor([tokens])).logits[0], expected, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_embeddings_are_scaled_as_hugging_face_rounds_them(dtype: torch.dtype) -> None:
    model = tiny_model("gemma3").to(dtype)
    backend = FusedBackend(model, chunk=CHUNK)
    tokens = torch.arange(50)
    assert backend.weights.embed_scale is not None
    got = backend.weights.embed[tokens] * backend.weights.embed_scale
    assert torch.equal(got, model.model.embed_tokens(tokens))


def test_a_decoder_of_a_model_that_also_sees_is_taken() -> None:
    text = tiny_model("gemma3").config.to_dict()
    vision = {"hidden_size": 16, "intermediate_size": 16, "image_size": 28, "patch_size": 14}
    vision |= {"num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.Gemma3Config(text_config=text, vision_config=vision)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    tokens = random_tokens(90)
    expected = model(torch.tensor([tokens])).logits[0, -1]
    last = prefilled(FusedBackend(model, chunk=CHUNK), tokens)[1]
    torch.testing.assert_close(last, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["qwen2", "gemma3"])
def test_packing_leaves_the_model_as_it_was_and_its_weights_in_memory_once(family: str) -> None:
    tokens = torch.tensor([random_tokens(20)])
    model = tiny_model(family)
    expected = model(tokens).logits
    backend = FusedBackend(model, chunk=CHUNK)
    assert torch.equal(model(tokens).logits, expected)
    storages = {p.untyped_storage().data_ptr() for p in model.parameters()}
    for layer in backend.weights.layers:
        held = [
            value
            for name, value in vars(layer).items()
            if torch.is_tensor(value) and name != "cos_sin"
        ]
        assert {tensor.untyped_storage().data_ptr() for tensor in held} <= storages
    before = sum(p.numel() for p in tiny_model(family).parameters())
    assert sum(p.numel() for p in model.parameters()) == before


@pytest.mark.parametrize("family", FAMILIES)
def test_hostile_drafts_change_nothing(family: str) -> None:
    engine, counts = Engine(fused(family)), equality.Counts()
    for length in LENGTHS[family]:
        prompt = random_tokens(length, seed=length)
        expected = equality.reference(family, prompt, max_new_tokens=8)
        equality.assert_same(engine, prompt, expected, counts, max_tokens=8)
    counts.check(250, 60, 400)


def test_drafts_change_no_sampled_token_and_no_minimum_length() -> None:
    engine, counts = Engine(fused("qwen3")), equality.Counts()
    prompt = random_tokens(70)
    for seed, settings in enumerate(
        (
            {"temperature": 0.8},
            {"temperature": 1.5, "top_k": 20},
            {"temperature": 1.0, "top_p": 0.7, "min_tokens": 8},
        )
    ):
        how: dict[str, Any] = {"max_tokens": 10, "seed": seed, **settings}
        expected = engine.generate_ids(prompt, **how).token_ids
        assert expected != engine.generate_ids(prompt, **how | {"seed": seed + 9}).token_ids
        equality.assert_same(engine, prompt, expected, counts, **how)
    counts.check(300, 60, 900)


def test_a_second_turn_starts_from_the_chunks_of_the_first() -> None:
    engine = Engine(fused("llama"))
    first = random_tokens(3 * CHUNK)
    answer = engine.generate_ids(first, max_tokens=8).token_ids
    again = [*first, *answer, *random_tokens(5, seed=1)]
    warm = engine.generate_ids(again, max_tokens=8)
    assert warm.usage.cached_tokens == 3 * CHUNK
    cold = Engine(fused("llama")).generate_ids(again, max_tokens=8)
    assert warm.token_ids == cold.token_ids == equality.reference("llama", again, max_new_tokens=8)


def test_launches_are_cut_where_they_are_full() -> None:
    backend, tokens = fused("qwen2"), random_tokens(300)
    expected = tiny_model("qwen2")(torch.tensor([tokens])).logits[0]
    pool = backend.new_pool(9 * 256)
    segments = []
    for start in (10, 20, 30, 40, 50, 60, 70, 80, 90):  # more sequences than a launch may have
        sequence = Sequence(pool)
        sequence.reserve(220)
        backend.prefill(sequence, tokens[:start])
        segments.append(Segment(sequence, tokens[start : start + 100], range(start, start + 100)))
    segments[4].logits, segments[5].logits = "last", "none"
    got = backend.forward(segments)
    for start, segment, rows in zip(range(10, 100, 10), segments, got, strict=True):
        wanted = {"all": range(100), "last": range(99, 100), "none": range(0)}[segment.logits]
        want = expected[[start + i for i in wanted]]
        torch.testing.assert_close(rows, want, atol=1e-4, rtol=1e-4)


def check_first_launches(backend: FusedBackend) -> None:
    """Compares committed KV before and after the first launches of each kind, which a GPU runs
    several times to capture them.
    """
    pool = backend.new_pool(1024)
    sequences = [Sequence(pool) for _ in range(2)]
    for sequence in sequences:
        sequence.reserve(CHUNK + 200)
        backend.prefill(sequence, [*range(1, CHUNK + 70)])
    slots = [
        page * pool.page_size + place
        for sequence in sequences
        for page in sequence.pages
        for place in range(pool.page_size)
        if sequence.pages.index(page) * pool.page_size + place < sequence.length
    ]

    def committed() -> list[torch.Tensor]:
        return [layer[slots].clone() for layer in (*pool.keys, *pool.values)]

    before = committed()
    assert all(bool(layer.abs().sum(dim=(1, 2)).all()) for layer in before)
    rows = Rows.behind([], DraftTree(7), decodable=backend.decodable)
    for temperature in (0.0, 1.0):
        chooser = Chooser(SamplingParams(temperature=temperature, seed=0), backend.decodable, ())
        backend.verify(sequences[0], rows, chooser, 1, top8=False)
        backend.verify_together([Ask(one, rows, chooser, 1, False) for one in sequences])
    for was, now in zip(before, committed(), strict=True):
        assert torch.equal(was, now)


def test_first_launches_leave_committed_kv_alone() -> None:
    check_first_launches(FusedBackend(tiny_model("qwen3"), tiny_tokenizer(), chunk=CHUNK))


@pytest.mark.gpu
def test_on_a_gpu_captures_leave_committed_kv_alone() -> None:
    check_first_launches(FusedBackend(gpu_model("qwen2.5-0.5b"), chunk=CHUNK))


def test_bits_are_equal_and_a_planted_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = fused("qwen3")
    lengths = [*border_lengths(random.Random(0), 300, 2), 5]
    report = check_bits(backend, lengths)
    assert (report.num_cases, report.num_rows, report.differences) == (12, 288, [])
    keep = Sequence.keep

    def forgetful(sequence: Sequence, rows: Any) -> None:
        """Keeps a path's rows where they are, not where they belong."""
        keep(sequence, range(len(rows)))

    monkeypatch.setattr(Sequence, "keep", forgetful)
    assert {one.case for one in check_bits(backend, [70]).differences} >= {"tree", "packed"}


def test_the_cache_of_an_engine_goes_with_it_whoever_else_has_its_backend() -> None:
    backend = FusedBackend(tiny_model("qwen3"), tiny_tokenizer(), chunk=CHUNK)
    engines = [Engine(backend), Engine(backend)]
    answers = [engine.generate_ids([1, 2, 3], max_tokens=4).token_ids for engine in engines]
    assert answers[0] == answers[1]
    pools = [weakref.ref(engine.pool) for engine in engines]
    del engines[0]
    gc.collect()
    assert [pool() is None for pool in pools] == [True, False]
    assert engines[0].generate_ids([1, 2, 3], max_tokens=4).token_ids == answers[1]


def test_what_it_does_not_know_it_names() -> None:
    other = transformers.AutoModelForCausalLM.from_config(
        transformers.OlmoConfig(hidden_size=32, intermediate_size=32, num_hidden_layers=1)
    )
    with pytest.raises(UnsupportedModel, match="olmo is none of gemma2, gemma3_text, llama"):
        FusedBackend(other)
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    for family, odd, reason in (
        ("llama", {"attention_bias": True}, "o_proj has a bias"),
        ("llama", {"hidden_act": "relu"}, "activation is relu, none of silu, gelu_pytorch_tanh"),
        ("llama", {"rope_parameters": dynamic}, "depends on the length"),
        ("gemma3", {"use_bidirectional_attention": True}, "not causal"),
        ("gemma3", {"head_dim": 512}, "head_dim is 512, no multiple of 8 from 16 to 256"),
        ("qwen3", {"head_dim": 20}, "head_dim is 20"),
        ("qwen3", {"num_attention_heads": 17, "num_key_value_heads": 1}, "17 query heads share"),
    ):
        with pytest.raises(UnsupportedModel, match=reason):
            FusedBackend(tiny_model(family, **odd))
    for wrong in ({"num_sequences": 0}, {"num_sequences": 65}, {"chunk": 32}, {"chunk": 100}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            FusedBackend(tiny_model("qwen2"), **wrong)
    backend = fused("qwen2")
    sequence, _ = prefilled(backend, [1, 2, 3])
    with pytest.raises(ValueError, match="expected ids in"):
        backend.forward([Segment(sequence, [backend.num_embeddings], [3])])
    mask = torch.ones(65, 65, dtype=torch.bool).tril()
    with pytest.raises(ValueError, match="at most 64 rows, got 65"):
        backend.forward([Segment(sequence, [1] * 65, range(3, 68), mask)])
    with pytest.raises(ValueError, match="at least one token"):
        backend.prefill(sequence, [])


def test_load_backend_takes_it_when_asked() -> None:
    assert isinstance(load_backend(tiny_model("qwen2"), backend="fused"), FusedBackend)
    on_cpu = load_backend(tiny_model("qwen2"))
    assert on_cpu.level == "tested"  # the transformers backend


GEMMA: dict[str, Any] = {
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": 512,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
GPU_SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2.5-0.5b": ("Qwen2Config", dict(zip("chi", (896, 14, 4864), strict=True))),
    "qwen3-8b": ("Qwen3Config", dict(zip("chi", (4096, 32, 12288), strict=True))),
    "llama-3.2-3b": ("LlamaConfig", dict(zip("chi", (3072, 24, 8192), strict=True))),
    "mistral": ("MistralConfig", {"c": 2048, "h": 16, "i": 4096, "sliding_window": 200}),
    "gemma-3-270m": ("Gemma3TextConfig", {"c": 640, "h": 4, "i": 2048, **GEMMA, "g": 1}),
    "gemma-3-4b": ("Gemma3TextConfig", {"c": 2560, "h": 8, "i": 10240, **GEMMA, "g": 4}),
    "head_dim 80": ("Qwen3Config", {"c": 1280, "h": 16, "i": 3072, "g": 16, "head_dim": 80}),
    "head_dim 96": ("LlamaConfig", {"c": 3072, "h": 32, "i": 8192, "g": 32, "head_dim": 96}),
}


def gpu_model(
    name: str, num_layers: int = 3, vocab_size: int = 4000, dtype: torch.dtype = torch.bfloat16
) -> Any:
    """Returns random layers of a real shape."""
    config, shape = GPU_SHAPES[name]
    shape = dict(shape)
    sizes = {
        "hidden_size": shape.pop("c"),
        "num_attention_heads": shape.pop("h"),
        "intermediate_size": shape.pop("i"),
        "num_key_value_heads": shape.pop("g", 2 if name == "qwen2.5-0.5b" else 8),
        "num_hidden_layers": num_layers,
        "vocab_size": vocab_size,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
    }
    ids = {"eos_token_id": 0, "bos_token_id": None, "pad_token_id": None}
    if name != "qwen2.5-0.5b":
        shape.setdefault("head_dim", 128)
    torch.manual_seed(0)
    with torch.device("cuda"):
        settings = getattr(transformers, config)(**sizes, **ids, **shape)
        model = transformers.AutoModelForCausalLM.from_config(settings, dtype=dtype)
    return model.eval()


@pytest.mark.gpu
def test_on_a_gpu_hostile_drafts_change_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy and sampled, rounds that end on the device; a planted KV error is found."""
    model = gpu_model("qwen2.5-0.5b")
    model.model.embed_tokens.weight.data *= 20  # so that greedy answers wander
    engine, counts = Engine(FusedBackend(model)), equality.Counts()
    for number in range(24):
        rng = random.Random(number)
        prompt = [rng.randrange(1, 4000) for _ in range(rng.randint(1, 700))]
        how: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True}
        if number % 3 == 1:
            how |= {"temperature": 1.0, "seed": number}
        if number % 3 == 2:
            how |= {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "seed": number}
        expected = engine.generate_ids(prompt, **how).token_ids
        equality.assert_same(engine, prompt, expected, counts, **how)
    counts.check(20_000, 8_000, 50_000)

    equality.plant_kv_error(monkeypatch)
    with pytest.raises(AssertionError):
        equality.assert_same(engine, prompt, expected, counts, **how)


@pytest.mark.gpu
def test_on_a_gpu_answers_of_8b_parameters_run_freely() -> None:
    """200 answers at the whole size of Qwen3-8B, greedy and sampled, under large hostile trees."""
    model = gpu_model("qwen3-8b", num_layers=36, vocab_size=151_936)
    model.model.embed_tokens.weight.data *= 20
    engine, counts = Engine(FusedBackend(model)), equality.Counts()
    for number in range(200):
        rng = random.Random(number)
        prompt = [rng.randrange(1, 151_000) for _ in range(rng.randint(1, 600))]
        how: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}
        if number % 2:
            how |= {"temperature": rng.choice([0.5, 1.0]), "top_p": 0.95, "seed": number}
        expected = engine.generate_ids(prompt, **how).token_ids
        kinds = ["binary", "last_sibling"]
        equality.assert_same(engine, prompt, expected, counts, kinds, **how)
    counts.check(20_000, 10_000, 50_000)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    held = [*model.parameters(), *engine.pool.blocks]
    others = total - free - sum(part.numel() * part.element_size() for part in held)
    print(f"{others / 1e9:.2f} GB beside weights and KV cache")
    assert others <= 1e9


@pytest.mark.gpu
def test_on_a_gpu_a_thousand_requests_leave_nothing() -> None:
    model = gpu_model("qwen2.5-0.5b")
    engine = Engine(FusedBackend(model))
    num_free = engine.pool.num_free
    before: tuple[int, int] | None = None
    for number in range(1000):
        rng = random.Random(number)
        prompt = [rng.randrange(1, 4000) for _ in range(rng.randint(1, 400))]
        how: dict[str, Any] = {"temperature": 1.0, "seed": number} if number % 2 else {}
        engine.generate_ids(prompt, max_tokens=8, ignore_eos=True, **how)
        after = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        if number >= 10:
            before = before or after
            assert after == before, number
    engine.prefix_cache.evict(num_free)
    assert engine.pool.num_free == num_free


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", GPU_SHAPES)
def test_on_a_gpu_rows_are_exact_and_as_near_as_hugging_face(name: str, dtype: torch.dtype) -> None:
    model = gpu_model(name, dtype=dtype)
    tokens = [random.Random(i).randrange(4000) for i in range(660)]
    with torch.inference_mode():
        half = model(torch.tensor([tokens], device="cuda")).logits[0].float()
        exact = copy.deepcopy(model).float()(torch.tensor([tokens], device="cuda")).logits[0]
    backend = FusedBackend(model)
    sequence, last = prefilled(backend, tokens[:600])
    rows = backend.forward([Segment(sequence, tokens[600:], range(600, 660))])[0]
    got = torch.cat((last[None], rows[:-1]))

    def error(logits: torch.Tensor) -> float:
        return float((logits - exact[599:659]).norm() / exact[599:659].norm())

    assert error(got) <= 1.05 * error(half[599:659])
    lengths = border_lengths(random.Random(name), 3000, 4)
    report = check_bits(backend, lengths, beside=busy_device(backend.device))
    assert report.num_rows == 384
    assert report.differences == []


SAMPLED = {"temperature": 0.9, "seed": 5}
CAUTIOUS = {"temperature": 0.7, "top_p": 0.8, "seed": 1, "min_tokens": 6}


@pytest.mark.parametrize(
    ("sampling", "num_sequences"),
    [(({}, {}, {}), 8), ((SAMPLED, {}, CAUTIOUS), 8), ((SAMPLED, {}, CAUTIOUS), 2)],
    ids=["greedy", "each its own way", "in two launches"],
)
def test_requests_that_share_rounds_get_the_ids_of_plain_decoding(
    sampling: tuple[dict[str, Any], ...], num_sequences: int
) -> None:
    """I01: rows of several sequences in one launch, each choosing in its own way."""
    backend = fused("qwen3", num_sequences=num_sequences)
    engine = ooospec.load(backend, cost_model=False, config=EngineConfig(cache_tokens=1024))
    texts = ["The quick brown fox", "What is the weather in Zürich?", "Call it, then nap."]
    wanted = [
        {"messages": [{"role": "user", "content": text}], "max_tokens": 8, **options}
        for text, options in zip(texts, sampling, strict=True)
    ]
    expected = [engine.generate(method="ar", **one).token_ids for one in wanted]
    runs = [engine.run(engine.request(**one), "toolspec") for one in wanted]
    for run in runs:
        run.admit()
        run.begin()
        run.start()
    while going := [run for run in runs if not run.is_over]:
        engine.step(going)
        assert [run.error for run in going] == [None] * len(going)
    assert [run.generation().token_ids for run in runs] == expected
    for run in runs:
        run.close()
