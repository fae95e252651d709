"""Opening the connections of a load run, against a server that answers as a test says."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from timebound.bench.handshake import LoadConnection, open_connections, read_connack, subscribe, tls_context
from timebound.bench.options import LoadOptions
from timebound.errors import ConnectError, SubscribeError
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Ack, Connack, Connect, Packet, Publish, Suback, Subscribe

LIMIT_S = 10.0


class AnsweringServer:
    """Accepts connections in a thread and answers each CONNECT with the next of its packets."""

    def __init__(self, answers: list[Packet]) -> None:
        self.connects: list[Connect] = []
        self.sockets: list[socket.socket] = []
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for answer in self._answers:
            sock, _ = self._listener.accept()
            sock.settimeout(LIMIT_S)
            self.sockets.append(sock)
            decoder = Decoder(is_server=True)
            received: list[Packet] = []
            while not received:
                received += decoder.feed(sock.recv(4096))
            assert isinstance(received[0], Connect)
            self.connects.append(received[0])
            sock.sendall(encode(answer, decoder.version))

    def close(self) -> None:
        self._thread.join(LIMIT_S)
        for sock in (*self.sockets, self._listener):
            sock.close()


@contextlib.contextmanager
def answering(*answers: Packet) -> Iterator[AnsweringServer]:
    server = AnsweringServer(list(answers))
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def pair() -> Iterator[tuple[LoadConnection, socket.socket]]:
    """A connection of MQTT 5 and the server's end of it."""
    sock, peer = socket.socketpair()
    sock.settimeout(LIMIT_S)
    with sock, peer:
        yield LoadConnection(sock, "p0", 5), peer


def connack(**values: object) -> Connack:
    packet = Connack()
    for name, value in values.items():
        setattr(packet.properties, name, value)
    return packet


def test_every_client_connects_under_its_own_name_with_the_same_identity() -> None:
    with answering(Connack(), Connack()) as server:
        options = LoadOptions(port=server.port, username="ann", password="s3cret", mqtt_version=4)
        connections = open_connections(options, ["p0", "p1"])
        for connection in connections:
            connection.sock.close()

    assert [(one.client_id, one.username, one.password) for one in server.connects] == [
        ("p0", "ann", b"s3cret"),
        ("p1", "ann", b"s3cret"),
    ]
    assert {one.protocol_version for one in server.connects} == {4}


def test_refused_client_closes_all_connections_and_is_named() -> None:
    with answering(Connack(), Connack(False, 0x97)) as server:
        with pytest.raises(ConnectError, match="p1 was refused with 0x97") as refused:
            open_connections(LoadOptions(port=server.port), ["p0", "p1"])

        assert refused.value.reason_code == 0x97
        assert [sock.recv(1) for sock in server.sockets] == [b"", b""]


def test_wishes_of_the_server_are_kept(pair: tuple[LoadConnection, socket.socket]) -> None:
    connection, peer = pair
    peer.sendall(encode(connack(receive_maximum=20, server_keep_alive=30), 5))

    read_connack(connection)

    assert (connection.receive_maximum, connection.ping_interval_s) == (20, 15.0)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (encode(Publish("a", b""), 5), "p0 got Publish.* instead of a CONNACK"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "p0 received data that is not MQTT"),
    ],
)
def test_answer_that_is_no_connack_is_shown(
    pair: tuple[LoadConnection, socket.socket], answer: bytes, message: str
) -> None:
    connection, peer = pair
    peer.sendall(answer)

    with pytest.raises(ConnectError, match=message):
        read_connack(connection)


def test_server_that_closes_or_stays_silent_is_reported(pair: tuple[LoadConnection, socket.socket]) -> None:
    connection, peer = pair
    connection.sock.settimeout(0.01)
    with pytest.raises(ConnectError, match="p0 got no answer"):
        connection.receive()

    peer.shutdown(socket.SHUT_WR)

    with pytest.raises(ConnectError, match="p0 was closed by the server"):
        connection.receive()


def test_long_list_of_filters_is_sent_in_several_packets(pair: tuple[LoadConnection, socket.socket]) -> None:
    connection, peer = pair
    filters = [f"t/{number}" for number in range(501)]
    peer.sendall(encode(Suback(1, [1] * 500), 5) + encode(Suback(2, [1]), 5))

    subscribe([connection], [filters], qos=1, version=5)

    packets = Decoder(5, is_server=True).feed(peer.recv(1 << 20))
    entries = [entry for packet in packets if isinstance(packet, Subscribe) for entry in packet.entries]
    assert [len(packet.entries) for packet in packets if isinstance(packet, Subscribe)] == [500, 1]
    assert [(entry.topic_filter, entry.qos) for entry in entries] == [(one, 1) for one in filters]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Suback(1, [0]), "p0 asked for QoS 1 and got 0x00"),
        (Suback(1, [0x87]), "p0 asked for QoS 1 and got 0x87"),
        (Ack(4, 1), "instead of a SUBACK"),
    ],
)
def test_subscription_that_is_not_granted_as_asked_is_refused(
    pair: tuple[LoadConnection, socket.socket], answer: Packet, message: str
) -> None:
    connection, peer = pair
    peer.sendall(encode(answer, 5))

    with pytest.raises(SubscribeError, match=message):
        subscribe([connection], [["a"]], qos=1, version=5)


def test_certificates_are_verified_unless_told_otherwise() -> None:
    secure = LoadOptions(tls=True)

    strict, lax = tls_context(secure), tls_context(replace(secure, verify_tls=False))

    assert tls_context(LoadOptions()) is None
    assert strict is not None
    assert lax is not None
    assert (strict.check_hostname, lax.check_hostname) == (True, False)
