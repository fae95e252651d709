"""PUBLISH with its acknowledgements, retained messages and wills, clause by clause.

Clauses are those of MQTT 5.0 unless a test is for version 4, where they are those of 3.1.1.
"""

from __future__ import annotations

import contextlib
import time

import pytest
from tests.conftest import BrokerProcess, ShareOver, StartOver
from tests.peer import Peer, join, props

from timebound.wire.packets import (
    Ack,
    Disconnect,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Will,
    make_publish,
)

PUBACK, PUBREC, PUBREL, PUBCOMP = 4, 5, 6, 7


def ack(peer: Peer, kind: int) -> Ack:
    packet = peer.expect(Ack)
    assert packet.kind == kind, packet
    return packet


# --- quality of service ---------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("sent", [0, 1, 2])
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_message_arrives_with_the_smaller_qos(
    broker: BrokerProcess, version: int, sent: int, wanted: int
) -> None:
    """[MQTT-3.8.4-8] [MQTT-4.3.2-5] [MQTT-4.3.3-8] [MQTT-4.3.3-11] [MQTT-4.3.3-4]"""
    topic = f"qos/{version}/{sent}/{wanted}"
    with join(broker.port, version=version) as subscriber, join(broker.port, version=version) as publisher:
        assert subscriber.subscribe(topic, qos=wanted).reason_codes == [wanted]
        packet_id = publisher.publish(topic, b"1", sent)
        if sent == 1:
            assert ack(publisher, PUBACK).packet_id == packet_id
        if sent == 2:
            assert ack(publisher, PUBREC).packet_id == packet_id
            publisher.send(Ack(PUBREL, packet_id))
            assert ack(publisher, PUBCOMP).packet_id == packet_id

        packet = subscriber.expect_publish(topic, b"1")
        assert (packet.qos, packet.dup, packet.retain) == (min(sent, wanted), False, False)
        if packet.qos == 1:
            subscriber.send(Ack(PUBACK, packet.packet_id))
        if packet.qos == 2:
            subscriber.send(Ack(PUBREC, packet.packet_id))
            assert ack(subscriber, PUBREL).packet_id == packet.packet_id
            subscriber.send(Ack(PUBCOMP, packet.packet_id))
        subscriber.expect_silence()


@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
def test_acknowledgement_tells_that_nobody_wanted_the_message(
    broker: BrokerProcess, qos: int, kind: int
) -> None:
    """3.4.2.1, 3.5.2.1: 0x10"""
    with join(broker.port) as peer:
        peer.publish("nobody/wants/it", b"1", qos)

        assert ack(peer, kind).reason_code == 0x10


def test_qos_2_message_sent_again_is_delivered_once(broker: BrokerProcess) -> None:
    """[MQTT-4.3.3-10]"""
    with join(broker.port) as subscriber, join(broker.port) as publisher:
        subscriber.subscribe("once", qos=0)
        publisher.send(Publish("once", b"1", 2, packet_id=9))
        ack(publisher, PUBREC)
        publisher.send(Publish("once", b"1", 2, dup=True, packet_id=9))
        ack(publisher, PUBREC)
        publisher.send(Ack(PUBREL, 9))
        ack(publisher, PUBCOMP)
        publisher.send(Publish("once", b"2", 2, packet_id=9))
        ack(publisher, PUBREC)

        subscriber.expect_publish("once", b"1")
        subscriber.expect_publish("once", b"2")
        subscriber.expect_silence()


def test_qos_2_survives_a_lost_connection_without_a_second_copy(broker: BrokerProcess) -> None:
    """[MQTT-4.4.0-1]"""
    expiry = props(session_expiry_interval=60)
    with join(broker.port) as subscriber:
        subscriber.subscribe("lost", qos=0)
        with join(broker.port, "loser", properties=expiry) as publisher:
            publisher.send(Publish("lost", b"1", 2, packet_id=5))
            ack(publisher, PUBREC)
        with Peer(broker.port) as publisher:
            assert publisher.connect("loser", clean=False, properties=expiry).session_present
            publisher.send(Publish("lost", b"1", 2, dup=True, packet_id=5))
            ack(publisher, PUBREC)
            publisher.send(Ack(PUBREL, 5))
            assert ack(publisher, PUBCOMP).reason_code == 0

        subscriber.expect_publish("lost", b"1")
        subscriber.expect_silence()


