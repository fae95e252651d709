"""The slow link between a broker and a subscriber: a real interface if this machine permits, else a relay.

Both have a hidden buffer: bytes that left the broker's socket wait there in order, as in routers, radios and
proxies. With an interface the broker runs in a network namespace; a thread of this process enters it to open
a socket there, and the socket stays in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from timebound.demo.interface import FRAME_BYTES, NEAR_ADDRESS, SEGMENT_BYTES, ShapedInterface, why_not
from timebound.demo.relay import ShapingRelay
from timebound.errors import TimeboundError

LOOPBACK: Final = "127.0.0.1"
_NAMESPACES: Final = Path("/run/netns")
_CLONE_NEWNET: Final = 0x40000000


@dataclass(frozen=True, slots=True)
class SlowLink:
    """Where the broker runs, and how publishers and the subscriber reach it."""

    rate_bytes_per_s: float
    buffer_s: float
    interface: ShapedInterface | None = field(default=None)

    @property
    def listen_host(self) -> str:
        return "0.0.0.0" if self.interface is not None else LOOPBACK  # nothing else can reach its namespace

    def command(self, command: list[str]) -> list[str]:
        """Return a command that runs beside the broker."""
        return self.interface.near_command(*command) if self.interface is not None else command

    @contextlib.contextmanager
    def beside_broker(self) -> Iterator[None]:
        """Open sockets beside the broker in this context; it listens at `LOOPBACK`."""
        with _inside(self.interface.near if self.interface is not None else ""):
            yield

    @contextlib.contextmanager
    def behind_link(self) -> Iterator[None]:
        """Open sockets behind the slow link in this context."""
        with _inside(self.interface.far if self.interface is not None else ""):
            yield

    @contextlib.contextmanager
    def open_to(self, port: int) -> Iterator[tuple[str, int]]:
        """Yield the address of a broker on this port, as seen over the slow link."""
        if self.interface is not None:
            yield NEAR_ADDRESS, port
            return
        hidden_bytes = int(self.buffer_s * self.rate_bytes_per_s)
        with ShapingRelay(port, self.rate_bytes_per_s, hidden_bytes=hidden_bytes) as relay:
            yield LOOPBACK, relay.port


@contextlib.contextmanager
def open_slow_link(rate_bytes_per_s: float, buffer_s: float, *, wants_interface: bool) -> Iterator[SlowLink]:
    """Make the link, and remove it at the end; the rate counts TCP payload, in full segments."""
    if not wants_interface:
        yield SlowLink(rate_bytes_per_s, buffer_s)
        return
    wire_bytes_per_s = rate_bytes_per_s * FRAME_BYTES / SEGMENT_BYTES
    with ShapedInterface(wire_bytes_per_s, buffer_s) as interface:
        yield SlowLink(rate_bytes_per_s, buffer_s, interface)


def why_no_interface() -> str:
    """Return why no real interface can be made here; empty if one can."""
    return why_not()


@contextlib.contextmanager
def _inside(namespace: str) -> Iterator[None]:
    """Enter a network namespace with this thread; do nothing if the name is empty."""
    if not namespace:
        yield
        return
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        there = os.open(_NAMESPACES / namespace, os.O_RDONLY)
        try:
            _enter(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _enter(home)
    finally:
        os.close(home)


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise TimeboundError(f"cannot enter a network namespace: {os.strerror(ctypes.get_errno())}")
