"""The link between broker and subscriber: a relay, or a real interface where this machine permits one."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from timebound.demo.interface import NEAR_ADDRESS
from timebound.demo.slow_link import LOOPBACK, SlowLink, open_slow_link, why_no_interface
from timebound.errors import TimeboundError

RATE = 125_000.0
LIMIT_S = 10.0

needs_interface = pytest.mark.skipif(bool(why_no_interface()), reason=why_no_interface() or "possible")


def read(sock: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = sock.recv(count - len(found))
        assert data, f"the connection ended after {len(found)} of {count} bytes"
        found += data
    return found


def test_relay_carries_what_a_broker_sends_and_needs_no_command_of_its_own() -> None:
    with (
        open_slow_link(RATE, 0.1, wants_interface=False) as link,
        socket.create_server((LOOPBACK, 0)) as server,
        link.open_to(server.getsockname()[1]) as address,
        socket.create_connection(address, LIMIT_S) as subscriber,
    ):
        server.settimeout(LIMIT_S)
        broker, _ = server.accept()
        with broker:
            broker.sendall(b"message")

            assert read(subscriber, 7) == b"message"
            assert address[1] != server.getsockname()[1]

    assert link.listen_host == LOOPBACK
    assert link.command(["broker", "-c", "x"]) == ["broker", "-c", "x"]


def test_without_an_interface_both_ends_are_where_this_process_is() -> None:
    link = SlowLink(RATE, 0.0)
    here = os.readlink("/proc/thread-self/ns/net")

    with link.beside_broker():
        assert os.readlink("/proc/thread-self/ns/net") == here
    with link.behind_link():
        assert os.readlink("/proc/thread-self/ns/net") == here


@needs_interface
def test_sockets_stay_in_the_namespace_they_were_opened_in() -> None:
    home = os.readlink("/proc/thread-self/ns/net")
    with contextlib.ExitStack() as stack:
        link = stack.enter_context(open_slow_link(RATE, 0.1, wants_interface=True))
        with link.beside_broker():
            near = os.readlink("/proc/thread-self/ns/net")
            server = stack.enter_context(socket.create_server((link.listen_host, 0)))
        server.settimeout(LIMIT_S)
        port = server.getsockname()[1]
        address = stack.enter_context(link.open_to(port))
        with link.behind_link():
            far = os.readlink("/proc/thread-self/ns/net")
            subscriber = stack.enter_context(socket.create_connection(address, LIMIT_S))
        broker, peer = server.accept()
        stack.enter_context(broker).sendall(b"message")

        assert read(subscriber, 7) == b"message"

    assert len({home, near, far}) == 3
    assert os.readlink("/proc/thread-self/ns/net") == home
    assert address == (NEAR_ADDRESS, port)
    assert peer[0] != NEAR_ADDRESS


@needs_interface
def test_thread_returns_home_also_after_an_error() -> None:
    home = os.readlink("/proc/thread-self/ns/net")

    with (
        open_slow_link(RATE, 0.1, wants_interface=True) as link,
        pytest.raises(TimeboundError, match="on purpose"),
        link.behind_link(),
    ):
        raise TimeboundError("on purpose")

    assert os.readlink("/proc/thread-self/ns/net") == home
