# SPDX-License-Identifier: Apache-2.0
"""Requests further on: some of their calls made, the next one asked for."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

Request = Mapping[str, Any]
RESULTS = ('{"status": "success"}', '{"result": "ok"}', '{"success": true, "error": null}', "Done.")
SHARE_OF_SINGLE = 0.1  # of the requests with one call, which then has none left


def further_on(requests: Seq[Request], seed: int = 0) -> list[Request]:
    """Returns some of `requests` further on.

    Of each with several reference calls, some are made and their results there: the label is the
    next one, or no call once all are made; of those with a single call, a share. A function of the
    requests and `seed` alone. What a teacher labelled (`call`) has no next one.
    """
    found = []
    for number, request in enumerate(requests):
        calls = request.get("calls")
        if "call" in request or not isinstance(calls, list) or not calls:
            continue
        chance = random.Random(f"{seed} {request.get('id', number)}")
        if len(calls) > 1 or chance.random() < SHARE_OF_SINGLE:
            found.append(_further(request, chance.randint(1, len(calls)), chance))
    return found


def _further(request: Request, num_made: int, chance: random.Random) -> Request:
    """Returns a request after its first `num_made` calls."""
    messages = list(request["messages"])
    for i, call in enumerate(request["calls"][:num_made]):
        call = call.get("function", call)
        arguments = call["arguments"]
        text = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        function = {"name": call["name"], "arguments": text}
        made = {"id": f"call_{i}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [made]},
            {"role": "tool", "tool_call_id": f"call_{i}", "content": chance.choice(RESULTS)},
        ]
    return {
        **request,
        "id": f"{request.get('id', '')}, {num_made} made",
        "messages": messages,
        "calls": request["calls"][num_made:],
    }
