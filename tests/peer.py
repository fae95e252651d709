"""An MQTT peer for tests: a blocking socket that sends packets or any bytes, and reads packets.

It speaks to an `Endpoint` over whatever that is: TCP, TLS, WebSocket, or WebSocket over TLS.
It keeps no session and corrects nothing, so a test says exactly what goes over the wire. Every
wait has a limit. To show that nothing was sent, `expect_silence` makes a PINGREQ round trip:
what the broker had for this client before is then here.
"""

from __future__ import annotations

import socket
import ssl
import time
from types import TracebackType
from typing import TypeVar

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
    Unsuback,
    Unsubscribe,
    Will,
    make_publish,
)
from timebound.wire.properties import Properties

TIMEOUT_S = 10.0
# The four transports, by the schemes of their URLs.
SCHEMES = ("mqtt", "mqtts", "ws", "wss")
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
# A broker takes no frame that is larger than its largest packet.
FRAME_BYTES_MAX = 65_536

P = TypeVar("P", bound=Packet)


def props(**values: object) -> Properties:
    """Properties with these set."""
    properties = Properties()
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


class Endpoint(int):
    """A port, and over what it is spoken to."""

    scheme: str
    tls: ssl.SSLContext | None

    def __new__(cls, port: int, scheme: str = "mqtt", tls: ssl.SSLContext | None = None) -> Endpoint:
        made = super().__new__(cls, port)
        made.scheme = scheme
        made.tls = tls if scheme in ("mqtts", "wss") else None
        return made

    def at(self, port: int) -> Endpoint:
        """The same at another port, such as a relay's."""
        return Endpoint(port, self.scheme, self.tls)


class Frames:
    """The client's side of a WebSocket, as far as tests need it: binary frames, and the close."""

    def __init__(self) -> None:
        self._data = b""
        self.is_closed = False

    @staticmethod
    def encode(data: bytes) -> bytes:
        """Put the bytes into frames; packets may be divided among them."""
        parts = [data[start : start + FRAME_BYTES_MAX] for start in range(0, len(data), FRAME_BYTES_MAX)]
        # Masked with zeros, which changes nothing.
        return b"".join(b"\x82\xff" + len(part).to_bytes(8, "big") + bytes(4) + part for part in parts)

    def feed(self, data: bytes) -> bytes:
        """What the frames that are complete by now have brought."""
        self._data += data
        found = b""
        while len(self._data) >= 2 and not self.is_closed:
            length, start = self._data[1], 2
            if length > 125:
                start = 4 if length == 126 else 10
                length = int.from_bytes(self._data[2:start], "big")
            if len(self._data) < start + length:
                break
            opcode = self._data[0] & 0x0F
            assert opcode in (2, 8), f"unexpected frame {self._data[:10]!r}"
            self.is_closed = opcode == 8
            if opcode == 2:
                found += self._data[start : start + length]
            self._data = self._data[start + length :]
        return found


