# SPDX-License-Identifier: Apache-2.0
"""The drafter from Python: hints through the ring, sources from outside, memories apart."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from ooospec import _C
from ooospec.draft import MAX_MEMORIES, Drafter, DraftStore, TargetText
from ooospec.hints import HintRouter
from ooospec.methods import METHODS, Method, method
from ooospec.replay import replay, slot_records
from ooospec.sources import Source, SourceRequest, SourceState, WeightedPath, load_source

END = 256
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "unit": {"enum": ["celsius", "fahrenheit"]},
                },
                "required": ["city"],
            },
        },
    }
]
CALL = {
    "name": "get_weather",
    "arguments": {"city": "Zürich \\ 東京", "days": 3, "unit": "celsius"},
}


def byte_text(styles: Sequence[Any] | None = None) -> TargetText:
    """Returns a target whose tokens are bytes."""
    vocab = _C.Vocab([bytes([byte]) for byte in range(256)] + [b""])
    return TargetText(
        vocab, lambda text: list(text.encode()), END, list(styles or _C.usual_styles())
    )


def answer(call: dict[str, Any] = CALL, style: Any = None) -> list[int]:
    arguments = json.dumps(call["arguments"], ensure_ascii=False)
    text = _C.render_calls([(call["name"], arguments)], style or _C.CallStyle("tags"))
    return [*text.encode(), END]


def rounds(drafter: Drafter, ids: list[int]) -> int:
    return len(replay(drafter, ids))


class OneRequestSidecar:
    """A sidecar that sends what it is given, by way of a real ring."""

    def __init__(self, ring: _C.HintRing, records: Sequence[_C.HintRecord]) -> None:
        self.ring = ring
        self.status = "ready"
        self.records = records
        self.cancelled: list[int] = []

    def ask(self, request_id: int, messages: Any, tools: Any, tenant: str = "") -> None:
        for record in self.records:
            assert self.ring.try_push(
                record.request_id,
                record.kind,
                record.call,
                record.tool,
                record.parameter,
                record.text,
            )

    def cancel(self, request_id: int) -> None:
        self.cancelled.append(request_id)

    def close(self) -> None:
        pass


def test_hints_reach_the_drafter_of_their_request_only() -> None:
    sidecar = OneRequestSidecar(
        _C.HintRing(), [*slot_records(7, [CALL], TOOLS), *slot_records(8, [CALL], TOOLS)]
    )
    router = HintRouter(sidecar)
    drafter = Drafter(byte_text(), TOOLS, METHODS["ooo"], [1])
    arrivals = router.open(7, drafter)
    sidecar.ask(7, [], TOOLS)
    router.poll()
    assert [arrival.kind for arrival in arrivals] == [
        _C.HintKind.FUNCTION,
        *[_C.HintKind.VALUE] * 3,
        _C.HintKind.END,
    ]
    assert all(arrival.used for arrival in arrivals)
    assert router.num_dropped == 5
    hinted = rounds(drafter, answer())
    plain = rounds(Drafter(byte_text(), TOOLS, METHODS["toolspec"], [1]), answer())
    assert hinted <= -(-len(answer()) // 64) + 2 < plain / 2
    router.close(7)
    assert sidecar.cancelled == [7]


def test_every_method_is_a_set_of_sources() -> None:
    known = "ar pld sam recycling draft span toolspec ooo self ooo+self"
    assert set(METHODS) == set(known.split())
    assert method("ooo").hint
    assert not method("toolspec").hint
    with pytest.raises(ValueError, match=r"expected one of ar, pld, .*, ooo\+self, got 'fast'"):
        method("fast")
    used: dict[str, set[int]] = {}
    for name, one in METHODS.items():
        prompt = "Weather in Zurich for 3 days?"
        said = [{"role": "user", "content": prompt}]
        drafter = Drafter(byte_text(), TOOLS, one, list(prompt.encode()), messages=said)
        for record in slot_records(1, [CALL], TOOLS):
            assert drafter.offer_hint(record) == (one.hint or one.branches)
        used[name] = set()
        ids = answer()
        drafter.commit(ids[:1])
        for done in range(1, len(ids)):
            used[name] |= set(drafter.propose(64).sources.tolist())
            drafter.commit([ids[done]])
    root, schema, hint, retrieval, span = (
        _C.SOURCES[key] for key in ("root", "schema", "hint", "retrieval", "span")
    )
    assert used["ar"] == {root}
    assert used["pld"] == used["sam"] == {root, retrieval}
    assert used["recycling"] == used["draft"] == {root}
    assert used["span"] == {root, schema, span}
    assert used["toolspec"] == {root, schema, retrieval, span}
    assert used["ooo"] == {root, schema, hint, retrieval}


def test_a_static_corpus_is_known_from_the_start_and_stays_as_it_is() -> None:
    ids = answer()
    store = DraftStore(byte_text(), corpus=[bytes(ids[:-1]).decode()])
    found, later, other = (
        rounds(Drafter(byte_text(), [], METHODS["sam"], [1], memory=memory), one)
        for memory, one in (
            (store.memory("sam"), ids),
            (DraftStore(byte_text()).memory("sam"), ids),
            (store.memory("sam"), answer(CALL | {"name": "another"})),
        )
    )
    assert found < later / 4
    assert other < later
    memory = DraftStore(byte_text()).memory("sam")
    for _ in range(2):
        drafter = Drafter(byte_text(), [], METHODS["sam"], [1], memory=memory)
        assert rounds(drafter, ids) == later
        drafter.finish()


def test_recycling_draws_a_whole_tree_of_what_the_target_ranked_high() -> None:
    drafter = Drafter(byte_text(), [], METHODS["recycling"], [1])
    assert drafter.wants_top8
    drafter.commit([10])
    assert len(drafter.propose(64)) == 1
    top8 = np.array([[20, 30, 40, 50, 60, 70, 80, 90]], dtype=np.int32)
    drafter.commit([20], top8)  # 20 followed 10
    drafter.propose(64)
    drafter.commit([10], np.full((1, 8), 10, dtype=np.int32) + np.arange(8, dtype=np.int32))
    tree = drafter.propose(64)
    assert set(tree.sources.tolist()[1:]) == {_C.SOURCES["recycler"]}
    tokens, parents = tree.tokens.tolist(), tree.parents.tolist()
    below = [tokens[node] for node in range(1, len(tree)) if parents[node] == 0]
    assert sorted(below) == [20, 30, 40, 50, 60, 70, 80, 90]
    under_20 = [tokens[node] for node in range(1, len(tree)) if tokens[parents[node]] == 20]
    assert {10, 11, 12} <= set(under_20)
    assert max(tree.depths.tolist()) >= 3
    assert len(tree) > 25


def test_spans_of_the_request_are_drafted_until_a_hint_comes() -> None:
    said = [
        {"role": "system", "content": "The city is Berlin."},
        {"role": "user", "content": [{"type": "text", "text": "Weather in the city Ulm, 4 days?"}]},
        {"role": "assistant", "content": None},
    ]
    ids = answer(CALL | {"arguments": {"city": "Ulm", "days": 4}})
    text = bytes(ids[:-1])

    def drafted(done: int, hints: Sequence[Any] = ()) -> set[bytes]:
        drafter = Drafter(byte_text(), TOOLS, METHODS["ooo"], [1], messages=said)
        for record in hints:
            drafter.offer_hint(record)
        drafter.commit(ids[:done])
        tree = drafter.propose(64)
        spans = [node for node, source in enumerate(tree.sources) if source == _C.SOURCES["span"]]
        paths = set()
        for node in spans:
            path = []
            while node > 0:
                path.append(int(tree.tokens[node]))
                node = tree.parents[node]
            paths.add(bytes(reversed(path)))
        return paths

    city = text.index(b'"Ulm"')
    assert b'"Ulm"' in drafted(city)
    assert b'lm"' in drafted(city + 2)
    assert not any(b"Berlin" in path for path in drafted(city))
    assert b"4" in drafted(text.index(b"4}"))
    assert not drafted(city, slot_records(1, [CALL], TOOLS))
    empty = [{"role": "user"}, {"role": "user", "content": []}]
    assert len(Drafter(byte_text(), TOOLS, METHODS["span"], [1], messages=empty).propose(64)) > 1


def test_tenants_and_methods_learn_apart() -> None:
    """I18: a tenant never gets drafts learnt from another."""
    store = DraftStore(byte_text())
    secret = {"name": "get_weather", "arguments": {"city": "a place only tenant one knows of"}}

    def count(tenant: str, name: str = "toolspec") -> int:
        memory = store.memory(name, tenant)
        drafter = Drafter(byte_text(), TOOLS, METHODS[name], [1], memory=memory)
        number = rounds(drafter, answer(secret))
        drafter.finish()
        return number

    cold = count("one")
    warm = count("one")
    assert warm < cold / 2
    assert count("two") == cold
    store.forget("one")
    assert count("one") == cold


class Recorded:
    """A source that knows the answer."""

    text: ClassVar[list[int]] = []

    def begin(self, request: SourceRequest) -> None:
        self.done = 0
        assert list(request.prompt) == [1]

    def propose(self, state: SourceState, budget: int) -> list[WeightedPath]:
        assert len(state.answer) == self.done
        return [WeightedPath(self.text[self.done :], 0.9)]

    def commit(self, tokens: Sequence[int]) -> None:
        self.done += len(tokens)


def test_the_memories_of_many_tenants_are_bounded() -> None:
    """J09: those that nobody asked for lately go, and one that is in use stays what it is."""
    store = DraftStore(byte_text())
    first, second = store.memory("ooo", "first"), store.memory("ooo", "second")
    for number in range(3 * MAX_MEMORIES):
        store.memory("ooo", f"tenant {number}")
        assert store.memory("ooo", "first") is first
    assert len(store._memories) == MAX_MEMORIES
    assert store.memory("ooo", "second") is not second


def test_without_tools_no_call_is_drafted() -> None:
    """A model may write JSON, and code in fences, in answers that call nothing."""
    for text in ("", "<tool_call>", "Like this:\n```", '{"na'):
        drafter = Drafter(byte_text(), [], METHODS["ooo"], [1])
        drafter.commit(list(text.encode()))
        assert _C.SOURCES["schema"] not in drafter.propose(64).sources.tolist()


def test_a_source_from_outside_joins_the_tree() -> None:
    """C13: a source that knows the answer is accepted whole."""
    Recorded.text = answer()
    drafter = Drafter(byte_text(), [], METHODS["pld"], [1], sources=[Recorded()])
    assert rounds(drafter, Recorded.text) == -(-(len(Recorded.text) - 1) // 64)


def test_sources_are_loaded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "my_sources", sys.modules[__name__])
    assert load_source("my_sources:Recorded") is Recorded
    for name, message in (
        ("my_sources:Missing", "importable module:Class"),
        ("no_such_module_at_all:X", "importable module:Class"),
        ("ooospec.methods:Method", "begin, propose and commit"),
        ("unheard-of", "entry point of ooospec.sources"),
    ):
        with pytest.raises(ValueError, match=message):
            load_source(name)


@pytest.mark.parametrize("budget", [-1, 0, 1, 2, 3, 64, 1000])
def test_a_tree_never_passes_its_budget(budget: int) -> None:
    """C01, C10: from nothing to everything."""
    drafter = Drafter(byte_text(), TOOLS, METHODS["ooo"], [1])
    for record in slot_records(1, [CALL], TOOLS):
        drafter.offer_hint(record)
    drafter.commit([ord("<")])
    tree = drafter.propose(budget)
    tree.check()
    assert 1 <= len(tree) <= max(1, min(budget, 64))


def test_hints_of_any_length_and_shape_do_no_harm() -> None:
    """C11, E03, I03: a hint of 5000 tokens, nonsense, and slots that are not there."""
    drafter = Drafter(byte_text(), TOOLS, METHODS["ooo"], [1])
    core = drafter.core
    kind = _C.HintKind
    assert core.offer_hint(kind.VALUE, 0, 0, 0, json.dumps("x" * 5000))
    assert not core.offer_hint(kind.VALUE, 0, 0, 0, "{")
    assert not core.offer_hint(kind.VALUE, 0, 9, 0, "1")
    assert not core.offer_hint(kind.VALUE, 0, 0, 9, "1")
    assert not core.offer_hint(kind.FUNCTION, 40, 0, 0, "get_weather")
    ids = answer()
    drafter.commit(ids[:1])
    for done in range(1, len(ids)):
        tree = drafter.propose(64)
        tree.check()
        assert len(tree) <= 64
        drafter.commit([ids[done]])


class Wrong:
    """A source that is always sure, and always wrong."""

    def begin(self, request: SourceRequest) -> None: ...

    def propose(self, state: SourceState, budget: int) -> list[WeightedPath]:
        return [WeightedPath(list(b"~~~~~~~~")[:budget], 0.95)]

    def commit(self, tokens: Sequence[int]) -> None: ...


@pytest.mark.parametrize("bad", [257, -1, 2**31, -(2**40), 2**63 - 1])
@pytest.mark.parametrize("probability", [0.5, 0.0, -1.0, 2.0, float("inf"), float("nan")])
def test_a_source_may_propose_anything(bad: int, probability: float) -> None:
    """An id that there is not cuts the path, and no number ends the request."""

    class Odd(Wrong):
        def propose(self, state: SourceState, budget: int) -> list[WeightedPath]:
            return [WeightedPath([65, bad, 66], probability)]

    drafter = Drafter(byte_text(), TOOLS, Method("outside"), [1], sources=[Odd()])
    for _ in range(3):
        assert drafter.propose(64).tokens.tolist()[1:] == [65]
        drafter.commit([66])
    drafter.finish()


def test_a_draft_that_is_too_long_is_cut_and_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    """C11: the tree holds what it may, and one line says so."""

    class Long(Wrong):
        def propose(self, state: SourceState, budget: int) -> list[WeightedPath]:
            return [WeightedPath([ord("~")] * 5000, 0.95)]

    drafter = Drafter(byte_text(), TOOLS, METHODS["pld"], [1], sources=[Long()])
    with caplog.at_level("INFO", "ooospec"):
        assert [len(drafter.propose(budget)) for budget in (64, 16, 1)] == [64, 16, 1]
    assert caplog.messages == [
        "a draft of 5000 tokens by Long is cut to the 63 that a round may hold"
    ]


def test_an_encoder_that_lies_costs_drafts_only() -> None:
    """E06, E07, E11: tokens that do not spell the text are not drafted."""
    text = byte_text()
    for lie in (
        lambda said: [0, 300, *said.encode()],
        lambda said: list(said.swapcase().encode()),
        lambda said: list(said.encode())[:-1],
        lambda said: [],
    ):
        lying = TargetText(text.vocab, lie, END, text.styles)
        drafter = Drafter(lying, TOOLS, METHODS["ooo"], [1])
        drafter.commit([ord("<")])
        assert drafter.propose(64).tokens.tolist()[1:] == []
    broken = TargetText(text.vocab, lambda said: 1 / 0, END, text.styles)  # type: ignore[arg-type, return-value]
    drafter = Drafter(broken, TOOLS, METHODS["ooo"], [1])
    drafter.commit([ord("<")])
    with pytest.raises(ZeroDivisionError):
        drafter.propose(64)
    drafter.commit([ord("t")])
    assert drafter.answer == list(b"<t")


def test_text_that_is_no_unicode_is_read_all_the_same() -> None:
    """Half a surrogate pair in a message: the values beside it are drafted."""
    said = [{"role": "user", "content": "Weather in \ud800 Paris"}]
    drafter = Drafter(byte_text(), TOOLS, METHODS["span"], [1], messages=said)
    drafter.commit([ord("<")])
    drafter.propose(64).check()


def test_a_rollback_a_round_does_not_wear_a_source_out() -> None:
    """I14: after 1000 rejected rounds a source that knows the answer is accepted again."""
    drafter = Drafter(byte_text(), TOOLS, METHODS["ooo"], [1])
    for record in slot_records(1, [CALL], TOOLS):
        drafter.offer_hint(record)
    for _ in range(1000):
        drafter.propose(64)
        drafter.commit([ord("z")])
    drafter.commit([ord("\n")])
    assert len(replay(drafter, answer())) <= 4


@pytest.mark.parametrize("row_us", [0.0, 15.0, 60.0])
@pytest.mark.parametrize("sources", [[], [Wrong()]])
def test_wrong_drafts_lose_little_time(row_us: float, sources: list[Source]) -> None:
    """Where each row costs time: no more than two rounds and a fiftieth, the first answer's too."""
    costs = [100.0 + row_us * row for row in range(64)]
    text = list(b"Bread is baked of flour, water, salt and yeast. Knead it well, let it rise for")
    for _ in range(2):
        drafter = Drafter(byte_text(), TOOLS, METHODS["ooo"], [1], costs_us=costs, sources=sources)
        for record in slot_records(1, [CALL], TOOLS):
            drafter.offer_hint(record)
        taken = sum(costs[one.nodes - 1] for one in replay(drafter, text))
        plain = costs[0] * (len(text) - 1)
        assert taken <= plain * 1.02 + 2 * costs[0]


