# SPDX-License-Identifier: Apache-2.0
"""From names to a running engine: the target, what drafts for it, and its sidecar."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from jinja2.exceptions import TemplateError

from ooospec._core import _C
from ooospec.backends.base import Backend
from ooospec.backends.fused import SIDECAR_SMEM, TARGET_SMEM
from ooospec.backends.load import find_device, load_backend
from ooospec.config import EngineConfig
from ooospec.costs import COST_ROWS, RoundClock, RoundCosts, measure_costs
from ooospec.draft import Drafter, DraftStore, DraftTree, TargetText
from ooospec.draft_model import DraftModel, DraftModelSource
from ooospec.engine import Engine, Request
from ooospec.formats import tool_set
from ooospec.hints import AnySidecar, HintArrival, HintRouter
from ooospec.methods import METHODS, Method
from ooospec.self_branches import SelfBranches
from ooospec.sidecar.placement import open_sidecar
from ooospec.sidecar.policy import CostCurve, Target
from ooospec.sidecar.remote import RemoteSidecar
from ooospec.sidecar.sockets import is_address
from ooospec.sidecar.worker import SidecarConfig
from ooospec.sources import Source, load_source
from ooospec.tokens import TokenTable

logger = logging.getLogger("ooospec")

PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "A tool.",
        "parameters": {
            "type": "object",
            "properties": {"first": {"type": "string"}, "second": {"type": "integer"}},
            "required": ["first", "second"],
        },
    },
}
PROBE_CALL = {"name": "probe_tool", "arguments": {"first": "a b", "second": 12}}
TEMPLATE_SHARE = 0.6  # of the first answers' calls are thought to be written as the template shows


def call_styles(tokenizer: Any) -> list[_C.StyleGuess]:
    """Returns how a target may write calls, likeliest first: as its chat template renders a call,
    then the usual ways.
    """
    usual = _C.usual_styles()
    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        return usual
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Call it."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": PROBE_CALL}],
        },
    ]
    try:
        text = tokenizer.apply_chat_template(messages, tools=[PROBE_TOOL], tokenize=False)
        asked = tokenizer.apply_chat_template(
            messages[:1], tools=[PROBE_TOOL], tokenize=False, add_generation_prompt=True
        )
        answer = (
            text[len(asked) :]
            if text.startswith(asked)
            else text[text.rfind(messages[0]["content"]) :]
        )
        style = _C.CallStyle.from_text(answer, tool_set([PROBE_TOOL]))
    except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
        logger.info("the chat template shows no tool call (%s)", error)
        return usual
    rest = [
        _C.StyleGuess(guess.style, guess.probability * (1 - TEMPLATE_SHARE))
        for guess in usual
        if guess.style != style
    ]
    return [_C.StyleGuess(style, TEMPLATE_SHARE), *rest]


@dataclass
class RequestDrafter:
    """A drafter that looks for hints before each proposal and clocks the rounds; what the engine
    runs.
    """

    drafter: Drafter
    request_id: int
    router: HintRouter | None
    clock: RoundClock | None = None
    arrivals: list[HintArrival] = field(default_factory=list)
    self_branches: SelfBranches | None = field(init=False)

    def __post_init__(self) -> None:
        self.self_branches = SelfBranches(self.drafter) if self.drafter.method.branches else None

    def propose(self, budget: int) -> DraftTree:
        """See Drafter.propose."""
        if self.router is not None:
            self.router.poll()
        tree = self.drafter.propose(budget)
        num_rows = len(tree)
        if self.self_branches is not None:
            self.self_branches.share(tree, budget)
            num_rows = len(tree) + self.self_branches.num_rows
        if self.clock is not None:
            self.clock.proposed(self.request_id, num_rows)
        return tree

    def commit(self, tokens: Sequence[int], top8: npt.NDArray[np.int32] | None = None) -> None:
        """See Drafter.commit."""
        if self.clock is not None:
            self.clock.committed()
        self.drafter.commit(tokens, top8)

    def prepare(self) -> None:
        """See Drafter.prepare; with the hints that have arrived."""
        if self.router is not None:
            self.router.poll()
        self.drafter.prepare()

    @property
    def wants_top8(self) -> bool:
        """See Drafter.wants_top8."""
        return self.drafter.wants_top8

    def finish(self) -> None:
        """Ends the request: no more hints, and its answer is learnt."""
        if self.router is not None:
            self.router.close(self.request_id)
        if self.clock is not None:
            self.clock.closed(self.request_id)
        self.drafter.finish()


@dataclass
class Drafting:
    """Makes the drafters of an engine's requests.

    text: the target's text side. store: what outlives a request.
    costs: of rounds by their rows; None: rows are free (every tree is as large as it may be).
    sources: classes of sources from outside; each joins every method but `ar`.
    router: of the sidecar's hints, or None. draft_model: of method `draft`, or None.
    """

    text: TargetText
    store: DraftStore
    costs: RoundCosts | None = None
    sources: Sequence[type] = ()
    router: HintRouter | None = None
    draft_model: DraftModel | None = None

    def __post_init__(self) -> None:
        self._clock = None if self.costs is None else RoundClock(self.costs)

    @property
    def status(self) -> str:
        """One line: what becomes of the hints."""
        return "no sidecar" if self.router is None else self.router.sidecar.status

    def close(self) -> None:
        """Ends the sidecar and the draft model. Safe to call twice."""
        if self.router is not None:
            self.router.sidecar.close()
        if self.draft_model is not None:
            self.draft_model.backend.close()

    def methods(self) -> dict[str, Callable[[Request], RequestDrafter | None]]:
        """Returns what makes the drafter of a request, by the names of ooospec.methods."""
        known = (one for one in METHODS.values() if self.draft_model is not None or not one.draft)
        return {one.name: self.method(one) for one in known}

    def method(self, method: Method) -> Callable[[Request], RequestDrafter | None]:
        """Returns what makes the drafter of a request by `method`; see Engine.methods."""

        def make(request: Request) -> RequestDrafter | None:
            if method == METHODS["ar"]:
                return None
            return self._drafter(method, request)

        return make

    def _drafter(self, method: Method, request: Request) -> RequestDrafter:
        sources: list[Source] = [source() for source in self.sources]
        if method.draft:
            assert self.draft_model is not None  # else the engine has no such method
            sources.append(DraftModelSource(self.draft_model))
        drafter = Drafter(
            self.text,
            request.tools or [],
            method,
            request.prompt_ids,
            memory=self.store.memory(method.name, request.tenant),
            costs_us=None if self.costs is None else self.costs.curve(),
            sources=sources,
            messages=request.messages or [],
            num_opening=request.num_opening,
            thinking=request.thinking,
        )
        asks = (
            self.router is not None
            and method.hint
            and bool(request.tools)
            and bool(request.messages)
        )
        if not asks:
            return RequestDrafter(drafter, request.request_id, None, self._clock)
        assert self.router is not None
        assert request.messages is not None
        arrivals = self.router.open(request.request_id, drafter)
        self.router.sidecar.ask(
            request.request_id, request.messages, request.tools or [], request.tenant
        )
        return RequestDrafter(drafter, request.request_id, self.router, self._clock, arrivals)


def load(
    target: Any,
    *,
    sidecar: str | AnySidecar | None = None,
    adapter: str | None = None,
    placement: Literal["thread", "process"] = "thread",
    wave: Literal["auto", "always", "never"] = "auto",
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
    wave: whether waves start: "auto" where their measured cost is worth it.
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
        shares = isinstance(sidecar, str) and not is_address(sidecar)
        if shares and same_gpu(device, sidecar_device or device):
            how["max_smem"] = TARGET_SMEM
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
    wave: Literal["auto", "always", "never"] = "auto",
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
                max_smem=SIDECAR_SMEM if same_gpu(model.device, sidecar_device or device) else 0,
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


def target_text(
    tokenizer: Any,
    *,
    table: TokenTable | None = None,
    end_token: int | None = None,
    num_ids: int = 0,
) -> TargetText:
    """Returns how a target reads and writes text, by its Hugging Face tokenizer.

    table: of the tokenizer, where somebody has made it. end_token: id that ends an answer, -1 for
    none; None: the tokenizer's own. num_ids: those below it may be committed too; one that is not
    in the tokenizer has no bytes. Raises UnsupportedModel as TokenTable does.
    """
    if table is None:
        table = TokenTable(tokenizer)
    if end_token is None:
        end_token = -1 if tokenizer.eos_token_id is None else int(tokenizer.eos_token_id)
    vocab = _C.Vocab([*table.pieces, *[b""] * (num_ids - len(table.pieces))])
    encode, spell = table.drafting_encoders(vocab)
    return TargetText(vocab, encode, end_token, call_styles(tokenizer), tokenizer, spell)


def end_token(backend: Backend) -> int:
    """Returns the id that ends an answer: the tokenizer's own if it is one of several, -1 if there
    is none.
    """
    own = getattr(backend.tokenizer, "eos_token_id", None)
    if own in backend.eos_ids:
        return int(own)
    return min(backend.eos_ids, default=-1)


def same_gpu(one: Any, other: Any) -> bool:
    """Returns whether two devices, named as for load(), are one GPU."""
    found = [torch.device(device or find_device(None)) for device in (one, other)]
    return found[0].type == found[1].type == "cuda" and len({d.index or 0 for d in found}) == 1


def shared_compute(sidecar: Any, backend: Backend) -> float:
    """Returns how much of a wave's time the target loses: all of it on the same CPU cores, a tenth
    on the same GPU, nothing on another.
    """
    own, other = backend.device, torch.device(sidecar.config.device or backend.device)
    if own.type == other.type == "cpu":
        return 1.0
    return 0.1 if same_gpu(own, other) else 0.0
