# SPDX-License-Identifier: Apache-2.0
"""`generate(custom_generate=speculate, drafter=...)` gives the tokens of plain `generate`."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from transformers import StoppingCriteriaList, StopStringCriteria, TextStreamer
from transformers.generation import LogitsProcessor, LogitsProcessorList

from ooospec.bench.sidecars import RecordedSidecar
from ooospec.errors import InvalidRequest, UnsupportedModel
from ooospec.integrations.transformers import Speculator, speculate
from real_requests import RecordedAnswer, folder, requests
from tiny_models import tiny_model, tiny_tokenizer
from tiny_server import ANSWERS, TOOLS, taught, user

FAMILIES = ("qwen2", "qwen3", "llama", "gemma3")
PROMPT = [5 + (7 * i) % 480 for i in range(23)]
NUM_NEW = 40
HINT = 2  # the source


@functools.cache
def speculator(family: str) -> Speculator:
    """Returns one whose drafts are right, wrong and found in the prompt, whatever they cost."""
    return Speculator(
        tiny_model(family),
        tiny_tokenizer(),
        method="toolspec",
        chunk=16,
        sources=[RecordedAnswer],
        cost_model=False,
    )


def both(family: str, **options: Any) -> tuple[Any, Any]:
    """Returns what generate() gives plainly and with drafts, both after the same seed."""
    spec = speculator(family)
    model = spec.backend.model
    inputs = torch.tensor([PROMPT])
    asked = {"attention_mask": torch.ones_like(inputs), "max_new_tokens": NUM_NEW, **options}
    torch.manual_seed(1)
    expected = model.generate(inputs, **asked)
    ids = expected if isinstance(expected, torch.Tensor) else expected.sequences
    RecordedAnswer.answer = ids[0, len(PROMPT) :].tolist()
    torch.manual_seed(1)
    drafter = spec.drafter()
    got = model.generate(inputs, **asked, custom_generate=speculate, drafter=drafter)
    if len(RecordedAnswer.answer) > 8:
        assert drafter.metrics.tokens_per_round > 4
    return expected, got


class Shifted(LogitsProcessor):
    """Forbids the last token and what is as long away as the answer is long."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[:, (int(input_ids[0, -1]) + input_ids.shape[1]) % scores.shape[1]] = -torch.inf
        scores[:, input_ids[0, -1]] = -torch.inf
        return scores


class After:
    """Stops behind any of some ids."""

    def __init__(self, *ids: int) -> None:
        self.ids = ids

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        return torch.tensor([int(input_ids[0, -1]) in self.ids])


OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "one token": {"max_new_tokens": 1},
    "processed": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 30},
    "processed by the caller's own": {"logits_processor": LogitsProcessorList([Shifted()])},
    "sampled": {"do_sample": True, "temperature": 0.7, "top_k": 40, "top_p": 0.9},
    "sampled, processed": {"do_sample": True, "repetition_penalty": 1.2, "typical_p": 0.8},
    "stopped": {"stopping_criteria": StoppingCriteriaList([After(*range(0, 500, 9))])},
    "ended by several ids": {"eos_token_id": list(range(3, 500, 11))},
    "static cache": {"cache_implementation": "static"},
}


CASES = [("qwen2", name) for name in OPTIONS]
CASES += [(family, name) for family in FAMILIES[1:] for name in ("greedy", "sampled", "stopped")]


@pytest.mark.parametrize(("family", "name"), CASES)
def test_tokens_are_those_of_generate(family: str, name: str) -> None:
    expected, got = both(family, **OPTIONS[name])
    assert got.tolist() == expected.tolist()


def test_stop_strings_scores_and_logits() -> None:
    """A stop string may end in the middle of a block; scores have one entry a token."""
    plain, _ = both("qwen2")
    text = tiny_tokenizer().decode(plain[0, len(PROMPT) : len(PROMPT) + 12])
    criteria = StoppingCriteriaList([StopStringCriteria(tiny_tokenizer(), [text[-3:]])])
    expected, got = both(
        "qwen2",
        stopping_criteria=criteria,
        repetition_penalty=1.01,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
    )
    assert got.sequences.tolist() == expected.sequences.tolist()
    for name in ("scores", "logits"):
        one, other = torch.stack(got[name]), torch.stack(expected[name])
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


CALLS = [{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}]