def nested(depth: int) -> dict[str, Any]:
    """Returns the schema of objects in objects."""
    inner = {"type": "string"} if depth == 0 else nested(depth - 1)
    properties = {f"name_{depth}": {"type": "string"}, f"inner_{depth}": inner}
    return {"type": "object", "properties": properties, "required": list(properties)}


def nested_value(depth: int, key: str) -> Any:
    inner: Any = "x" if depth == 0 else nested_value(depth - 1, key)
    return {f"name_{depth}": f"{depth} cats", f"{key}_{depth}": inner}


@pytest.mark.parametrize("row_us", [2.0, 40.0])
@pytest.mark.parametrize("key", ["inner", "other"])
def test_a_schema_of_four_levels_is_no_slower_than_plain_decoding(key: str, row_us: float) -> None:
    """Drafted while that pays; an answer that keeps to none of the schema loses at most 5 %."""
    tool = {"type": "function", "function": {"name": "save", "parameters": nested(3)}}
    text = answer({"name": "save", "arguments": nested_value(3, key)})
    costs = [100.0 + row_us * row for row in range(64)]
    drafter = Drafter(byte_text(), [tool], METHODS["ooo"], [1], costs_us=costs)
    taken = sum(costs[one.nodes - 1] for one in replay(drafter, text))
    plain = costs[0] * (len(text) - 1)
    assert taken <= plain * (1.05 if key == "other" else 0.65)


