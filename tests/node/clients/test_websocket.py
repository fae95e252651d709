"""MQTT inside WebSocket frames, with a real WebSocket client and, where it has to be wrong, raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import BrokerProcess, Certificates
from tests.node.clients_in_memory import WebSocketClient
from tests.node.doubles import Build
from tests.peer import join, props
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from timebound.config.listeners import ListenerConfig
from timebound.node.clients.connection import Connection
from timebound.node.clients.websocket import Unframing, WebSocketAdapter
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Will,
    make_publish,
)

CONFIG = """\
[[listeners]]
port = 0
[[listeners]]
kind = "websocket"
port = 0
path = "/mqtt"
origins = ["https://dashboard.example"]
[[listeners]]
kind = "websocket"
port = 0
[listeners.tls]
certificate = "{certificates.certificate}"
key = "{certificates.key}"
[limits]
connect_timeout = "2s"
packet_size_max = "64KiB"
"""
MQTT = Subprotocol("mqtt")
TIMEOUT_S = 10.0
MEBIBYTE = 1024 * 1024
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
PING = b"\x89\xfd\0\0\0\0" + b"p" * 125
EMPTY_PING = b"\x89\x80\0\0\0\0"
EMPTY_FRAGMENT = b"\0\x80\0\0\0\0"


@pytest.fixture(scope="module")
def web_process(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("web"), CONFIG.format(certificates=certificates))
    yield process
    process.check()
    process.stop()


@pytest.fixture
def web(web_process: BrokerProcess) -> Iterator[BrokerProcess]:
    yield web_process
    web_process.check()


class WebPeer:
    """A WebSocket that carries MQTT packets."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._decoder = Decoder(5, is_server=False)
        self._received: list[Packet] = []

    def send(self, *packets: Packet) -> None:
        self.connection.send(b"".join(encode(packet, 5) for packet in packets))

    def receive(self) -> Packet:
        while not self._received:
            data = self.connection.recv(TIMEOUT_S)
            assert isinstance(data, bytes)
            self._received += self._decoder.feed(data)
            assert self._decoder.error is None
        return self._received.pop(0)


@pytest.fixture
def peer(web: BrokerProcess) -> Iterator[WebPeer]:
    with connect(web.urls[1], subprotocols=[MQTT], proxy=None) as connection:
        found = WebPeer(connection)
        found.send(Connect(""))
        assert isinstance(found.receive(), Connack)
        yield found


def test_subprotocol_mqtt_is_chosen(web: BrokerProcess) -> None:
    """[MQTT-6.0.0-3] [MQTT-6.0.0-4]"""
    for offered in (["mqtt"], ["mqttv3.1"], ["other", "mqtt"]):
        names = [Subprotocol(name) for name in offered]
        with connect(web.urls[1], subprotocols=names, proxy=None) as connection:
            assert connection.subprotocol == offered[-1]
    with connect(web.urls[1], proxy=None) as connection:
        assert connection.subprotocol is None


def test_packets_may_be_cut_into_frames_anyhow(web: BrokerProcess) -> None:
    """[MQTT-6.0.0-2]: packets are not aligned with frames."""
    data = b"".join(
        encode(packet, 5)
        for packet in (
            Connect(""),
            Subscribe(1, [SubscribeEntry("web/#")]),
            Publish("web/a", b"1"),
            Pingreq(),
        )
    )
    for size in (1, 7, len(data)):
        with connect(web.urls[1], subprotocols=[MQTT], proxy=None) as connection:
            for start in range(0, len(data), size):
                connection.send(data[start : start + size])
            found = WebPeer(connection)
            kinds = [type(found.receive()).__name__ for _ in range(4)]
            assert kinds[0] == "Connack"
            assert sorted(kinds) == ["Connack", "Pingresp", "Publish", "Suback"]


def test_fragmented_messages_are_joined(peer: WebPeer) -> None:
    data = encode(Subscribe(1, [SubscribeEntry("web/fragments")]), 5)
    peer.connection.send([data[:3], data[3:9], data[9:]])

    assert isinstance(peer.receive(), Suback)