@pytest.mark.parametrize("text", ANSWERS)
def test_a_dialogue_with_hints(text: str) -> None:
    model, tokenizer = taught(), tiny_tokenizer()
    spec = Speculator(model, tokenizer, chunk=16, sidecar=RecordedSidecar(CALLS), cost_model=False)
    prompt = tokenizer.apply_chat_template(
        user(text), tools=TOOLS, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    inputs = {name: prompt[name] for name in ("input_ids", "attention_mask")}
    num_prompt = inputs["input_ids"].shape[1]
    expected = model.generate(**inputs, max_new_tokens=120)
    drafter = spec.drafter(user(text), TOOLS)
    got = model.generate(**inputs, max_new_tokens=120, custom_generate=speculate, drafter=drafter)
    assert got.tolist() == expected.tolist()
    answer = tokenizer.decode(got[0, num_prompt:], skip_special_tokens=True)
    assert answer == ANSWERS[text]
    if text == "Weather?":
        assert drafter.metrics.accepted[HINT] > 8
        assert drafter.metrics.num_rounds <= 3
    spec.close()


def test_what_is_streamed(capsys: pytest.CaptureFixture[str]) -> None:
    spec, inputs = speculator("llama"), torch.tensor([PROMPT])
    model, asked = spec.backend.model, {"max_new_tokens": 12}
    mask = torch.ones_like(inputs)
    tokenizer = tiny_tokenizer()
    model.generate(
        inputs, attention_mask=mask, streamer=TextStreamer(tokenizer, skip_prompt=True), **asked
    )
    expected = capsys.readouterr().out
    to = TextStreamer(tokenizer)
    model.generate(
        inputs,
        attention_mask=mask,
        custom_generate=speculate,
        drafter=spec,
        stream_to=to,
        **asked,
    )
    assert capsys.readouterr().out == expected


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"num_beams": 2}, "custom_generate: expected one sequence, without beams"),
    ({"do_sample": True, "num_return_sequences": 2}, "got 2 sequences"),
    ({"output_attentions": True}, "output_attentions: expected False"),
    ({"output_hidden_states": True}, "output_hidden_states: expected False"),
    ({"guidance_scale": 1.5}, "guidance_scale: expected none, got 1.5"),
    ({"attention_mask": torch.tensor([[0] + [1] * 22])}, "attention_mask: expected ones only"),
    ({"position_ids": torch.arange(1, 24)[None]}, "position_ids: expected 0, 1, 2"),
    ({"streamer": TextStreamer(tiny_tokenizer())}, "streamer: expected stream_to="),
    ({"drafter": None}, "drafter: expected that of a Speculator"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    spec, inputs = speculator("qwen2"), torch.tensor([PROMPT])
    asked: dict[str, Any] = {"attention_mask": torch.ones_like(inputs), "max_new_tokens": 4}
    asked |= {"custom_generate": speculate, "drafter": spec, **options}
    with pytest.raises(InvalidRequest, match=message):
        spec.backend.model.generate(inputs, **asked)
    assert both("qwen2")[0].shape == (1, len(PROMPT) + NUM_NEW)  # it works as before


def test_a_cache_that_is_in_use_is_refused() -> None:
    spec, inputs = speculator("qwen2"), torch.tensor([PROMPT])
    first = spec.backend.model(inputs[:, :4], use_cache=True)
    used = getattr(first, "cache", None) or first.past_key_values
    name = "cache" if hasattr(first, "cache") else "past_key_values"
    with pytest.raises(InvalidRequest, match="expected an empty cache"):
        spec.backend.model.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=4,
            custom_generate=speculate,
            drafter=spec,
            **{name: used},
        )


def test_what_fails_leaves_the_model_as_it_was() -> None:
    spec = speculator("qwen3")
    model, inputs = spec.backend.model, torch.tensor([PROMPT])
    before = model(inputs).logits

    class Broken(LogitsProcessor):
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        model.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=4,
            logits_processor=LogitsProcessorList([Broken()]),
            custom_generate=speculate,
            drafter=spec,
        )
    assert torch.equal(model(inputs).logits, before)


def test_a_model_that_cannot_roll_back_is_refused() -> None:
    model = tiny_model("qwen2", rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    with pytest.raises(UnsupportedModel, match="dynamic"):
        Speculator(model, tiny_tokenizer())
    with pytest.raises(ValueError, match="method: expected one of"):
        Speculator(tiny_model("qwen2"), tiny_tokenizer(), method="x", cost_model=False)
    with pytest.raises(ValueError, match="needs draft_model="):
        Speculator(tiny_model("qwen2"), tiny_tokenizer(), method="draft", cost_model=False)


@pytest.mark.real
def test_a_real_model_on_real_requests() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = folder("OOOSPEC_CHECKPOINTS") / "qwen2.5-coder-0.5b"
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    sidecar = RecordedSidecar()
    spec = Speculator(model, tokenizer, sidecar=sidecar, cost_model=False)
    for row in requests("eval_apibank", 2):
        sidecar.calls = row["calls"]
        prompt = tokenizer.apply_chat_template(
            row["messages"],
            tools=row["tools"],
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
        )
        expected = model.generate(**prompt, max_new_tokens=40, do_sample=False)
        drafter = spec.drafter(row["messages"], row["tools"])
        got = model.generate(
            **prompt, max_new_tokens=40, do_sample=False, custom_generate=speculate, drafter=drafter
        )
        assert got.tolist() == expected.tolist(), row["id"]
        print(row["id"], drafter.metrics.num_committed, "tokens in", drafter.metrics.num_rounds)
    spec.close()
