# SPDX-License-Identifier: Apache-2.0
"""Asks a server what its own description allows, or nearly; test_fuzz.py runs it.

It needs Schemathesis alone, and runs with the interpreter of that:

    python tests/fuzz_chat.py URL positive|negative CASES

Only generation: what the command line of Schemathesis adds to it (mutations that lean towards what
was accepted, shrunk one by one) makes a case ten times as slow, and the cases alike.
"""

from __future__ import annotations

import sys
from collections import Counter

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode

SECONDS = 120.0  # until an answer, on a machine that has other things to do


def main(url: str, mode: str, num_cases: int) -> None:
    """Asks, and prints how often each status was answered. Raises for a status of 500 or more."""
    api = schemathesis.openapi.from_url(f"{url}/openapi.json")
    cases = api["/v1/chat/completions"]["POST"].as_strategy(generation_mode=GenerationMode(mode))
    answered: Counter[int] = Counter()

    @seed(1)
    @settings(
        max_examples=num_cases,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def ask(case: schemathesis.Case) -> None:
        answer = case.call(base_url=url, timeout=SECONDS)
        answered[answer.status_code] += 1
        case.validate_response(answer, checks=[not_a_server_error])

    ask()
    print(f"{mode}: {dict(sorted(answered.items()))}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
