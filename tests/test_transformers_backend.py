# SPDX-License-Identifier: Apache-2.0
"""Loading models, refusing those that cannot be exact, and launches of several sequences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers

import ooospec
from equality import CHUNK, Counts, assert_same, make_engine, reference, stock_model
from ooospec.backends import cpu_linear
from ooospec.backends.base import Segment
from ooospec.backends.cpu_linear import undo, use_onednn
from ooospec.backends.load import load_backend, merge_adapter
from ooospec.backends.transformers import TransformersBackend
from ooospec.engine import Engine
from ooospec.errors import AdapterMismatch, ModelNotFound, UnsupportedModel
from ooospec.kv import Sequence
from tiny_models import COMMON, FAMILIES, tiny_model, tiny_tokenizer

pytestmark = pytest.mark.filterwarnings(
    "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"  # PEFT on transformers 5.24
)
PROMPT = [20 + (7 * i) % 400 for i in range(40)]


def build(config_name: str, **settings: Any) -> Any:
    """Returns a random model of any architecture."""
    config = getattr(transformers, config_name)(**{**COMMON, "vocab_size": 64, **settings})
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(
        config,
        dtype=torch.float32,
        attn_implementation="eager",  # others ignore soft caps in some versions
    )


def stock_logits(family: str, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return stock_model(family)(input_ids=torch.tensor([tokens])).logits[0]


@pytest.mark.parametrize("num_padded_rows", [None, 64])
@pytest.mark.parametrize("family", FAMILIES)
def test_many_sequences_in_one_launch(family: str, num_padded_rows: int | None) -> None:
    """I01, I02: forks, strangers and trees in one launch, in any order, padded or not, get what the
    stock model gives each path by itself; only the wanted logits come back.
    """
    backend = TransformersBackend(tiny_model(family), chunk=CHUNK, num_padded_rows=num_padded_rows)
    pool = backend.new_pool(600)
    first = Sequence(pool)
    first.reserve(100)
    first_logits = backend.prefill(first, PROMPT)
    torch.testing.assert_close(first_logits, stock_logits(family, PROMPT)[-1], atol=2e-4, rtol=1e-4)
    fork = first.fork(100)
    backend.prefill(fork, [5, 6, 7])
    stranger = Sequence(pool)
    stranger.reserve(60)
    backend.prefill(stranger, PROMPT[:7])
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]).bool()
    segments = [
        Segment(first, [9, 10, 11, 12], [40, 41, 41, 42], mask),
        Segment(stranger, [3, 4], [7, 8], logits="last"),
        Segment(fork, [8, 9, 10], [43, 44, 45]),
        Segment(stranger.fork(20), [5], [7], logits="none"),
    ]
    logits = backend.forward(segments)
    assert [len(part) for part in logits] == [4, 1, 3, 0]
    assert [segment.sequence.num_rows for segment in segments] == [4, 2, 3, 1]
    expected = [
        (logits[0][1], [*PROMPT, 9, 10]),
        (logits[0][3], [*PROMPT, 9, 11, 12]),
        (logits[1][0], [*PROMPT[:7], 3, 4]),
        (logits[2][2], [*PROMPT, 5, 6, 7, 8, 9, 10]),
    ]
    for got, tokens in expected:
        torch.testing.assert_close(got, stock_logits(family, tokens)[-1], atol=2e-4, rtol=1e-4)
    first.keep([0, 2, 3])
    after = backend.forward([Segment(first, [1], [43])])[0]
    tokens = [*PROMPT, 9, 11, 12, 1]
    torch.testing.assert_close(after[0], stock_logits(family, tokens)[-1], atol=2e-4, rtol=1e-4)


def test_padding_changes_no_answer() -> None:
    model = tiny_model("qwen3")
    backend = TransformersBackend(model, tiny_tokenizer(), chunk=CHUNK, num_padded_rows=64)
    expected = reference("qwen3", PROMPT, max_new_tokens=20)
    kinds = ["last_sibling", "too_long", "noise"]
    assert_same(Engine(backend), PROMPT, expected, Counts(), kinds, max_tokens=20)


@pytest.mark.parametrize(
    ("config_name", "settings"),
    [
        ("Gemma2Config", {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0}),
        ("Gemma2Config", {"sliding_window": 16, "head_dim": 32}),
        ("Phi3Config", {"pad_token_id": 0}),
        ("GPTNeoXConfig", {}),
        ("Olmo2Config", {}),
        ("MixtralConfig", {"num_local_experts": 4}),
        (
            "Qwen3MoeConfig",
            {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
        ),
        ("SmolLM3Config", {"pad_token_id": 0, "no_rope_layer_interval": 2}),
        (
            "LlamaConfig",
            {
                "rope_parameters": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "rope_theta": 10000.0,
                    "original_max_position_embeddings": 16,
                }
            },
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_architectures_run_without_code_of_their_own(
    config_name: str, settings: dict[str, Any]
) -> None:
    """D10: soft caps; D22: YaRN behind its original length; experts, parallel layers, no RoPE."""
    stock = build(config_name, **settings)
    prompt = [(7 * i) % 60 + 1 for i in range(30)]
    inputs = torch.tensor([prompt])
    expected = stock.generate(
        inputs,
        attention_mask=torch.ones_like(inputs),
        do_sample=False,
        max_new_tokens=16,
        eos_token_id=63,
    )[0, 30:].tolist()
    engine = Engine(load_backend(build(config_name, **settings), chunk=CHUNK))
    engine.backend.eos_ids = frozenset({63})
    kinds = ["last_sibling", "binary"]
    assert_same(engine, prompt, expected, Counts(), kinds, max_tokens=16)


@pytest.mark.parametrize(
    ("config_name", "settings", "message"),
    [
        ("MambaConfig", {}, "recurrent state"),
        ("JambaConfig", {"num_experts": 1, "use_mamba_kernels": False}, "recurrent state"),
        ("Lfm2Config", {"layer_types": ["conv", "full_attention"]}, "layers of type conv"),
        (
            "LlamaConfig",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}},
            "RoPE of type dynamic",
        ),
        (
            "Phi3Config",
            {
                "pad_token_id": 0,
                "original_max_position_embeddings": 64,
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 10000.0,
                    "short_factor": [1.0] * 8,
                    "long_factor": [2.0] * 8,
                },
            },
            "RoPE of type longrope",
        ),
        ("GptOssConfig", {"num_local_experts": 4, "head_dim": 16}, "takes s_aux"),
        ("BloomConfig", {"n_layer": 2, "n_head": 4}, "attention"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_models_that_cannot_be_exact_are_refused(
    config_name: str, settings: dict[str, Any], message: str
) -> None:
    """A08: state that cannot roll back, angles that depend on other rows, attention out of
    reach.
    """
    with pytest.raises(UnsupportedModel, match=message):
        load_backend(build(config_name, **settings))


def test_an_encoder_decoder_is_refused() -> None:
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_ff=32, num_layers=1, num_heads=2, d_kv=16
    )
    with pytest.raises(UnsupportedModel, match="encoder-decoder"):
        load_backend(transformers.T5ForConditionalGeneration(config))


class Tampered:
    """Makes the attention module of a layer lie, as an unknown model might."""

    def __init__(self, model: Any, **attributes: Any) -> None:
        self.attention = model.model.layers[1].self_attn
        self.model = model
        for name, value in attributes.items():
            setattr(self.attention, name, value)


@pytest.mark.parametrize(
    ("family", "attributes", "message"),
    [
        ("qwen2", {"layer_idx": 0}, r"calls from layers \[0, 0\]"),
        ("qwen2", {"is_causal": False}, "not causal"),
        ("qwen2", {"sliding_window": 4}, r"sliding windows \[None, None\] by its config"),
        ("gemma3", {"sliding_window": None, "layer_idx": 1}, ""),
    ],
    ids=str,
)
def test_the_probe_looks_at_every_layer(
    family: str, attributes: dict[str, Any], message: str
) -> None:
    model = Tampered(tiny_model(family), **attributes).model
    if not message:  # layer 1 of this family has no window, so nothing is amiss
        load_backend(model)
        return
    with pytest.raises(UnsupportedModel, match=message):
        load_backend(model)
    assert model.config._attn_implementation != "ooospec_paged"


def test_a_model_whose_attention_differs_from_ours_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ooospec.backends import support

    attend = support.attend_pieces
    monkeypatch.setattr(
        support, "attend_pieces", lambda *args, **kwargs: attend(*args, **kwargs) * 1.01
    )
    with pytest.raises(UnsupportedModel, match="logits differ from its own attention's"):
        load_backend(tiny_model("llama"))


def test_close_gives_the_model_back() -> None:
    model = tiny_model("qwen2")
    backend = load_backend(model)
    inputs = torch.tensor([PROMPT])
    with pytest.raises(RuntimeError, match=r"call backend\.close\(\)"):
        model(input_ids=inputs)
    backend.close()
    with torch.inference_mode():
        got = model(input_ids=inputs).logits[0]
    torch.testing.assert_close(got, stock_logits("qwen2", PROMPT))


def test_a_model_that_was_given_back_is_never_run_with_attention_of_its_own() -> None:
    """Nor does a second close() take it away from who has it since."""
    model = tiny_model("qwen2")
    first = load_backend(model)
    second = load_backend(model)
    first.close()
    sequence = Sequence(second.new_pool(64))
    sequence.reserve(64)
    with pytest.raises(RuntimeError, match="expected one that this backend holds"):
        second.prefill(sequence, PROMPT)
    second.take()
    first.close()
    second.prefill(sequence, PROMPT)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("fewest", [1, 2])  # rows: of CPUs with AVX-512, and of others
def test_linear_layers_give_the_same_by_onednn(
    bias: bool, fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_linear, "_FEWEST", fewest)
    model = torch.nn.Sequential(torch.nn.Linear(70, 130, bias=bias), torch.nn.ReLU())
    rows = torch.randn(1, 33, 70)
    with torch.inference_mode():
        expected = [model(rows[:, :size]) for size in (1, 2, 33)]
        changed = use_onednn(model)
        assert changed == [model[0]]
        assert use_onednn(model) == []  # once
        got = [model(rows[:, :size]) for size in (1, 2, 33)]
        undo(changed)
        assert torch.equal(model(rows), expected[2])
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_ends_of_sequence_come_from_everywhere() -> None:
    """B15: a list in the generation config, and the tokenizer's own; padded ids are none."""
    model = tiny_model("qwen2", vocab_size=len(tiny_tokenizer()) + 10)
    model.generation_config.eos_token_id = [7, 9, len(tiny_tokenizer()) + 3]
    assert load_backend(model, tokenizer=tiny_tokenizer()).eos_ids == {7, 9, 2}
    model.generation_config.eos_token_id = None
    assert load_backend(tiny_model("qwen2"), tokenizer=tiny_tokenizer()).eos_ids == {2}


