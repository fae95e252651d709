"""From deliveries to the bytes of one client."""

from __future__ import annotations

import pytest

from timebound.core.sessions.session import PUBACK, Reply
from timebound.core.values.message import Delivery, Message
from timebound.outgoing import OutgoingEncoder
from timebound.units import SECOND
from timebound.wire.codec import Decoder
from timebound.wire.packets import Ack, Publish

NOW_NS = 1_000 * SECOND


def decode(frame: bytes, version: int = 5) -> Publish:
    [packet] = Decoder(version, is_server=False).feed(frame)
    assert isinstance(packet, Publish)
    return packet


def delivery(
    topic: str = "plant/7/temp", payload: bytes = b"21", qos: int = 0, expires_ns: int = 0
) -> Delivery:
    message = Message(topic, payload, qos, False, NOW_NS, expires_ns=expires_ns)
    return Delivery(message, qos, False, (), 1, packet_id=1 if qos else 0)


def test_plain_delivery_is_encoded_once_for_all_receivers_of_a_version() -> None:
    shared = delivery()

    frames = [OutgoingEncoder(version, 0, 0, True).encode(shared, NOW_NS) for version in (5, 5, 4, 4)]

    assert frames[0] is frames[1]
    assert frames[2] is frames[3]
    assert decode(frames[0]).payload == decode(frames[2], 4).payload == b"21"


def test_alias_is_set_with_the_first_message_and_used_from_then_on() -> None:
    outgoing = OutgoingEncoder(5, 0, 1, True)

    seen = [
        decode(outgoing.encode(delivery(topic), NOW_NS))
        for topic in ("first/a", "first/a", "second/b", "abc")
    ]

    assert [(packet.topic, packet.topic_alias) for packet in seen] == [
        ("first/a", 1),
        ("", 1),
        ("second/b", 0),
        ("abc", 0),
    ]


def test_alias_of_a_message_that_was_not_sent_for_its_size_is_not_used() -> None:
    outgoing = OutgoingEncoder(5, 60, 4, True)

    assert outgoing.encode(delivery(payload=b"x" * 100), NOW_NS) == b""

    first = decode(outgoing.encode(delivery(), NOW_NS))
    second = decode(outgoing.encode(delivery(), NOW_NS))
    assert (first.topic, second.topic) == ("plant/7/temp", "")
    assert first.topic_alias == second.topic_alias == 1


@pytest.mark.parametrize(("left_ns", "said_s"), [(1, 1), (SECOND, 1), (SECOND + 1, 2), (90 * SECOND, 90)])
def test_expiry_that_is_left_counts_begun_seconds(left_ns: int, said_s: int) -> None:
    """MQTT 5, 3.3.2.3.3"""
    sent = delivery(expires_ns=NOW_NS + left_ns)

    assert decode(OutgoingEncoder(5, 0, 0, True).encode(sent, NOW_NS)).message_expiry_interval == said_s
    assert decode(OutgoingEncoder(4, 0, 0, True).encode(sent, NOW_NS), 4).payload == b"21"


def test_packet_is_sent_up_to_the_maximum_size_exactly() -> None:
    """[MQTT-3.1.2-24]"""
    size = len(OutgoingEncoder(5, 0, 0, True).encode(delivery(), NOW_NS))

    assert len(OutgoingEncoder(5, size, 0, True).encode(delivery(), NOW_NS)) == size
    assert OutgoingEncoder(5, size - 1, 0, True).encode(delivery(), NOW_NS) == b""


def test_reason_string_is_left_out_where_it_is_unwanted_or_too_long() -> None:
    """[MQTT-3.1.2-29] [MQTT-3.4.2-2]"""
    reply = Reply(PUBACK, 1, 0x97, "quota: too many")
    reasons = []
    for outgoing in (
        OutgoingEncoder(5, 0, 0, True),
        OutgoingEncoder(5, 0, 0, False),
        OutgoingEncoder(5, 20, 0, True),
    ):
        [ack] = Decoder(5, is_server=False).feed(outgoing.encode_reply(reply))
        assert isinstance(ack, Ack)
        assert ack.reason_code == 0x97
        reasons.append(ack.reason_string)

    assert reasons == ["quota: too many", "", ""]