def test_messages_pass_between_websocket_and_tcp(web: BrokerProcess, peer: WebPeer) -> None:
    payload = b"x" * 60_000
    peer.send(Subscribe(1, [SubscribeEntry("web/large")]))
    assert isinstance(peer.receive(), Suback)
    peer.send(Publish("web/large", payload))

    packet = peer.receive()
    assert isinstance(packet, Publish)
    assert packet.payload == payload


def test_text_frame_closes_the_connection(peer: WebPeer) -> None:
    """[MQTT-6.0.0-1]"""
    peer.connection.send("not binary")

    with pytest.raises(ConnectionClosed) as caught:
        peer.connection.recv(TIMEOUT_S)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1003


def test_bytes_behind_a_text_frame_do_not_count(web: BrokerProcess) -> None:
    with connect(web.urls[1], subprotocols=[MQTT], proxy=None) as connection:
        connect_packet = encode(Connect("behind-text"), 5)
        # A text message in two fragments, in one segment: the second one looks like data of its own.
        head = bytes([0x80, 0x80 | len(connect_packet)])
        connection.socket.sendall(b"\x01\x81\0\0\0\0x" + head + b"\0\0\0\0" + connect_packet)
        with pytest.raises(ConnectionClosed):
            connection.recv(TIMEOUT_S)
    assert "behind-text" not in web.log()


def test_goodbye_just_before_the_close_frame_counts(web: BrokerProcess, peer: WebPeer) -> None:
    will = Will("web/will", b"gone")
    peer.send(Subscribe(1, [SubscribeEntry("web/will")]))
    assert isinstance(peer.receive(), Suback)
    with connect(web.urls[1], subprotocols=[MQTT], proxy=None) as connection:
        leaving = WebPeer(connection)
        leaving.send(Connect("", will=will))
        assert isinstance(leaving.receive(), Connack)
        # DISCONNECT and a close frame in one segment, masked with zeros.
        connection.socket.sendall(b"\x82\x82\x00\x00\x00\x00\xe0\x00" + b"\x88\x80\x00\x00\x00\x00")
        with pytest.raises(ConnectionClosed):
            connection.recv(TIMEOUT_S)
    peer.send(Pingreq())

    assert isinstance(peer.receive(), Pingresp)


def test_mistake_is_answered_before_the_close_frame(peer: WebPeer) -> None:
    peer.connection.send(b"\x00\x00")

    packet = peer.receive()
    assert isinstance(packet, Disconnect)
    assert packet.reason_code == 0x81
    with pytest.raises(ConnectionClosed) as caught:
        peer.connection.recv(TIMEOUT_S)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1000


def test_message_beyond_the_packet_limit_is_refused(peer: WebPeer) -> None:
    peer.connection.send(encode(Publish("web/a", b"x" * 70_000), 5))

    with pytest.raises(ConnectionClosed) as caught:
        peer.connection.recv(TIMEOUT_S)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1009


def test_websocket_pings_are_answered(peer: WebPeer) -> None:
    assert peer.connection.ping().wait(TIMEOUT_S)
    peer.send(Pingreq())
    assert isinstance(peer.receive(), Pingresp)


@pytest.mark.parametrize(
    ("path", "origin", "status"),
    [
        ("/mqtt", None, 101),
        ("/mqtt?session=1", None, 101),
        ("/mqtt", "https://dashboard.example", 101),
        ("/", None, 404),
        ("/mqtt/", None, 404),
        ("/mqtt", "https://evil.example", 403),
        ("/mqtt", "null", 403),
        ("/mqtt", "http://HOST", 101),  # as paho does
        ("/mqtt", "https://HOST", 101),
        ("/mqtt", "http://127.0.0.1:1", 403),
    ],
)
def test_path_and_origin_decide(web: BrokerProcess, path: str, origin: str | None, status: int) -> None:
    url = web.urls[1].removesuffix("/mqtt") + path
    host = url.split("/")[2]
    given = None if origin is None else Origin(origin.replace("HOST", host))
    if status == 101:
        with connect(url, origin=given, subprotocols=[MQTT], proxy=None):
            return
    with pytest.raises(InvalidStatus) as caught, connect(url, origin=given, proxy=None):
        pass
    assert caught.value.response.status_code == status


