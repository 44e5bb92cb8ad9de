# SPDX-License-Identifier: Apache-2.0
"""Hands the proposer what its contract leaves out: which request each row of a batch is."""

from __future__ import annotations

import functools
import logging
from typing import Any

logger = logging.getLogger("ooospec")

_loaded = False


def register() -> None:
    """Lets proposers of this process learn the identity of requests; for vllm.general_plugins.

    Touches nothing of vLLM until there is a proposer. Safe to call twice.
    """
    global _loaded
    _loaded = True


def bind_runner() -> bool:
    """Wraps the model runner so that it tells its drafter the batch before each proposal.

    Returns False, and says so in the log, where the plugin is not loaded or vLLM has changed: then
    requests are told apart by their tokens. Safe to call twice.
    """
    if not _loaded:
        logger.info("vllm.general_plugins has not loaded ooospec: drafting by tokens alone")
        return False
    import vllm
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    original = getattr(GPUModelRunner, "propose_draft_token_ids", None)
    if original is None:
        logger.warning(
            "ooospec: expected GPUModelRunner.propose_draft_token_ids, vLLM %s has none: drafting "
            "by tokens alone",
            vllm.__version__,
        )
        return False
    if not hasattr(original, "ooospec"):

        @functools.wraps(original)
        def propose_draft_token_ids(runner: Any, *args: Any, **kwargs: Any) -> Any:
            bind = getattr(runner.drafter, "bind_batch", None)
            if bind is not None:
                bind(runner.input_batch, runner.requests)
            return original(runner, *args, **kwargs)

        propose_draft_token_ids.ooospec = True  # type: ignore[attr-defined]
        GPUModelRunner.propose_draft_token_ids = propose_draft_token_ids
    return True
