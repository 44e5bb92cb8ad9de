# SPDX-License-Identifier: Apache-2.0
"""Drafts for vLLM: the drafter of each request, and the best chain out of its tree."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import numpy.typing as npt

from ooospec.chains import best_path, paying_length
from ooospec.config import MAX_NODES
from ooospec.draft import Drafter, DraftStore
from ooospec.integrations.vllm.costs import StepClock, StepCosts
from ooospec.integrations.vllm.hints import HintTable
from ooospec.integrations.vllm.note import Note
from ooospec.integrations.vllm.plugin import bind_runner
from ooospec.integrations.vllm.settings import Settings
from ooospec.methods import METHODS
from ooospec.target_text import target_text
from ooospec.tokens import TokenTable

logger = logging.getLogger("ooospec")

MAX_ALIKE = 64  # requests of one batch without identity that have the same tokens

Tokens = npt.NDArray[np.int32]
Key = Any  # a request's id, or what its tokens are known by


class Draft:
    """A request's drafter. num_seen: tokens of prompt and answer that it knows."""

    def __init__(self, note: Note, drafter: Drafter, num_prompt: int) -> None:
        self.note = note
        self.drafter = drafter
        self.num_seen = num_prompt


class Proposer:
    """A proposer for `--speculative-config '{"model": "ooospec.integrations.vllm.Proposer", ...}'`.

    Whatever fails in a request's drafting ends its drafts, never the request.
    """

    def __init__(self, vllm_config: Any) -> None:
        """Reads the tokenizer. Raises ValueError for bad settings, UnsupportedModel for a tokenizer
        whose tokens cannot be read.
        """
        from transformers import AutoTokenizer

        self._settings = Settings.of(vllm_config)
        model = vllm_config.model_config
        self._max_drafted = int(vllm_config.speculative_config.num_speculative_tokens)
        self._max_length = int(model.max_model_len)
        tokenizer = AutoTokenizer.from_pretrained(
            model.tokenizer,
            revision=model.tokenizer_revision,
            trust_remote_code=False,
        )
        self._table = TokenTable(tokenizer)
        text = target_text(tokenizer, table=self._table, num_ids=int(model.get_vocab_size()))
        self._store = DraftStore(text)
        self._hints = HintTable(self._settings.sidecar)
        self._costs = StepCosts()
        self._clock = StepClock(self._costs)
        self._drafts: OrderedDict[Key, Draft | None] = OrderedDict()
        self._most = 4 * int(vllm_config.scheduler_config.max_num_seqs)
        self._ids: Seq[str] | None = None
        self._requests: Mapping[str, Any] = {}
        bind_runner()

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """There is none; vLLM calls it."""

    def bind_batch(self, input_batch: Any, requests: Mapping[str, Any]) -> None:
        """Hears, before each proposal, which request each row is; see plugin.py."""
        self._ids, self._requests = list(input_batch.req_ids), requests

    def propose(
        self,
        sampled_token_ids: Seq[Seq[int]],
        num_tokens_no_spec: npt.NDArray[np.int32],
        token_ids_cpu: Tokens,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Returns the drafted tokens of each row; none for a row that is not through its prompt."""
        ids, self._ids = self._ids, None
        rows = [row for row, sampled in enumerate(sampled_token_ids) if len(sampled)]
        self._hints.poll()
        known: list[bool] = []
        found: list[list[int]] = [[] for _ in sampled_token_ids]
        asked: list[tuple[int, Draft]] = []
        taken: OrderedDict[Key, Draft | None] = OrderedDict()
        for row in rows:
            tokens = token_ids_cpu[row, : int(num_tokens_no_spec[row])]
            num_before = len(tokens) - len(sampled_token_ids[row])
            key = _find(tokens[:num_before], self._drafts) if ids is None else ids[row]
            known.append(key in self._drafts)
            if known[-1]:
                draft = self._drafts.pop(key)
            else:
                draft = self._open(None if ids is None else ids[row], tokens, num_before)
            draft = self._commit(draft, tokens)
            taken[_free(tokens, taken) if ids is None else key] = draft
            if draft is not None and len(tokens) + 1 < self._max_length:
                asked.append((row, draft))
        self._clock.stop(len(rows) == len(sampled_token_ids) and all(known))
        self._drafts.update(taken)
        self._forget()
        for row, draft in asked:
            room = self._max_length - int(num_tokens_no_spec[row]) - 1
            found[row] = self._chain(draft, min(self._max_drafted, room), len(rows))
        self._clock.start(len(rows) + sum(map(len, found)))
        return found

    def _open(self, request_id: str | None, tokens: Tokens, num_before: int) -> Draft | None:
        """Makes the drafter of a request that was not seen before."""
        note, num_prompt = None, num_before
        if request_id is not None:
            request = self._requests[request_id]
            num_prompt = int(request.num_prompt_tokens)
            params = request.sampling_params
            note = Note.read(None if params is None else params.extra_args)
        prompt = tokens[:num_prompt].tolist()
        try:
            text = self._table.decode_bytes(prompt).decode(errors="replace")
            note = note or Note.of_prompt(text)
            method = METHODS[self._settings.method]
            drafter = Drafter(
                self._store.text,
                note.tools,
                method,
                prompt,
                memory=self._store.memory(method.name, note.tenant),
                thinking=text.rstrip().endswith("<think>"),
            )
            drafter.core.read_request(note.said)
        except Exception:
            logger.exception("ooospec: no drafts for a request")
            return None
        return Draft(note, drafter, num_prompt)

    def _commit(self, draft: Draft | None, tokens: Tokens) -> Draft | None:
        """Tells a drafter what the target wrote, and the hints that came."""
        if draft is None:
            return None
        try:
            draft.drafter.commit(tokens[draft.num_seen :].tolist())
            draft.num_seen = len(tokens)
            for record in self._hints.take(draft.note.session, draft.note.request):
                draft.drafter.offer_hint(record)
        except Exception:
            logger.exception("ooospec: no more drafts for a request")
            return None
        return draft

    def _chain(self, draft: Draft, max_drafted: int, batch: int) -> list[int]:
        """Returns the tokens drafted for a request; none where they do not pay."""
        if max_drafted < 1 or (self._settings.pay and not self._costs.knows(batch)):
            return []
        tree = draft.drafter.propose(MAX_NODES)
        path = best_path(tree, max_drafted)
        if self._settings.pay:
            costs = self._costs.curve(batch, len(path) + 1)
            path = path[: paying_length(tree.probabilities[path].tolist(), costs)]
        chain: list[int] = tree.tokens[path].tolist()
        return chain

    def _forget(self) -> None:
        """Ends the drafters of requests that are gone: what they wrote is learnt."""
        gone = [key for key in self._drafts if isinstance(key, str) and key not in self._requests]
        gone += list(self._drafts)[: max(0, len(self._drafts) - len(gone) - self._most)]
        for key in dict.fromkeys(gone):
            draft = self._drafts.pop(key)
            if draft is not None:
                draft.drafter.finish()


def _find(tokens: Tokens, drafts: Mapping[Key, Any]) -> Key:
    """Returns what a request without identity is known by, or will be: its tokens, and a number
    that tells it from others with the same ones.
    """
    mark = hash(tokens.tobytes())
    return next((key for i in range(MAX_ALIKE) if (key := (mark, i)) in drafts), (mark, MAX_ALIKE))


def _free(tokens: Tokens, taken: Mapping[Key, Any]) -> Key:
    """Returns what a request without identity is known by from now on."""
    mark = hash(tokens.tobytes())
    return next((key for i in range(MAX_ALIKE) if (key := (mark, i)) not in taken), (mark, 0))
