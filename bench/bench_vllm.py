# SPDX-License-Identifier: Apache-2.0
"""Tokens a step inside vLLM, one request at a time: its own n-gram proposer (matches of 2 to 5,
which is better here than its default of 5) and ours, without a sidecar, with hints from reference
calls, and with perfect ones (the calls of the plain answer).

Every answer is compared with vLLM's plain one. A step is one forward pass behind the prefill; the
first token comes with that. "of the calls" counts answers that hold a call. Run it where vLLM is
installed; see docs/vllm.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from _harness import Report, parse_args
from _requests import read_requests, spread
from ooospec import ToolSet, parse_calls
from ooospec.bench.sidecars import RecordedListener
from ooospec.integrations.vllm.arrival import Arrivals

Answers = list[tuple[list[int], int]]  # ids and steps of each request


def run(
    args: Any,
    prompts: list[list[int]],
    options: dict[str, Any],
    asked: tuple[str, list[dict[str, Any]]] | None = None,
) -> Answers:
    """Returns what vLLM answers to each request, in a process of its own: a second engine in one
    process does not always start.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as pool:
        return pool.submit(answers_of, args, prompts, options, asked).result()


def answers_of(
    args: Any,
    prompts: list[list[int]],
    options: dict[str, Any],
    asked: tuple[str, list[dict[str, Any]]] | None,
) -> Answers:
    """run() in this process. asked: address of the sidecar that hears of each request as it comes,
    and what it hears; None: nobody does.
    """
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=args.target,
        enforce_eager=True,
        dtype=args.dtype,
        max_model_len=max(map(len, prompts)) + args.max_tokens + 1,
        max_num_seqs=1,
        enable_prefix_caching=False,
        seed=args.seed,
        **options,
    )
    engine: Any = llm.llm_engine
    step, num_steps = engine.step, 0

    def counted() -> Any:
        nonlocal num_steps
        num_steps += 1
        return step()

    engine.step = counted
    found: Answers = []
    arrivals = Arrivals(asked[0]) if asked else None
    for i, prompt in enumerate(prompts):
        note = None
        if arrivals is not None and asked is not None:
            body, _ = arrivals.note(json.dumps(asked[1][i]).encode())
            note = json.loads(body)["vllm_xargs"]
        params = SamplingParams(temperature=0, max_tokens=args.max_tokens, extra_args=note)
        before = num_steps
        (answer,) = llm.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)
        ids = list(answer.outputs[0].token_ids)
        found.append((ids, num_steps - before - 1))
    if arrivals is not None:
        arrivals.close()
    return found


def ours(args: Any, **settings: Any) -> dict[str, Any]:
    return {
        "speculative_config": {
            "model": "ooospec.integrations.vllm.Proposer",
            "num_speculative_tokens": args.drafted,
        },
        "additional_config": {"ooospec": {"pay": args.pay, **settings}},
    }


def ngram(args: Any, shortest: int, longest: int) -> dict[str, Any]:
    return {
        "speculative_config": {
            "method": "ngram",
            "num_speculative_tokens": args.drafted,
            "prompt_lookup_min": shortest,
            "prompt_lookup_max": longest,
        }
    }


def hinted(args: Any, rows: list[dict[str, Any]], prompts: list[list[int]], calls: Any) -> Answers:
    """Returns the answers with hints that say `calls`, a list for each row."""
    by_dialogue = {json.dumps(row["messages"]): said for row, said in zip(rows, calls, strict=True)}
    listener = RecordedListener(lambda messages: by_dialogue.get(json.dumps(messages), []))
    bodies = [{"messages": row["messages"], "tools": row["tools"]} for row in rows]
    # The first request of a session comes too late for its own hints: a short one goes before.
    options = ours(args, sidecar=listener.address)
    asked = listener.address, [bodies[0], *bodies]
    answers = run(args, [prompts[0][-16:], *prompts], options, asked)[1:]
    listener.close()
    return answers


def calls_of(text: str, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [call for call in parse_calls(text, ToolSet(json.dumps(tools))) if call.tool >= 0]
    return [{"name": call.name, "arguments": json.loads(call.arguments)} for call in found]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True, help="model folder")
    parser.add_argument("--data", type=Path, required=True, help="folder of the request files")
    parser.add_argument("--file", default="eval_apibank")
    parser.add_argument("--count", type=int, default=20, help="requests")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--drafted", type=int, default=16, help="num_speculative_tokens")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--case", action="append", help="run this one and plain (all)")
    parser.add_argument("--pay", action="store_true", help="cut drafts where they do not pay")
    args = parse_args(__doc__ or "", parser)
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    rows = spread(read_requests(args.data, args.file), 2 if args.smoke else args.count)
    tokenizer = AutoTokenizer.from_pretrained(args.target)
    prompts = [
        tokenizer.apply_chat_template(
            row["messages"], tools=row["tools"], add_generation_prompt=True, return_dict=True
        )["input_ids"]
        for row in rows
    ]
    report = Report("vllm", args)
    plain = run(args, prompts, {})
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids, _ in plain]
    perfect = [calls_of(text, row["tools"]) for text, row in zip(texts, rows, strict=True)]
    cases = {
        "plain": lambda: plain,
        "ngram": lambda: run(args, prompts, ngram(args, 2, 5)),
        "ooospec, no sidecar": lambda: run(args, prompts, ours(args)),
        "ooospec, reference hints": lambda: hinted(
            args, rows, prompts, [row["calls"] for row in rows]
        ),
        "ooospec, perfect hints": lambda: hinted(args, rows, prompts, perfect),
    }
    report.add("all", "requests", len(rows), "requests")
    report.add("all", "with a call", sum(map(bool, perfect)), "requests")
    for case, answer in cases.items():
        if args.case and case not in ("plain", *args.case):
            continue
        answers = answer()
        equal = sum(got[0] == expected[0] for got, expected in zip(answers, plain, strict=True))
        report.add(case, "equal", equal / len(rows), "of the plain answers")
        for name, wanted in (("rate", [True] * len(rows)), ("rate of the calls", perfect)):
            chosen = [one for one, is_wanted in zip(answers, wanted, strict=True) if is_wanted]
            num_steps = sum(steps for _, steps in chosen)
            if num_steps:
                num_tokens = sum(len(ids) - 1 for ids, _ in chosen)
                report.add(case, name, num_tokens / num_steps, "tokens/step")
    report.finish()


if __name__ == "__main__":
    main()