def test_unknown_packet_ids_are_answered_and_harm_nothing(broker: BrokerProcess) -> None:
    """3.6.2.1, 3.7.2.1: 0x92"""
    with join(broker.port) as peer:
        peer.send(Ack(PUBREL, 77))
        assert ack(peer, PUBCOMP).reason_code == 0x92
        peer.send(Ack(PUBREC, 78))
        assert ack(peer, PUBREL).reason_code == 0x92
        peer.send(Ack(PUBACK, 79), Ack(PUBCOMP, 80))
        peer.expect_silence()


@pytest.mark.parametrize(("qos", "kind"), [(1, PUBREC), (1, PUBCOMP), (2, PUBACK), (2, PUBCOMP)])
def test_acknowledgement_of_the_wrong_kind_is_a_protocol_error(
    broker: BrokerProcess, qos: int, kind: int
) -> None:
    with join(broker.port) as peer:
        topic = f"wrong/{qos}/{kind}"
        peer.subscribe(topic, qos=qos)
        peer.publish(topic, b"1", qos)
        found = [peer.receive(), peer.receive()]
        [packet] = [packet for packet in found if isinstance(packet, Publish)]
        peer.send(Ack(kind, packet.packet_id))

        assert str(packet.packet_id) in peer.expect_disconnect(0x82)


def test_negative_pubrec_ends_the_delivery(broker: BrokerProcess) -> None:
    """4.3.3: after a PUBREC of 0x80 or above no PUBREL follows, and the packet id is free."""
    with join(broker.port, properties=props(receive_maximum=1)) as peer, join(broker.port) as publisher:
        peer.subscribe("refuse", qos=2)
        publisher.publish("refuse", b"1")
        publisher.send(Publish("refuse", b"2", 2, packet_id=1), Publish("refuse", b"3", 2, packet_id=2))
        peer.expect_publish("refuse", b"1")
        first = peer.expect_publish("refuse", b"2")
        peer.send(Ack(PUBREC, first.packet_id, 0x97))

        peer.expect_publish("refuse", b"3")
        peer.expect_silence()


def test_order_is_kept_for_each_qos(broker: BrokerProcess) -> None:
    """[MQTT-4.6.0-5] [MQTT-4.6.0-6]"""
    count = 500
    with join(broker.port) as peer, join(broker.port) as publisher:
        peer.subscribe("order/+", qos=2)
        # Many packets in one segment, cut anywhere by the kernel.
        publisher.send(
            *[
                Publish(f"order/{qos}", b"%d" % number, qos, packet_id=number * 3 + qos if qos else 0)
                for number in range(count)
                for qos in (0, 1, 2)
            ]
        )
        seen: dict[str, list[int]] = {"order/0": [], "order/1": [], "order/2": []}
        while sum(map(len, seen.values())) < 3 * count:
            packet = peer.receive()
            if isinstance(packet, Publish):
                seen[packet.topic].append(int(packet.payload))
                if packet.qos:
                    peer.send(Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id))
            elif isinstance(packet, Ack):
                peer.send(Ack(PUBCOMP, packet.packet_id))

        assert list(seen.values()) == [list(range(count))] * 3


# --- flow control and sizes -----------------------------------------------------------


