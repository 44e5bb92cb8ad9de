# SPDX-License-Identifier: Apache-2.0
"""From names to a running engine: the target, what drafts for it, and its sidecar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from ooospec.backends.base import Backend
from ooospec.backends.load import find_device, load_backend
from ooospec.config import EngineConfig
from ooospec.costs import COST_ROWS, RoundCosts, measure_costs
from ooospec.draft import DraftStore
from ooospec.draft_model import DraftModel
from ooospec.drafting import Drafting
from ooospec.engine import Engine
from ooospec.hints import AnySidecar, HintRouter
from ooospec.sidecar.placement import open_sidecar
from ooospec.sidecar.policy import CostCurve, Mode, Target
from ooospec.sidecar.remote import RemoteSidecar
from ooospec.sidecar.sockets import is_address
from ooospec.sidecar.worker import SidecarConfig
from ooospec.sources import load_source
from ooospec.target_text import end_token, target_text
from ooospec.tokens import TokenTable

# Of the time of a wave on the target's GPU, what the target loses: 6 ms of its prefill and 0.7 ms
# of each of eight rounds in a wave of 75 ms (bench/results/colocation.csv).
GPU_SHARE = 0.15


def load(
    target: Any,
    *,
    sidecar: str | AnySidecar | None = None,
    adapter: str | None = None,
    placement: Literal["thread", "process"] = "thread",
    wave: Mode = "auto",
    device: str | None = None,
    dtype: str | None = None,
    backend: Literal["auto", "fused", "transformers"] = "auto",
    sidecar_device: str | None = None,
    sidecar_dtype: str | None = None,
    sources: Sequence[str | type] = (),
    draft_model: str | Backend | None = None,
    corpus: Sequence[str] = (),
    cost_model: bool | RoundCosts = True,
    config: EngineConfig | None = None,
    progress: bool = False,
) -> Engine:
    """Returns an engine whose methods are those of ooospec.methods.

    target: folder or hub id of a Hugging Face causal model, a loaded model, or a backend.
    sidecar: folder or hub id of the model that predicts the calls, the address of one elsewhere
    (tcp://HOST:PORT, ipc://PATH; see `ooospec sidecar`), or a running one, ours or another; None:
    no hints, `ooo` drafts as `toolspec` does. adapter: folder of a PEFT adapter for it. placement:
    a thread of this process, or a process.
    wave: whether waves start: "always"; "wait": and the first round waits for the whole of it, no
    longer than some twelve rounds; "never"; "auto": where their measured cost is worth it, and
    mostly the one of those three by which answers were fastest (see WaveTrials; with a cost model
    only).
    device, dtype: of the target; None: a GPU in bfloat16 if there is one, else the CPU in float32.
    backend: what runs the target; see load_backend.
    sources: classes of sources from outside, or their names (`module:Class`); they join every
    method but `ar`.
    draft_model: folder or hub id of a smaller model of the same tokenizer, or a backend; method
    `draft` is there with it. corpus: earlier answers that methods which retrieve know beforehand.
    cost_model: size trees by measured cost, which is taken here (some rounds of up to 64 rows) or
    given; off: trees are as large as they may be.
    Raises what load_backend raises, and ValueError or TypeError for a bad option, before anything
    is loaded. A sidecar that fails shows in its status.
    """
    if not isinstance(config, EngineConfig | None):
        raise TypeError(f"config: expected an EngineConfig, got {config!r:.80}")
    _check_drafting(sidecar, adapter, placement, wave, sidecar_device, corpus, cost_model)
    from_outside = [load_source(one) for one in _listed("sources", sources)]
    model: Backend
    if hasattr(target, "measure_costs"):
        model = target
    else:
        how: dict[str, Any] = {"device": device, "dtype": dtype, "backend": backend}
        model = load_backend(target, **how, progress=progress)
    drafting, table = load_drafting(
        model,
        sidecar=sidecar,
        adapter=adapter,
        placement=placement,
        wave=wave,
        device=device,
        dtype=dtype,
        sidecar_device=sidecar_device,
        sidecar_dtype=sidecar_dtype,
        sources=from_outside,
        draft_model=draft_model,
        corpus=corpus,
        cost_model=cost_model,
        progress=progress,
    )
    methods = drafting.methods()
    try:
        return Engine(model, methods=methods, drafting=drafting, config=config, tokens=table)
    except BaseException:  # no room for its cache, say
        if isinstance(sidecar, str):
            drafting.close()
        raise


def load_drafting(
    model: Backend,
    *,
    sidecar: str | AnySidecar | None = None,
    adapter: str | None = None,
    placement: Literal["thread", "process"] = "thread",
    wave: Mode = "auto",
    device: str | None = None,
    dtype: str | None = None,
    sidecar_device: str | None = None,
    sidecar_dtype: str | None = None,
    sources: Sequence[str | type] = (),
    draft_model: str | Backend | None = None,
    corpus: Sequence[str] = (),
    cost_model: bool | RoundCosts = True,
    progress: bool = False,
) -> tuple[Drafting, TokenTable]:
    """Returns what makes drafters for a backend, and the table of its tokens; see load(), which
    gives both to an engine. Raises as load() does.
    """
    _check_drafting(sidecar, adapter, placement, wave, sidecar_device, corpus, cost_model)
    from_outside = [load_source(one) for one in _listed("sources", sources)]
    if model.tokenizer is None:
        raise ValueError("target: expected a model with its tokenizer, got one without")
    table = TokenTable(model.tokenizer)
    drafts: DraftModel | None = None
    if draft_model is not None:
        small: Backend
        if hasattr(draft_model, "measure_costs"):
            small = draft_model  # type: ignore[assignment]
        else:
            small = load_backend(draft_model, device=device, dtype=dtype, progress=progress)
        drafts = DraftModel(small, model.tokenizer)
    costs: RoundCosts | None = None
    if isinstance(cost_model, RoundCosts):
        costs = cost_model
    elif cost_model:
        costs = measure_costs(model, progress)
    text = target_text(
        model.tokenizer, table=table, end_token=end_token(model), num_ids=model.decodable
    )
    store = DraftStore(text, corpus=corpus)
    # What can fail is done: a sidecar that nobody would close is not started.
    running: AnySidecar | None = None
    if is_address(sidecar):
        running = RemoteSidecar(SidecarConfig(sidecar, wave=wave))
    elif isinstance(sidecar, str):
        running = open_sidecar(
            SidecarConfig(
                sidecar,
                adapter=adapter,
                placement=placement,
                wave=wave,
                device=sidecar_device or device,
                dtype=sidecar_dtype or dtype,
            )
        )
    elif sidecar is not None:
        running = sidecar
    drafting = Drafting(
        text,
        store,
        costs=costs,
        sources=from_outside,
        router=None if running is None else HintRouter(running),
        draft_model=drafts,
        wave="always" if wave == "auto" and not isinstance(sidecar, str) else wave,
    )
    if running is not None and costs is not None and hasattr(running, "set_target"):
        running.set_target(
            Target(
                CostCurve(COST_ROWS, tuple(costs.measured())),
                model.chunk,
                model.context_limit,
                shared=shared_compute(running, model),
            )
        )
    return drafting, table


def _check_drafting(
    sidecar: Any,
    adapter: Any,
    placement: Any,
    wave: Any,
    sidecar_device: Any,
    corpus: Any,
    cost_model: Any,
) -> None:
    """Raises ValueError or TypeError for an option of load_drafting() that is none."""
    SidecarConfig("", placement=placement, wave=wave)
    if sidecar is None and adapter is not None:
        raise ValueError(f"adapter: expected a sidecar beside {adapter!r}, got none")
    if not (sidecar is None or isinstance(sidecar, str) or hasattr(sidecar, "ask")):
        raise TypeError(f"sidecar: expected a name, an address or a Sidecar, got {sidecar!r:.80}")
    if isinstance(sidecar, str) and not is_address(sidecar) and sidecar_device is not None:
        find_device(sidecar_device, "sidecar_device")
    if not all(isinstance(answer, str) for answer in _listed("corpus", corpus)):
        raise TypeError(f"corpus: expected texts, got {corpus!r:.80}")
    if not isinstance(cost_model, bool | RoundCosts):
        raise TypeError(f"cost_model: expected True, False or RoundCosts, got {cost_model!r:.80}")


def _listed(name: str, given: Any) -> Sequence[Any]:
    """Returns `given`. Raises TypeError for what is no list, a text above all."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(f"{name}: expected a list, got {given!r:.80}")
    return given


def shared_compute(sidecar: Any, backend: Backend) -> float:
    """Returns how much of a wave's time the target loses: all of it on the same CPU cores, some on
    the same GPU, nothing on another.
    """
    own, other = backend.device, torch.device(sidecar.config.device or backend.device)
    if own.type != other.type:
        return 0.0
    if own.type == "cpu":
        return 1.0
    return GPU_SHARE if (own.index or 0) == (other.index or 0) else 0.0