def test_branches_share_the_probability_of_what_they_leave() -> None:
    """A key or value that leaves the main path inside a piece is a choice, not the rest of one."""
    hints_only = Method("hints only", schema=True, hint=True)
    ids = answer()
    for done in range(1, len(ids) - 1):
        drafter = Drafter(byte_text(), TOOLS, hints_only, [1])
        drafter.commit(ids[:done])
        for record in slot_records(1, [CALL], TOOLS):
            drafter.offer_hint(record)
        tree = drafter.propose(64)
        for node, reached in enumerate(tree.probabilities):
            assert tree.probabilities[tree.parents == node].sum() <= 1.2 * reached


def test_a_miss_inside_a_value_shortens_nothing_behind_it() -> None:
    """Tokens inside a piece are many: one of them wrong says little of the others."""
    texts = {
        "from": "2023-03-29 10:00:00",
        "to": "2023-03-29 12:00:00",
        "at": "Main Street 7, Rome",
    }
    parameters = {"type": "object", "properties": {name: {"type": "string"} for name in texts}}
    tools = [{"type": "function", "function": {"name": "book", "parameters": parameters}}]
    call = {"name": "book", "arguments": texts}
    wrong = {"name": "book", "arguments": texts | {"from": "2023-04-01"}}
    drafter = Drafter(byte_text(), tools, METHODS["ooo"], list(b"Book it."))
    for record in slot_records(1, [wrong], tools):
        drafter.offer_hint(record)
    ids = answer(call)
    behind = bytes(ids[:-1]).index(b"10:00:00") + len("10:00:00")
    late = [one for one in replay(drafter, ids) if one.start > behind]
    assert len(late) <= -(-(len(ids) - behind) // 64)


def test_a_drafter_that_nobody_asked_ends_without_being_made() -> None:
    """As that of a request that ends while its prompt is read; its sources are closed."""

    class Closing(Recorded):
        closed = False

        def close(self) -> None:
            self.closed = True

    source = Closing()
    drafter = Drafter(byte_text(), TOOLS, METHODS["ooo"], [1], sources=[source])
    drafter.finish()
    assert "core" not in vars(drafter)
    assert source.closed


def test_ids_outside_the_vocabulary_are_refused() -> None:
    drafter = Drafter(byte_text(), TOOLS, METHODS["ooo"], [1])
    for bad in ([257], [-1], [65, 257]):
        with pytest.raises(IndexError, match=r"expected tokens in \[0, 257\)"):
            drafter.commit(bad)
    assert drafter.answer == []
    for prompt in ([257, 1], [1, 257], [-1, 1]):
        with pytest.raises(IndexError, match=r"begin: expected tokens in \[0, 257\)"):
            Drafter(byte_text(), TOOLS, METHODS["ooo"], prompt).propose(8)
    with pytest.raises(ValueError, match="at least one token"):
        Drafter(byte_text(), TOOLS, METHODS["ooo"], [])
    with pytest.raises(ValueError, match="at most 9"):
        Drafter(byte_text(), [], METHODS["ooo"], [1], sources=[Recorded()] * 10)
    with pytest.raises(ValueError, match="at least one token"):
        replay(drafter, [])


@pytest.mark.parametrize("wrapper", ["bare", "tags", "fenced_json", "fenced", "python_tag"])
def test_acceptance_in_every_style(wrapper: str) -> None:
    """F25: whatever the spacing, a perfect hint is written in it after the first call at the
    latest; the text of that call is not looked up.
    """
    hints_only = Method("hints only", schema=True, hint=True)
    for indent, spacing in (("", {}), ("  ", {}), ("", {"pad": " ", "before_colon": " "})):
        style = _C.CallStyle(wrapper, indent)
        for name, value in spacing.items():
            setattr(style, name, value)
        ids = answer(style=style)
        store = DraftStore(byte_text())
        counts = []
        for _ in range(3):
            drafter = Drafter(byte_text(), TOOLS, hints_only, [1], memory=store.memory(""))
            for record in slot_records(1, [CALL], TOOLS):
                drafter.offer_hint(record)
            counts.append(rounds(drafter, ids))
            drafter.finish()
        assert counts[-1] <= -(-len(ids) // 60) + 2, (wrapper, indent, spacing, counts)
