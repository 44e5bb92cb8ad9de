# SPDX-License-Identifier: Apache-2.0
"""Types of the compiled core; the headers in csrc/ say what each call does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

_Ints = Sequence[int] | npt.NDArray[Any]

SOURCES: dict[str, int]

class DraftTree:
    """Token tree: tree/draft_tree.h. Arrays are copies. Raises IndexError for an unknown node."""

    MAX_NODES: ClassVar[int]
    MAX_CANDIDATES: ClassVar[int]

    def __init__(self, root: int) -> None: ...
    def __len__(self) -> int: ...
    def reset(self, root: int) -> None: ...
    def insert(
        self, parent: int, path: Sequence[int], probabilities: Sequence[float], source: int
    ) -> int: ...
    def best_size(self, budget: int, cost_us: Sequence[float] = ...) -> int: ...
    def prune(self, num_nodes: int) -> None: ...
    def accept(self, choices: Sequence[int]) -> list[int]: ...
    def check(self) -> None: ...
    @property
    def tokens(self) -> npt.NDArray[np.int32]: ...
    @property
    def parents(self) -> npt.NDArray[np.int32]: ...
    @property
    def depths(self) -> npt.NDArray[np.int32]: ...
    @property
    def sources(self) -> npt.NDArray[np.uint8]: ...
    @property
    def probabilities(self) -> npt.NDArray[np.float32]: ...
    @property
    def masks(self) -> npt.NDArray[np.uint64]: ...

class DraftRows:
    """What of a tree is launched: tree/draft_rows.h. Columns are views that cannot be written."""

    def __init__(
        self,
        tokens: _Ints,
        parents: _Ints,
        depths: _Ints,
        sources: _Ints,
        masks: _Ints,
        nodes: _Ints,
        num_nodes: int,
    ) -> None: ...
    @staticmethod
    def root(token: int) -> DraftRows: ...
    @staticmethod
    def of_tree(
        tree: DraftTree, root: int, num_tokens: int, max_nodes: int, max_depth: int
    ) -> DraftRows | None: ...
    @staticmethod
    def behind(given: Sequence[int], tree: DraftTree) -> DraftRows:
        """The tree behind a chain of `given` tokens."""

    def __len__(self) -> int: ...
    def sources_of(self, path: Sequence[int]) -> list[int]: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def tokens(self) -> npt.NDArray[np.int32]: ...
    @property
    def parents(self) -> npt.NDArray[np.int32]: ...
    @property
    def depths(self) -> npt.NDArray[np.int32]: ...
    @property
    def nodes(self) -> npt.NDArray[np.int32]: ...
    @property
    def sources(self) -> npt.NDArray[np.uint8]: ...
    @property
    def masks(self) -> npt.NDArray[np.uint64]: ...

class RowChoice:
    """How rows choose what comes after them: tree/launch_rows.h."""

    def __init__(
        self, *, min_tokens: int, temperature: float, top_k: int, top_p: float, key: int
    ) -> None: ...

class LaunchRows:
    """Rows of a launch in the memory of arrays: tree/launch_rows.h. Raises ValueError for what does
    not fit.
    """

    def __init__(
        self, arrays: dict[str, npt.NDArray[Any]], *, spare_slot: int, page_size: int
    ) -> None: ...
    def begin(self) -> None: ...
    def add(
        self,
        tokens: _Ints,
        positions: _Ints,
        parents: _Ints,
        masks: _Ints,
        runs: Sequence[tuple[int, int]],
        length: int,
    ) -> int: ...
    def add_draft(
        self,
        rows: DraftRows,
        runs: Sequence[tuple[int, int]],
        length: int,
        index: int,
        choice: RowChoice,
        anew: bool = False,
    ) -> int: ...
    @property
    def num_sequences(self) -> int: ...

class HintKind:
    """What a record says: common/types.h."""

    FUNCTION: ClassVar[HintKind]
    VALUE: ClassVar[HintKind]
    END: ClassVar[HintKind]
    ERROR: ClassVar[HintKind]
    __members__: ClassVar[dict[str, HintKind]]

    def __init__(self, value: int) -> None: ...
    def __int__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...

class HintRecord:
    """A hint, immutable: ring/hint_ring.h. Bytes that are not UTF-8 show as U+FFFD in `text`."""

    NO_TOOL: ClassVar[int]
    MAX_TEXT_BYTES: ClassVar[int]

    def __init__(
        self,
        request_id: int,
        kind: HintKind,
        call: int,
        tool: int,
        parameter: int,
        text: str = "",
    ) -> None: ...
    @property
    def request_id(self) -> int: ...
    @property
    def sequence(self) -> int: ...
    @property
    def kind(self) -> HintKind: ...
    @property
    def call(self) -> int: ...
    @property
    def tool(self) -> int: ...
    @property
    def parameter(self) -> int: ...
    @property
    def text(self) -> str: ...

class HintRing:
    """Ring from one writer to one reader: ring/hint_ring.h. Raises ValueError, OSError."""

    RECORD_BYTES: ClassVar[int]
    MAX_REQUEST_BYTES: ClassVar[int]

    def __init__(self, capacity_bytes: int = 1048576, shared: bool = False) -> None: ...
    @staticmethod
    def attach(fd: int) -> HintRing: ...
    def try_push(
        self,
        request_id: int,
        kind: HintKind,
        call: int,
        tool: int,
        parameter: int,
        text: str = "",
    ) -> bool: ...
    def wake_by(self, fd: int) -> None: ...
    def try_pop(self) -> HintRecord | None: ...
    @property
    def fd(self) -> int: ...
    @property
    def capacity_bytes(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def torn(self) -> int: ...

class ToolSet:
    """The tools of a request, immutable: call/tool_schema.h. Raises ValueError for a bad list."""

    def __init__(self, json: str | bytes) -> None: ...
    def __len__(self) -> int: ...
    def find(self, name: str) -> int: ...
    def name(self, tool: int) -> str: ...
    def parameters(self, tool: int) -> list[str]: ...
    @property
    def hash(self) -> int: ...

class CallStyle:
    """How a target writes calls: call/call_style.h.

    wrapper: bare, tags, fenced_json, fenced or python_tag. lines: of the list, the call, its
    arguments, objects and arrays in them.
    """

    wrapper: str
    as_list: bool
    rewrap: bool
    type_key: bool
    lines: Sequence[bool]
    ascii: bool
    escape_slash: bool
    open_gap: str
    close_gap: str
    between: str
    arguments_key: str
    indent: str
    pad: str
    array_pad: str
    before_comma: str
    after_comma: str
    before_colon: str
    after_colon: str

    def __init__(self, wrapper: str = "tags", indent: str = "") -> None: ...
    @staticmethod
    def from_text(text: str | bytes, tools: ToolSet) -> CallStyle: ...
    @property
    def seen(self) -> int: ...
    def agrees_with(self, other: CallStyle) -> bool: ...
    def filled_from(self, guess: CallStyle) -> CallStyle: ...
    def copy(self) -> CallStyle: ...

class StyleGuess:
    """A style and how likely it is."""

    def __init__(self, style: CallStyle, probability: float) -> None: ...
    @property
    def style(self) -> CallStyle: ...
    @property
    def probability(self) -> float: ...

def usual_styles() -> list[StyleGuess]: ...

class Call:
    """A call that was read. tool: -1 if its name is unknown. begin, end: bytes of its object."""

    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str: ...
    @property
    def tool(self) -> int: ...
    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...

class CallReader:
    """Follows an answer byte by byte: call/call_reader.h."""

    def __init__(self, tools: ToolSet, thinking: bool = False) -> None: ...
    def feed(self, data: bytes) -> None: ...
    @property
    def spot(self) -> str: ...
    @property
    def in_call(self) -> bool: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def calls(self) -> list[Call]: ...
    @property
    def spans(self) -> list[tuple[int, int]]: ...
    @property
    def style(self) -> CallStyle: ...
    @property
    def tool(self) -> int: ...
    def copy(self) -> CallReader: ...

def parse_calls(text: str | bytes, tools: ToolSet) -> list[Call]: ...

class AnswerPart:
    """A stretch of an answer: call/answer_reader.h."""

    @property
    def part(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def end(self) -> int: ...

class AnswerReader:
    """Cuts an answer into content, thinking and calls: call/answer_reader.h.

    feed() and finish() return what became certain.
    """

    def __init__(self, tools: ToolSet | None, thinking: bool = False) -> None: ...
    def feed(self, text: str) -> list[AnswerPart]: ...
    def finish(self) -> list[AnswerPart]: ...
    @property
    def num_bytes(self) -> int: ...

class Slots:
    """What hints said of one call: call/call_writer.h."""

    tool: int
    ended: bool

    def __init__(self) -> None: ...
    def set(self, tool: int, parameter: int, json: str | bytes) -> bool: ...

class Piece:
    """Bytes of a continuation that stand or fall together."""

    @property
    def end(self) -> int: ...
    @property
    def source(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def probability(self) -> float: ...

class TextPath:
    """One continuation; the first `shared` bytes equal those of path 0."""

    @property
    def text(self) -> bytes: ...
    @property
    def pieces(self) -> list[Piece]: ...
    @property
    def shared(self) -> int: ...
    @property
    def probability(self) -> float: ...
    @property
    def ends_answer(self) -> bool: ...

class CallWriter:
    """Writes on from where a reader stands: call/call_writer.h."""

    def __init__(self) -> None: ...
    def write_on(
        self,
        reader: CallReader,
        styles: list[StyleGuess],
        slots: list[Slots],
        max_paths: int = 8,
        max_bytes: int = 4096,
    ) -> list[TextPath]: ...

class RequestSpans:
    """What of a request a value is likely to be: call/request_spans.h. Not thread-safe."""

    def __init__(self, tools: ToolSet, request: str) -> None: ...
    def of(self, tools: ToolSet, tool: int, parameter: int) -> list[tuple[str, float]]: ...

def render_calls(calls: list[tuple[str, str]], style: CallStyle) -> str: ...

class SuffixIndex:
    """Retrieval over documents of tokens: index/suffix_index.h."""

    MAX_TOKENS: ClassVar[int]
    MIN_BYTES: ClassVar[int]

    class Cursor:
        def __init__(self) -> None: ...
        @property
        def match_length(self) -> int: ...

    class Continuation:
        @property
        def tokens(self) -> list[int]: ...
        @property
        def probabilities(self) -> list[float]: ...
        @property
        def match_length(self) -> int: ...

    def __init__(self, max_bytes: int) -> None: ...
    def append(self, document: Sequence[int]) -> None: ...
    def extend(self, token: int) -> None: ...
    def advance(self, cursor: Cursor, token: int) -> None: ...
    def tail(self) -> Cursor: ...
    def continuations(
        self,
        cursor: Cursor,
        min_match: int = ...,
        max_tokens: int = ...,
        max_branches: int = ...,
        min_probability: float = ...,
    ) -> list[Continuation]: ...
    def check(self) -> None: ...
    @property
    def num_bytes(self) -> int: ...

class TokenRecycler:
    """Likeliest successors last seen for each token: index/token_recycler.h."""

    MAX_SUCCESSORS: ClassVar[int]

    def __init__(self, vocab_size: int) -> None: ...
    def update(self, token: int, successors: Sequence[int]) -> None: ...
    def successors(self, token: int) -> list[int]: ...
    @property
    def vocab_size(self) -> int: ...

class Vocab:
    """Bytes of every token: common/vocab.h. Raises ValueError, IndexError for an unknown id."""

    def __init__(self, pieces: Sequence[bytes]) -> None: ...
    def __len__(self) -> int: ...
    def bytes(self, token: int) -> bytes: ...

class ByteBpe:
    """Byte-level BPE without the tokenizer, which is `otherwise`: draft/byte_bpe.h."""

    def __init__(
        self,
        vocab: Vocab,
        most_digits: int,
        added: Sequence[int],
        otherwise: Callable[[str], Sequence[int]],
    ) -> None: ...
    def __call__(self, text: str) -> list[int]: ...
    def spelled(self, otherwise: Callable[[str], Sequence[int]]) -> ByteBpe:
        """Returns what encodes as if no token had been added."""

class DraftMemory:
    """What drafting learns and keeps between requests: draft/draft_memory.h. Thread-safe."""

    def __init__(
        self, *, vocab_size: int, max_bytes: int, styles: Sequence[StyleGuess]
    ) -> None: ...
    def learn_answer(self, tokens: Sequence[int]) -> None: ...
    @property
    def styles(self) -> list[StyleGuess]: ...
    @property
    def bytes(self) -> int: ...

class SlotBranch:
    """A value that the target writes beside its call: draft/slot_branch.h."""

    MAX_TOKENS: int

    class State:
        OPEN: SlotBranch.State
        DONE: SlotBranch.State
        FAILED: SlotBranch.State

    @property
    def call(self) -> int: ...
    @property
    def tool(self) -> int: ...
    @property
    def parameter(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def fed(self) -> list[int]: ...
    @property
    def state(self) -> State: ...
    @property
    def value(self) -> str: ...
    def offer_hint(self, json: str) -> bool: ...
    def propose(self, budget: int) -> DraftTree: ...
    def commit(self, tokens: Sequence[int]) -> State: ...

class Drafter:
    """One request's sources and their fusion: draft/drafter.h. Not thread-safe."""

    def __init__(
        self,
        vocab: Vocab,
        tools: ToolSet,
        memory: DraftMemory,
        encode: Callable[[str], Sequence[int]],
        *,
        spell: Callable[[str], Sequence[int]] | None = None,
        schema: bool = True,
        hint: bool = True,
        span: bool = True,
        lookup: bool = True,
        retrieval: bool = True,
        recycler: bool = True,
        recycler_tree: bool = False,
        learn: bool = True,
        branches: bool = False,
        thinking: bool = False,
        end_token: int = -1,
    ) -> None: ...
    def begin(self, prompt: Sequence[int], num_opening: int = 0) -> None: ...
    def read_request(self, text: str) -> None: ...
    def offer_hint(
        self, kind: HintKind, call: int, tool: int, parameter: int, text: str
    ) -> bool: ...
    def add_path(self, number: int, tokens: Sequence[int], probability: float) -> None: ...
    def set_costs(self, cost_us: Sequence[float]) -> None: ...
    def propose(self, budget: int) -> DraftTree: ...
    def commit(self, tokens: Sequence[int], top8: npt.NDArray[np.int32] | None = None) -> None: ...
    def prepare(self) -> None: ...
    def finish(self) -> None: ...
    @property
    def head(self) -> tuple[int, int] | None:
        """Number and tool of the call under way, once its arguments have begun."""

    @property
    def open_parameters(self) -> list[int]: ...
    def branch(self, parameter: int) -> SlotBranch | None: ...
    def awaits(self, branch: SlotBranch) -> bool: ...
    def take_value(self, branch: SlotBranch) -> bool: ...
    @property
    def reader(self) -> CallReader: ...
    @property
    def main_path(self) -> list[int]: ...
    @property
    def num_encodes(self) -> int: ...
    @property
    def encode_us(self) -> float: ...

