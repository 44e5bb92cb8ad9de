# SPDX-License-Identifier: Apache-2.0
"""What a target's answers are worth: whether their calls parse, and whether they are right."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

import torch

from ooospec.formats import answer_calls, tools_as_json
from ooospec.tiny.examples import chat_texts
from ooospec.tiny.model import CONTEXT
from ooospec.tiny.tokenizer import CALL_MARKS
from ooospec.tokens import TokenTable

MAX_ANSWER = 256  # tokens


@torch.no_grad()
def answers(model: Any, tokenizer: Any, requests: Seq[Mapping[str, Any]], rows: int) -> list[str]:
    """Returns the greedy answers to requests, `rows` at a time; "" to those that are too long."""
    table = TokenTable(tokenizer)
    prompts = [table.encode(chat_texts(tokenizer, request)[0]) for request in requests]
    fits = [i for i, prompt in enumerate(prompts) if len(prompt) + MAX_ANSWER <= CONTEXT]
    fits.sort(key=lambda i: len(prompts[i]))
    found = [""] * len(requests)
    for start in range(0, len(fits), rows):
        part = fits[start : start + rows]
        width = max(len(prompts[i]) for i in part)
        ids = torch.full((len(part), width), tokenizer.pad_token_id)
        mask = torch.zeros_like(ids)
        for row, i in enumerate(part):
            ids[row, width - len(prompts[i]) :] = torch.tensor(prompts[i])
            mask[row, width - len(prompts[i]) :] = 1
        written = model.generate(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            max_new_tokens=MAX_ANSWER,
            do_sample=False,
        )
        for row, i in enumerate(part):
            tokens = written[row, width:].tolist()
            if tokenizer.eos_token_id in tokens:
                tokens = tokens[: tokens.index(tokenizer.eos_token_id)]
            found[i] = table.decode_bytes(tokens).decode(errors="replace")
    return found


def shares(requests: Seq[Mapping[str, Any]], texts: Seq[str]) -> dict[str, dict[str, Any]]:
    """Returns right / asked of all requests and by family.

    parsed: of answers that begin a call, those whose calls are all of listed tools with JSON
    arguments. right: of all, those with exactly the reference calls, or with none where none is
    right. function: of requests with a call, those whose first call is of the right tool.
    """
    counts: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for request, text in zip(requests, texts, strict=True):
        calls = [
            (call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in answer_calls(text, tools_as_json(request["tools"]))
        ]
        wanted = [(call["name"], call["arguments"]) for call in request["calls"]]
        begun = text.count(CALL_MARKS[0])
        seen = {"right": calls == wanted}
        if begun:
            seen["parsed"] = len(calls) == begun
        if wanted:
            seen["function"] = bool(calls) and calls[0][0] == wanted[0][0]
        family = request.get("meta", {}).get("family")
        for name in ("all", *([family] if family else ())):
            for what, good in seen.items():
                counts[name][what][0] += good
                counts[name][what][1] += 1
    return {
        name: {
            what: {"share": right / asked, "right": right, "asked": asked}
            for what, (right, asked) in found.items()
        }
        for name, found in counts.items()
    }
