"""SUBSCRIBE, UNSUBSCRIBE and what a subscription then receives, clause by clause.

Clauses are those of MQTT 5.0 unless a test is for version 4, where they are those of 3.1.1.
"""

from __future__ import annotations

import pytest
from tests.conftest import BrokerProcess
from tests.peer import Peer, join, props

from timebound.wire.codec import encode
from timebound.wire.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsubscribe,
)

# --- SUBACK and UNSUBACK --------------------------------------------------------------


@pytest.mark.parametrize(
    ("clause", "topic_filter", "code", "reason"),
    [
        ("MQTT-3.8.4-5", "a/b", 1, ""),
        ("MQTT-4.7.1-1", "#", 1, ""),
        ("MQTT-4.7.1-1", "a/#", 1, ""),
        ("MQTT-4.7.1-1", "a/#/b", 0x8F, "'a/#/b' has '#' before its last level"),
        ("MQTT-4.7.1-1", "a#", 0x8F, "'a#' has '#' inside a level"),
        ("MQTT-4.7.1-2", "+", 1, ""),
        ("MQTT-4.7.1-2", "+/+/#", 1, ""),
        ("MQTT-4.7.1-2", "a+/b", 0x8F, "'a+/b' has '+' inside a level"),
        ("MQTT-4.8.2-1", "$share/g/a/+", 1, ""),
        ("MQTT-4.8.2-1", "$share//a", 0x8F, "$share/GROUP/FILTER"),
        ("MQTT-4.8.2-2", "$share/g", 0x8F, "$share/GROUP/FILTER"),
        ("MQTT-4.8.2-2", "$share/g/", 0x8F, "$share/GROUP/FILTER"),
        ("MQTT-4.8.2-2", "$share/g+/a", 0x8F, "wildcard in its group"),
        ("MQTT-4.7.3-1", "/", 1, ""),
        ("MQTT-4.7.3-1", "a" * 1025, 0x8F, "topic_length_max is 1024"),
        ("MQTT-4.7.3-1", "/" * 64, 0x8F, "topic_levels_max is 64"),
    ],
)
def test_filter_is_granted_or_refused(
    broker: BrokerProcess, clause: str, topic_filter: str, code: int, reason: str
) -> None:
    with join(broker.port) as peer, join(broker.port, version=4) as old:
        suback = peer.subscribe(topic_filter, qos=1)
        old.send(Subscribe(1, [SubscribeEntry(topic_filter, 1)]))
        old_answer = old.receive()

        assert suback.reason_codes == [code]
        assert reason in (suback.properties.reason_string or "")
        assert bool(suback.properties.reason_string) == (code >= 0x80)
        if reason.endswith(("a level", "last level", "its group")):
            # [MQTT-4.7.1-3] [MQTT-4.8.0-1] of 3.1.1
            assert old_answer is None
        else:
            # [MQTT-3.9.3-2] of 3.1.1 knows one refusal.
            assert isinstance(old_answer, Suback)
            assert old_answer.reason_codes == [min(code, 0x80)]


def test_each_filter_has_its_own_answer_in_order(broker: BrokerProcess) -> None:
    """[MQTT-3.8.4-6] [MQTT-3.9.3-1] [MQTT-3.10.4-5] [MQTT-3.11.3-1]"""
    with join(broker.port) as peer:
        entries = [
            SubscribeEntry("x/1", 2),
            SubscribeEntry("x/#/1"),
            SubscribeEntry("x/2"),
            SubscribeEntry("x/3", 1),
        ]
        suback = peer.subscribe(*entries)
        unsuback = peer.unsubscribe("x/1", "x/9", "x/#/1", "x/3")

        assert suback.reason_codes == [2, 0x8F, 0, 1]
        assert unsuback.reason_codes == [0x00, 0x11, 0x8F, 0x00]
        assert "'x/#/1'" in (unsuback.properties.reason_string or "")