class ValueReader:
    """Where the answer to a slot's question ends: wave/value_reader.h."""

    def __init__(self) -> None: ...
    def feed(self, data: bytes) -> bool: ...
    @property
    def answer(self) -> bytes: ...
    @property
    def ended(self) -> bool: ...

class ValueSchema:
    """What a schema makes of an answer: wave/value_schema.h. Raises ValueError."""

    def __init__(self, json: str) -> None: ...
    def to_hint(self, answer: bytes) -> str | None: ...
    @property
    def is_nullable(self) -> bool: ...

class WaveSlot:
    """A parameter to ask for."""

    def __init__(
        self,
        tool: int,
        parameter: int,
        is_required: bool,
        question: Sequence[int],
        schema: ValueSchema,
        recorded: Sequence[int] = ...,
    ) -> None: ...

class WaveRequest:
    """What a wave runs on."""

    def __init__(
        self,
        *,
        request_id: int,
        prefix: Sequence[int],
        num_cached: int,
        question: Sequence[int],
        options: Sequence[tuple[int, Sequence[int]]],
        slots: Sequence[WaveSlot],
        prefix_pages: Sequence[int],
        lane_pages: Sequence[int],
        pages_per_lane: int,
        recorded: int | None = None,
    ) -> None: ...

class WaveResult:
    """What a wave did. steps: (start, stop, rows); answers: (time, kind, tool, parameter, sent).

    Times in nanoseconds of the steady clock, that of time.perf_counter_ns.
    """

    @property
    def cancelled(self) -> bool: ...
    @property
    def num_sent(self) -> int: ...
    @property
    def num_unsaid(self) -> int: ...
    @property
    def num_invalid(self) -> int: ...
    @property
    def steps(self) -> list[tuple[int, int, int]]: ...
    @property
    def answers(self) -> list[tuple[int, HintKind, int, int, bool]]: ...

class Wave:
    """A whole wave in one call, without the GIL: wave/wave.h. cancel() is for any thread.

    launcher: address of a Launcher that outlives it, or a function of a program's number.
    """

    MAX_SLOTS: ClassVar[int]

    def __init__(
        self,
        *,
        vocab: Vocab,
        eos_ids: Sequence[int],
        max_value_tokens: int,
        num_lanes: int,
        likely_within: float,
        chunk: Mapping[str, npt.NDArray[Any]],
        rows: Mapping[str, npt.NDArray[Any]],
        asks: Sequence[Mapping[str, npt.NDArray[Any]]],
        spare_slot: int,
        page_size: int,
        launcher: int | Callable[[int], object],
    ) -> None: ...
    def run(self, request: WaveRequest, ring: HintRing) -> WaveResult: ...
    def cancel(self) -> None: ...
    def reset(self) -> None: ...
