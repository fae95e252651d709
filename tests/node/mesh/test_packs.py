"""Packs between a broker and a hand-made neighbour: versions, connections that end in a pack, mistakes.

What packs carry between real brokers under load is in test_full.py and test_pressure.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.conftest import BrokerProcess, StartBroker
from tests.node.mesh.test_versions import Hill
from tests.peer import TIMEOUT_S, Peer, join

from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.values.message import Message
from timebound.linking.codec import ADVERTISEMENTS_TOPIC, HELLO_TOPIC
from timebound.linking.greeting import PACK_VERSION
from timebound.linking.packs import PACK_TOPIC, decode_pack, encode_pack
from timebound.wire.codec import encode
from timebound.wire.packets import Ack, Disconnect, Publish, make_publish

CONFIG = """
node_name = "valley"
[[listeners]]
port = 0
[[neighbours]]
name = "hill"
"""
# The link from the hill, and a subscription of its client to all topics: QoS 2 is for the home alone.
FACTS = b'[[0,"hill","valley","",1,1,[0.0001,0.0,0.0]],[1,"hill","c@hill","#",1,2,null,["c","",0,1.0,0.0,0]]]'
PUBACK = 4


@pytest.fixture
def valley(start_broker: StartBroker) -> Iterator[BrokerProcess]:
    process = start_broker(CONFIG)
    yield process
    process.check()


class Neighbour(Hill):
    """A neighbour that takes copies, and confirms them when the test says so."""

    def __init__(self, port: int, version: int) -> None:
        super().__init__(port, str(version))
        self.version = version

    def want_all(self) -> None:
        """Confirm the hello, so that the link is up, and subscribe to everything."""
        hello = self.peer.expect(Publish)
        assert hello.topic == HELLO_TOPIC
        self.peer.send(Ack(PUBACK, hello.packet_id))
        assert self.ask(ADVERTISEMENTS_TOPIC, FACTS).reason_code == 0

    def take(self, count: int) -> tuple[list[Publish], list[bytes]]:
        """Packets with copies until there are so many, and the payloads of the copies."""
        packets: list[Publish] = []
        payloads: list[bytes] = []
        while len(payloads) < count:
            packet = self.peer.expect(Publish, TIMEOUT_S)
            if packet.topic.startswith("$timebound/mesh/") and packet.topic != PACK_TOPIC:
                if packet.qos:
                    self.peer.send(Ack(PUBACK, packet.packet_id))
                continue
            packets.append(packet)
            if packet.topic == PACK_TOPIC:
                copies = decode_pack(packet.payload, packet.packet_id, time.time_ns())
                payloads += [copy.what.message.payload for copy in copies]
            else:
                payloads.append(packet.payload)
        return packets, payloads

    def give(self, *numbers: int, qos: int = 2) -> Ack:
        """Send a pack of copies with these numbers; return its confirmation."""
        return self.ask(PACK_TOPIC, pack_of(*numbers, qos=qos))


def pack_of(*numbers: int, qos: int = 2) -> bytes:
    copies = []
    for number in numbers:
        message = Message("t", b"%d" % number, qos, False, 5, "someone", sequence=number)
        copies.append(Copy(MeshMessage(message, "hill", 100, 5), ("hill",), 1, {"valley"}))
    return encode_pack(copies, 5, 0)


def publish_when_wanted(client: Peer, count: int, qos: int = 1) -> list[bytes]:
    """Publish numbers, the first of them when the broker knows of the subscription elsewhere."""
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        client.publish("t", b"probe", qos=1)
        if client.expect(Ack).reason_code == 0:
            break
        assert time.monotonic() < end_s, "the subscription of the hill is not known"
        time.sleep(0.01)
    payloads = [b"%d" % number for number in range(count)]
    frames = [encode(make_publish("t", one, qos, packet_id=i + 1), 5) for i, one in enumerate(payloads)]
    client.send_bytes(b"".join(frames))
    return [b"probe", *payloads]


def numbers(subscriber: Peer, count: int) -> list[int]:
    return [int(subscriber.expect(Publish, TIMEOUT_S).payload) for _ in range(count)]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", [0, 1, 2, PACK_VERSION, 99])
def test_a_neighbour_gets_qos_0_in_packs_if_it_knows_them_and_else_single_copies(
    valley: BrokerProcess, version: int, qos: int
) -> None:
    hill = Neighbour(valley.port, version)
    with hill.peer, join(valley.port) as publisher:
        hill.want_all()
        expected = publish_when_wanted(publisher, 100, qos)

        packets, payloads = hill.take(len(expected))

        assert payloads == expected
        if version >= PACK_VERSION and not qos:
            assert {packet.topic for packet in packets[1:]} == {PACK_TOPIC}, "all but the probe, of QoS 1"
            assert len(packets) <= 20  # all that is read at once leaves at once
        else:
            assert {packet.topic for packet in packets} == {"t"}
            assert len(packets) == len(expected)
        assert all(packet.qos == 1 and packet.packet_id for packet in packets)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_confirmation_answers_a_pack_when_its_copies_are_delivered(
    valley: BrokerProcess, qos: int
) -> None:
    hill = Neighbour(valley.port, PACK_VERSION)
    with hill.peer, join(valley.port) as subscriber:
        subscriber.subscribe("t")

        assert hill.give(1, 2, 3, qos=qos).reason_code == 0

        assert numbers(subscriber, 3) == [1, 2, 3]


def test_what_was_not_confirmed_when_a_link_ended_comes_again_in_its_order(valley: BrokerProcess) -> None:
    with join(valley.port) as publisher:
        first = Neighbour(valley.port, PACK_VERSION)
        with first.peer:
            first.want_all()
            expected = publish_when_wanted(publisher, 50)
            packets, payloads = first.take(len(expected))
            assert payloads == expected
            first.peer.send(Ack(PUBACK, packets[0].packet_id))  # and no other
            first.ask(HELLO_TOPIC)
        valley.wait_logged("link to 'hill' is down")

        again = Neighbour(valley.port, PACK_VERSION)
        with again.peer:
            again.want_all()
            assert again.take(len(expected) - 1)[1] == expected[1:]


def test_a_connection_that_ends_within_a_pack_delivers_none_of_it_and_the_next_one_all(
    valley: BrokerProcess,
) -> None:
    with join(valley.port) as subscriber:
        subscriber.subscribe("t")
        frame = encode(make_publish(PACK_TOPIC, pack_of(1, 2, 3), 1, packet_id=9), 5)
        cut = Neighbour(valley.port, PACK_VERSION)
        with cut.peer:
            assert cut.ask(HELLO_TOPIC).reason_code == 0
            cut.peer.send_bytes(frame[:-1])
        valley.wait_logged("disconnected without DISCONNECT")

        hill = Neighbour(valley.port, PACK_VERSION)
        with hill.peer:
            assert hill.give(1, 2, 3).reason_code == 0
            assert hill.give(4).reason_code == 0
            assert numbers(subscriber, 4) == [1, 2, 3, 4]


def test_a_pack_that_comes_again_because_its_confirmation_was_lost_is_delivered_once(
    valley: BrokerProcess,
) -> None:
    with join(valley.port) as subscriber:
        subscriber.subscribe("t", qos=2)
        for _ in range(2):
            hill = Neighbour(valley.port, PACK_VERSION)
            with hill.peer:
                assert hill.give(1, 2, 3).reason_code == 0
        hill = Neighbour(valley.port, PACK_VERSION)
        with hill.peer:
            assert hill.give(2, 3, 4).reason_code == 0  # packed anew, as another broker may have done
            assert numbers(subscriber, 4) == [1, 2, 3, 4]


def test_a_malformed_pack_ends_its_link_alone_and_says_why(valley: BrokerProcess) -> None:
    hill = Neighbour(valley.port, PACK_VERSION)
    with hill.peer, join(valley.port) as client:
        client.subscribe("t")
        hill.peer.publish(PACK_TOPIC, b"\x01\x02", qos=1)

        while not isinstance(packet := hill.peer.receive(TIMEOUT_S), Disconnect):
            assert packet is not None
        assert packet.reason_code == 0x81
        assert packet.properties.reason_string == "pack: route 2 is named, but there are 0"
        valley.wait_logged("pack: route 2 is named, but there are 0 (0x81)")
        client.publish("t", b"still here")
        assert client.expect(Publish).payload == b"still here"
