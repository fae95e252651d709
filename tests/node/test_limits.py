"""Every limit of the configuration, reached: the right reason code, a log line, and a broker that goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import BrokerProcess, ShareOver
from tests.peer import Peer, join, props

from timebound.wire.codec import encode
from timebound.wire.packets import Ack, Disconnect, Packet, Pingreq, Publish, SubscribeEntry

CONFIG = """\
sys_interval = "20ms"
[limits]
connections_max = 6
connections_per_address_max = 9
packets_per_second_max = 50
subscriptions_per_client_max = 2
topic_length_max = 30
topic_levels_max = 4
filter_length_max = 20
filter_cost_per_client_max = 50
ticks_per_second_max = 20
queue_messages_per_client_max = 5
packet_size_max = 2048
topic_alias_max = 2
user_properties_max = 2
outgoing_inflight_max = 3
"""


@pytest.fixture
def limited(share_over: ShareOver) -> Iterator[BrokerProcess]:
    process = share_over(CONFIG)
    yield process
    # Whatever limit was reached, others are served.
    wait_free(process)


def wait_free(broker: BrokerProcess) -> None:
    """Wait until the broker has noticed that all clients of the test have gone."""
    with join(broker.port) as peer:
        peer.subscribe("$SYS/broker/clients/connected")
        while peer.expect(Publish).payload != b"1":
            pass


def dropped(broker: BrokerProcess, reason: str) -> int:
    """How many messages were dropped for a reason, as `$SYS` says."""
    with join(broker.port) as peer:
        peer.subscribe(f"$SYS/broker/dropped/{reason}")
        return int(peer.expect(Publish).payload)


def wait_dropped(broker: BrokerProcess, reason: str, count: int) -> None:
    with join(broker.port) as peer:
        peer.subscribe(f"$SYS/broker/dropped/{reason}")
        while int(peer.expect(Publish).payload) < count:
            pass


def test_connection_beyond_the_maximum_is_told_so(limited: BrokerProcess) -> None:
    peers = [join(limited.port) for _ in range(6)]
    with Peer(limited.port) as seventh, Peer(limited.port, 4) as old:
        connack = seventh.connect("one-too-many")
        assert connack.reason_code == 0x97
        assert "connections_max (6)" in (connack.properties.reason_string or "")
        assert old.connect("one-too-many").reason_code == 0x88
        limited.wait_logged("connections_max (6) is reached")
    peers.pop().close()
    peers[0].subscribe("$SYS/broker/clients/connected")
    while peers[0].expect(Publish).payload != b"5":
        pass
    join(limited.port).close()
    for peer in peers[1:]:
        peer.expect_silence()
    for peer in peers:
        peer.close()


def test_connections_of_one_address_are_counted_before_they_say_anything(limited: BrokerProcess) -> None:
    with join(limited.port) as first:
        silent = [Peer(limited.port) for _ in range(8)]
        first.expect_silence()
        # It is closed before TLS or WebSocket can begin.
        with Peer(int(limited.port)) as tenth:
            assert tenth.expect_closed() == []
        limited.wait_logged("too many connections")
        for peer in silent:
            peer.close()


def test_packet_rate_is_counted_per_client(limited: BrokerProcess) -> None:
    with join(limited.port) as fast, join(limited.port) as calm:
        fast.send(*[Pingreq()] * 101)

        packets: list[Packet] = fast.expect_closed()
        assert isinstance(packets[-1], Disconnect)
        assert packets[-1].reason_code == 0x96
        assert "packets_per_second_max" in (packets[-1].properties.reason_string or "")
        calm.expect_silence()


def test_filters_that_cost_too_much_together_are_refused(limited: BrokerProcess) -> None:
    with join(limited.port) as peer:
        assert peer.subscribe("a", "b", user_properties=[("where", "t LIKE '%x%'")]).reason_codes == [0, 0]
        suback = peer.subscribe("b", user_properties=[("where", "t LIKE '%y%'")])
        assert suback.reason_codes == [0x97]
        assert "quota: filter_cost_per_client_max is reached at 'b'" in (
            suback.properties.reason_string or ""
        )
        peer.unsubscribe("a")
        assert peer.subscribe("b", user_properties=[("where", "t LIKE '%y%'")]).reason_codes == [0]


def test_timers_that_tick_too_often_together_are_refused(limited: BrokerProcess) -> None:
    with join(limited.port) as peer:
        assert peer.subscribe("a", user_properties=[("watchdog", "100ms")]).reason_codes == [0]
        suback = peer.subscribe("b", user_properties=[("every", "90ms")])
        assert suback.reason_codes == [0x97]
        assert "quota: ticks_per_second_max is reached at 'b'" in (suback.properties.reason_string or "")


def test_subscriptions_beyond_the_maximum_are_refused_one_by_one(limited: BrokerProcess) -> None:
    with join(limited.port) as peer:
        suback = peer.subscribe("a", "b", "c")
        assert suback.reason_codes == [0, 0, 0x97]
        assert "quota: subscriptions_per_client_max is reached at 'c'" in (
            suback.properties.reason_string or ""
        )
        assert peer.subscribe("a", qos=1).reason_codes == [1]
        peer.unsubscribe("b")
        assert peer.subscribe("c").reason_codes == [0]


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ("x" * 31, "31 bytes, topic_length_max is 30"),
        ("é" * 16, "32 bytes, topic_length_max is 30"),
        ("a/b/c/d/e", "5 levels, topic_levels_max is 4"),
    ],
)
def test_topic_too_long_or_too_deep_is_refused(limited: BrokerProcess, topic: str, fault: str) -> None:
    with join(limited.port) as peer:
        suback = peer.subscribe(topic)
        assert suback.reason_codes == [0x8F]
        assert fault in (suback.properties.reason_string or "")
        correlated = peer.subscribe("#", user_properties=[("correlate", f"any(a, {topic})")])
        assert correlated.reason_codes == [0x8F]
        assert f"property 'correlate': topic has {fault}" in (correlated.properties.reason_string or "")
        for qos in (1, 2):
            peer.publish(topic, b"", qos)
            ack = peer.expect(Ack)
            assert ack.reason_code == 0x90
            assert fault in ack.reason_string
        peer.publish(topic, b"", 0)
        assert fault in peer.expect_disconnect(0x90)


def test_parts_of_a_correlation_are_not_shared(limited: BrokerProcess) -> None:
    with join(limited.port) as peer:
        terms = [("correlate", "all(a, $share/g/b)")]
        suback = peer.subscribe("#", user_properties=terms)
        assert suback.reason_codes == [0x8F]
        assert "'$share/g/b' is shared" in (suback.properties.reason_string or "")
        assert peer.subscribe("$share/g/#", user_properties=[("correlate", "all(a, b)")]).reason_codes == [0]


def test_parts_of_correlations_cost_as_content_filters_do(limited: BrokerProcess) -> None:
    # 25 parts with two levels cost 50, as much as a client may spend.
    parts = ", ".join([f"{number}/a" for number in range(25)])
    with join(limited.port) as peer:
        assert peer.subscribe("#", user_properties=[("correlate", f"any({parts})")]).reason_codes == [0]
        suback = peer.subscribe("b/#", user_properties=[("correlate", "any(b/c)")])
        assert suback.reason_codes == [0x97]
        assert "quota: filter_cost_per_client_max is reached at 'b/#'" in (
            suback.properties.reason_string or ""
        )


def test_long_content_filter_is_refused(limited: BrokerProcess) -> None:
    with join(limited.port) as peer:
        suback = peer.subscribe("a", user_properties=[("where", "v" * 20 + "=1")])
        assert suback.reason_codes == [0x97]
        assert "filter_length_max is 20" in (suback.properties.reason_string or "")


def test_packet_beyond_the_maximum_size_ends_the_connection(limited: BrokerProcess) -> None:
    with Peer(limited.port) as peer:
        assert peer.connect().properties.maximum_packet_size == 2048
        # Its first bytes tell the length; as one frame, a WebSocket would be closed for the frame.
        peer.send_bytes(encode(Publish("a", b"x" * 2048), 5)[:100])
        assert "at most 2048" in peer.expect_disconnect(0x95)


def test_user_properties_beyond_the_maximum_are_refused(limited: BrokerProcess) -> None:
    too_many = [("k", "v")] * 3
    with join(limited.port) as peer:
        peer.publish("a", b"", 1, user_properties=too_many)
        assert peer.expect(Ack).reason_code == 0x97
        peer.publish("a", b"", 0, user_properties=too_many)
        assert "user properties" in peer.expect_disconnect(0x97)


def test_queue_of_an_absent_client_is_capped_and_counted(limited: BrokerProcess) -> None:
    before = dropped(limited, "queue_full")
    expiry = props(session_expiry_interval=60)
    with join(limited.port, "absent", properties=expiry) as peer:
        peer.subscribe("q", qos=1)
    with join(limited.port) as publisher:
        for number in range(9):
            publisher.publish("q", b"%d" % number, 1)
            publisher.expect(Ack)
    wait_dropped(limited, "queue_full", before + 4)
    with Peer(limited.port) as peer:
        assert peer.connect("absent", clean=False).session_present
        assert [peer.expect(Publish).payload for _ in range(3)] == [b"0", b"1", b"2"]
        # The broker's own bound of what is in flight holds the rest back.
        peer.expect_silence()
        peer.send(Ack(4, 1), Ack(4, 2), Ack(4, 3))
        assert [peer.expect(Publish).payload for _ in range(2)] == [b"3", b"4"]


def test_retained_messages_beyond_the_maximum_are_not_kept(share_over: ShareOver) -> None:
    # The figures under $SYS are retained messages as well, so here there are none.
    broker = share_over('sys_interval = "0s"\n[limits]\nretained_messages_max = 2\n')
    with join(broker.port) as peer:
        for topic in ("r/1", "r/2", "r/3", "r/1"):
            peer.publish(topic, topic.encode(), 1, True)
            answer = peer.expect(Ack)
            is_told = answer.reason_string.startswith("quota: delivered, but not retained")
            assert is_told == (topic == "r/3")
        peer.subscribe(SubscribeEntry("r/+"))
        assert {peer.expect(Publish).topic, peer.expect(Publish).topic} == {"r/1", "r/2"}
        peer.expect_silence()
    broker.wait_logged("message on 'r/3' is not retained")


def test_topic_aliases_are_bounded_both_ways(limited: BrokerProcess) -> None:
    with Peer(limited.port) as peer, join(limited.port) as publisher:
        assert peer.connect(properties=props(topic_alias_maximum=100)).properties.topic_alias_maximum == 2
        peer.subscribe("alias/+")
        for topic in ("alias/1", "alias/2", "alias/3"):
            publisher.publish(topic, b"")
        assert [peer.expect(Publish).topic_alias for _ in range(3)] == [1, 2, 0]
        publisher.publish("alias/1", b"", topic_alias=3)
        publisher.expect_disconnect(0x94)


def test_every_refusal_is_logged(limited: BrokerProcess) -> None:
    with join(limited.port, "noisy") as peer:
        peer.subscribe("a/#/b")
        peer.send_bytes(b"\x00\x00")
        peer.expect_disconnect(0x81)

    limited.wait_logged("was refused: subscription: topic filter 'a/#/b'")
    limited.wait_logged("closing 'noisy'")
