"""Encryption: what fails is answered with an alert, one log line and a count; what works carries anything."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
from collections.abc import Iterator

import pytest
import trustme
from tests.conftest import BrokerProcess, Certificates
from tests.node.doubles import Build
from tests.peer import TIMEOUT_S, Peer, join

from timebound.node.clients.tls import TlsAdapter
from timebound.wire.packets import Connack, Publish

CONFIG = """\
sys_interval = "100ms"
[[listeners]]
port = 0
[[listeners]]
name = "guarded"
port = 0
[listeners.tls]
certificate = "{certificates.certificate}"
key = "{certificates.key}"
ca = "{certificates.ca}"
require_client_certificate = true
[[listeners]]
name = "guarded-web"
kind = "websocket"
port = 0
[listeners.tls]
certificate = "{certificates.certificate}"
key = "{certificates.key}"
ca = "{certificates.ca}"
require_client_certificate = true
[limits]
connect_timeout = "1s"
"""
SOURCES = itertools.count(1)
TLS_1_2 = ssl.TLSVersion.TLSv1_2
TLS_1_3 = ssl.TLSVersion.TLSv1_3


@pytest.fixture(scope="module")
def guarded_process(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("tls"), CONFIG.format(certificates=certificates))
    yield process
    process.check()
    assert process.stop() == 0


@pytest.fixture
def guarded(guarded_process: BrokerProcess) -> Iterator[BrokerProcess]:
    yield guarded_process
    guarded_process.check()


def context_for(certificates: Certificates, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.minimum_version = context.maximum_version = version
    return context


def wait_failures(broker: BrokerProcess, least: int) -> None:
    with join(broker.port) as peer:
        peer.subscribe("$SYS/broker/connections/tls_failed")
        while int(peer.expect(Publish).payload) < least:
            pass


def failures(broker: BrokerProcess) -> int:
    with join(broker.port) as peer:
        peer.subscribe("$SYS/broker/connections/tls_failed")
        return int(peer.expect(Publish).payload)


def _talk(raw: socket.socket, context: ssl.SSLContext) -> None:
    # With TLS 1.3 the client is ready before its certificate is looked at: it reads the alert later.
    with context.wrap_socket(raw, server_hostname="127.0.0.1") as encrypted:
        encrypted.sendall(b"x" * 20_000)
        encrypted.recv(1)


def connect_alone(port: int) -> socket.socket:
    """Connect from an address that no other test used: refusals of one address are logged once."""
    source = (f"127.1.0.{next(SOURCES)}", 0)
    return socket.create_connection(("127.0.0.1", port), TIMEOUT_S, source_address=source)


def refusal_of(broker: BrokerProcess, scheme: str, context: ssl.SSLContext) -> tuple[str, str]:
    """The alert that a client gets, and its address."""
    raw = connect_alone(broker.port_of(scheme))
    address = "{}:{}".format(*raw.getsockname())
    with raw, pytest.raises(ssl.SSLError) as caught:
        _talk(raw, context)
    return str(caught.value.reason), address


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
@pytest.mark.parametrize(("scheme", "name"), [("mqtts:", "guarded"), ("wss:", "guarded-web")])
def test_client_without_a_certificate_gets_an_alert(
    guarded: BrokerProcess, certificates: Certificates, scheme: str, name: str, version: ssl.TLSVersion
) -> None:
    before = failures(guarded)

    alert, address = refusal_of(guarded, scheme, context_for(certificates, version))

    assert alert in ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE")
    guarded.wait_logged(f"TLS handshake with {address} on {name} failed: peer did not return a certificate")
    wait_failures(guarded, before + 1)


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
def test_client_of_another_authority_gets_an_alert(
    guarded: BrokerProcess, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    context = context_for(certificates, version)
    trustme.CA().issue_cert("stranger.example").configure_cert(context)

    alert, address = refusal_of(guarded, "mqtts:", context)

    assert alert == "TLSV1_ALERT_UNKNOWN_CA"
    guarded.wait_logged(
        f"TLS handshake with {address} on guarded failed: certificate verify failed: "
        "unable to get local issuer certificate"
    )


def test_client_that_refuses_the_broker_is_logged(guarded: BrokerProcess) -> None:
    raw = connect_alone(guarded.port_of("mqtts:"))
    address = "{}:{}".format(*raw.getsockname())
    with raw, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(raw, server_hostname="127.0.0.1")

    guarded.wait_logged(f"TLS handshake with {address} on guarded failed: tlsv1 alert unknown ca")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00", "wrong version number"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "http request"),
    ],
)
def test_plain_bytes_on_an_encrypted_port_get_an_alert(
    guarded: BrokerProcess, data: bytes, reason: str
) -> None:
    with connect_alone(guarded.port_of("mqtts:")) as raw:
        address = "{}:{}".format(*raw.getsockname())
        raw.sendall(data)
        answer = raw.recv(100)
        rest = raw.recv(100)

    assert answer[:1] == b"\x15"  # an alert
    assert rest == b""
    guarded.wait_logged(f"TLS handshake with {address} on guarded failed: {reason}")


def test_handshake_that_is_not_completed_ends_in_time(guarded: BrokerProcess) -> None:
    with connect_alone(guarded.port_of("mqtts:")) as raw:
        address = "{}:{}".format(*raw.getsockname())
        raw.sendall(b"\x16\x03\x01")

        assert raw.recv(100) == b""
    guarded.wait_logged(f"TLS handshake with {address} on guarded failed: not complete in time")


def test_client_that_leaves_during_the_handshake_is_counted(guarded: BrokerProcess) -> None:
    before = failures(guarded)
    with connect_alone(guarded.port_of("mqtts:")) as raw:
        raw.sendall(b"\x16\x03\x01")

    wait_failures(guarded, before + 1)


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
def test_large_messages_pass_in_both_directions(
    guarded: BrokerProcess, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    context = context_for(certificates, version)
    chain, key = certificates.issue(f"client-{version.value}.example")
    context.load_cert_chain(chain, key)
    payload = bytes(range(256)) * 3_000
    with Peer(guarded.port_of("mqtts:"), tls=context) as peer:
        assert peer.connect().reason_code == 0
        peer.subscribe("tls/large")
        for _ in range(3):
            peer.publish("tls/large", payload)
        for _ in range(3):
            peer.expect_publish("tls/large", payload)


def test_goodbye_of_the_broker_comes_before_the_end(
    guarded: BrokerProcess, certificates: Certificates
) -> None:
    """DISCONNECT, then close_notify: no end that could be an attacker's."""
    context = context_for(certificates, TLS_1_3)
    context.load_cert_chain(*certificates.issue("goodbye.example"))
    with Peer(guarded.port_of("mqtts:"), tls=context) as peer:
        assert isinstance(peer.connect(), Connack)
        peer.send_bytes(b"\x00\x00")
        peer.expect_disconnect(0x81)
        assert isinstance(peer.socket, ssl.SSLSocket)
        assert peer.socket.recv(1) == b""