def test_reason_strings_are_left_out_where_the_client_wants_none(broker: BrokerProcess) -> None:
    """[MQTT-3.1.2-29]"""
    with join(broker.port, properties=props(request_problem_information=False)) as peer:
        suback = peer.subscribe("a/#/b")
        unsuback = peer.unsubscribe("a/#/b")
        peer.publish("$SYS/x", b"", 1)
        puback = peer.expect(Ack)

        assert (suback.reason_codes, suback.properties.reason_string) == ([0x8F], None)
        assert (unsuback.reason_codes, unsuback.properties.reason_string) == ([0x8F], None)
        assert (puback.reason_code, puback.reason_string) == (0x87, "")


def test_answer_beyond_the_clients_maximum_packet_size_ends_the_connection(broker: BrokerProcess) -> None:
    """[MQTT-3.1.2-24]"""
    with join(broker.port, properties=props(maximum_packet_size=50)) as peer:
        peer.send(Subscribe(1, [SubscribeEntry(f"many/{number}") for number in range(50)]))
        peer.expect_disconnect(0x95)


def test_no_reason_string_goes_beyond_the_clients_maximum_packet_size(broker: BrokerProcess) -> None:
    """[MQTT-3.1.2-24] [MQTT-3.9.2-1] [MQTT-3.14.2-3] [MQTT-3.2.2-19]"""
    small = props(maximum_packet_size=50)
    with join(broker.port, properties=small) as peer:
        suback = peer.subscribe("a/#/" + "b" * 50)
        unsuback = peer.unsubscribe("a/#/" + "b" * 50)
        peer.publish("$SYS/" + "b" * 50, b"", 1)
        puback = peer.expect(Ack)
        peer.send_bytes(b"\x30\x1e\x00\x1c" + b"+" * 28)
        disconnect = peer.expect(Disconnect)

        assert (suback.reason_codes, suback.properties.reason_string) == ([0x8F], None)
        assert (unsuback.reason_codes, unsuback.properties.reason_string) == ([0x8F], None)
        assert (puback.reason_code, puback.reason_string) == (0x87, "")
        assert (disconnect.reason_code, disconnect.properties.reason_string) == (0x81, None)
    with Peer(broker.port) as peer:
        refused = peer.connect("x" * 1025, properties=small)
        assert (refused.reason_code, refused.properties.reason_string) == (0x85, None)


@pytest.mark.parametrize(
    ("clause", "options", "code"),
    [
        ("MQTT-3.8.3-4", 0x04, 0x82),  # no local on a shared subscription
        ("MQTT-3.8.3-5", 0x40, 0x81),  # a reserved bit
        ("3.8.3.1", 0x03, 0x82),  # QoS 3
        ("3.8.3.1", 0x30, 0x82),  # retain handling 3
    ],
)
def test_wrong_subscription_options_end_the_connection(
    broker: BrokerProcess, clause: str, options: int, code: int
) -> None:
    with join(broker.port) as peer:
        topic_filter = b"$share/g/a"
        body = b"\x00\x01\x00" + bytes([0, len(topic_filter)]) + topic_filter + bytes([options])
        peer.send_bytes(bytes([0x82, len(body)]) + body)

        assert peer.expect_disconnect(code)


# --- which messages -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clause", "topic_filter", "selected"),
    [
        ("MQTT-4.7.1-1", "w/s/#", ["w/s", "w/s/", "w/s/a", "w/s/a/b"]),
        ("MQTT-4.7.1-2", "w/s/+", ["w/s/", "w/s/a"]),
        ("MQTT-4.7.1-2", "w/+/a", ["w/s/a", "w/S/a"]),
        ("MQTT-4.7.1-2", "+/s/+/b", ["w/s/a/b"]),
        ("MQTT-4.7.3-4", "w/S/a", ["w/S/a"]),
        ("MQTT-4.7.3-4", "w/s", ["w/s"]),
        ("4.7.1.1", "/w/+", ["/w/a"]),
    ],
)
def test_wildcards_select(broker: BrokerProcess, clause: str, topic_filter: str, selected: list[str]) -> None:
    topics = ["w", "w/s", "w/s/", "w/s/a", "w/s/a/b", "w/S/a", "/w/a", "ww/s"]
    with join(broker.port) as peer, join(broker.port) as publisher:
        peer.subscribe(topic_filter)
        for topic in topics:
            publisher.publish(topic, b"1")
        publisher.expect_silence()

        assert [peer.expect(Publish).topic for _ in selected] == selected
        peer.expect_silence()


