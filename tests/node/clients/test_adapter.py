"""What TLS and WebSocket pass on to the transport below them."""

from __future__ import annotations

import ssl
from typing import Any, cast

import pytest
from tests.conftest import Certificates
from tests.node.clients_in_memory import client_maker
from tests.node.doubles import Build

from timebound.config.listeners import ListenerConfig
from timebound.node.clients.adapter import Adapter
from timebound.node.clients.connection import Connection
from timebound.node.clients.tls import TlsAdapter
from timebound.node.clients.websocket import Unframing, WebSocketAdapter
from timebound.node.input.buffer import READ_BYTES_MAX
from timebound.wire.codec import encode
from timebound.wire.packets import Connect, make_publish


class Below:
    """A transport that remembers what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def ask(*arguments: Any) -> int:
            self.asked.append((name, *arguments))
            return 0

        return ask


class Behind:
    """What a connection is to an adapter."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    def connection_made(self, transport: object) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received.append(data)

    def failed(self, error: Exception) -> None:
        raise error


def make(kind: str, below: Below, build: Build) -> Adapter:
    adapter: TlsAdapter | WebSocketAdapter
    if kind == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        adapter = TlsAdapter(context, build().driver, "here", Behind)
    else:
        unframing = cast(Unframing, None)
        adapter = WebSocketAdapter(ListenerConfig(), 1_000, unframing, lambda: cast(Connection, Behind()))
    adapter.connection_made(below)
    return adapter


@pytest.mark.parametrize("kind", ["tls", "websocket"])
async def test_what_an_adapter_does_not_change_is_asked_of_the_transport_below(
    kind: str, build: Build
) -> None:
    below = Below()
    adapter = make(kind, below, build)

    adapter.set_write_buffer_limits(5, 1)
    adapter.set_write_buffer_limits(high=7)
    assert adapter.get_write_buffer_limits() == 0
    assert adapter.get_write_buffer_size() == 0
    assert adapter.get_extra_info("peername") == 0
    assert adapter.get_extra_info("socket", "none") == 0
    assert not adapter.is_closing()
    adapter.abort()

    assert below.asked == [
        ("set_write_buffer_limits", 5, 1),
        ("set_write_buffer_limits", 7, None),
        ("get_write_buffer_limits",),
        ("get_write_buffer_size",),
        ("get_extra_info", "peername", None),
        ("get_extra_info", "socket", "none"),
        ("is_closing",),
        ("abort",),
    ]


async def test_tls_reads_as_the_transport_below_does(build: Build) -> None:
    below = Below()
    adapter = make("tls", below, build)

    adapter.pause_reading()
    adapter.resume_reading()
    assert not adapter.is_reading()

    assert [name for name, *_ in below.asked] == ["pause_reading", "resume_reading", "is_reading"]


async def test_a_websocket_knows_by_itself_whether_it_reads(build: Build) -> None:
    below = Below()
    adapter = make("websocket", below, build)

    adapter.pause_reading()
    assert not adapter.is_reading()
    adapter.resume_reading()
    assert adapter.is_reading()

    asked = [name for name, *_ in below.asked if name != "is_closing"]
    assert asked == ["pause_reading", "resume_reading"]


async def test_all_adapters_read_into_one_buffer(build: Build) -> None:
    tls, websocket = make("tls", Below(), build), make("websocket", Below(), build)

    assert tls.get_buffer(-1) is websocket.get_buffer(-1)
    assert len(tls.get_buffer(-1)) == READ_BYTES_MAX


@pytest.mark.parametrize("kind", ["websocket", "tls"])
async def test_a_full_read_ends_reading_until_the_turn_also_behind_frames_and_records(
    build: Build, certificates: Certificates, kind: str
) -> None:
    """Otherwise the event loop reads on, up to 2 MB, before anything else is done."""
    house = build()
    client = client_maker(kind, certificates)(house, "127.0.0.1")
    client.send(Connect("flooding"))
    house.driver.turn()
    house.driver._is_scheduled = True  # the turn comes later
    packet = encode(make_publish("t", b"x" * 500), 5)
    data = client.encoded(packet * (READ_BYTES_MAX // len(packet) - 3))
    assert READ_BYTES_MAX * 0.9 < len(data) <= READ_BYTES_MAX

    client.protocol.data_received(data)
    assert not client.transport.is_reading
    house.driver.turn()

    assert client.transport.is_reading
    client.lose()


async def test_what_is_behind_tls_is_let_go_at_the_end(build: Build, certificates: Certificates) -> None:
    """A WebSocket behind it refers to it: they would have to wait for the cycle collector."""
    client = client_maker("tls", certificates)(build(), "127.0.0.1")
    adapter = client.protocol

    client.lose()

    assert adapter._inner is None


async def test_a_protocol_can_take_over_from_another_behind_tls(build: Build) -> None:
    adapter = make("tls", Below(), build)
    lost: list[object] = []

    class Later(Behind):
        def connection_lost(self, exc: Exception | None) -> None:
            lost.append(self)

    later = Later()
    adapter.set_protocol(later)
    cast(TlsAdapter, adapter).connection_lost(None)

    assert lost == [later]
