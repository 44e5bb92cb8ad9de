# SPDX-License-Identifier: Apache-2.0
"""Runs any Hugging Face causal LM over paged KV: its own modules, our attention function."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any, Protocol

import torch
from transformers.modeling_utils import AttentionInterface

from ooospec.backends.attention import Launch, attend
from ooospec.backends.base import Ask, Segment, Verdict, prefill
from ooospec.backends.cpu_linear import undo, use_onednn
from ooospec.backends.support import (
    ATTENTION,
    Probe,
    check_config,
    check_probe,
    decodable_ids,
    eos_ids,
)
from ooospec.backends.together import verify_on_host, verify_together
from ooospec.config import MAX_NODES, PAGE_SIZE
from ooospec.errors import UnsupportedModel
from ooospec.kv import PagePool, Sequence
from ooospec.rows import Rows
from ooospec.sampling import Chooser

TESTED = frozenset({"qwen2", "qwen3", "llama", "mistral", "gemma3_text"})
CHUNK = 256


class Attends(Protocol):
    """What a forward pass carries to the attention of each layer."""

    def attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        window: int | None,
        softcap: float | None,
        arguments: dict[str, Any],
    ) -> torch.Tensor:
        """Attends for the rows of a launch; query: [H, N, D], the others [G, N, D]. Returns
        [N, H, D].
        """
        ...


def _paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    ooospec_launch: Launch | Attends | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The attention of the models we run, as transformers' AttentionInterface wants it."""
    if ooospec_launch is None:
        raise RuntimeError(
            "this model belongs to an ooospec backend: expected a launch, got a plain forward "
            "pass; call backend.close() to use the model by itself again"
        )
    if scaling is None:
        scaling = float(query.shape[-1] ** -0.5)
    if isinstance(ooospec_launch, Launch):
        output = attend(
            query[0],
            key[0],
            value[0],
            ooospec_launch,
            int(module.layer_idx),  # type: ignore[arg-type]
            scaling=scaling,
            window=sliding_window,
            softcap=softcap,
        )
    else:
        output = ooospec_launch.attend(
            module, query[0], key[0], value[0], scaling, sliding_window, softcap, kwargs
        )
    return output.unsqueeze(0), None


AttentionInterface.register(ATTENTION, _paged_attention)


