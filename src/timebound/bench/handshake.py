"""Opens the connections of a load run: TCP or TLS, CONNECT, SUBSCRIBE.

Nothing is measured yet, so the ordinary codec is used. Each step is sent on all connections
before the first answer is awaited: a distant broker costs a few round trips, not a few per
client.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final

from timebound.bench.options import LoadOptions
from timebound.errors import ConnectError, SubscribeError
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Connack, Connect, Packet, Suback, Subscribe, SubscribeEntry
from timebound.wire.properties import Properties

# By default the kernel buffers megabytes of a fast publisher: seconds of work for a slow broker,
# long after the measured time.
SEND_BUFFER_BYTES: Final = 128 << 10
_FAILURE_FROM: Final = 0x80
_RECEIVE_MAXIMUM: Final = 65_535  # MQTT 5, 3.2.2.3.3: the value if the server sends none
_FILTERS_PER_SUBSCRIBE: Final = 500  # keeps the packet below the limits of brokers


class LoadConnection:
    """A connected socket before the load starts, and the server's limits for it."""

    __slots__ = ("_received", "decoder", "name", "ping_interval_s", "receive_maximum", "sock")

    def __init__(self, sock: socket.socket, name: str, version: int) -> None:
        self.sock = sock
        self.name = name
        self.decoder = Decoder(version, is_server=False)
        self.receive_maximum = _RECEIVE_MAXIMUM
        self.ping_interval_s = 0.0
        self._received: list[Packet] = []

    def receive(self) -> Packet:
        """Return the next packet.

        Raises:
            ConnectError: the peer closed, broke the protocol, or took too long.
        """
        while not self._received:
            try:
                data = self.sock.recv(4096)
            except OSError as error:
                raise ConnectError(f"{self.name} got no answer ({error})") from error
            if not data:
                raise ConnectError(f"{self.name} was closed by the server before it answered")
            self._received += self.decoder.feed(data)
            if self.decoder.error is not None and not self._received:
                raise ConnectError(f"{self.name} received data that is not MQTT ({self.decoder.error})")
        return self._received.pop(0)


def tls_context(options: LoadOptions) -> ssl.SSLContext | None:
    """Return the client's TLS settings, or None for plain TCP."""
    if not options.tls:
        return None
    context = ssl.create_default_context(cafile=options.ca_file)
    if options.certificate_file is not None:
        context.load_cert_chain(options.certificate_file, options.key_file)
    if not options.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def open_connections(options: LoadOptions, names: list[str]) -> list[LoadConnection]:
    """Connect one MQTT client for each name; the name is also its client id.

    Raises:
        ConnectError: the broker cannot be reached or refused a client; none stays open.
    """
    context = tls_context(options)
    connections: list[LoadConnection] = []
    try:
        for name in names:
            connections.append(_open_socket(options, name, context))
            connections[-1].sock.sendall(_connect_packet(options, name))
        for connection in connections:
            read_connack(connection)
    except BaseException:
        for connection in connections:
            connection.sock.close()
        raise
    return connections


def _open_socket(options: LoadOptions, name: str, context: ssl.SSLContext | None) -> LoadConnection:
    try:
        sock = socket.create_connection((options.host, options.port), timeout=options.timeout_s)
        # Otherwise Nagle's algorithm delays the second small packet, which is not the broker's delay.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        if context is not None:
            sock = context.wrap_socket(sock, server_hostname=options.host)
    except OSError as error:
        raise ConnectError(f"{options.host}:{options.port} cannot be reached ({error})") from error
    return LoadConnection(sock, name, options.mqtt_version)


def _connect_packet(options: LoadOptions, name: str) -> bytes:
    properties = Properties()
    if options.mqtt_version == 5:
        properties.receive_maximum = _RECEIVE_MAXIMUM
    password = None if options.password is None else options.password.encode()
    packet = Connect(
        name,
        options.mqtt_version,
        username=options.username,
        password=password,
        properties=properties,
    )
    return encode(packet, options.mqtt_version)


def read_connack(connection: LoadConnection) -> None:
    """Read the answer to a CONNECT; raises ConnectError if it refuses."""
    packet = connection.receive()
    if not isinstance(packet, Connack):
        raise ConnectError(f"{connection.name} got {packet!r} instead of a CONNACK")
    if packet.reason_code >= _FAILURE_FROM:
        reason = packet.properties.reason_string or "no reason string"
        raise ConnectError(
            f"{connection.name} was refused with 0x{packet.reason_code:02x} ({reason})",
            reason_code=packet.reason_code,
        )
    if packet.properties.receive_maximum is not None:
        connection.receive_maximum = packet.properties.receive_maximum
    if packet.properties.server_keep_alive:
        # No keep-alive is requested, but a server may require one. Half of it leaves room for a late turn.
        connection.ping_interval_s = packet.properties.server_keep_alive / 2


def subscribe(
    connections: list[LoadConnection], topic_filters: list[list[str]], *, qos: int, version: int
) -> None:
    """Subscribe each connection to its filters.

    Raises:
        SubscribeError: a filter was refused, or granted with less than `qos`.
    """
    for connection, filters in zip(connections, topic_filters, strict=True):
        for packet_id, start in enumerate(range(0, len(filters), _FILTERS_PER_SUBSCRIBE), 1):
            batch = filters[start : start + _FILTERS_PER_SUBSCRIBE]
            entries = [SubscribeEntry(topic_filter, qos) for topic_filter in batch]
            connection.sock.sendall(encode(Subscribe(packet_id, entries), version))
            if start:
                _read_suback(connection, qos)
    for connection in connections:
        _read_suback(connection, qos)


def _read_suback(connection: LoadConnection, qos: int) -> None:
    packet = connection.receive()
    if not isinstance(packet, Suback):
        raise SubscribeError(f"{connection.name} got {packet!r} instead of a SUBACK")
    for code in packet.reason_codes:
        if code != qos:
            raise SubscribeError(
                f"{connection.name} asked for QoS {qos} and got 0x{code:02x}", reason_code=code
            )