def test_broker_keeps_the_clients_receive_maximum(broker: BrokerProcess) -> None:
    """[MQTT-3.3.4-9] [MQTT-3.3.4-7]: QoS 0 messages do not count."""
    with join(broker.port, properties=props(receive_maximum=2)) as peer, join(broker.port) as publisher:
        peer.subscribe("window/+", qos=2)
        for number in range(1, 5):
            publisher.publish("window/1", b"%d" % number, 1)
            ack(publisher, PUBACK)
        publisher.publish("window/0", b"free")
        publisher.expect_silence()

        first = peer.expect_publish("window/1", b"1")
        peer.expect_publish("window/1", b"2")
        peer.expect_publish("window/0", b"free")
        peer.expect_silence()
        peer.send(Ack(PUBACK, first.packet_id))
        peer.expect_publish("window/1", b"3")
        peer.expect_silence()


def test_client_that_exceeds_the_brokers_receive_maximum_is_told(share_over: ShareOver) -> None:
    """[MQTT-3.3.4-7]: 0x93"""
    broker = share_over("[limits]\ninflight_max = 3\n")
    with Peer(broker.port) as peer:
        assert peer.connect().properties.receive_maximum == 3
        peer.send(*[Publish("a", b"", 2, packet_id=number) for number in range(1, 5)])

        packets = peer.expect_closed()
        assert isinstance(packets[-1], Disconnect)
        assert packets[-1].reason_code == 0x93
        assert "3 QoS 2 messages" in (packets[-1].properties.reason_string or "")


def test_message_larger_than_the_subscriber_takes_is_dropped_as_if_delivered(broker: BrokerProcess) -> None:
    """[MQTT-3.1.2-24] [MQTT-3.1.2-25]"""
    sized = props(maximum_packet_size=200, topic_alias_maximum=5)
    with join(broker.port, properties=sized) as peer, join(broker.port) as publisher:
        peer.subscribe("large/a", qos=2)
        for qos in (0, 1, 2):
            publisher.publish("large/a", b"x" * 300, qos)
            if qos:
                assert publisher.expect(Ack).reason_code == 0
        publisher.publish("large/a", b"small", 1)

        packet = peer.expect_publish("large/a", b"small")
        assert packet.topic_alias == 1
        peer.send(Ack(PUBACK, packet.packet_id))
        peer.expect_silence()


def test_payload_up_to_the_maximum_packet_size_passes_and_one_byte_more_does_not(
    broker: BrokerProcess,
) -> None:
    """[MQTT-3.2.2-15]: 0x95"""
    overhead = 4 + 2 + len("big/a") + 1
    payload = b"x" * (1024 * 1024 - overhead)
    with join(broker.port) as peer, join(broker.port) as publisher, join(broker.port) as greedy:
        peer.subscribe("big/a")
        publisher.publish("big/a", payload)
        assert peer.expect(Publish).payload == payload

        if broker.scheme == "mqtt":
            greedy.publish("big/a", payload + b"x")
            assert "1048577 bytes" in greedy.expect_disconnect(0x95)
        else:
            # A WebSocket refuses the frame itself (1009). Over TLS the broker closes while it is being sent.
            with contextlib.suppress(OSError):
                greedy.publish("big/a", payload + b"x")
                greedy.expect_closed()
        peer.expect_silence()


# --- topic aliases --------------------------------------------------------------------


def test_alias_of_the_client_stands_for_its_topic(broker: BrokerProcess) -> None:
    """[MQTT-3.3.2-12], 3.3.2.3.4"""
    with join(broker.port) as peer, join(broker.port) as publisher:
        peer.subscribe("alias/#")
        publisher.publish("alias/a", b"1", topic_alias=64)
        publisher.publish("", b"2", topic_alias=64)
        publisher.publish("alias/b", b"3", topic_alias=64)
        publisher.publish("", b"4", topic_alias=64)

        seen = [peer.expect(Publish) for _ in range(4)]
        assert [(packet.topic, packet.payload) for packet in seen] == [
            ("alias/a", b"1"),
            ("alias/a", b"2"),
            ("alias/b", b"3"),
            ("alias/b", b"4"),
        ]
        assert all(packet.topic_alias == 0 for packet in seen)


