# SPDX-License-Identifier: Apache-2.0
"""A server that has answered thousands of requests holds no more memory than after the first ones,
but for the index of earlier answers, which has a cap.

It takes minutes, so it runs where it is asked to:

    OOOSPEC_MEMORY_REQUESTS=10000 pytest -s tests/test_serve_memory.py
"""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from ooospec.bench.faults import resident_bytes
from ooospec.bench.sidecars import RecordedListener
from ooospec.config import EngineConfig
from tiny_server import ANSWERS, TOOLS, Serving, make_engine, serving, user

NUM_ASKED = int(os.environ.get("OOOSPEC_MEMORY_REQUESTS", "0"))
NUM_CLIENTS = 4
NUM_PARTS = 10
CHAT = "/v1/chat/completions"
MAX_GROWN_BYTES = 8 << 20  # between the third part and the last
CALLS = [{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}]

pytestmark = pytest.mark.skipif(not NUM_ASKED, reason="OOOSPEC_MEMORY_REQUESTS is not set")


def ask(served: Serving, number: int) -> None:
    """Asks one of five dialogues, of which most were never seen; every eighth is refused."""
    text = list(ANSWERS)[number % len(ANSWERS)]
    fields: dict[str, Any] = {"model": "tiny", "tools": TOOLS, "max_tokens": 48}
    if number % 3:
        text += f" {number:x}"
    if number % 8 == 7:
        fields["logprobs"] = True
    asked = {**fields, "messages": user(text), "stream": number % 2 == 0}
    alone = {"connection": "close"}  # one that is kept may be closed just when it is used again
    with served.http.stream("POST", CHAT, json=asked, headers=alone) as answer:
        assert answer.status_code == (400 if number % 8 == 7 else 200)
        for i, _ in enumerate(answer.iter_bytes()):
            if number % 16 == 4 and i == 2:
                return  # and never reads the rest


def test_memory_is_flat() -> None:
    listener = RecordedListener(lambda messages: CALLS)
    engine = make_engine(EngineConfig(cache_tokens=4096), sidecar=listener.address, wave="always")
    resident: list[int] = []
    failed: list[BaseException] = []
    with serving(engine) as served:

        def client(numbers: range) -> None:
            try:
                for number in numbers:
                    ask(served, number)
            except BaseException as error:
                failed.append(error)
                raise

        for part in range(NUM_PARTS):
            first, stop = (NUM_ASKED * i // NUM_PARTS for i in (part, part + 1))
            threads = [
                threading.Thread(target=client, args=(range(first + i, stop, NUM_CLIENTS),))
                for i in range(NUM_CLIENTS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failed
            served.wait_until_idle()
            learnt = engine.drafting.store.memory("ooo").bytes
            resident.append(resident_bytes() - learnt)
            print(
                f"{stop} requests: {resident[-1] / 1e6:.1f} MB, and {learnt / 1e6:.1f} MB learnt",
                flush=True,
            )
    engine.close()
    listener.close()
    assert max(resident[3:]) - resident[2] < MAX_GROWN_BYTES