class TransformersBackend:
    """A Backend (see base.py) over a Hugging Face model; the model is ours until close()."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        chunk: int = CHUNK,
        num_padded_rows: int | None = None,
    ) -> None:
        """Takes over `model`, which is probed with two small forward passes.

        tokenizer: its Hugging Face tokenizer; None where only ids are used.
        chunk: rows of a prefill chunk, a multiple of the page size.
        num_padded_rows: rows that every smaller launch is padded to, so that products always run
            at one size (chunks are padded too); None: no padding, or 64 on a GPU.
        Raises UnsupportedModel if the model cannot be run exactly, ValueError for a bad `chunk`.
        """
        if chunk < 1 or chunk % PAGE_SIZE:
            raise ValueError(f"chunk: expected a multiple of {PAGE_SIZE}, got {chunk}")
        check_config(model)
        model.eval()
        self.model = model
        self.tokenizer = tokenizer
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.chunk = chunk
        self.max_tree_rows = max(chunk, MAX_NODES)
        self.num_sequences = MAX_NODES
        config = model.config.get_text_config()
        self.context_limit = int(config.max_position_embeddings)
        self.num_embeddings = int(model.get_input_embeddings().weight.shape[0])
        self.decodable = decodable_ids(model, tokenizer)
        self.eos_ids = eos_ids(model, tokenizer, self.decodable)
        self.num_padded_rows = num_padded_rows
        if num_padded_rows is None and self.device.type == "cuda":
            self.num_padded_rows = MAX_NODES
        self._takes_logits_to_keep = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._stock_attention = str(model.config._attn_implementation)
        self._fast_layers: list[torch.nn.Linear] = []
        self._is_taken = False
        probe = self._probe()
        self.layers = probe.layers
        self.num_heads = frozenset(probe.num_heads)
        tested = self.device.type == "cpu" and self.dtype == torch.float32
        self.level = "tested" if tested and config.model_type in TESTED else "not checked"
        self.is_canonical = False
        size = sum(p.numel() for p in model.parameters()) / 1e9
        dtype = str(self.dtype).removeprefix("torch.")
        self.description = f"{type(model).__name__} {size:.2f}B, {dtype} on {self.device}"

    def take(self) -> None:
        """Takes the model over, as at first; for one that was given back. Raises UnsupportedModel
        for one that keeps its own attention.
        """
        self.model.set_attn_implementation(ATTENTION)
        if self.model.config._attn_implementation != ATTENTION:
            raise UnsupportedModel(
                f"{type(self.model).__name__} keeps its own attention, which cannot read pages."
            )
        self._fast_layers = self._fast_layers or use_onednn(self.model)
        self._is_taken = True

    def close(self) -> None:
        """Gives the model back, with the attention it came with; take() takes it again. Safe to
        call twice, whoever has the model by then.
        """
        if not self._is_taken:
            return
        self._is_taken = False
        self.model.set_attn_implementation(self._stock_attention)
        undo(self._fast_layers)
        self._fast_layers = []

    def new_pool(self, num_tokens: int) -> PagePool:
        """Returns a KV cache with room for `num_tokens` tokens."""
        num_pages = -(-num_tokens // PAGE_SIZE)
        return PagePool(self.layers, num_pages, dtype=self.dtype, device=self.device)

    @torch.inference_mode()
    def forward(self, segments: Seq[Segment]) -> list[torch.Tensor]:
        """Runs one launch; see Backend.forward. Raises ValueError for ids or rows out of range."""
        order = Launch.order(segments)
        ordered = [segments[i] for i in order]
        tokens = [token for segment in ordered for token in segment.tokens]
        positions = [position for segment in ordered for position in segment.positions]
        if not 0 <= min(tokens) <= max(tokens) < self.num_embeddings:
            raise ValueError(
                f"launch: expected ids in [0, {self.num_embeddings}), got {min(tokens)} to "
                f"{max(tokens)}"
            )
        wanted: list[int] = []
        parts: list[range] = [range(0)] * len(segments)
        row = 0
        for i, segment in zip(order, ordered, strict=True):
            stop = row + len(segment.tokens)
            rows = {"all": range(row, stop), "last": range(stop - 1, stop), "none": range(0)}[
                segment.logits
            ]
            parts[i] = range(len(wanted), len(wanted) + len(rows))
            wanted += rows
            row = stop
        num_rows = self._padded(row)
        launch = Launch.plan(ordered, num_rows)
        padding = [0] * (num_rows - row)
        logits = self._logits(tokens + padding, positions + padding, wanted, launch)
        for segment in segments:
            segment.sequence.num_rows = len(segment.tokens)
        return [logits[part.start : part.stop] for part in parts]

    def verify(
        self,
        sequence: Sequence,
        rows: Rows,
        chooser: Chooser,
        index: int,
        *,
        top8: bool,
        meanwhile: Callable[[], None] = lambda: None,
        riders: Seq[Ask] = (),
    ) -> Verdict:
        """Runs one round; see Backend.verify."""
        return verify_on_host(self, Ask(sequence, rows, chooser, index, top8), meanwhile, riders)

    def verify_together(
        self, asks: Seq[Ask], meanwhile: Callable[[], None] = lambda: None
    ) -> list[Verdict | RuntimeError]:
        """Runs one round of all `asks`; see Backend.verify_together."""
        return verify_together(self, asks, meanwhile)

    def prefill(
        self, sequence: Sequence, tokens: Seq[int], progress: Callable[[int], None] | None = None
    ) -> torch.Tensor:
        """Commits `tokens` behind the sequence; see Backend.prefill."""
        return prefill(self, sequence, tokens, progress)

    def measure_costs(self, row_counts: Seq[int]) -> list[float]:
        """Returns the microseconds of a round of so many rows behind 256 tokens; best of two."""
        sequence = Sequence(self.new_pool(CHUNK + max(row_counts)))
        sequence.reserve(CHUNK + max(row_counts))
        for cached in (*sequence.pool.keys, *sequence.pool.values):
            cached.zero_()
        sequence.length = CHUNK
        return [min(self._time_round(sequence, count) for _ in range(2)) for count in row_counts]

    def _time_round(self, sequence: Sequence, num_rows: int) -> float:
        positions = range(sequence.length, sequence.length + num_rows)
        start = time.perf_counter()
        logits = self.forward([Segment(sequence, [0] * num_rows, positions)])[0]
        logits.argmax(dim=-1).tolist()
        return (time.perf_counter() - start) * 1e6

    def _padded(self, num_rows: int) -> int:
        if self.num_padded_rows is None:
            return num_rows
        if num_rows <= self.num_padded_rows:
            return self.num_padded_rows
        return -(-num_rows // self.chunk) * self.chunk

    def _logits(
        self, tokens: list[int], positions: list[int], wanted: list[int], launch: Launch | Probe
    ) -> torch.Tensor:
        """Runs the model over one row of tokens; returns float32[len(wanted), V]."""
        inputs = torch.tensor([tokens, positions], device=self.device)
        index: torch.Tensor | None = None
        if len(wanted) != len(tokens):
            index = torch.tensor(wanted, dtype=torch.long, device=self.device)
        return self.run(inputs[0], inputs[1], launch, index).float()

    def run(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        launch: Launch | Attends,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Runs the model once over int64[N] tokens; returns its logits of `wanted`, int64[M] rows
        (None: of all), in its own dtype. Reads nothing back. Mutates: what `launch` writes. Raises
        RuntimeError where the model was given back: its own attention knows no launch.
        """
        attention = self.model.config._attn_implementation
        if attention != ATTENTION:
            raise RuntimeError(
                f"model: expected one that this backend holds, got one with the attention "
                f"{attention!r}: it was given back, maybe by another backend of the same model"
            )
        kwargs: dict[str, Any] = {}
        if wanted is not None and self._takes_logits_to_keep:
            kwargs["logits_to_keep"] = wanted
        output = self.model(
            input_ids=tokens[None],
            position_ids=positions[None],
            use_cache=False,
            ooospec_launch=launch,
            **kwargs,
        )
        logits: torch.Tensor = output.logits[0]
        if wanted is not None and not self._takes_logits_to_keep:
            logits = logits[wanted]
        return logits

    @torch.inference_mode()
    def _probe(self) -> Probe:
        """Finds what each layer caches; compares our attention with the model's own."""
        config = self.model.config.get_text_config()
        tokens = [(7 * i) % self.decodable for i in range(1, 9)]
        positions = list(range(len(tokens)))
        self.model.set_attn_implementation("eager")
        inputs = torch.tensor([tokens], device=self.device)
        expected = self.model(input_ids=inputs, use_cache=False).logits[0].float()
        self.take()
        probe = Probe()
        try:
            got = self._logits(tokens, positions, positions, probe)
            check_probe(probe, config, expected, got, self.dtype)
            self.num_logits = int(got.shape[1])
        except UnsupportedModel:
            self.close()
            raise
        return probe
