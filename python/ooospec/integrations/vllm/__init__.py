# SPDX-License-Identifier: Apache-2.0
"""Inside vLLM: drafts by `Proposer`, dialogues to a sidecar by `Hints`, identity by `register`.

    ooospec sidecar --sidecar SMALL_MODEL --listen tcp://127.0.0.1:5600

    vllm serve MODEL --middleware ooospec.integrations.vllm.Hints
      --speculative-config '{"model": "ooospec.integrations.vllm.Proposer",
                             "num_speculative_tokens": 16}'
      --additional-config '{"ooospec": {"sidecar": "tcp://127.0.0.1:5600"}}'

The middleware asks the sidecar when a request arrives and tells the worker under which number; the
worker only reads what has come. Without the middleware, or a sidecar, drafts come from the schema
in the prompt, from values that stand in it and from earlier answers; without the plugin (which
vLLM's entry points load, see VLLM_PLUGINS) requests are told apart by their tokens. vLLM verifies
chains only, with its V1 runner and without asynchronous scheduling.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ooospec.integrations.vllm.arrival import Hints
    from ooospec.integrations.vllm.plugin import register
    from ooospec.integrations.vllm.proposer import Proposer

__all__ = ["Hints", "Proposer", "register"]

_HOMES = {"Hints": "arrival", "Proposer": "proposer", "register": "plugin"}


def __getattr__(name: str) -> Any:
    """Every process of vLLM loads the plugin; few need the rest."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
