# SPDX-License-Identifier: Apache-2.0
"""Addresses of sidecars elsewhere, and the socket that listens at one. Needs no model, no torch."""

from __future__ import annotations

from typing import Any, NamedTuple

from ooospec.errors import InvalidRequest, needs_extra
from ooospec.sidecar import wire
from ooospec.sidecar.wire import Kind

SCHEMES = ("tcp://", "ipc://")
MAX_AT_ONCE = 256  # messages taken before a loop looks for others to send


def is_address(source: Any) -> bool:
    """Returns whether a sidecar's name is the address of one elsewhere."""
    return isinstance(source, str) and source.startswith(SCHEMES)


def zmq_module() -> Any:
    """Returns pyzmq. Raises MissingExtra where it is not installed."""
    with needs_extra("remote", "sidecar"):
        import zmq
    return zmq


class Bound(NamedTuple):
    """A ROUTER that listens. address: with the port that was chosen, if it was left open."""

    context: Any
    socket: Any
    address: str

    def close(self) -> None:
        """Ends it. Messages that wait are dropped."""
        self.socket.close()
        self.context.term()


def bind(address: str) -> Bound:
    """Listens at an address. Raises InvalidRequest where that cannot be."""
    zmq = zmq_module()
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.LINGER, 0)
    router.setsockopt(zmq.SNDHWM, MAX_AT_ONCE)
    router.setsockopt(zmq.RCVHWM, MAX_AT_ONCE)
    router.setsockopt(zmq.MAXMSGSIZE, wire.HEADER_BYTES + wire.MAX_BODY_BYTES[Kind.ASK])
    try:
        if not is_address(address):
            raise zmq.ZMQError(msg="Invalid argument")
        router.bind(address)
    except zmq.ZMQError as error:
        router.close()
        context.term()
        raise InvalidRequest(
            f"--listen: expected a free address tcp://HOST:PORT or ipc://PATH, got {address!r} "
            f"({error})"
        ) from error
    found = router.getsockopt(zmq.LAST_ENDPOINT).decode().rstrip("\0")
    return Bound(context, router, found)