class Peer:
    """One connection to a broker."""

    def __init__(
        self, port: int, version: int = 5, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        self.version = version
        plain = socket.create_connection((host, int(port)), TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        scheme = "mqtt"
        if isinstance(port, Endpoint):
            scheme, tls = port.scheme, tls or port.tls
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        self._frames = self._upgrade() if scheme in ("ws", "wss") else None
        self._decoder = Decoder(5 if version == 5 else 4, is_server=False)
        self._received: list[Packet] = []
        self._is_ended = False
        self._packet_id = 0

    def _upgrade(self) -> Frames:
        self.socket.sendall(UPGRADE)
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            piece = self.socket.recv(1)
            assert piece, f"the broker closed after {answer!r}"
            answer += piece
        assert answer.startswith(b"HTTP/1.1 101 "), answer
        return Frames()

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # --- out ------------------------------------------------------------------------

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data if self._frames is None else self._frames.encode(data))

    def next_id(self) -> int:
        self._packet_id += 1
        return self._packet_id

    # --- in -------------------------------------------------------------------------

    def receive(self, timeout_s: float = TIMEOUT_S) -> Packet | None:
        """The next packet; None when the broker has closed the connection."""
        end = time.monotonic() + timeout_s
        while not self._received and not self._is_ended:
            left_s = end - time.monotonic()
            assert left_s > 0, f"nothing arrived in {timeout_s} s"
            self.socket.settimeout(left_s)
            try:
                data = self.socket.recv(65_536)
            except (ConnectionResetError, ssl.SSLEOFError):
                data = b""
            except TimeoutError:
                continue
            finally:
                self.socket.settimeout(TIMEOUT_S)
            self._is_ended = not data
            if self._frames is not None:
                data = self._frames.feed(data)
                self._is_ended |= self._frames.is_closed
            self._received += self._decoder.feed(data)
            assert self._decoder.error is None, f"the broker sent what MQTT forbids: {self._decoder.error}"
        return self._received.pop(0) if self._received else None

    def expect(self, kind: type[P], timeout_s: float = TIMEOUT_S) -> P:
        """The next packet, which has to be of this kind."""
        packet = self.receive(timeout_s)
        assert isinstance(packet, kind), f"expected {kind.__name__}, got {packet}"
        return packet

    def expect_closed(self, timeout_s: float = TIMEOUT_S) -> list[Packet]:
        """Wait until the broker closes; gives what it sent before."""
        packets: list[Packet] = []
        while (packet := self.receive(timeout_s)) is not None:
            packets.append(packet)
        return packets

    def expect_disconnect(self, reason_code: int, timeout_s: float = TIMEOUT_S) -> str:
        """The next packet is a DISCONNECT with this reason, then the end; gives its reason string."""
        packet = self.expect(Disconnect, timeout_s)
        assert packet.reason_code == reason_code, packet
        assert self.receive(timeout_s) is None
        return packet.properties.reason_string or ""

    def expect_silence(self) -> None:
        """Nothing was sent to this client, and it is still served."""
        self.send(Pingreq())
        self.expect(Pingresp)

    # --- whole exchanges ------------------------------------------------------------

    def connect(
        self,
        client_id: str = "",
        *,
        clean: bool = True,
        keep_alive: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties | None = None,
    ) -> Connack:
        """Say CONNECT; gives the answer, whatever it is."""
        packet = Connect(client_id, self.version, clean, keep_alive, username, password, will, properties)
        self.send(packet)
        return self.expect(Connack)

    def subscribe(self, *filters: str | SubscribeEntry, qos: int = 0, **values: object) -> Suback:
        """Subscribe with the given properties; gives the SUBACK. Nothing else may come before it."""
        entries = [
            entry if isinstance(entry, SubscribeEntry) else SubscribeEntry(entry, qos) for entry in filters
        ]
        self.send(Subscribe(self.next_id(), entries, props(**values)))
        return self.expect(Suback)

    def unsubscribe(self, *filters: str, **values: object) -> Unsuback:
        self.send(Unsubscribe(self.next_id(), list(filters), props(**values)))
        return self.expect(Unsuback)

    def publish(
        self, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False, **values: object
    ) -> int:
        """Send a PUBLISH and read nothing; gives its packet id."""
        packet_id = self.next_id() if qos else 0
        self.send(make_publish(topic, payload, qos, retain, packet_id, props(**values)))
        return packet_id

    def expect_publish(self, topic: str, payload: bytes) -> Publish:
        packet = self.expect(Publish)
        assert (packet.topic, packet.payload) == (topic, payload)
        return packet


def join(port: int, client_id: str = "", version: int = 5, **more: object) -> Peer:
    """A peer that is connected."""
    peer = Peer(port, version)
    connack = peer.connect(client_id, **more)  # type: ignore[arg-type]  # passed on as they are
    assert connack.reason_code == 0, connack
    return peer
