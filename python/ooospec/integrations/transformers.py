# SPDX-License-Identifier: Apache-2.0
"""Inside transformers: `model.generate(..., custom_generate=speculate, drafter=...)`.

The loop verifies trees, as the engine's does, but chooses as `generate` itself: logits processors
run at every committed token, stopping criteria behind it, and sampling draws from torch's own
generator, once a token. So the tokens are those of plain `generate`, greedy, or sampled after the
same `torch.manual_seed`, up to rounding: both compute the same sums in other orders.
"""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.generation import GenerateDecoderOnlyOutput

from ooospec.backends.transformers import TransformersBackend
from ooospec.errors import InvalidRequest
from ooospec.formats import Tool, opens_thinking, tools_as_json
from ooospec.kv import Sequence
from ooospec.loading import load_drafting
from ooospec.loop import Loop, Metrics
from ooospec.methods import method as find_method
from ooospec.output import Output
from ooospec.run import Request
from ooospec.sampling import Chooser, SamplingParams

CACHES = ("cache", "past_key_values")  # as generate() calls it from 5.24 on, and before
IGNORED = frozenset({*CACHES, "attention_mask", "position_ids", "logits_to_keep", "use_cache"})


class Speculator:
    """Makes drafters for a Hugging Face model, which stays its owner's between calls.

    Safe to share among threads; calls run one after the other, and a plain call of the model
    beside one of them fails with a sentence.
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, method: str = "ooo", chunk: int = 256, **options: Any
    ) -> None:
        """Probes the model with two forward passes and measures rounds of it.

        method: what drafts, unless drafter() says otherwise. chunk: rows of a prefill chunk.
        options: sidecar, adapter, sources, corpus, ..., as ooospec.load takes them. Raises as that
        does, UnsupportedModel included.
        """
        self.backend = TransformersBackend(model, tokenizer, chunk=chunk)
        try:
            # generate() may choose ids that only pad the vocabulary
            self.backend.decodable = self.backend.num_logits
            self.drafting, self.tokens = load_drafting(self.backend, **options)
        finally:
            self.backend.close()
        self._methods = self.drafting.methods()
        self._method = self._known(method)
        self._lock = threading.Lock()
        self._request_ids = itertools.count(1)

    def drafter(
        self,
        messages: Seq[Mapping[str, Any]] = (),
        tools: Seq[Any] | None = None,
        *,
        method: str | None = None,
        tenant: str = "",
    ) -> CallDrafter:
        """Returns what drafts for one call of generate(), whose prompt is that of the dialogue.

        messages, tools: as of Engine.generate; without them the prompt alone is drafted from.
        tenant: what its answers teach is kept apart from other tenants'.
        """
        name = self._method if method is None else self._known(method)
        dialogue = [dict(message) for message in messages]
        return CallDrafter(self, name, dialogue, tools_as_json(tools) or [], tenant)

    def close(self) -> None:
        """Ends the sidecar. Safe to call twice."""
        self.drafting.close()

    @contextmanager
    def taken(self) -> Iterator[TransformersBackend]:
        """Holds the model for one call."""
        with self._lock:
            self.backend.take()
            try:
                yield self.backend
            finally:
                self.backend.close()

    def open(self, call: CallDrafter, prompt_ids: list[int]) -> Any:
        """Returns the drafter of a call whose prompt is known now; None for plain decoding."""
        request = Request(
            next(self._request_ids),
            prompt_ids,
            SamplingParams(),
            messages=call.messages,
            tools=call.tools,
            tenant=call.tenant,
            thinking=opens_thinking(
                self.tokens.decode_bytes(prompt_ids[-64:]).decode(errors="replace")
            ),
        )
        return self._methods[call.method](request)

    def _known(self, name: str) -> str:
        if name not in self._methods:
            find_method(name)
            raise ValueError(f"method: {name!r} needs draft_model=")
        return name


@dataclass
class CallDrafter:
    """Drafts for one call of generate(); metrics are there once it is over."""

    speculator: Speculator
    method: str
    messages: list[dict[str, Any]]
    tools: list[Tool]
    tenant: str
    metrics: Metrics = field(default_factory=Metrics, init=False)


def speculate(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    drafter: CallDrafter | Speculator | None = None,
    stream_to: Any = None,
    **model_kwargs: Any,
) -> torch.Tensor | GenerateDecoderOnlyOutput:
    """Decodes one sequence, for `generate(custom_generate=speculate, drafter=...)`.

    drafter: of Speculator.drafter(), or the Speculator. stream_to: a streamer; `streamer=` does not
    reach a custom function. Returns what generate() returns, without a cache. Raises InvalidRequest
    for what it cannot do.
    """
    if isinstance(drafter, Speculator):
        drafter = drafter.drafter()
    if not isinstance(drafter, CallDrafter) or drafter.speculator.backend.model is not model:
        raise InvalidRequest(
            f"drafter: expected that of a Speculator(model, tokenizer), got {drafter!r:.80}"
        )
    _refuse(input_ids, generation_config, model_kwargs)
    prompt_ids = input_ids[0].tolist()
    max_tokens = generation_config.max_length - len(prompt_ids)
    chooser = _Chooser(input_ids, logits_processor, generation_config)
    output = _Output(input_ids, stopping_criteria, max_tokens, chooser, stream_to)
    with drafter.speculator.taken() as backend, torch.inference_mode():
        drafter.metrics = _decode(backend, drafter, prompt_ids, chooser, output, max_tokens)
    if stream_to is not None:
        stream_to.end()
    sequences = torch.cat((input_ids, input_ids.new_tensor([output.token_ids])), dim=1)
    if not generation_config.return_dict_in_generate:
        return sequences
    count = len(output.token_ids)
    return GenerateDecoderOnlyOutput(
        sequences=sequences,
        scores=tuple(chooser.scores[:count]) if generation_config.output_scores else None,
        logits=tuple(chooser.logits[:count]) if generation_config.output_logits else None,
    )


def _decode(
    backend: TransformersBackend,
    call: CallDrafter,
    prompt_ids: list[int],
    chooser: _Chooser,
    output: _Output,
    max_tokens: int,
) -> Metrics:
    """Runs the rounds of a call."""
    num_tokens = len(prompt_ids) + max_tokens + backend.max_tree_rows
    sequence = Sequence(backend.new_pool(num_tokens))
    sequence.reserve(num_tokens)
    drafts = call.speculator.open(call, prompt_ids)
    try:
        loop = Loop(backend, sequence, chooser, output, drafts, backend.max_tree_rows)
        loop.start(prompt_ids)
        while output.finish_reason is None:
            loop.step()
        return loop.metrics
    finally:
        if drafts is not None:
            drafts.finish()


class _Chooser(Chooser):
    """Chooses as generate() does: each token once, in order, from its processed logits."""

    def __init__(self, input_ids: torch.Tensor, processors: Any, config: Any) -> None:
        super().__init__(SamplingParams(), 0, ())
        self.ids = input_ids  # and what was chosen since
        self.scores: list[torch.Tensor] = []
        self.logits: list[torch.Tensor] = []
        self._processors = processors
        self._config = config

    def choose(self, logits: torch.Tensor, index: int) -> int:
        """See Chooser.choose."""
        raw = logits[None].to(self.ids.device)
        scores = self._processors(self.ids, raw.clone())
        if self._config.do_sample:
            token = torch.multinomial(torch.softmax(scores, dim=-1), num_samples=1)
        else:
            token = scores.argmax(dim=-1, keepdim=True)
        self.ids = torch.cat((self.ids, token), dim=1)
        if self._config.output_scores:
            self.scores.append(scores)
        if self._config.output_logits:
            self.logits.append(raw)
        return int(token)


class _Output(Output):
    """Ends where the stopping criteria of generate() say so."""

    def __init__(
        self, input_ids: torch.Tensor, criteria: Any, max_tokens: int, chooser: _Chooser, to: Any
    ) -> None:
        super().__init__(None, SamplingParams(), (), max_tokens)
        self._num_prompt = input_ids.shape[1]
        self._criteria = criteria
        self._chooser = chooser
        self._to = to

    def add(self, tokens: Seq[int]) -> int:
        """See Output.add."""
        for count, token in enumerate(tokens, 1):
            self.token_ids.append(token)
            ids = self._chooser.ids[:, : self._num_prompt + len(self.token_ids)]
            if self._to is not None:
                self._to.put(ids[0, -1:].cpu())
            scores = tuple(self._chooser.scores[: len(self.token_ids)]) or None
            if bool(self._criteria(ids, scores).all()):
                self.finish_reason = "stop"
                return count
        return len(tokens)


def _refuse(input_ids: torch.Tensor, config: Any, model_kwargs: Mapping[str, Any]) -> None:
    """Raises InvalidRequest for a call that speculate() would not answer as generate() does."""
    num_prompt = input_ids.shape[1]
    if input_ids.shape[0] != 1 or config.num_beams != 1:
        raise InvalidRequest(
            "custom_generate: expected one sequence, without beams, got "
            f"{input_ids.shape[0]} sequences, num_beams={config.num_beams}"
        )
    if num_prompt == 0:
        raise InvalidRequest("input_ids: expected at least one token, got none")
    for name in ("output_attentions", "output_hidden_states"):
        if getattr(config, name, None):
            raise InvalidRequest(f"{name}: expected False, got True: drafts run in trees")
    if config.guidance_scale not in (None, 1, 1.0):
        raise InvalidRequest(
            f"guidance_scale: expected none, got {config.guidance_scale}: its processor runs the "
            "model itself"
        )
    mask = model_kwargs.get("attention_mask")
    if mask is not None and not bool((mask == 1).all()):
        raise InvalidRequest("attention_mask: expected ones only, got padding")
    positions = model_kwargs.get("position_ids")
    if positions is not None and positions[0].tolist() != list(range(num_prompt)):
        raise InvalidRequest("position_ids: expected 0, 1, 2, ..., got others")
    cached = [cache for name in CACHES if (cache := model_kwargs.get(name)) is not None]
    if any(cache.get_seq_length() for cache in cached):
        raise InvalidRequest("past_key_values: expected an empty cache, got one that is in use")
    odd = sorted(
        name for name in model_kwargs.keys() - IGNORED if model_kwargs[name] not in (None, False)
    )
    if odd:
        raise InvalidRequest(f"generate: expected input_ids alone, got {', '.join(odd)} too")
    frame = inspect.currentframe()
    caller = frame.f_back.f_back if frame is not None and frame.f_back is not None else None
    if caller is not None and caller.f_locals.get("streamer") is not None:
        raise InvalidRequest("streamer: expected stream_to=, got streamer=, which is kept from us")