def test_ids_and_chunks_out_of_range_are_refused() -> None:
    backend = load_backend(tiny_model("qwen2"))
    sequence = Sequence(backend.new_pool(20))
    sequence.reserve(20)
    for token in (-1, backend.num_embeddings):
        with pytest.raises(ValueError, match=r"expected ids in \[0"):
            backend.forward([Segment(sequence, [1, token], [0, 1])])
    with pytest.raises(ValueError, match="at least one token"):
        backend.prefill(sequence, [])
    with pytest.raises(ValueError, match="expected a multiple of 16, got 17"):
        load_backend(tiny_model("qwen2"), chunk=17)


def test_prefill_keeps_to_absolute_borders_and_reports() -> None:
    """A08: chunks end at multiples of their size, wherever a prefix ended."""
    backend = load_backend(tiny_model("qwen2"), chunk=CHUNK)
    sequence = Sequence(backend.new_pool(100))
    sequence.reserve(100)
    done: list[int] = []
    backend.prefill(sequence, PROMPT[:5], done.append)
    backend.prefill(sequence, PROMPT[5:], done.append)
    assert done == [5, 11, 27, 35]
    assert sequence.length == 40


def test_costs_are_measured_for_each_count() -> None:
    costs = load_backend(tiny_model("qwen2")).measure_costs([1, 4, 16])
    assert len(costs) == 3
    assert all(cost > 0 for cost in costs)


