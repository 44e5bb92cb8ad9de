# SPDX-License-Identifier: Apache-2.0
"""The server under 1, 2, 4 and 8 clients: latency and throughput of methods against `ar`.

Server and clients share a process; the clients ask for whole answers, so that they hardly compute.
Every answer is compared with that of `ar` to one client. The first number of clients at which a
method's throughput is no higher than that of `ar` is its crossing point, 0 if there is none.

With --faults the sidecar is a process that is killed and started again, behind a relay that turns
bits and cuts connections, and one client in eight leaves in the middle of its answer; their
requests are not compared.
"""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import uvicorn

import ooospec
from _harness import Report, parse_args, quantile
from _requests import FILES, read_requests, spread
from ooospec.bench.faults import BadRelay, Restarts, free_port, resident_bytes
from ooospec.serve.app import make_app
from ooospec.tiny.untrained import untrained_pair

CLIENTS = (1, 2, 4, 8)
Answers = dict[int, Any]  # number of the request -> what was answered


@contextmanager
def serving(engine: Any, method: str) -> Iterator[str]:
    """Gives the address of a server over `engine`."""
    app = make_app(engine, model="bench", method=method)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def faults(sidecar: str) -> Iterator[BadRelay]:
    """Gives a relay to a sidecar that lives for half a minute at a time."""
    port = free_port()
    command = [sys.executable, "-m", "ooospec", "sidecar", "--sidecar", sidecar]
    command += ["--listen", f"tcp://127.0.0.1:{port}"]
    relay = BadRelay(port, damage=0.05)
    restarts = Restarts(lambda: Killed(command), seconds=30)
    try:
        yield relay
    finally:
        restarts.close()
        relay.close()


