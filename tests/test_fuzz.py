# SPDX-License-Identifier: Apache-2.0
"""A fuzz of the API by its own description: no answer is a 500, and many requests are answered.

It takes minutes, so it runs where it is asked to, with Schemathesis on the PATH (or
OOOSPEC_SCHEMATHESIS naming it, since it may live in an environment of its own):

    OOOSPEC_FUZZ=5000 pytest -s tests/test_fuzz.py
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ooospec.config import EngineConfig
from tiny_server import Limits, make_engine, serving

NUM_CASES = int(os.environ.get("OOOSPEC_FUZZ", "0"))
FUZZER = shutil.which(os.environ.get("OOOSPEC_SCHEMATHESIS", "schemathesis"))

pytestmark = [
    pytest.mark.skipif(not NUM_CASES, reason="OOOSPEC_FUZZ is not set"),
    pytest.mark.skipif(not FUZZER, reason="no schemathesis"),
]


def test_no_request_is_answered_by_a_500(tmp_path: Path) -> None:
    engine = make_engine(EngineConfig(cache_tokens=768))
    limits = Limits(max_answer_tokens=24, max_tools=4, max_messages=4)
    with serving(engine, limits=limits) as served:
        command = [str(FUZZER), "run", f"{served.url}/openapi.json", "--url", served.url]
        command += ["--include-path", "/v1/chat/completions", "--phases", "fuzzing"]
        command += ["--checks", "not_a_server_error", "--seed", "1", "--no-color"]
        for mode, share in (("positive", 2 / 3), ("negative", 1 / 3)):
            count = ["--mode", mode, "--max-examples", str(int(NUM_CASES * share) + 1)]
            done = subprocess.run([*command, *count], capture_output=True, text=True, cwd=tmp_path)
            print(done.stdout[-1500:])
            assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
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
