# SPDX-License-Identifier: Apache-2.0
"""The rounds of backends that choose on the host: rows packed into one launch, each sequence
choosing for itself from its logits.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from time import perf_counter

import numpy as np
import torch

from ooospec.backends.base import Ask, Backend, Segment, Verdict
from ooospec.sampling import top_ids


def verify_on_host(
    backend: Backend, ask: Ask, meanwhile: Callable[[], None], riders: Seq[Ask] = ()
) -> Verdict:
    """Runs one round; see Backend.verify."""
    verdict, *ridden = verify_together(backend, [ask, *riders], meanwhile)
    if isinstance(verdict, RuntimeError):
        raise verdict
    return verdict._replace(riders=ridden) if ridden else verdict


def verify_together(
    backend: Backend, asks: Seq[Ask], meanwhile: Callable[[], None] = lambda: None
) -> list[Verdict | RuntimeError]:
    """Runs one round of all `asks`; see Backend.verify_together."""
    launched = perf_counter()
    found = backend.forward([_segment(ask) for ask in asks])
    meanwhile()
    return [
        _verdict(backend, ask, logits, launched) for ask, logits in zip(asks, found, strict=True)
    ]


def _segment(ask: Ask) -> Segment:
    positions = (ask.sequence.length + ask.rows.depths).tolist()
    return Segment(ask.sequence, ask.rows.tokens.tolist(), positions, ask.rows.mask())


def _verdict(
    backend: Backend, ask: Ask, logits: torch.Tensor, launched: float
) -> Verdict | RuntimeError:
    try:
        path, tokens = ask.rows.follow(
            lambda row, depth: ask.chooser.choose(logits[row], ask.place + depth), ask.num_given
        )
    except RuntimeError as error:
        return error
    seen = perf_counter()
    if not ask.top8:
        return Verdict(path, tokens, launched, seen)
    top = top_ids(logits[:, : backend.decodable], 8).cpu().numpy().astype(np.int32)
    return Verdict(path, tokens, launched, seen, top)
