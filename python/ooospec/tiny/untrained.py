# SPDX-License-Identifier: Apache-2.0
"""A target and a sidecar that know nothing, made in a moment: to see that something runs."""

from __future__ import annotations

import json
from pathlib import Path

from ooospec.synth.generate import generate
from ooospec.tiny.model import Shape, new_model
from ooospec.tiny.tokenizer import train_tokenizer

SHAPE = Shape(num_tokens=600, hidden=32, inner=64, layers=1, heads=2, kv_heads=1, head_dim=16)


def untrained_pair(folder: Path) -> tuple[str, str]:
    """Writes both with tokenizers into `folder`; returns the folders of target and sidecar."""
    texts = [json.dumps(request) for request in generate(20)]
    for part in ("target", "sidecar"):
        tokenizer = train_tokenizer(texts, SHAPE.num_tokens, chat=part == "target")
        new_model(SHAPE, tokenizer, 0).save_pretrained(folder / part)
        tokenizer.save_pretrained(folder / part)
    return str(folder / "target"), str(folder / "sidecar")