def test_leading_wildcards_never_select_topics_of_the_server(broker: BrokerProcess) -> None:
    """[MQTT-4.7.2-1]"""
    with join(broker.port) as wild, join(broker.port) as exact:
        wild.subscribe("#", "+/broker/uptime", "+/broker/version")
        exact.subscribe("$SYS/broker/version")

        assert exact.expect(Publish).topic == "$SYS/broker/version"
        exact.subscribe("$SYS/broker/bytes/#")
        for _ in range(4):  # figures are published anew meanwhile
            assert exact.expect(Publish).topic.startswith("$SYS/broker/bytes/")
        wild.send(Subscribe(9, [SubscribeEntry("+/broker/uptime")]))
        while not isinstance(packet := wild.receive(), Suback):
            assert isinstance(packet, Publish)
            assert not packet.topic.startswith("$")


def test_no_local_spares_the_publisher_only(broker: BrokerProcess) -> None:
    """[MQTT-3.8.3-3]"""
    with join(broker.port) as quiet, join(broker.port) as other:
        quiet.subscribe(SubscribeEntry("local/#", no_local=True))
        other.subscribe(SubscribeEntry("local/#", no_local=True))
        quiet.publish("local/a", b"1")

        other.expect_publish("local/a", b"1")
        quiet.expect_silence()


def test_overlapping_subscriptions_give_one_copy_at_the_highest_qos_with_all_identifiers(
    broker: BrokerProcess,
) -> None:
    """[MQTT-3.3.4-2] [MQTT-3.3.4-3] [MQTT-3.3.4-4]"""
    with join(broker.port) as peer, join(broker.port) as publisher:
        peer.subscribe(SubscribeEntry("lap/#", 0), subscription_identifiers=[7])
        peer.subscribe(SubscribeEntry("lap/+", 2), subscription_identifiers=[268_435_455])
        peer.subscribe(SubscribeEntry("lap/a", 1))
        publisher.publish("lap/a", b"1", 1)

        packet = peer.expect_publish("lap/a", b"1")
        assert packet.qos == 1
        assert sorted(packet.subscription_identifiers) == [7, 268_435_455]
        peer.send(Ack(4, packet.packet_id))
        peer.expect_silence()


def test_subscribing_again_replaces_options_and_identifier(broker: BrokerProcess) -> None:
    """[MQTT-3.8.4-3]"""
    with join(broker.port) as peer, join(broker.port) as publisher:
        peer.subscribe(SubscribeEntry("anew", 2), subscription_identifiers=[1])
        peer.subscribe(SubscribeEntry("anew", 0), subscription_identifiers=[2])
        publisher.publish("anew", b"1", 2)

        packet = peer.expect_publish("anew", b"1")
        assert (packet.qos, packet.subscription_identifiers) == (0, (2,))
        peer.expect_silence()


def test_unsubscribing_stops_messages(broker: BrokerProcess) -> None:
    """[MQTT-3.10.4-1] [MQTT-3.10.4-2]: filters are compared character by character."""
    with join(broker.port) as peer, join(broker.port) as publisher:
        peer.subscribe("stop/#", "stop/+")
        peer.unsubscribe("stop/#")
        publisher.publish("stop/a", b"1")
        publisher.publish("stop/a/b", b"2")
        publisher.expect_silence()

        peer.expect_publish("stop/a", b"1")
        peer.expect_silence()


def test_shared_subscription_gives_each_message_to_one_member(broker: BrokerProcess) -> None:
    """[MQTT-4.8.2-4], 4.8.2"""
    with join(broker.port) as one, join(broker.port) as two, join(broker.port) as plain:
        one.subscribe("$share/team/shared/#", qos=1)
        two.subscribe("$share/team/shared/#", qos=1)
        plain.subscribe("shared/#")
        with join(broker.port) as publisher:
            for number in range(10):
                publisher.publish("shared/a", b"%d" % number)
            publisher.expect_silence()
        assert [plain.expect(Publish).payload for _ in range(10)] == [b"%d" % number for number in range(10)]

        taken = [
            [one.expect(Publish).payload for _ in range(5)],
            [two.expect(Publish).payload for _ in range(5)],
        ]
        assert sorted(taken[0] + taken[1]) == [b"%d" % number for number in range(10)]
        one.expect_silence()
        two.expect_silence()


