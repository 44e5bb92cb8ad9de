# SPDX-License-Identifier: Apache-2.0
"""Training rows as branches: the losses and gradients of separate rows, on every family."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from ooospec.sidecar.prompt import PromptBuilder
from ooospec.train.branches import Batch, Scorer, make_batch, separate
from ooospec.train.lora import attach_lora
from ooospec.train.rows import Example, make_example
from tiny_models import FAMILIES, tiny_model, tiny_tokenizer
from tiny_sidecar import MESSAGES, TOOLS

CALL = {"name": "get_weather", "arguments": {"days": 3, "city": "Zürich"}}


def examples() -> list[Example]:
    """Two requests whose prefixes differ in length."""
    builder = PromptBuilder(tiny_tokenizer(), max_tokens=1024, examples=False)
    row: dict[str, Any] = {"messages": MESSAGES, "tools": TOOLS, "call": CALL}
    other = {**row, "tools": TOOLS[:1], "call": None}
    return [make_example(builder, row), make_example(builder, other)]


def adapted(family: str, **settings: Any) -> Any:
    """A tiny float64 model with adapters that are not zero."""
    model = attach_lora(tiny_model(family, **settings).double(), "linear", 2, 4.0)
    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    return model


def run(scorer: Scorer, batches: list[Batch]) -> tuple[float, torch.Tensor, list[torch.Tensor]]:
    """Returns the loss, the losses of the rows and the gradients of the adapter."""
    scorer.model.zero_grad()
    total, rows = 0.0, []
    for batch in batches:
        score = scorer.score(batch)
        score.loss.backward()
        total += float(score.loss.detach())
        rows.append(score.row_losses)
    found = [weight.grad.clone() for weight in scorer.model.parameters() if weight.requires_grad]
    return total, torch.cat(rows), found


@pytest.mark.parametrize("family", FAMILIES)
def test_losses_and_gradients_are_those_of_separate_rows(family: str) -> None:
    scorer = Scorer(adapted(family))
    assert scorer.shared, scorer.why_not
    both = examples()
    shared = run(scorer, [make_batch(both)])
    alone = run(scorer, [make_batch([part]) for one in both for part in separate(one)])
    # Losses are float64 and differ in the order of sums: some thousand roundings of 1e-16 at most.
    assert shared[0] == pytest.approx(alone[0], rel=1e-11)
    torch.testing.assert_close(shared[1], alone[1], rtol=1e-11, atol=1e-11)
    # Norms hand gradients on in float32, one of all branches here and one of each branch there.
    scale = max(float(gradient.abs().max()) for gradient in alone[2])
    for one, other in zip(shared[2], alone[2], strict=True):
        assert float(one.abs().max()) > 0
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6 * scale)


def test_a_prefix_longer_than_a_window_is_cut_off_as_in_plain_sequences() -> None:
    (one, _), window = examples(), 16  # of the tiny Mistral
    assert len(one.prefix) > 2 * window
    changed = replace(one, prefix=(99, *one.prefix[1:]))
    scorer = Scorer(tiny_model("mistral", num_hidden_layers=1))
    with torch.no_grad():
        first, second = (scorer.logits(make_batch([example])) for example in (one, changed))
    assert torch.equal(first, second)


def test_a_branch_sees_the_prefix_and_itself_only() -> None:
    batch = make_batch(examples())
    allowed = batch.allowed
    for i, segments in enumerate(batch.segments.tolist()):
        for of in range(0, len(segments), 7):
            for to, segment in enumerate(segments):
                wanted = to <= of and segment in (0, segments[of])
                assert bool(allowed[i, 0, of, to]) == wanted


def test_the_last_row_of_a_batch_of_rows_is_causal_without_a_mask() -> None:
    batch = make_batch(separate(examples()[0]))
    assert not batch.branched
    assert batch.positions.unique(dim=0).tolist() == [list(range(batch.ids.shape[1]))]
    assert make_batch(examples()).branched


def test_eager_attention_takes_no_mask_of_ours_and_rows_stay_apart() -> None:
    model = tiny_model("qwen2")
    model.set_attn_implementation("eager")
    scorer = Scorer(model)
    assert not scorer.shared
    assert scorer.why_not == "a branch is not what it is alone"
    both = [part for one in examples() for part in separate(one)]
    assert torch.isfinite(scorer.score(make_batch(both)).loss)


def test_unknown_layers_are_run_apart() -> None:
    model = tiny_model("qwen2")
    model.config.layer_types = ["full_attention", "full_attention"]
    assert Scorer(model).shared
    scorer = Scorer(model)
    model.config.layer_types = ["full_attention", "chunked_attention"]
    assert "chunked_attention" in scorer._look_at_branches(torch.zeros(1))


def test_a_row_is_exact_where_greedy_decoding_writes_its_answer() -> None:
    model = tiny_model("qwen2")
    part = separate(examples()[0])[1]
    start = [*part.prefix, *part.rows[0].question]
    with torch.no_grad():
        ids = model.generate(
            torch.tensor([start]), max_new_tokens=3, do_sample=False, eos_token_id=None
        )
    answer = tuple(ids[0, len(start) :].tolist())
    right = replace(part, rows=(replace(part.rows[0], answer=answer),))
    wrong = replace(part, rows=(replace(part.rows[0], answer=(*answer[:-1], answer[-1] ^ 1)),))
    scorer = Scorer(model)
    with torch.no_grad():
        assert scorer.score(make_batch([right, wrong])).exact.tolist() == [True, False]


def test_the_answers_in_a_batch_are_those_of_the_example() -> None:
    (example, _) = examples()
    batch = make_batch([example])
    targets = batch.targets.tolist()
    assert targets == [token for row in example.rows for token in row.answer]
    assert batch.kinds == tuple(row.kind for row in example.rows)
    last = example.rows[-1]
    assert last.kind == "call"
    text = PromptBuilder(tiny_tokenizer(), max_tokens=99).decode(last.answer).decode()
    name, _, arguments = text.strip().partition(" ")
    assert (name, json.loads(arguments)) == (CALL["name"], CALL["arguments"])


def test_half_precision_runs_branches_and_trains_adapters_in_float32() -> None:
    plain = Scorer(adapted("qwen3").float())
    half = Scorer(adapted("qwen3").bfloat16(), autocast=torch.bfloat16)
    for name, weight in half.model.named_parameters():
        if "lora_" in name:
            weight.data = weight.data.float()
    assert half.shared, half.why_not
    wanted, found = (run(one, [make_batch(examples())]) for one in (plain, half))
    assert found[0] == pytest.approx(wanted[0], rel=0.05)
    assert all(gradient.dtype == torch.float32 for gradient in found[2])
    assert all(torch.isfinite(gradient).all() for gradient in found[2])
