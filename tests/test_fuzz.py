# SPDX-License-Identifier: Apache-2.0
"""A fuzz of the API by its own description: no answer is a 500, and many requests are answered.

It takes minutes, so it runs where it is asked to, by the interpreter of Schemathesis, which may
live in an environment of its own (pip install schemathesis):

    OOOSPEC_FUZZ=5000 OOOSPEC_SCHEMATHESIS=venv/bin/python pytest -s tests/test_fuzz.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ooospec.config import EngineConfig
from tiny_server import Limits, make_engine, serving

NUM_CASES = int(os.environ.get("OOOSPEC_FUZZ", "0"))
PYTHON = os.environ.get("OOOSPEC_SCHEMATHESIS", sys.executable)
FUZZER = Path(__file__).with_name("fuzz_chat.py")

pytestmark = pytest.mark.skipif(not NUM_CASES, reason="OOOSPEC_FUZZ is not set")


def test_no_request_is_answered_by_a_500() -> None:
    engine = make_engine(EngineConfig(cache_tokens=1024))
    limits = Limits(max_answer_tokens=24, max_tools=4, max_messages=4)
    with serving(engine, limits=limits) as served:
        for mode, share in (("positive", 3 / 4), ("negative", 1 / 4)):
            count = str(int(NUM_CASES * share) + 1)
            subprocess.run([PYTHON, str(FUZZER), served.url, mode, count], check=True)
        served.wait_until_idle()
        page = served.http.get("/metrics").text
        health = served.http.get("/health").json()
    counts = {
        status: int(float(count))
        for status, count in re.findall(
            r'^ooospec_responses_total\{status="(\d+)"\} (\S+)$', page, re.MULTILINE
        )
    }
    print(counts)
    assert not [status for status in counts if status.startswith("5")]
    assert health["status"] == "ok"
    total = sum(counts.values())
    assert total >= NUM_CASES
    assert counts["200"] >= total / 3
    engine.prefix_cache.clear()
    assert engine.pool.num_free == engine.pool.num_pages
