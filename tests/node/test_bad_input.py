"""Bytes that are wrong in any way close their own connection, for the reason the standard names.

A well-behaved client is connected all the while and must notice nothing; the broker must go on
and log no traceback (the `broker` fixture looks).
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Iterator

import pytest
from tests.conftest import BrokerProcess
from tests.peer import Peer, join

from timebound.wire.codec import encode
from timebound.wire.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Subscribe,
    SubscribeEntry,
    Unsubscribe,
    Will,
)

MALFORMED = 0x81
PROTOCOL = 0x82
ALIAS = 0x94
TOO_LARGE = 0x95


@pytest.fixture
def bystander(broker: BrokerProcess) -> Iterator[Peer]:
    """A client that talks to itself before and after."""
    with join(broker.port) as peer:
        peer.subscribe("bystander/#", qos=1)
        yield peer
        peer.send(Publish("bystander/a", b"still here", 0))
        peer.expect_publish("bystander/a", b"still here")


@pytest.mark.parametrize(
    ("what", "sent", "code"),
    [
        ("packet type 0", "00 00", MALFORMED),
        ("length of five bytes", "30 ff ff ff ff 7f", MALFORMED),
        ("length beyond the limit", "30 ff ff ff 7f", TOO_LARGE),
        ("length not in its shortest form", "c0 80 00", MALFORMED),
        ("QoS 3", "36 07 0001 61 0001 00 78", MALFORMED),
        ("DUP with QoS 0", "38 04 0001 61 00", MALFORMED),
        ("packet id 0", "32 06 0001 61 0000 00", PROTOCOL),
        ("topic is not UTF-8", "30 05 0002 c328 00", MALFORMED),
        ("topic holds a surrogate", "30 06 0003 eda080 00", MALFORMED),
        ("topic holds U+0000", "30 06 0003 610062 00", MALFORMED),
        ("topic holds a wildcard", "30 06 0003 612f23 00", MALFORMED),
        ("topic is empty", "30 03 0000 00", PROTOCOL),
        ("topic is longer than its packet", "30 04 0009 61 00", MALFORMED),
        ("properties are longer than their packet", "30 04 0001 61 7f", MALFORMED),
        ("property that does not exist", "30 06 0001 61 02 7f00", MALFORMED),
        ("property of another packet", "30 09 0001 61 05 11 00000000", MALFORMED),
        ("property twice", "30 08 0001 61 04 01010101", PROTOCOL),
        ("topic alias 0", "30 07 0001 61 03 230000", ALIAS),
        ("subscription identifier of a client", "30 06 0001 61 02 0b01", PROTOCOL),
        ("PUBACK with wrong flags", "41 02 0001", MALFORMED),
        ("PUBREL with wrong flags", "60 02 0001", MALFORMED),
        ("PUBACK with an unknown reason", "40 03 0001 42", PROTOCOL),
        ("SUBSCRIBE with wrong flags", "80 07 0001 00 0001 61 00", MALFORMED),
        ("SUBSCRIBE without a filter", "82 03 0001 00", PROTOCOL),
        ("UNSUBSCRIBE without a filter", "a2 03 0001 00", PROTOCOL),
        ("SUBSCRIBE with an empty filter", "82 06 0001 00 0000 00", MALFORMED),
        ("subscription identifier 0", "82 09 0001 02 0b00 0001 61 00", PROTOCOL),
        ("PINGREQ with a body", "c0 01 00", MALFORMED),
        ("CONNACK from a client", "20 03 00 00 00", PROTOCOL),
        ("SUBACK from a client", "90 04 0001 00 00", PROTOCOL),
        ("UNSUBACK from a client", "b0 04 0001 00 00", PROTOCOL),
        ("PINGRESP from a client", "d0 00", PROTOCOL),
        ("second CONNECT", "10 0d 0004 4d515454 05 02 0000 00 0000", PROTOCOL),
        ("DISCONNECT with a reason of servers", "e0 01 8e", PROTOCOL),
        ("AUTH", "f0 00", PROTOCOL),
        ("AUTH with an unknown reason", "f0 02 77 00", PROTOCOL),
    ],
)
def test_wrong_bytes_are_answered_with_their_reason(
    broker: BrokerProcess, bystander: Peer, what: str, sent: str, code: int
) -> None:
    with join(broker.port) as peer, join(broker.port, version=4) as old:
        # What came before the mistake still counts.
        peer.send_bytes(encode(Pingreq(), 5) + bytes.fromhex(sent))
        old.send_bytes(bytes.fromhex(sent))

        packets = peer.expect_closed()
        assert [type(packet).__name__ for packet in packets] == ["Pingresp", "Disconnect"]
        assert isinstance(packets[1], Disconnect)
        assert packets[1].reason_code == code
        assert packets[1].properties.reason_string
        if what not in IN_VERSION_4:
            assert old.expect_closed() == []


# The same bytes mean something else in 3.1.1, or are allowed or incomplete there.
IN_VERSION_4 = {
    "length not in its shortest form",
    "QoS 3",
    "topic is longer than its packet",
    "properties are longer than their packet",
    "property that does not exist",
    "property of another packet",
    "property twice",
    "topic alias 0",
    "subscription identifier of a client",
    "SUBSCRIBE with an empty filter",
    "subscription identifier 0",
}


@pytest.mark.parametrize(
    ("what", "sent", "answer"),
    [
        ("not MQTT", b"GET /mqtt HTTP/1.1\r\n\r\n", None),
        ("TLS on a plain port", bytes.fromhex("16 03 01 00 05 01 00 00 01 03"), None),
        ("PUBLISH first", encode(Publish("a", b""), 5), None),
        ("PINGREQ first", b"\xc0\x00", None),
        ("CONNECT with flags", b"\x11\x00", None),
        ("CONNECT beyond the limit", b"\x10\xff\xff\xff\x7f", None),
        ("empty CONNECT", b"\x10\x00", None),
        ("CONNECT cut after its level", bytes.fromhex("10 07 0004 4d515454 05"), MALFORMED),
        ("CONNECT with a reserved flag", bytes.fromhex("10 0d 0004 4d515454 05 03 0000 00 0000"), MALFORMED),
        ("CONNECT with will QoS 3", bytes.fromhex("10 0d 0004 4d515454 05 1e 0000 00 0000"), MALFORMED),
        (
            "CONNECT with a bad client id",
            bytes.fromhex("10 0f 0004 4d515454 05 02 0000 00 0002 c328"),
            MALFORMED,
        ),
        (
            "CONNECT with bytes too many",
            bytes.fromhex("10 0e 0004 4d515454 05 02 0000 00 0000 00"),
            MALFORMED,
        ),
        ("receive maximum 0", bytes.fromhex("10 10 0004 4d515454 05 02 0000 03 210000 0000"), PROTOCOL),
        ("packet size 0", bytes.fromhex("10 12 0004 4d515454 05 02 0000 05 2700000000 0000"), PROTOCOL),
    ],
)
def test_wrong_first_packet_gets_connack_or_nothing(
    broker: BrokerProcess, bystander: Peer, what: str, sent: bytes, answer: int | None
) -> None:
    with Peer(broker.port) as peer:
        peer.send_bytes(sent)
        packets = peer.expect_closed()

    codes = [packet.reason_code for packet in packets if isinstance(packet, Connack)]
    assert codes == ([] if answer is None else [answer])
    assert len(packets) == len(codes)


PACKETS: list[Packet] = [
    Publish("fuzz/a", b"payload", 0),
    Publish("fuzz/a", b"payload", 1, packet_id=3),
    Publish("fuzz/a", b"payload", 2, True, packet_id=4),
    Ack(6, 4),
    Ack(4, 1),
    Subscribe(5, [SubscribeEntry("fuzz/#", 1), SubscribeEntry("$share/g/fuzz/+", 2)]),
    Unsubscribe(6, ["fuzz/#"]),
    Pingreq(),
    Disconnect(4),
    Connect("fuzz-again", will=Will("fuzz/will", b"x", 1, True)),
]


def _mutate(data: bytes, source: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(changed))
        action = source.randrange(4)
        if action == 0:
            changed[at] = source.randrange(256)
        elif action == 1:
            changed[at] ^= 1 << source.randrange(8)
        elif action == 2:
            del changed[at : at + source.randint(1, 3)]
        else:
            changed[at:at] = source.randbytes(source.randint(1, 3))
        if not changed:
            break
    return bytes(changed)


@pytest.mark.parametrize("version", [4, 5])
def test_mutated_packets_harm_nobody(broker: BrokerProcess, bystander: Peer, version: int) -> None:
    source = random.Random(version)
    for number in range(150):
        connect = encode(Connect(f"fuzz-{number % 5}", version), version)
        rest = b"".join(encode(source.choice(PACKETS), version) for _ in range(source.randint(1, 4)))
        data = _mutate(connect, source) + rest if number % 5 == 0 else connect + _mutate(rest, source)
        with Peer(broker.port, version) as peer:
            peer.send_bytes(data)
            if number % 10 == 0:
                bystander.expect_silence()
        broker.check()


def test_random_bytes_harm_nobody(broker: BrokerProcess, bystander: Peer) -> None:
    source = random.Random(1)
    for number in range(100):
        with Peer(broker.port) as peer:
            prefix = encode(Connect("", 5), 5) if number % 2 else b""
            peer.send_bytes(prefix + source.randbytes(source.randint(1, 200)))
        if number % 10 == 0:
            bystander.expect_silence()


def test_packets_cut_off_at_any_byte_harm_nobody(broker: BrokerProcess, bystander: Peer) -> None:
    whole = b"".join(encode(packet, 5) for packet in (Connect("cut"), *PACKETS[:6]))
    for length in range(len(whole)):
        with Peer(broker.port) as peer:
            peer.send_bytes(whole[:length])
    bystander.expect_silence()


def test_reset_connections_harm_nobody(broker: BrokerProcess, bystander: Peer) -> None:

    for _ in range(20):
        peer = join(broker.port)
        peer.send(
            Subscribe(1, [SubscribeEntry("reset/#", 1)]), Publish("reset/a", b"x" * 50_000, 1, packet_id=2)
        )
        # SO_LINGER of 0 makes close() send a reset, whatever waits to be read or sent.
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
    bystander.expect_silence()


def test_mistake_in_a_large_segment_is_answered(broker: BrokerProcess, bystander: Peer) -> None:
    with join(broker.port) as peer:
        with contextlib.suppress(ConnectionError):  # the broker closes while this is still being sent
            peer.send_bytes(encode(Publish("a", b"x" * 300_000), 5) + b"\x00" * 300_000)

        peer.expect_disconnect(MALFORMED)


@pytest.mark.parametrize(
    "topic", ["$timebound/control/strategy", "$timebound/control/weight", "$timebound/link/x"]
)
def test_refusal_of_a_long_request_fits_into_its_answer(broker: BrokerProcess, topic: str) -> None:
    """A Reason String is at most 65,535 bytes (MQTT 5, 1.5.4), whatever it quotes."""
    with join(broker.port) as peer:
        peer.publish(topic, b"x" * 70_000, 1)

        answer = peer.expect(Ack)
        assert answer.reason_code >= 0x80
        assert 0 < len(answer.reason_string) <= 1_100
        peer.send(Pingreq())
        assert peer.receive() is not None