@pytest.mark.parametrize(
    ("clause", "topic", "alias", "code"),
    [
        ("MQTT-3.3.2-9", "alias/a", 65, 0x94),
        ("3.3.2.3.4", "", 7, 0x82),
        ("3.3.2.3.4", "", 0, 0x82),
    ],
)
def test_alias_without_meaning_ends_the_connection(
    broker: BrokerProcess, clause: str, topic: str, alias: int, code: int
) -> None:
    with join(broker.port) as peer:
        peer.send(make_publish(topic, b"1", 0, properties=props(topic_alias=alias or None)))

        assert "alias" in peer.expect_disconnect(code)


def test_alias_lasts_as_long_as_the_connection(broker: BrokerProcess) -> None:
    """[MQTT-3.3.2-7]"""
    expiry = props(session_expiry_interval=60)
    with join(broker.port, "aliaser", properties=expiry) as peer:
        peer.publish("alias/a", b"1", topic_alias=1)
        peer.expect_silence()
    with join(broker.port, "aliaser", clean=False, properties=expiry) as peer:
        peer.publish("", b"2", topic_alias=1)

        peer.expect_disconnect(0x82)


def test_broker_uses_aliases_where_the_client_allows_them(broker: BrokerProcess) -> None:
    """[MQTT-3.1.2-26] [MQTT-3.1.2-27]"""
    with join(broker.port, properties=props(topic_alias_maximum=1)) as peer, join(broker.port) as publisher:
        peer.subscribe("short/+")
        for topic in ("short/a", "short/a", "short/b"):
            publisher.publish(topic, b"1")

        seen = [peer.expect(Publish) for _ in range(3)]
        assert [(packet.topic, packet.topic_alias) for packet in seen] == [
            ("short/a", 1),
            ("", 1),
            ("short/b", 0),
        ]


# --- properties -----------------------------------------------------------------------


def test_properties_are_passed_on_unaltered_and_in_order(broker: BrokerProcess) -> None:
    """[MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20]"""
    sent = props(
        payload_format_indicator=1,
        content_type="text/plain",
        response_topic="answers/here",
        correlation_data=b"\x00\xff\x01",
        user_properties=[("b", "2"), ("a", "1"), ("b", "2"), ("", ""), ("é", "ü\U0001f600")],
    )
    with join(broker.port) as peer, join(broker.port) as publisher, join(broker.port, version=4) as old:
        peer.subscribe("props", qos=1)
        old.subscribe("props", qos=1)
        for qos in (0, 1):
            publisher.send(make_publish("props", b"1", qos, packet_id=qos, properties=sent))

            packet = peer.expect_publish("props", b"1")
            assert packet.properties() == sent
            assert packet.passed_on == sent.encode_passed_on()
            old.expect_publish("props", b"1")


def test_request_and_response(broker: BrokerProcess) -> None:
    """4.10"""
    with join(broker.port) as asking, join(broker.port) as answering:
        asking.subscribe("reply/to/me")
        answering.subscribe("service/add", qos=1)
        asking.publish("service/add", b"2+3", 1, response_topic="reply/to/me", correlation_data=b"42")
        request = answering.expect_publish("service/add", b"2+3").properties()
        assert request.response_topic is not None
        answering.publish(request.response_topic, b"5", correlation_data=request.correlation_data)

        found = [asking.receive(), asking.receive()]
        [answer] = [packet for packet in found if isinstance(packet, Publish)]
        assert (answer.payload, answer.properties().correlation_data) == (b"5", b"42")


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout", "soon"), ("timeout", "0ms"), ("timeout", "-1s"), ("timeout", "1"), ("priority", "10")],
)
def test_malformed_term_of_a_message_is_refused_by_name_and_value(
    broker: BrokerProcess, name: str, value: str
) -> None:
    """0x83 in the acknowledgement; QoS 0 has none, so there the connection ends."""
    with join(broker.port) as watcher, join(broker.port) as peer:
        watcher.subscribe("malformed/term")
        for qos, kind in ((1, PUBACK), (2, PUBREC)):
            peer.publish("malformed/term", b"1", qos, user_properties=[(name, value)])
            refusal = ack(peer, kind)
            assert refusal.reason_code == 0x83
            assert f"{name!r} is {value!r}" in refusal.reason_string
        peer.publish("malformed/term", b"1", 0, user_properties=[(name, value)])

        assert f"{name!r} is {value!r}" in peer.expect_disconnect(0x83)
        watcher.expect_silence()