@pytest.mark.parametrize(
    ("host", "origins", "status"),
    [
        ("localhost", ["http://localhost"], b"101"),
        ("[::1]", ["http://[::1]"], b"101"),
        ("[::1", ["http://[::1"], b"403"),
        ("rebound.example", ["http://rebound.example"], b"403"),
        ("127.0.0.1", ["http://127.0.0.1", "https://evil.example"], b"403"),
        ("127.0.0.1", ["https://dashboard.example"] * 2, b"403"),
    ],
)
def test_origin_of_a_name_that_was_made_to_point_here_is_refused(
    web: BrokerProcess, host: str, origins: list[str], status: bytes
) -> None:
    lines = [
        "GET /mqtt HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        *[f"Origin: {origin}" for origin in origins],
    ]
    port = int(web.urls[1].split("/")[2].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as raw:
        raw.sendall("\r\n".join([*lines, "", ""]).encode())

        assert raw.recv(1024).startswith(b"HTTP/1.1 " + status)


async def test_encrypted_websocket(web: BrokerProcess, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    # Not the client with threads: one reads while another writes, which with TLS 1.3 loses a first request
    # now and then.
    async with connect_async(web.urls[2], ssl=context, subprotocols=[MQTT], proxy=None) as connection:
        await connection.send(encode(Connect(""), 5))
        data = await asyncio.wait_for(connection.recv(decode=False), TIMEOUT_S)

    [packet] = Decoder(5, is_server=False).feed(data)
    assert isinstance(packet, Connack)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /mqtt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
        b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00",
        b"GET /mqtt HTTP/1.1\r\n" + b"A: b\r\n" * 500 + b"\r\n",
        b"GET /" + b"x" * 20_000,
        b"\xff\xfe\x00\x00\r\n\r\n",
        b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n\r\n",
    ],
)
def test_what_is_no_websocket_handshake_is_turned_away(web: BrokerProcess, request_bytes: bytes) -> None:
    port = int(web.urls[1].split("/")[2].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as raw:
        raw.sendall(request_bytes)
        answer = b""
        while data := _read(raw):
            answer += data

    assert b" 101 " not in answer


def _read(raw: socket.socket) -> bytes:
    try:
        return raw.recv(65_536)
    except ConnectionResetError:
        return b""


def test_websocket_without_connect_is_closed_in_time(web: BrokerProcess) -> None:
    with connect(web.urls[1], subprotocols=[MQTT], proxy=None) as connection, pytest.raises(ConnectionClosed):
        connection.recv(TIMEOUT_S)


def test_handshake_that_is_not_completed_ends_in_time(web: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", web.port_of("ws:")), TIMEOUT_S) as raw:
        raw.sendall(UPGRADE[:-2])

        assert _read(raw) == b""


@pytest.mark.parametrize(
    "frame", [b"\x83\x00", b"\x82\x05abcde", b"\xf2\x80\x00\x00\x00\x00", b"\x88\x81\x00\x00\x00\x00\x01"]
)
def test_wrong_frames_close_the_connection(web: BrokerProcess, frame: bytes) -> None:
    with connect(web.urls[1], subprotocols=[MQTT], proxy=None) as connection:
        connection.socket.sendall(frame)
        with pytest.raises(ConnectionClosed):
            connection.recv(TIMEOUT_S)


def open_raw(web: BrokerProcess) -> socket.socket:
    """A WebSocket of which the test writes the frames itself."""
    raw = socket.create_connection(("127.0.0.1", web.port_of("ws:")), TIMEOUT_S)
    raw.sendall(UPGRADE)
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += raw.recv(1024)
    assert answer.startswith(b"HTTP/1.1 101 ")
    return raw


def resident_bytes(broker: BrokerProcess) -> int:
    pages = Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /mqtt HTTP/1.1\r\nHost: x\r\n\r\n", b"426"),
        (b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"POST /mqtt HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
        (UPGRADE.replace(b"Version: 13", b"Version: 12"), b"400"),
        (UPGRADE.replace(b"Host: x", b"Host: x\r\nOrigin: https://evil.example"), b"403"),
    ],
)
@pytest.mark.parametrize(
    "behind",
    [b"abc", EMPTY_PING, b"\x88\x80\0\0\0\0", b"\xff" * 300, PING * 40],
    ids=["text", "ping", "close", "noise", "pings"],
)
def test_request_with_bytes_behind_it_gets_an_http_answer(
    web: BrokerProcess, head: bytes, status: bytes, behind: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", web.port_of("ws:")), TIMEOUT_S) as raw:
        raw.sendall(head + behind)

        assert raw.recv(1024).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("cut", [1, 5, len(UPGRADE) - 3, len(UPGRADE) - 2, len(UPGRADE) - 1, len(UPGRADE)])
def test_frames_may_follow_the_request_at_once(web: BrokerProcess, cut: int) -> None:
    packet = encode(Connect("at-once"), 5)
    data = UPGRADE + bytes([0x82, 0x80 | len(packet)]) + b"\0\0\0\0" + packet
    with socket.create_connection(("127.0.0.1", web.port_of("ws:")), TIMEOUT_S) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.sendall(data[:cut])
        raw.sendall(data[cut:])
        answer = b""
        while b"\r\n\r\n\x82" not in answer:
            answer += raw.recv(1024)

        assert answer.startswith(b"HTTP/1.1 101 ")


def test_who_reads_no_pongs_is_no_longer_read(web: BrokerProcess, peer: WebPeer) -> None:
    before = resident_bytes(web)
    with open_raw(web) as raw:
        raw.sendall(b"\x82\x8f\0\0\0\0" + encode(Connect(""), 5))
        raw.settimeout(1.0)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 100 * MEBIBYTE:
                sent += raw.send(PING * 500)

        # The kernel's buffers on both sides hold some megabytes; beyond them, the sender waits.
        assert sent < 50 * MEBIBYTE
        assert resident_bytes(web) - before < 16 * MEBIBYTE
        peer.send(Pingreq())
        assert isinstance(peer.receive(), Pingresp)
        # Who reads them is read again.
        raw.settimeout(TIMEOUT_S)
        received = 0
        while received < MEBIBYTE:
            received += len(raw.recv(65_536))
        raw.sendall(PING)


@pytest.mark.parametrize("frame", [EMPTY_PING, EMPTY_FRAGMENT], ids=["pings", "fragments"])
def test_floods_of_frames_hold_up_nobody_and_fill_no_memory(web: BrokerProcess, frame: bytes) -> None:
    is_over = threading.Event()

    def flood(raw: socket.socket) -> None:
        raw.settimeout(0.1)
        with contextlib.suppress(OSError):
            raw.sendall(b"\x02\x80\0\0\0\0" if frame == EMPTY_FRAGMENT else EMPTY_PING)
        while not is_over.is_set():
            with contextlib.suppress(OSError):
                raw.send(frame * 20_000)
            time.sleep(0.005)  # the processor is for the broker

    before = resident_bytes(web)
    raws = [open_raw(web) for _ in range(4)]
    threads = [threading.Thread(target=flood, args=[raw]) for raw in raws]
    for thread in threads:
        thread.start()
    try:
        slowest_s = 0.0
        for _ in range(15):
            began = time.monotonic()
            with join(web.port_of("mqtt:")) as peer:
                peer.expect_silence()
            slowest_s = max(slowest_s, time.monotonic() - began)
            time.sleep(0.02)
        grown = resident_bytes(web) - before
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        for raw in raws:
            raw.close()

    # Idle it takes a millisecond; without a bound on frames it took 8 s, and 500 MB.
    assert slowest_s < 1.0
    assert grown < 16 * MEBIBYTE


class Wire:
    """The transport below an adapter."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.is_closed = False
        self.is_reading = True

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


class Inner:
    """The connection behind an adapter: remembers what came out of the frames."""

    def __init__(self) -> None:
        self.received = bytearray()

    def connection_made(self, transport: object) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def failed(self, error: Exception) -> None:
        raise error


class Loop:
    """Keeps what is to be called soon until the test says so."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()


def adapter_in_memory(loop: Loop, unframing: Unframing | None = None) -> tuple[WebSocketAdapter, Wire, Inner]:
    inner, wire = Inner(), Wire()
    unframing = unframing or Unframing(cast(asyncio.AbstractEventLoop, loop))
    adapter = WebSocketAdapter(
        ListenerConfig(path="/mqtt"), 1 << 20, unframing, lambda: cast(Connection, inner)
    )
    adapter.connection_made(wire)
    return adapter, wire, inner


def framed(data: bytes, is_first: bool = True, is_last: bool = True) -> bytes:
    """A binary frame of a client, or a fragment of one, masked with zeros."""
    head = (0x82 if is_first else 0x80) & (0xFF if is_last else 0x7F)
    length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
    return bytes([head]) + length + bytes(4) + data


@given(
    st.lists(st.lists(st.binary(max_size=200), min_size=1, max_size=3), max_size=5),
    st.lists(st.integers(1, 400), max_size=20),
    st.booleans(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_frames_cut_anywhere_give_the_same_bytes(
    messages: list[list[bytes]], cuts: list[int], has_pings: bool
) -> None:
    stream = UPGRADE
    for message in messages:
        for index, part in enumerate(message):
            stream += framed(part, index == 0, index == len(message) - 1)
        stream += EMPTY_PING if has_pings else b""
    loop = Loop()
    adapter, wire, inner = adapter_in_memory(loop)

    for cut in cuts:
        adapter.data_received(stream[:cut])
        stream = stream[cut:]
    adapter.data_received(stream)
    loop.run()

    assert bytes(inner.received) == b"".join(part for message in messages for part in message)
    assert wire.sent.startswith(b"HTTP/1.1 101 ")
    assert wire.sent.count(b"\x8a\x00") == len(messages) * has_pings  # pongs
    assert wire.is_reading


def test_a_connection_that_does_not_want_to_read_gets_nothing_until_it_does() -> None:
    loop = Loop()
    adapter, wire, inner = adapter_in_memory(loop)
    adapter.data_received(UPGRADE)
    adapter.pause_reading()

    adapter.data_received(framed(b"later"))
    assert (inner.received, wire.is_reading) == (b"", False)

    adapter.resume_reading()
    assert (bytes(inner.received), wire.is_reading) == (b"later", True)


def test_a_flood_of_one_connection_leaves_others_their_turn() -> None:
    loop = Loop()
    unframing = Unframing(cast(asyncio.AbstractEventLoop, loop))
    flooding, flood_wire, _ = adapter_in_memory(loop, unframing)
    calm, _, heard = adapter_in_memory(loop, unframing)
    for adapter in (flooding, calm):
        adapter.data_received(UPGRADE)

    flooding.data_received(EMPTY_PING * 200_000)
    calm.data_received(framed(b"hello"))
    assert loop.soon, "the flood was handled in one turn"
    assert not flood_wire.is_reading
    turns = 0
    while heard.received != b"hello":
        loop.soon.pop(0)()
        turns += 1

    assert turns <= 2
    assert loop.soon, "the flood was over before the other had its turn"


async def test_a_connection_that_has_ended_leaves_nothing_for_the_collector(build: Build) -> None:
    house = build()
    client = WebSocketClient(house, "127.0.0.1")
    terms = props(user_properties=[("deadline", "1s")])
    client.send(Connect("brief"), Subscribe(1, [SubscribeEntry("a")], terms), make_publish("a", b""))
    house.driver.turn()
    known = weakref.ref(client.protocol._protocol)
    gc.disable()
    try:
        client.lose()
        client.protocol = None
        assert known() is None
    finally:
        gc.enable()


def test_what_is_written_goes_out_as_one_binary_frame() -> None:
    adapter, wire, _ = adapter_in_memory(Loop())
    adapter.write(b"too early")
    adapter.data_received(UPGRADE)
    wire.sent.clear()

    adapter.write(b"packet")
    adapter.close()

    assert bytes(wire.sent) == b"\x82\x06packet" + b"\x88\x02\x03\xe8"
