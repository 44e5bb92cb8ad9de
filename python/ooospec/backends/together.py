# SPDX-License-Identifier: Apache-2.0
"""One round of several sequences: their rows packed into one launch, each choosing for itself."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch

from ooospec.backends.base import Backend, Segment, Verdict
from ooospec.kv import Sequence
from ooospec.rows import Rows
from ooospec.sampling import Chooser, top_ids


class Ask(NamedTuple):
    """What Backend.verify is asked for one sequence. place: its `index`."""

    sequence: Sequence
    rows: Rows
    chooser: Chooser
    place: int
    top8: bool


def verify_together(
    backend: Backend, asks: Seq[Ask], meanwhile: Callable[[], None] = lambda: None
) -> list[Verdict | RuntimeError]:
    """Runs one round of all `asks`; returns what Backend.verify returns for each, or raises.

    The choices are made on the host, from the logits of Backend.forward. Mutates: as that.
    """
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
            lambda row, depth: ask.chooser.choose(logits[row], ask.place + depth)
        )
    except RuntimeError as error:
        return error
    top = None
    if ask.top8:
        top = top_ids(logits[:, : backend.decodable], 8).cpu().numpy().astype(np.int32)
    return Verdict(path, tokens, launched, perf_counter(), top)
