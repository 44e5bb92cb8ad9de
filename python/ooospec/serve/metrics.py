# SPDX-License-Identifier: Apache-2.0
"""What /metrics tells Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ooospec._core import _C
from ooospec.engine import Run

_NAMES = {number: name for name, number in _C.SOURCES.items()}
_SHORT = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_LONG = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 300)


class Metrics:
    """The numbers of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"ooospec_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"ooospec_{name}", text, registry=self.registry, buckets=buckets)

        self._responses = counter("responses", "Answers to chat requests, by status.", ("status",))
        self._rounds = counter("rounds", "Passes of the target after prefill.")
        self._sequences = counter("round_sequences", "Requests that took part in rounds, summed.")
        self._tokens = counter("tokens", "Tokens of answers, by who drafted them.", ("source",))
        self._accepted = counter("drafts_accepted", "Drafted nodes that held.", ("source",))
        self._rejected = counter("drafts_rejected", "Drafted nodes that did not.", ("source",))
        self._prompt = counter("prompt_tokens", "Tokens of prompts.")
        self._cached = counter("prompt_tokens_cached", "Of these, not computed again.")
        self._round_s = histogram("round_seconds", "From the proposals to the commits.", _SHORT)
        self._queue_s = histogram("queue_seconds", "From arrival to admission.", _LONG)
        self._first_s = histogram("first_token_seconds", "From arrival.", _LONG)
        self._hint_s = histogram("hint_age_seconds", "Of a hint on arrival, since its ask.", _SHORT)
        self._wave_s = histogram("wave_seconds", "From the ask to the last hint.", _SHORT)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Adds a gauge that is read when it is asked for."""
        Gauge(f"ooospec_{name}", text, registry=self.registry).set_function(value)

    def responded(self, status: int) -> None:
        """Counts an answer to a chat request."""
        self._responses.labels(str(status)).inc()

    def admitted(self, seconds: float) -> None:
        """Counts a request that left the queue."""
        self._queue_s.observe(seconds)

    def first_token(self, seconds: float) -> None:
        """Counts a first token."""
        self._first_s.observe(seconds)

    def round(self, num_sequences: int, seconds: float) -> None:
        """Counts a round."""
        self._rounds.inc()
        self._sequences.inc(num_sequences)
        self._round_s.observe(seconds)

    def ended(self, run: Run) -> None:
        """Counts a run, however it ended."""
        self._prompt.inc(len(run.request.prompt_ids))
        self._cached.inc(run.cached_tokens)
        for source in run.loop.sources:
            self._tokens.labels(source_name(source)).inc()
        for source, number in run.loop.metrics.accepted.items():
            self._accepted.labels(source_name(source)).inc(number)
        for source, number in run.loop.metrics.rejected.items():
            self._rejected.labels(source_name(source)).inc(number)
        ages = run.hint_ages
        for age in ages:
            self._hint_s.observe(age)
        if ages:
            self._wave_s.observe(ages[-1])

    def text(self) -> bytes:
        """Returns the page."""
        return generate_latest(self.registry)


def source_name(source: int) -> str:
    """Returns the name of a source; of one from outside its number."""
    return _NAMES.get(source, f"external-{source}")