def test_shared_messages_pass_over_members_that_left(broker: BrokerProcess) -> None:
    """[MQTT-4.8.2-5]"""
    with join(broker.port) as stays, join(broker.port) as publisher:
        stays.subscribe("$share/team/left/#", qos=1)
        with join(broker.port, "leaver", properties=props(session_expiry_interval=30)) as leaves:
            leaves.subscribe("$share/team/left/#", qos=1)
            leaves.send(Disconnect())
            leaves.expect_closed()
        for number in range(4):
            publisher.publish("left/a", b"%d" % number, 1)
            assert publisher.expect(Ack).reason_code == 0

        assert [stays.expect(Publish).payload for _ in range(4)] == [b"0", b"1", b"2", b"3"]


# --- content filters and terms --------------------------------------------------------


def test_where_selects_by_user_property_and_by_json_payload(broker: BrokerProcess) -> None:
    with join(broker.port) as hot, join(broker.port) as north, join(broker.port) as publisher:
        hot.subscribe("sel/+", user_properties=[("where", "payload.engine.temp > 90")])
        north.subscribe("sel/+", user_properties=[("where", "site IN ('north') AND unit IS NOT NULL")])
        publisher.publish(
            "sel/a", b'{"engine": {"temp": 95}}', user_properties=[("site", "south"), ("unit", "C")]
        )
        publisher.publish(
            "sel/b", b'{"engine": {"temp": 85}}', user_properties=[("site", "north"), ("unit", "C")]
        )
        publisher.publish("sel/c", b"not JSON", user_properties=[("site", "north")])
        publisher.publish("sel/d", b'{"engine": {"temp": 91}}')
        publisher.expect_silence()

        assert [hot.expect(Publish).topic for _ in range(2)] == ["sel/a", "sel/d"]
        assert north.expect(Publish).topic == "sel/b"
        hot.expect_silence()
        north.expect_silence()


def test_where_selects_among_retained_messages_and_shared_members(broker: BrokerProcess) -> None:
    with join(broker.port) as publisher, join(broker.port) as late, join(broker.port) as member:
        for value in (1, 5):
            publisher.publish(f"selr/{value}", b'{"value": %d}' % value, 0, True)
        publisher.expect_silence()
        late.send(Subscribe(1, [SubscribeEntry("selr/+")], props(user_properties=[("where", "value > 3")])))
        found = [late.receive(), late.receive()]
        member.subscribe("$share/g/selr/+", user_properties=[("where", "value > 3")])
        publisher.publish("selr/x", b'{"value": 2}')
        publisher.publish("selr/y", b'{"value": 4}')
        publisher.expect_silence()

        assert [packet.topic for packet in found if isinstance(packet, Publish)] == ["selr/5"]
        late.expect_publish("selr/y", b'{"value": 4}')
        member.expect_publish("selr/y", b'{"value": 4}')
        late.expect_silence()
        member.expect_silence()
        for value in (1, 5):
            publisher.publish(f"selr/{value}", b"", 0, True)


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("where", "value >", ["'where'", "character 8"]),
        ("where", "value == 3", ["'where'", "character 7"]),
        ("where", "x" * 4097 + " = 1", ["'where'", "4101", "filter_length_max is 4096"]),
        ("deadline", "soon", ["'deadline'", "'soon'", "250ms"]),
        ("deadline", "0s", ["'deadline'", "'0s'"]),
        ("deadline", "-5ms", ["'deadline'", "'-5ms'"]),
        ("price", "cheap", ["'price'", "'cheap'"]),
        ("price", "-1", ["'price'", "'-1'"]),
        ("penalty", "1e9", ["'penalty'", "'1e9'"]),
        ("latency", "10ms", ["'latency'", "'10ms'", "not supported"]),
        ("bandwidth", "1000", ["'bandwidth'", "'1000'"]),
        ("period", "1s", ["'period'", "'1s'"]),
        ("reserve", "latency < 10ms", ["'reserve'", "'latency < 10ms'"]),
    ],
)
def test_malformed_term_of_a_subscription_is_refused_by_name(
    broker: BrokerProcess, name: str, value: str, parts: list[str]
) -> None:
    with join(broker.port) as peer:
        suback = peer.subscribe("terms/a", user_properties=[(name, value)])

        assert suback.reason_codes == [0x97 if "filter_length_max is 4096" in parts else 0x83]
        for part in parts:
            assert part in (suback.properties.reason_string or "")
        peer.publish("terms/a", b"1")
        peer.expect_silence()


