# SPDX-License-Identifier: Apache-2.0
"""Objects of the core come and go in any thread, and at the end of the interpreter."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from ooospec import _C, DraftTree, HintRing, ToolSet

TOOLS = '[{"type": "function", "function": {"name": "get"}}]'
NUM_THREADS = 8
NUM_MADE = 10_000


def make_and_drop(start: threading.Barrier) -> int:
    """Returns how many objects were made; each dies while others are made elsewhere."""
    start.wait()
    num_made = 0
    while num_made < NUM_MADE // NUM_THREADS:
        ring, tree, tools = HintRing(4096), DraftTree(0), ToolSet(TOOLS)
        reader = _C.AnswerReader(tools, False)
        reader.feed("<tool_call>")
        ring.try_push(1, _C.HintKind.END, 0, 0, 0, "")
        tree.insert(0, [1, 2], [0.5, 0.5], source=1)
        num_made += 4
    return num_made


def test_objects_die_in_any_thread() -> None:
    """K13."""
    start = threading.Barrier(NUM_THREADS)
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        made = list(pool.map(make_and_drop, [start] * NUM_THREADS))
    assert sum(made) >= NUM_MADE


def test_the_interpreter_ends_while_threads_are_busy() -> None:
    """K13."""
    code = (
        "import threading, time\n"
        "from ooospec import DraftTree, HintRing\n"
        "def work():\n"
        "    while True:\n"
        "        ring, tree = HintRing(), DraftTree(0)\n"
        "        tree.insert(0, [1, 2], [0.5, 0.5], source=1)\n"
        "for _ in range(4):\n"
        "    threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.2)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
