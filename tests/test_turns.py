# SPDX-License-Identifier: Apache-2.0
"""What an answer that was cut inside a block leaves behind for the next turn."""

from __future__ import annotations

import hostile
from equality import drafting, make_engine, reference
from ooospec.config import EngineConfig

PROMPT = [20 + (7 * i) % 400 for i in range(20)]


def test_a_cut_inside_a_block_keeps_what_was_kept_and_the_next_turn_goes_on_from_it() -> None:
    """B05: a stop string, an end of sequence or a limit inside an accepted block: the cache has the
    kept tokens only (the shadow rebuilds it after the last round too), all pages come back, and a
    second turn is what it is after a plain first one.
    """
    free = reference("qwen2", PROMPT, max_new_tokens=40)
    engine = make_engine("qwen2", EngineConfig(shadow=True))
    method = drafting(hostile.right, free, engine)
    text = engine.generate_ids(PROMPT, max_tokens=40).text
    stop = next(text[i : i + 3] for i in range(len(text) // 2, len(text)) if text[i].isascii())
    for name, settings in (("stop", {"stop": [stop]}), ("length", {"max_tokens": 13})):
        num_free = engine.pool.num_free
        got = engine.generate_ids(PROMPT, method=method, **{"max_tokens": 40, **settings})
        assert got.finish_reason == name
        kept = got.token_ids
        assert kept == free[: len(kept)]
        assert len(kept) < len(free)
        assert got.metrics.num_committed == len(kept) - 1
        assert engine.pool.num_free == num_free
        second = [*PROMPT, *kept, *PROMPT[:9]]
        expected = reference("qwen2", second, max_new_tokens=16)
        again = drafting(hostile.half_right, expected, engine)
        assert engine.generate_ids(second, method=again, max_tokens=16).token_ids == expected