def test_too_many_user_properties_are_refused(broker: BrokerProcess) -> None:
    with join(broker.port) as peer:
        peer.publish("many", b"1", 1, user_properties=[("k", "v")] * 64)
        assert ack(peer, PUBACK).reason_code == 0x10
        peer.publish("many", b"1", 1, user_properties=[("k", "v")] * 65)
        assert ack(peer, PUBACK).reason_code == 0x97


def test_message_expiry_is_counted_down_while_it_waits(broker: BrokerProcess) -> None:
    """[MQTT-3.3.2-5] [MQTT-3.3.2-6]"""
    expiry = props(session_expiry_interval=60)
    with join(broker.port, "away", properties=expiry) as peer:
        peer.subscribe("expiring/+", qos=1)
    with join(broker.port) as publisher:
        for topic, seconds in (("expiring/soon", 1), ("expiring/later", 100)):
            publisher.publish(topic, b"1", 1, message_expiry_interval=seconds)
            assert ack(publisher, PUBACK).reason_code == 0
        _pass_time(publisher, 1.1)
    with Peer(broker.port) as peer:
        assert peer.connect("away", clean=False, properties=expiry).session_present
        packet = peer.expect_publish("expiring/later", b"1")

        assert 95 <= packet.message_expiry_interval <= 99
        peer.expect_silence()