def test_goodbye_of_the_client_ends_the_connection(
    guarded: BrokerProcess, certificates: Certificates
) -> None:
    context = context_for(certificates, TLS_1_2)
    context.load_cert_chain(*certificates.issue("leaving.example"))
    with Peer(guarded.port_of("mqtts:"), tls=context) as peer:
        assert peer.connect().reason_code == 0
        assert isinstance(peer.socket, ssl.SSLSocket)
        plain = peer.socket.unwrap()

        assert plain.recv(1) == b""
        plain.close()


class Wire:
    """The transport below an adapter: bytes for the client, in memory."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.is_closed = False
        self.is_half_closed = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed, "written after close"
        self.sent += data

    def write_eof(self) -> None:
        self.is_half_closed = True

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("192.0.2.7", 5000) if name == "peername" else default


class Plain:
    """What is behind an adapter: remembers the bytes that were decrypted."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_ended = False

    def connection_made(self, transport: object) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> None:
        self.is_ended = True

    def failed(self, error: Exception) -> None:
        raise error


class TlsClient:
    """A client in memory on the other side of the wire."""

    def __init__(self, adapter: TlsAdapter, wire: Wire, context: ssl.SSLContext) -> None:
        self.adapter = adapter
        self.wire = wire
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")

    def exchange(self) -> None:
        """Carry over what either side has written."""
        self.incoming.write(bytes(self.wire.sent))
        self.wire.sent.clear()
        if data := self.outgoing.read():
            self.adapter.data_received(data)

    def shake_hands(self) -> None:
        for _ in range(6):
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
            self.exchange()

    def send(self, data: bytes) -> None:
        self.tls.write(data)
        self.exchange()

    def receive(self) -> bytes:
        self.exchange()
        return self.tls.read(1 << 20)


@pytest.fixture
async def in_memory(build: Build, certificates: Certificates) -> tuple[TlsClient, Plain, Wire]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.certificate, certificates.key)
    plain, wire = Plain(), Wire()
    adapter = TlsAdapter(server, build().driver, "here", lambda: plain)
    adapter.connection_made(wire)
    return TlsClient(adapter, wire, context_for(certificates, TLS_1_3)), plain, wire


async def test_bytes_arrive_decrypted_and_leave_encrypted(in_memory: tuple[TlsClient, Plain, Wire]) -> None:
    client, plain, wire = in_memory
    client.shake_hands()
    secret = b"a secret" * 10_000

    client.send(b"hello ")
    client.send(b"broker")
    client.adapter.write(secret)

    assert bytes(plain.received) == b"hello broker"
    assert plain.transport is client.adapter
    assert b"a secret" not in wire.sent
    received = bytearray()
    while len(received) < len(secret):
        received += client.receive()
    assert bytes(received) == secret


async def test_nothing_is_written_before_the_handshake_is_complete(
    in_memory: tuple[TlsClient, Plain, Wire],
) -> None:
    client, _, wire = in_memory

    client.adapter.write(b"too early")

    assert wire.sent == b""
    assert client.adapter.get_extra_info("peercert", "none") == "none"
    assert client.adapter.get_extra_info("peername") == ("192.0.2.7", 5000)


async def test_what_comes_after_a_failure_is_not_looked_at(in_memory: tuple[TlsClient, Plain, Wire]) -> None:
    client, plain, wire = in_memory

    client.adapter.data_received(b"GET / HTTP/1.1\r\n\r\n")
    alert = bytes(wire.sent)
    client.adapter.data_received(b"more of it")

    assert alert == bytes([21, 3, 1, 0, 2, 2, 70])
    assert bytes(wire.sent) == alert
    # Closed by the client or by its time limit: a reset would take the alert away from it.
    assert (wire.is_half_closed, wire.is_closed) == (True, False)
    assert plain.received == b""


async def test_closing_says_goodbye_first(in_memory: tuple[TlsClient, Plain, Wire]) -> None:
    client, _, wire = in_memory
    client.shake_hands()

    client.adapter.close()

    assert wire.is_closed
    assert client.receive() == b""  # an end that was announced; else it would raise


async def test_the_clients_goodbye_is_an_end_of_what_it_sends(
    in_memory: tuple[TlsClient, Plain, Wire],
) -> None:
    client, plain, wire = in_memory
    client.shake_hands()
    client.tls.write(b"last words")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.tls.unwrap()

    client.exchange()

    assert (bytes(plain.received), plain.is_ended, wire.is_closed) == (b"last words", True, True)