def save(folder: Path, family: str = "qwen2", **overrides: Any) -> Path:
    tiny_model(family, **overrides).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def test_a_folder_loads_with_its_tokenizer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path)
    capfd.readouterr()
    engine = Engine(load_backend(tmp_path, device="cpu", chunk=CHUNK))
    assert capfd.readouterr().err == ""  # bars are for those who ask
    assert engine.backend.dtype == torch.float32
    assert engine.backend.description.startswith("Qwen2ForCausalLM 0.00B, float32 on cpu")
    assert engine.backend.level == "tested"
    expected = reference("qwen2", PROMPT, max_new_tokens=12)
    assert engine.generate_ids(PROMPT, max_tokens=12).token_ids == expected
    half = load_backend(str(tmp_path), dtype="bfloat16", device="cpu")
    assert (half.dtype, half.level) == (torch.bfloat16, "not checked")
    with pytest.raises(ValueError, match="dtype: expected a floating point type"):
        load_backend(str(tmp_path), dtype="int8")


def test_what_cannot_be_loaded_gets_one_error(tmp_path: Path) -> None:
    """Unknown model; weights that are not safetensors; code that would have to be trusted."""
    with pytest.raises(ModelNotFound, match=r"expected a folder or hub id .* got '.*nothing'"):
        load_backend(str(tmp_path / "nothing"))
    for odd in (None, 3, b"x", []):
        with pytest.raises(ModelNotFound, match="expected a folder, a hub id or a loaded model"):
            ooospec.load(odd)
    pickled = save(tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.save(tiny_model("qwen2").state_dict(), pickled / "pytorch_model.bin")
    with pytest.raises(ModelNotFound, match="safetensors"):
        load_backend(pickled)
    remote = save(tmp_path / "remote")
    config = json.loads((remote / "config.json").read_text())
    config["model_type"] = "unheard_of"
    config["auto_map"] = {"AutoModelForCausalLM": "code.Model", "AutoConfig": "code.Config"}
    (remote / "config.json").write_text(json.dumps(config))
    (remote / "code.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ModelNotFound, match="custom code"):
        load_backend(remote)


def make_adapter(folder: Path, **overrides: Any) -> Path:
    config = peft.LoraConfig(
        r=4, lora_alpha=64, target_modules=["q_proj", "v_proj"], init_lora_weights=False
    )
    torch.manual_seed(1)
    peft.get_peft_model(tiny_model("qwen2", **overrides), config).save_pretrained(folder)
    return folder


def test_an_adapter_is_merged(tmp_path: Path) -> None:
    """I06: the answer is that of the adapted model, with any draft."""
    adapter = make_adapter(tmp_path)
    adapted = peft.PeftModel.from_pretrained(tiny_model("qwen2"), adapter)
    inputs = torch.tensor([PROMPT])
    output = adapted.generate(
        input_ids=inputs,
        attention_mask=torch.ones_like(inputs),
        do_sample=False,
        max_new_tokens=20,
    )
    expected = output[0, len(PROMPT) :].tolist()
    assert expected != reference("qwen2", PROMPT, max_new_tokens=20)
    backend = load_backend(
        tiny_model("qwen2"), tokenizer=tiny_tokenizer(), adapter=adapter, chunk=CHUNK
    )
    assert_same(Engine(backend), PROMPT, expected, Counts(), ["right", "noise"], max_tokens=20)


@pytest.mark.parametrize(
    "overrides",
    [{"hidden_size": 48}, {"num_hidden_layers": 3}, {"num_hidden_layers": 1}],
    ids=["wider", "deeper", "shallower"],
)
def test_an_adapter_of_another_base_is_refused(tmp_path: Path, overrides: dict[str, Any]) -> None:
    adapter = make_adapter(tmp_path, **overrides)
    model = tiny_model("qwen2")
    with pytest.raises(AdapterMismatch, match=r"adapter: made for .* expected .* got"):
        merge_adapter(model, adapter)
    got = Engine(load_backend(model, tokenizer=tiny_tokenizer())).generate_ids(PROMPT, max_tokens=9)
    assert got.token_ids == reference("qwen2", PROMPT, max_new_tokens=9)


def test_an_adapter_for_other_modules_or_none_is_refused(tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "adapter")
    config = json.loads((adapter / "adapter_config.json").read_text())
    config["target_modules"] = ["c_attn"]
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(AdapterMismatch, match="other modules"):
        merge_adapter(tiny_model("qwen2"), adapter)
    with pytest.raises(ModelNotFound, match=r"adapter_model\.safetensors"):
        merge_adapter(tiny_model("qwen2"), tmp_path)


def test_sizes_of_one_family_share_a_tokenizer_and_not_a_vocabulary() -> None:
    """E01, E02: two padded sizes of one tokenizer both load, and both stay inside it."""
    size = len(tiny_tokenizer())
    for rows in (size + 3, size + 67):
        engine = make_engine("qwen2", vocab_size=rows)
        assert engine.backend.decodable == size
        assert max(engine.generate_ids(PROMPT, max_tokens=20).token_ids) < size