class Killed:
    """A process whose end is a kill."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def leave(client: openai.OpenAI, asked: dict[str, Any]) -> None:
    """Asks for an answer and goes after its first parts."""
    with client.chat.completions.create(**asked, stream=True) as parts:
        for _ in zip(range(3), parts, strict=False):
            pass


def run_clients(
    url: str,
    requests: list[dict[str, Any]],
    num_clients: int,
    max_tokens: int,
    relay: BadRelay | None = None,
) -> tuple[Answers, list[float], int, float]:
    """Returns answers, seconds of each, tokens and seconds of all; clients take what is next.

    relay: is cut now and then, and some clients leave; None: neither.
    """
    numbers = iter(range(len(requests)))
    lock = threading.Lock()
    answers: Answers = {}
    seconds: list[float] = []
    num_tokens = 0

    def work() -> None:
        nonlocal num_tokens
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=600)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return client.close()
            row = requests[number]
            asked = {
                "model": "bench",
                "messages": row["messages"],
                "tools": row["tools"] or openai.omit,
                "max_tokens": max_tokens,
            }
            if relay is not None and number % 8 == 7:
                relay.cut()
                leave(client, asked)
                continue
            start = time.perf_counter()
            answer = client.chat.completions.create(**asked)
            taken = time.perf_counter() - start
            message = answer.choices[0].message
            calls = [(c.function.name, c.function.arguments) for c in message.tool_calls or []]
            with lock:
                answers[number] = (message.content, calls, answer.choices[0].finish_reason)
                seconds.append(taken)
                num_tokens += answer.usage.completion_tokens

    threads = [threading.Thread(target=work) for _ in range(num_clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers, seconds, num_tokens, time.perf_counter() - start


def run_faults(
    args: Any,
    plain: Any,
    rows: list[dict[str, Any]],
    expected: Answers,
    report: Report,
    how: dict[str, Any],
) -> None:
    """Adds the rows of method ooo to eight clients while everything around it fails."""
    case = "ooo under faults, 8 clients"
    with faults(args.sidecar) as relay:
        engine = ooospec.load(plain.backend, sidecar=relay.address, wave="always", **how)
        engine.prefix_cache.clear()
        before = resident_bytes()
        with serving(engine, "ooo") as url:
            answers, *_ = run_clients(url, rows, 8, args.max_tokens, relay)
            page = httpx2.get(url.replace("/v1", "/metrics")).text
        rounds, sequences, tokens = (
            sum(map(float, re.findall(rf"^ooospec_{name}_total\S* (\S+)$", page, re.M)))
            for name in ("rounds", "round_sequences", "tokens")
        )
        equal = sum(answers[number] == expected[number] for number in answers)
        report.add(case, "equal", equal / max(1, len(answers)), "of the answers of ar")
        report.add(case, "answers", len(answers), "answers")
        report.add(case, "sequences", sequences / max(1.0, rounds), "a round")
        report.add(case, "tokens", (tokens - len(rows)) / max(1.0, sequences), "a sequence, round")
        report.add(case, "damaged", relay.num_damaged, "pieces of messages")
        report.add(case, "memory", (resident_bytes() - before) / 1e6, "MB more")
        engine.prefix_cache.clear()
        report.add(case, "pages held", engine.pool.num_pages - engine.pool.num_free, "pages")
        engine.drafting.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", help="model folder or hub id; --smoke makes a tiny one")
    parser.add_argument("--sidecar", help="adds the method ooo")
    parser.add_argument("--data", type=Path, required=True, help="folder of the request files")
    parser.add_argument("--file", action="append", help="of requests (all)")
    parser.add_argument("--count", type=int, default=32, help="requests of each file")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--faults", action="store_true", help="adds ooo under faults; see above")
    parser.add_argument("--device")
    parser.add_argument("--dtype")
    args = parse_args(__doc__ or "", parser)
    with tempfile.TemporaryDirectory() as folder:
        if args.smoke:
            args.target, args.sidecar = untrained_pair(Path(folder))
        elif args.target is None:
            parser.error("--target: expected a model, or --smoke")
        bench(args)


def bench(args: Any) -> None:
    """Adds the rows of each method under each number of clients."""
    files = args.file or FILES
    rows = [row for file in files for row in spread(read_requests(args.data, file), args.count)]
    clients = CLIENTS
    if args.smoke:
        rows, clients = sorted(rows, key=lambda row: len(str(row)))[:2], (2,)
    how: dict[str, Any] = {"device": args.device, "dtype": args.dtype}
    how["cost_model"] = not args.smoke
    plain = ooospec.load(args.target, **how)
    engines = {"ar": plain, "toolspec": plain}
    if args.sidecar:
        engines["ooo"] = ooospec.load(plain.backend, sidecar=args.sidecar, **how)
    report = Report("serve", args)
    expected: Answers = {}
    rates: dict[tuple[str, int], float] = {}
    for num_clients in clients:  # the methods in turn, so that other load falls on all of them
        for method, engine in engines.items():
            engine.prefix_cache.clear()
            with serving(engine, method) as url:
                found = run_clients(url, rows, num_clients, args.max_tokens)
            answers, seconds, num_tokens, taken = found
            expected = expected or answers
            case = f"{method}, {num_clients} clients"
            report.add(case, "p50", 1e3 * quantile(seconds, 0.5), "ms")
            report.add(case, "p95", 1e3 * quantile(seconds, 0.95), "ms")
            rates[method, num_clients] = num_tokens / taken
            report.add(case, "throughput", num_tokens / taken, "tokens/s")
            if method != "ar":
                ratio = rates[method, num_clients] / rates["ar", num_clients]
                report.add(case, "ratio", ratio, "x throughput of ar")
            equal = sum(answers[number] == expected[number] for number in expected)
            report.add(case, "equal", equal / len(expected), "of the answers of ar")
    for method in list(engines)[1:]:
        slower = [count for count in clients if rates[method, count] <= rates["ar", count]]
        report.add(method, "crossing", slower[0] if slower else 0, "clients")
    if args.faults and args.sidecar:
        run_faults(args, plain, rows, expected, report, how)
    report.finish()
    for engine in {id(engine): engine for engine in engines.values()}.values():
        engine.close()


if __name__ == "__main__":
    main()