def _pass_time(peer: Peer, seconds: float) -> None:
    """Let real time go by: what is tested here is the broker's own clock."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        peer.expect_silence()
        time.sleep(0.05)


# --- retained messages ----------------------------------------------------------------


def retained(peer: Peer, *entries: SubscribeEntry) -> list[Publish]:
    """What subscribing brings at once; deliveries may come before or after the SUBACK."""
    peer.send(Subscribe(peer.next_id(), list(entries)))
    found: list[Publish] = []
    is_acknowledged = False
    while not is_acknowledged:
        packet = peer.receive()
        is_acknowledged = isinstance(packet, Suback)
        if isinstance(packet, Publish):
            found.append(packet)
    peer.send_bytes(b"\xc0\x00")
    while isinstance(packet := peer.receive(), Publish):
        found.append(packet)
    return found


def test_last_retained_message_is_sent_to_new_subscriptions(broker: BrokerProcess) -> None:
    """[MQTT-3.3.1-5] [MQTT-3.3.1-8] [MQTT-3.3.1-9] [MQTT-3.3.1-12]"""
    with join(broker.port) as publisher, join(broker.port) as early, join(broker.port) as peer:
        topic = f"keep/{broker.scheme}/a"
        early.subscribe(f"keep/{broker.scheme}/#", qos=2)
        publisher.publish(topic, b"old", 0, True)
        publisher.publish(topic, b"new", 1, True, content_type="text/plain")
        publisher.publish(topic, b"passing", 0, False)
        ack(publisher, PUBACK)
        publisher.expect_silence()

        assert [early.expect(Publish).retain for _ in range(3)] == [False] * 3
        [packet] = retained(peer, SubscribeEntry(f"keep/{broker.scheme}/+", 2))
        assert (packet.topic, packet.payload, packet.qos, packet.retain) == (topic, b"new", 1, True)
        assert packet.properties().content_type == "text/plain"


def test_empty_payload_removes_the_retained_message(broker: BrokerProcess) -> None:
    """[MQTT-3.3.1-6] [MQTT-3.3.1-7] [MQTT-3.3.1-11]"""
    with join(broker.port) as publisher, join(broker.port) as live, join(broker.port) as peer:
        publisher.publish("gone/a", b"1", 0, True)
        publisher.expect_silence()
        live.send(Subscribe(1, [SubscribeEntry("gone/a", retain_handling=2)]))
        live.expect(Suback)
        publisher.publish("gone/a", b"", 0, True)
        publisher.expect_silence()

        live.expect_publish("gone/a", b"")
        assert retained(peer, SubscribeEntry("gone/a")) == []


@pytest.mark.parametrize(
    ("clause", "handling", "first", "second"),
    [("MQTT-3.3.1-9", 0, 1, 1), ("MQTT-3.3.1-10", 1, 1, 0), ("MQTT-3.3.1-11", 2, 0, 0)],
)
def test_retain_handling(broker: BrokerProcess, clause: str, handling: int, first: int, second: int) -> None:
    topic = f"handling/{handling}"
    with join(broker.port) as publisher, join(broker.port) as peer:
        publisher.publish(topic, b"1", 0, True)
        publisher.expect_silence()
        entry = SubscribeEntry(topic, retain_handling=handling)

        assert len(retained(peer, entry)) == first
        assert len(retained(peer, entry)) == second
        publisher.publish(topic, b"", 0, True)


def test_retain_as_published_keeps_the_flag(broker: BrokerProcess) -> None:
    """[MQTT-3.3.1-12] [MQTT-3.3.1-13]"""
    with join(broker.port) as publisher, join(broker.port) as kept, join(broker.port) as cleared:
        kept.subscribe(SubscribeEntry("flag", retain_as_published=True))
        cleared.subscribe(SubscribeEntry("flag"))
        publisher.publish("flag", b"1", 0, True)
        publisher.publish("flag", b"2", 0, False)
        publisher.publish("flag", b"", 0, True)

        assert [kept.expect(Publish).retain for _ in range(3)] == [True, False, True]
        assert [cleared.expect(Publish).retain for _ in range(3)] == [False, False, False]


def test_retained_messages_expire(broker: BrokerProcess) -> None:
    with join(broker.port) as publisher, join(broker.port) as peer:
        publisher.publish("brief/kept", b"1", 0, True, message_expiry_interval=1)
        publisher.publish("brief/long", b"1", 0, True, message_expiry_interval=50)
        _pass_time(publisher, 1.1)

        [packet] = retained(peer, SubscribeEntry("brief/+"))
        assert packet.topic == "brief/long"
        assert 45 <= packet.message_expiry_interval <= 49


def test_shared_subscriptions_get_no_retained_messages(broker: BrokerProcess) -> None:
    """4.8.2"""
    with join(broker.port) as publisher, join(broker.port) as peer:
        publisher.publish("kept/shared", b"1", 0, True)
        publisher.expect_silence()

        assert retained(peer, SubscribeEntry("$share/g/kept/shared")) == []


def test_retained_and_queued_messages_survive_a_restart(start_over: StartOver) -> None:
    """4.1"""
    first = start_over()
    expiry = props(session_expiry_interval=60)
    with join(first.port, "lasting", properties=expiry) as peer:
        peer.subscribe("lasting/#", qos=2)
    with join(first.port) as publisher:
        publisher.publish("lasting/kept", b"1", 1, True)
        publisher.publish("lasting/queued", b"2", 1)
        ack(publisher, PUBACK)
        ack(publisher, PUBACK)
    first.kill()
    second = start_over(data=first.data)
    with Peer(second.port) as peer:
        assert peer.connect("lasting", clean=False, properties=expiry).session_present
        peer.expect_publish("lasting/kept", b"1")
        peer.expect_publish("lasting/queued", b"2")
    with join(second.port) as peer:
        [packet] = retained(peer, SubscribeEntry("lasting/#"))
        assert (packet.topic, packet.retain) == ("lasting/kept", True)


# --- wills ----------------------------------------------------------------------------


def will(topic: str, **values: object) -> Will:
    return Will(topic, b"gone", 1, False, props(**values))


@pytest.mark.parametrize(
    ("clause", "last_words", "is_published"),
    [
        ("MQTT-3.1.2-8", b"", True),
        ("MQTT-3.14.4-3", b"\xe0\x00", False),
        ("3.14.2.1", b"\xe0\x01\x04", True),
        ("3.14.2.1", b"\xe0\x01\x80", True),
        ("MQTT-3.1.2-8", b"\x00", True),
    ],
)
def test_will_is_published_unless_taken_back(
    broker: BrokerProcess, clause: str, last_words: bytes, is_published: bool
) -> None:
    topic = f"wills/{last_words.hex()}"
    with join(broker.port) as watcher:
        watcher.subscribe(topic)
        with join(broker.port, will=will(topic, user_properties=[("k", "v")])) as peer:
            peer.send_bytes(last_words)
            if last_words:
                peer.expect_closed()
        if is_published:
            packet = watcher.expect_publish(topic, b"gone")
            assert packet.user_properties == (("k", "v"),)
        watcher.expect_silence()


def test_will_waits_for_its_delay_and_is_cancelled_by_a_return(broker: BrokerProcess) -> None:
    """[MQTT-3.1.3-9]"""
    expiry = props(session_expiry_interval=60)
    with join(broker.port) as watcher:
        watcher.subscribe("delayed/#")
        for name in ("returns", "stays-away"):
            join(
                broker.port, name, properties=expiry, will=will(f"delayed/{name}", will_delay_interval=1)
            ).close()
        watcher.expect_silence()
        began = time.monotonic()
        with join(broker.port, "returns", clean=False, properties=expiry) as back:
            packet = watcher.expect_publish("delayed/stays-away", b"gone")
            assert packet.qos == 0
            assert time.monotonic() - began > 0.5
            watcher.expect_silence()
            back.send(Disconnect())


def test_will_does_not_wait_beyond_its_session(broker: BrokerProcess) -> None:
    """[MQTT-3.1.2-10], 3.1.3.2.2"""
    with join(broker.port) as watcher:
        watcher.subscribe("early/#")
        join(broker.port, "short-lived", will=will("early/a", will_delay_interval=600)).close()

        watcher.expect_publish("early/a", b"gone")


def test_will_is_published_at_take_over_with_a_clean_start(broker: BrokerProcess) -> None:
    """[MQTT-3.1.4-3], 3.1.3.2.2"""
    expiry = props(session_expiry_interval=60)
    with join(broker.port) as watcher:
        watcher.subscribe("took/#")
        waiting = will("took/a", will_delay_interval=600)
        with join(broker.port, "took", properties=expiry, will=waiting) as old, join(broker.port, "took"):
            old.expect_disconnect(0x8E)
            watcher.expect_publish("took/a", b"gone")


def test_retained_will_is_kept(broker: BrokerProcess) -> None:
    """[MQTT-3.1.2-15]"""
    with join(broker.port) as watcher:
        watcher.subscribe("status/dev")
        join(broker.port, will=Will("status/dev", b"offline", 1, True)).close()
        watcher.expect_publish("status/dev", b"offline")
    with join(broker.port) as peer:
        [packet] = retained(peer, SubscribeEntry("status/dev"))
        assert packet.retain


def test_expiry_of_a_will_counts_from_its_publication(broker: BrokerProcess) -> None:
    """3.1.3.2.4"""
    with join(broker.port) as watcher:
        watcher.subscribe("late/will", qos=1)
        with join(broker.port, will=will("late/will", message_expiry_interval=1)) as peer:
            _pass_time(peer, 1.1)

        assert watcher.expect_publish("late/will", b"gone").message_expiry_interval == 1