def test_well_formed_terms_are_granted(broker: BrokerProcess) -> None:
    terms = [
        ("where", "value > 90"),
        ("deadline", "250ms"),
        ("price", "3"),
        ("penalty", "0.3"),
        ("note", "any"),
    ]
    with join(broker.port) as peer:
        assert peer.subscribe("terms/b", user_properties=terms).reason_codes == [0]
        assert peer.subscribe("terms/b", user_properties=[("deadline", "1s")] * 2).reason_codes == [0x83]


@pytest.mark.parametrize("topic_filter", ["a+", "a/+b/c", "a/b#", "#/a", "a/#/b", "+a/b"])
@pytest.mark.parametrize("level", [3, 4])
def test_wildcard_inside_a_level_closes_a_version_4_connection(
    broker: BrokerProcess, topic_filter: str, level: int
) -> None:
    """[MQTT-4.7.1-2] [MQTT-4.7.1-3] [MQTT-4.8.0-1] of 3.1.1; nothing else of the packet is done."""
    client_id = f"wildcard-{level}-{topic_filter}"
    entries = [SubscribeEntry("wildcard/fine", 1), SubscribeEntry(topic_filter)]
    with Peer(broker.port, 4) as peer:
        peer.send_bytes(encode(Connect(client_id, level, False), level))
        assert peer.expect(Connack).reason_code == 0
        peer.send(Subscribe(1, entries))
        assert peer.expect_closed() == []
    with join(broker.port, version=4) as publisher:
        publisher.publish("wildcard/fine", b"1", 1)
        publisher.expect(Ack)
    with Peer(broker.port, 4) as peer:
        assert peer.connect(client_id, clean=False).reason_code == 0
        peer.expect_silence()
        peer.send(Unsubscribe(1, [topic_filter]))
        assert peer.expect_closed() == []


@pytest.mark.parametrize("topic_filter", ["a+", "a/#/b"])
def test_wildcard_inside_a_level_is_answered_in_version_5(broker: BrokerProcess, topic_filter: str) -> None:
    """MQTT 5, 3.9.3: each filter has its own reason code."""
    with join(broker.port) as peer:
        assert peer.subscribe("fine", topic_filter).reason_codes == [0, 0x8F]
        peer.expect_silence()


@pytest.mark.parametrize("version", [4, 5])
def test_what_a_member_leaves_unacknowledged_goes_to_another_member(
    broker: BrokerProcess, version: int
) -> None:
    """[MQTT-4.8.2-4] and its like: QoS 1 may be sent to another, QoS 2 that was sent may not."""
    topic = f"leave/{version}"
    with Peer(broker.port, version) as leaving, join(broker.port) as publisher:
        leaving.connect(f"leaving-{version}")
        leaving.subscribe(f"$share/leave-{version}/{topic}", qos=2)
        for qos in (1, 2):
            publisher.publish(topic, b"%d" % qos, qos)
            assert publisher.expect(Ack).reason_code == 0
            assert leaving.expect(Publish).payload == b"%d" % qos
        with join(broker.port) as staying:
            staying.subscribe(f"$share/leave-{version}/{topic}", qos=2)

            leaving.close()

            packet = staying.expect_publish(topic, b"1")
            assert (packet.qos, packet.dup) == (1, False)
            staying.expect_silence()
